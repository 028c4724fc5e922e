//! The allocator on an in-memory datastore.

mod basics;
mod calico;
mod cluster;
mod large;
mod plugin;
mod recent_lists;

use std::task::{Context, Poll, Waker};

/// Runs an operation to completion, with no other operation in between.
fn run<T>(operation: impl Future<Output = T>) -> T {
    let mut operation = std::pin::pin!(operation);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = operation.as_mut().poll(&mut context) {
            return result;
        }
    }
}
