//! The program. Its code is in the library, which the tests and the man page generator also use.

/// Replaces musl's allocator, which has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    calipam::main()
}
