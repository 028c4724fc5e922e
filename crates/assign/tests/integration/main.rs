//! The allocator on an in-memory datastore.

mod basics;
mod calico;
mod large;
mod plugin;

use std::task::{Context, Poll, Waker};

use calipam_assign::AutoAssign;
use calipam_model::pool::PoolUse;

/// A pod's request for an IPv4 address.
fn request(host: &str, handle: &str) -> AutoAssign {
    AutoAssign {
        host: host.into(),
        v4: 1,
        handle: Some(handle.into()),
        intended_use: Some(PoolUse::Workload),
        ..AutoAssign::default()
    }
}

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
