//! The program. Everything is in the library, where tests and the generator of man pages reach it.

fn main() -> std::process::ExitCode {
    calipam::main()
}
