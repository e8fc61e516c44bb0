//! Weaves the planted defects into a copy of the core's source, which `lib.rs` includes. `cfg(mc_broken)` in this build only.

#[allow(dead_code, reason = "what the gate alone asks")]
#[path = "../planted/weave.rs"]
mod weave;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    weave::weave("mc_broken");
}
