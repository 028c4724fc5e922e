//! What the runtime can ask for, one file for each command.

pub(crate) mod add;
pub(crate) mod check;
pub(crate) mod del;
pub(crate) mod gc;
pub(crate) mod status;

use std::net::IpAddr;

use calipam_assign::{Error, Release};
use calipam_model::key::Key;

use crate::call::CallAllocator;
use crate::failure;
use crate::protocol::CniError;

/// Takes back addresses that a handle has; those that it has not any more are passed over.
pub(crate) async fn release(
    allocator: &CallAllocator,
    handle: &str,
    addresses: impl IntoIterator<Item = IpAddr>,
) -> Result<(), CniError> {
    let mut result = Ok(());
    for address in addresses {
        let request = Release { address, handle: Some(handle.to_owned()), sequence: None };
        match allocator.release_ips(&[request]).await {
            Ok(_) => {}
            // It belongs to another handle by now.
            Err(partly) if matches!(partly.error, Error::Changed(_)) => {}
            Err(partly) if is_undecodable_block(&partly.error) => {
                tracing::warn!("{address} is not released: {}", partly.error);
            }
            Err(partly) => {
                tracing::error!("cannot release {address}: {}", partly.error);
                result = result.and(Err(failure::from_allocator(&partly.error)));
            }
        }
    }
    result
}

/// Takes back all that a handle has, whether its object is there or not: without it, in the blocks of `node`, and the
/// addresses of `others`, which may lie in blocks of other nodes. Blocks that cannot be decoded are passed over. True if the
/// object was there.
pub(crate) async fn release_handle(
    allocator: &CallAllocator,
    handle: &str,
    node: &str,
    others: &[IpAddr],
) -> Result<bool, CniError> {
    match allocator.release_by_handle_wholly(handle).await {
        Ok(()) => {
            tracing::info!(handle, "released");
            Ok(true)
        }
        Err(error) if is_lost_handle(&error) => {
            let found = allocator.search_handle(handle, Some(node)).await;
            let mut found = found.map_err(|error| failure::from_allocator(&error))?;
            found.extend(others);
            found.sort();
            found.dedup();
            tracing::info!(handle, "{error}; looked for its addresses: {found:?}");
            release(allocator, handle, found).await.map(|()| false)
        }
        Err(error) => {
            tracing::error!(handle, "cannot release: {error}");
            Err(failure::from_allocator(&error))
        }
    }
}

/// A handle that is not there, or of which no more is known.
pub(crate) fn is_lost_handle(error: &Error) -> bool {
    matches!(error, Error::NoHandle(_) | Error::Undecodable { key: Key::Handle(_), .. })
}

/// Nothing can be changed in it before it is repaired.
fn is_undecodable_block(error: &Error) -> bool {
    matches!(error, Error::Undecodable { key: Key::Block(_), .. })
}
