//! STATUS: checks that an ADD could succeed now.

use calipam_assign::plugin::OPERATION;
use calipam_assign::{Family, Query, Record, Store};
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::Selector;

use crate::call::{Call, CallAllocator, within};
use crate::config::{Configuration, pool_cidr};
use crate::identity::node_name;
use crate::protocol::{CniError, Code};

/// Checks that the datastore answers, has the node, and has a pool for the node in each wanted family. Returns
/// the allocator.
pub(crate) async fn status(call: &Call) -> Result<&CallAllocator, CniError> {
    let checked = async {
        let allocator = call.connect().await?;
        within(OPERATION, check(&call.configuration, allocator)).await??;
        Ok(allocator)
    };
    // On this node no ADD can succeed.
    checked.await.map_err(|error| CniError {
        code: Code::NotAvailable,
        ..error
    })
}

async fn check(configuration: &Configuration, allocator: &CallAllocator) -> Result<(), CniError> {
    let node = node_name(&configuration.node);
    let queries = [
        Query::Get(calipam_model::key::Key::Node(node.clone())),
        Query::Pools,
    ];
    let answers = allocator.store().read(&queries).await;
    let answers = answers.map_err(|error| CniError::internal(error.to_string()))?;
    let mut pools = Vec::new();
    let mut found = None;
    for entry in answers.into_iter().flatten() {
        match entry.record {
            Record::Node(node) => found = Some(node),
            Record::Pool(pool) => pools.push(pool),
            _ => {}
        }
    }
    let found = found.ok_or_else(|| CniError::internal(format!("the datastore has no node {node}")))?;
    let ipam = &configuration.ipam;
    let wanted = [
        (Family::V4, ipam.ipv4, &ipam.ipv4_pools),
        (Family::V6, ipam.ipv6, &ipam.ipv6_pools),
    ];
    for (family, _, named) in wanted.into_iter().filter(|(_, wanted, _)| *wanted) {
        let of_family = pools.iter().filter(|pool| Family::of(pool.cidr) == family);
        if !of_family.into_iter().any(|pool| serves(pool, named, &found)) {
            let text = format!("no enabled {family} pool serves the workloads of node {node}");
            return Err(CniError::internal(text));
        }
    }
    Ok(())
}

/// True for an enabled pool for workloads that is in `named` or, if that is empty, is automatic and selects the node.
fn serves(pool: &Pool, named: &[String], node: &Node) -> bool {
    if !pool.is_enabled() || !pool.allows(PoolUse::Workload) {
        return false;
    }
    if !named.is_empty() {
        return named
            .iter()
            .any(|entry| *entry == pool.name || pool_cidr(entry) == Some(pool.cidr));
    }
    let selects =
        || Selector::parse(&pool.node_selector).is_ok_and(|selector| selector.matches(&node.labels));
    pool.automatic && selects()
}
