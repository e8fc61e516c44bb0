//! Makes the planted defects armable: `cfg(mc_broken)` in this build only.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=mc_broken");
}
