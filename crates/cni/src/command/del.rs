//! DEL: releases the addresses of the container (facts of the plugin, section 13).

use calipam_assign::plugin::Del;

use crate::call::Call;
use crate::failure;
use crate::host::CallHost;
use crate::machine::Owner;
use crate::ownership;
use crate::protocol::CniError;

/// Releases the addresses of the container. It is not an error if they were already released.
pub(crate) async fn del(call: &Call) -> Result<(), CniError> {
    let allocator = call.connect().await?;
    let owner = ownership::find_owner(call, allocator).await?.owner;
    if owner == Owner::PodIsGone {
        // The pod's machine is no longer known, but an ordinary handle can be released.
        tracing::info!("the pod is gone from the API server");
    }
    let del = Del {
        container: call.container(owner),
        old_handle: call.identity.old_handle(),
        previous: call.configuration.previous.clone(),
    };
    CallHost { call, allocator }
        .plugin()
        .del(&del)
        .await
        .map_err(failure::from_plugin)
}
