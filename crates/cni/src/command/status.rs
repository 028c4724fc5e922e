//! STATUS: checks that an ADD could succeed now.

use calipam_assign::Family;
use calipam_assign::plugin::OPERATION;

use crate::call::{Call, CallAllocator, within};
use crate::config::Configuration;
use crate::failure;
use crate::identity::node_name;
use crate::pools;
use crate::protocol::{CniError, Code};

/// Checks that the datastore answers, has the node, and has a pool for the node in each wanted family. Returns
/// the allocator.
pub(crate) async fn status(call: &Call) -> Result<&CallAllocator, CniError> {
    let checked = async {
        let allocator = call.connect().await?;
        within(OPERATION, check_node_and_pools(&call.configuration, allocator)).await??;
        Ok(allocator)
    };
    // For the runtime, each of these errors means the same: on this node no ADD can succeed.
    checked.await.map_err(|error| CniError {
        code: Code::NotAvailable,
        ..error
    })
}

/// Checks that the node exists, and that each wanted family has a pool for its workloads. The runtime names no pod, so a
/// pool that serves only some namespaces is enough.
async fn check_node_and_pools(
    configuration: &Configuration,
    allocator: &CallAllocator,
) -> Result<(), CniError> {
    let ipam = &configuration.ipam;
    let node = node_name(&configuration.node);
    let of_node = allocator.pools_for_node(&node).await;
    let of_node = of_node.map_err(|error| failure::from_allocator(&error))?;
    let (pools_v4, pools_v6) = pools::resolve_in(ipam, of_node.pools())?;

    for (family, is_wanted, requested) in [
        (Family::V4, ipam.ipv4, pools_v4),
        (Family::V6, ipam.ipv6, pools_v6),
    ] {
        if is_wanted && let Err(error) = of_node.check(family, &requested) {
            let text = format!("node {node} gets no {family} addresses: {error}");
            return Err(CniError::internal(text));
        }
    }
    Ok(())
}
