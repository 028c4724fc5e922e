//! Async runtimes for code that is not async.

use std::thread;

use tokio::runtime::{Builder, Runtime};

use crate::servers::ServerError;

/// A runtime for one thread.
pub(crate) fn runtime() -> Result<Runtime, ServerError> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(ServerError::io("cannot start an async runtime"))
}

/// Runs async work in a separate thread, since a runtime cannot be entered from inside another one.
pub(crate) fn on_own_runtime<T: Send>(
    work: impl AsyncFnOnce() -> Result<T, ServerError> + Send,
) -> Result<T, ServerError> {
    thread::scope(|scope| {
        let task = scope.spawn(|| runtime()?.block_on(work()));
        task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
