//! GC: frees what the node's containers have that are no more (facts of the plugin, section 19).

use std::collections::BTreeSet;

use calipam_assign::{Family, Query, Record, Store};
use calipam_model::block::Block;
use calipam_model::handle::clean_id;

use super::release_handle;
use crate::call::{Call, CallAllocator, OPERATION, within};
use crate::failure;
use crate::protocol::{CniError, Code};

/// Releases the handles `<network>.<container>` of this node whose container is not in `cni.dev/valid-attachments`. All others
/// are left alone: those of machines, of other nodes and networks, and all whose container ID has a dot, since
/// then it is not certain where the network's name ends.
///
/// # Errors
/// Where the list is missing, and where the datastore fails; what can be freed is freed nevertheless.
pub(crate) async fn gc(call: &Call) -> Result<(), CniError> {
    let Some(valid) = &call.configuration.valid_containers else {
        let text = "cni.dev/valid-attachments is missing: it is not known which containers are alive";
        return Err(CniError::new(Code::InvalidConfiguration, text));
    };
    let valid: BTreeSet<&str> = valid.iter().map(String::as_str).collect();
    let allocator = call.connect().await?;
    let _lock = call.lock();
    within(OPERATION, async {
        let mut result = Ok(());
        for handle in stale(call, &allocator, &valid).await? {
            let released = release_handle(&allocator, &handle, &call.identity.node, &[]).await;
            result = result.and(released.map(drop));
        }
        result
    })
    .await?
}

/// The handles of this network and node whose containers are not valid.
async fn stale(
    call: &Call,
    allocator: &CallAllocator,
    valid: &BTreeSet<&str>,
) -> Result<BTreeSet<String>, CniError> {
    let answers = allocator.store().read(&Family::BOTH.map(Query::Blocks)).await;
    let answers = answers.map_err(|error| failure::from_allocator(&error.into()))?;
    let (prefix, node) = (format!("{}.", call.configuration.name), &call.identity.node);
    let mut found = BTreeSet::new();
    for entry in answers.into_iter().flatten() {
        if let Record::Block(block) = entry.record {
            found.extend(stale_in(&block, &prefix, node, valid));
        }
    }
    Ok(found)
}

fn stale_in(block: &Block, prefix: &str, node: &str, valid: &BTreeSet<&str>) -> Vec<String> {
    let attributes =
        block.attributes().filter(|record| record.get("node").is_some_and(|found| found == *node));
    let handles = attributes.filter_map(|record| Some(clean_id(&record.handle()?.to_string()).to_owned()));
    handles
        .filter(|handle| {
            let container = handle.strip_prefix(prefix).filter(|container| !container.contains('.'));
            container.is_some_and(|container| !container.is_empty() && !valid.contains(container))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use calipam_model::attributes::Attribute;

    use super::*;

    #[test]
    fn only_containers_of_this_node_and_network_are_stale() {
        let mut block =
            Block::new("10.0.0.0/28".parse().unwrap(), None, jiff::Timestamp::UNIX_EPOCH).unwrap();
        let held = [
            ("net.gone", "a"),
            ("net.alive", "a"),
            ("net.elsewhere", "b"),
            ("net.vmi.ns.vm", "a"),
            ("net.other.gone", "a"),
            ("other.gone", "a"),
            ("net.", "a"),
            ("ipip-tunnel-addr-a", "a"),
            ("net.migrated\r\neth0", "a"),
        ];
        for (ordinal, (handle, node)) in held.into_iter().enumerate() {
            let record = Attribute::new(Some(handle), [("node", node)]);
            block.update(|update| update.assign(ordinal as u32, &record)).unwrap();
        }
        let found = stale_in(&block, "net.", "a", &BTreeSet::from(["alive"]));
        assert_eq!(found, ["net.gone", "net.migrated"]);
    }
}
