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

/// Checks that the node exists, and that each requested family has a pool for its workloads.
async fn check(configuration: &Configuration, allocator: &CallAllocator) -> Result<(), CniError> {
    let name = node_name(&configuration.node);
    let queries = [
        Query::Get(calipam_model::key::Key::Node(name.clone())),
        Query::Pools,
    ];
    let read = allocator.store().read(&queries).await;
    let answers = read.map_err(|error| CniError::internal(error.to_string()))?;
    let mut pools = Vec::new();
    let mut node = None;
    for entry in answers.into_iter().flatten() {
        match entry.record {
            Record::Node(record) => node = Some(record),
            Record::Pool(pool) => pools.push(pool),
            _ => {}
        }
    }
    let Some(node) = node else {
        return Err(CniError::internal(format!("the datastore has no node {name}")));
    };

    let ipam = &configuration.ipam;
    for (family, is_wanted, named) in [
        (Family::V4, ipam.ipv4, &ipam.ipv4_pools),
        (Family::V6, ipam.ipv6, &ipam.ipv6_pools),
    ] {
        let mut of_family = pools.iter().filter(|pool| Family::of(pool.cidr) == family);
        if is_wanted && !of_family.any(|pool| serves(pool, named, &node)) {
            let text = format!("no enabled {family} pool serves the workloads of node {name}");
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
    if !pool.automatic {
        return false;
    }
    match Selector::parse(&pool.node_selector) {
        Ok(selector) => selector.matches(&node.labels),
        Err(_) => false,
    }
}
