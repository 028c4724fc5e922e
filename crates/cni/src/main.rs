//! The plugin as a program of its own.

fn main() -> std::process::ExitCode {
    calipam_cni::main()
}
