//! The async runtime of code that is not async.

use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread;

use tokio::runtime::{Builder, Runtime};

/// The runtime of all clients, proxies and fake servers in a process.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let built = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.expect("an async runtime can be started")
});

/// Runs async work from a separate thread, since a runtime cannot be entered from inside another one.
pub(crate) fn block_on<T: Send>(work: impl AsyncFnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let task = scope.spawn(|| RUNTIME.block_on(work()));
        task.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
