//! The plugin is started for each pod anew, and ends within milliseconds. As a program of a fixed address it starts without
//! relocations, of which it has 28,000: they cost about as much processor time as the encryption of all its requests.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| std::env::var(variable).as_deref() == Ok(value);
    // With other C libraries the program is linked statically, in another way.
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
