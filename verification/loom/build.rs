//! Puts loom behind the core's facade: `cfg(mc_loom)` in this build only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=mc_loom");
}
