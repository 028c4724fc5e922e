//! GC: releases the addresses of the node's containers that no longer exist (facts of the plugin, section 19).

use calipam_assign::plugin::Gc;

use crate::call::Call;
use crate::failure;
use crate::host::CallHost;
use crate::protocol::{CniError, Code};

/// Releases the addresses of containers on this node and network that `cni.dev/valid-attachments` does not list.
///
/// # Errors
/// If the list is missing or malformed, or the datastore fails. If a handle cannot be released, the others are still
/// released.
pub(crate) async fn gc(call: &Call) -> Result<(), CniError> {
    // Without the list, all containers would count as gone, and the addresses of running ones would be released.
    let container_ids = match &call.configuration.valid_containers {
        Ok(Some(ids)) => ids.iter().cloned().collect(),
        Ok(None) => {
            let message = "cni.dev/valid-attachments is missing, so the live containers are unknown";
            return Err(CniError::new(Code::InvalidConfiguration, message));
        }
        // The message from Calico's plugin for a configuration that it cannot read.
        Err(error) => return Err(CniError::internal(format!("failed to load netconf: {error}"))),
    };
    let request = Gc {
        node: call.identity.node.clone(),
        network: call.configuration.name.clone(),
        valid: container_ids,
    };

    let allocator = call.connect().await?;
    let host = CallHost { call, allocator };
    let collected = host.plugin().gc(&request).await;
    collected.map_err(failure::from_plugin)
}
