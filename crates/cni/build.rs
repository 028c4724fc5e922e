//! The plugin is started for each pod again, and ends within milliseconds. As a program of a fixed address, as Calico's own is,
//! it starts without its 28,000 relocations (debug builds: 0.8 ms of processor time to print the version instead of 1.9 ms, 160
//! page faults instead of 500).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| std::env::var(variable).as_deref() == Ok(value);
    // With other C libraries the program is linked statically, in another way.
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
