//! The use of addresses by namespace: who fills a pool.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use super::addresses::{HeldAddress, addresses};
use crate::{Code, Report, Scope, Subject};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceList {
    /// The namespaces with addresses, the largest number of addresses first.
    pub namespaces: Vec<NamespaceView>,
}

/// The recorded addresses of a namespace's pods, virtual machines and services.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceView {
    /// `None` for tunnels, and for records that name no namespace.
    pub namespace: Option<String>,
    pub addresses: usize,
    /// The number of these addresses that have leaked.
    pub leaked: usize,
}

/// Counts the allocated addresses in a scope by namespace. `report` is of a check of the snapshot.
pub fn namespaces(snapshot: &Snapshot, report: &Report, scope: &Scope) -> NamespaceList {
    let leaked = leaked_addresses(report);
    let mut by_namespace: BTreeMap<Option<String>, NamespaceView> = BTreeMap::new();
    for held in addresses(snapshot, scope, &[]).addresses {
        let namespace = namespace_of(&held);
        let view = by_namespace
            .entry(namespace.clone())
            .or_insert_with(|| NamespaceView {
                namespace,
                addresses: 0,
                leaked: 0,
            });
        view.addresses += 1;
        if leaked.contains(&held.address) {
            view.leaked += 1;
        }
    }

    let mut namespaces: Vec<NamespaceView> = by_namespace.into_values().collect();
    namespaces.sort_by_key(|view| Reverse(view.addresses));
    NamespaceList { namespaces }
}

/// Returns the addresses that the report's findings call leaked.
fn leaked_addresses(report: &Report) -> HashSet<IpAddr> {
    let mut leaked = HashSet::new();
    for finding in &report.findings {
        if let (Code::LeakedAddress, Subject::Address(address)) = (finding.code, &finding.subject) {
            leaked.insert(*address);
        }
    }
    leaked
}

/// Returns the namespace of the holder; `None` for a holder without one, such as a tunnel.
fn namespace_of(held: &HeldAddress) -> Option<String> {
    if matches!(held.kind, "tunnel" | "other") {
        return None;
    }
    let (namespace, _) = held.allocated_to.split_once('/')?;
    if namespace.is_empty() {
        return None;
    }
    Some(namespace.to_owned())
}
