//! Puts shuttle behind the core's facade: `cfg(mc_shuttle)` in this build only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=mc_shuttle");
}
