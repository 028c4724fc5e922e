//! The program. Everything is in the library, where tests and the generator of man pages reach it.

/// That of musl, by which the program is static, has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    calipam::main()
}
