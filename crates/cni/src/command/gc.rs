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
    let valid = call.configuration.valid_containers.as_ref();
    let valid = valid.map_err(|error| CniError::internal(format!("failed to load netconf: {error}")))?;
    let Some(valid) = valid else {
        let text = "cni.dev/valid-attachments is missing, so the live containers are unknown";
        return Err(CniError::new(Code::InvalidConfiguration, text));
    };
    let gc = Gc {
        node: call.identity.node.clone(),
        network: call.configuration.name.clone(),
        valid: valid.iter().cloned().collect(),
    };
    let allocator = call.connect().await?;
    CallHost { call, allocator }
        .plugin()
        .gc(&gc)
        .await
        .map_err(failure::from_plugin)
}
