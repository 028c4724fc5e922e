//! ADD: assigns addresses to the container (facts of the plugin, section 7).

use std::collections::BTreeMap;

use calipam_assign::plugin::{Add, Added, Wanted};
use jiff::Timestamp;

use crate::call::Call;
use crate::failure;
use crate::host::CallHost;
use crate::machine::Owner;
use crate::ownership;
use crate::protocol::{Arguments, CniError};

/// Assigns addresses to the container.
///
/// # Errors
/// If the arguments are invalid, the call is refused, too few addresses are free, the name of the pod's machine is too
/// long, or the datastore fails.
pub(crate) async fn add(call: &Call) -> Result<Added, CniError> {
    let allocator = call.connect().await?;
    let found = ownership::find_owner(call, allocator).await?;
    if let Some(refusal) = found.refusal {
        return Err(refusal);
    }
    // Only after the look-up of the machine, so that the first error is that of Calico's plugin.
    Arguments::check_for_add(&call.environment.args)?;

    let mut attributes: BTreeMap<String, String> =
        call.identity.attributes(Timestamp::now()).into_iter().collect();
    if let Owner::Machine(machine) = &found.owner {
        machine.check_handle(&call.configuration.name)?;
        machine.describe(&mut attributes);
    }
    let ipam = &call.configuration.ipam;
    let wanted = match call.arguments.ip {
        Some(address) => Wanted::Address(address),
        None => Wanted::Any {
            v4: ipam.ipv4,
            v6: ipam.ipv6,
            max_blocks_per_host: call.configuration.single_block.into(),
        },
    };
    let add = Add {
        container: call.container(found.owner),
        attributes,
        wanted,
    };
    let host = CallHost { call, allocator };
    host.plugin().add(&add).await.map_err(failure::from_plugin)
}
