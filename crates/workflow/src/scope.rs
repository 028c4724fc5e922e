//! Names of nodes, pools and namespaces in a request.

mod known;
mod unknown;

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::Scope;
use calipam_model::IpNet;
use calipam_model::cidr::parse_pool;
use calipam_model::hint::{Call, Hint};
use calipam_model::selector::Selector;
use calipam_model::snapshot::{Snapshot, Source, Versioned};
use wildmatch::WildMatch;

pub use self::known::nearest_pod;
use self::known::require_known_namespace;
pub(crate) use self::known::{is_known_block, is_known_network, known_namespaces, known_nodes};
pub use self::unknown::{UnknownPool, nearest};
pub(crate) use self::unknown::{
    did_you_mean, nothing_in_common, only_handle, unknown_block, unknown_network, unknown_node, unknown_pool,
};
use crate::failure::{Failure, Result};

/// The part of a cluster that a command line names; the whole cluster if nothing is named.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Node names, or patterns for them.
    pub nodes: Vec<String>,
    /// Pool names or CIDRs.
    pub pools: Vec<String>,
    pub namespace: Option<String>,
    /// Selects nodes by label.
    pub selector: Option<Selector>,
}

impl Names {
    /// Returns the scope of the names in one or two states of a cluster. Each name has to exist in one of them.
    ///
    /// # Errors
    /// If a name is not found, or nodes and pools have nothing in common: a scope without common addresses never has
    /// findings, and would look like a clean cluster.
    pub fn scope(&self, states: &[&Snapshot]) -> Result<Scope> {
        let Found { found, mut not_found } = self.found(states)?;
        if not_found.is_empty() {
            Ok(found)
        } else {
            Err(not_found.swap_remove(0))
        }
    }

    /// Returns the nodes of each name, and an error for each name that is not found.
    fn found_nodes(&self, states: &[&Snapshot]) -> Result<Found<Vec<Vec<String>>>> {
        // A node that exists is found without a search of all records.
        let known = LazyCell::new(|| known_nodes(states));
        Found::collect(self.nodes.iter().map(|name| {
            if has_node(states, name) {
                Ok(vec![name.clone()])
            } else {
                find_nodes(name, &known)
            }
        }))
    }

    /// Returns the scope of the names that are found, and an error for each name that is not.
    ///
    /// # Errors
    /// The same as for [`Self::scope`], except that unknown nodes or pools are an error only if none of the named ones
    /// is found.
    pub fn found(&self, states: &[&Snapshot]) -> Result<Found<Scope>> {
        let named_nodes = self.found_nodes(states)?;
        let mut not_found = named_nodes.not_found;
        let mut nodes: BTreeSet<String> = named_nodes.found.into_iter().flatten().collect();
        if let Some(selector) = &self.selector {
            nodes = select_nodes(selector, states, nodes)?;
        }

        let named_pools = Found::collect(self.pools.iter().map(|name| pool(states, name)))?;
        not_found.extend(named_pools.not_found);
        // Both states may have the same pool.
        let networks: BTreeSet<IpNet> = named_pools.found.into_iter().flatten().collect();

        let scope = Scope {
            nodes,
            networks: networks.into_iter().collect(),
            namespace: self.namespace.clone(),
        };
        require_common_address(states, &scope)?;
        if let Some(name) = &self.namespace {
            require_known_namespace(states, name)?;
        }
        Ok(Found {
            found: scope,
            not_found,
        })
    }
}

/// The result of looking up names.
#[derive(Debug)]
pub struct Found<T> {
    pub found: T,
    /// An error for each name that does not exist.
    pub not_found: Vec<Failure>,
}

impl<T> Found<Vec<T>> {
    /// Collects the results of looking up each name.
    ///
    /// # Errors
    /// If none of the names exists: an empty list would mean everything.
    fn collect(results: impl Iterator<Item = Result<T>>) -> Result<Self> {
        let mut found = Vec::new();
        let mut not_found = Vec::new();
        for result in results {
            match result {
                Ok(object) => found.push(object),
                Err(error) => not_found.push(error),
            }
        }
        if found.is_empty() && !not_found.is_empty() {
            return Err(not_found.swap_remove(0));
        }
        Ok(Self { found, not_found })
    }
}

fn has_node(states: &[&Snapshot], name: &str) -> bool {
    let mut nodes = states.iter().flat_map(|snapshot| &snapshot.nodes);
    nodes.any(|node| node.value.name == name)
}

/// Returns the nodes with this name, or whose names match this pattern (`*`: any characters, `?`: one).
fn find_nodes(name: &str, known: &BTreeSet<String>) -> Result<Vec<String>> {
    let mut nodes = Vec::new();
    if is_pattern(name) {
        nodes.extend(matching(name, known).into_iter().cloned());
    } else if known.contains(name) {
        nodes.push(name.to_owned());
    }
    if nodes.is_empty() {
        return Err(unknown_node(name, known));
    }
    Ok(nodes)
}

/// Returns the nodes with matching labels. Unless `named` is empty, only nodes in `named`.
fn select_nodes(
    selector: &Selector,
    states: &[&Snapshot],
    named: BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let mut selected: BTreeSet<String> = BTreeSet::new();
    for snapshot in states {
        for Versioned { value: node, .. } in &snapshot.nodes {
            let is_named = named.is_empty() || named.contains(&node.name);
            if is_named && selector.matches(&node.labels) {
                selected.insert(node.name.clone());
            }
        }
    }
    if selected.is_empty() {
        let list_labels = [
            Call::calicoctl(["get", "nodes", "-o", "yaml"]),
            Call::kubectl(["get", "nodes", "--show-labels"]),
        ];
        let hint = Hint::new("it selects by Calico's node labels: {} or {}", list_labels);
        return Err(Failure::refused("the selector matches no node").hint(hint));
    }
    Ok(selected)
}

/// True for a name with wildcards.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// The names that a pattern with `*` and `?` matches.
pub fn matching<'n>(pattern: &str, names: impl IntoIterator<Item = &'n String>) -> Vec<&'n String> {
    let pattern = WildMatch::new(pattern);
    names.into_iter().filter(|name| pattern.matches(name)).collect()
}

/// Returns the CIDRs of a pool by its name. Instead of a name, accepts a CIDR that overlaps a block or an address in
/// use, since a block may be in no pool. If pools were not read, accepts any CIDR.
pub(crate) fn pool(states: &[&Snapshot], name: &str) -> Result<Vec<IpNet>> {
    let mut cidrs: Vec<IpNet> = Vec::new();
    for pool in states.iter().flat_map(|snapshot| &snapshot.pools) {
        if pool.value.name == name {
            cidrs.push(pool.value.cidr);
        }
    }
    if !cidrs.is_empty() {
        return Ok(cidrs);
    }

    let Some(cidr) = parse_pool(name) else {
        return Err(unknown_pool(states, name));
    };
    let are_pools_read = states.iter().all(|snapshot| snapshot.has_read(Source::Pools));
    if are_pools_read && !is_known_network(states, cidr) {
        return Err(unknown_network(cidr));
    }
    Ok(vec![cidr])
}

/// If both nodes and pools are named, checks that one of the nodes has a block, an affinity or an address in one of the
/// pools.
fn require_common_address(states: &[&Snapshot], scope: &Scope) -> Result<()> {
    let Scope { nodes, networks, .. } = scope;
    if nodes.is_empty() || networks.is_empty() {
        return Ok(());
    }
    for snapshot in states {
        if has_affinity(snapshot, scope) || has_block(snapshot, scope) || has_use(snapshot, scope) {
            return Ok(());
        }
    }
    Err(nothing_in_common(nodes, networks))
}

/// True if a node of the scope has an affinity for a block in its networks.
fn has_affinity(snapshot: &Snapshot, scope: &Scope) -> bool {
    snapshot.affinities.iter().any(|affinity| {
        let key = &affinity.value.key;
        scope.nodes.contains(&key.node) && scope.has_network(key.cidr)
    })
}

/// True if a block in the networks of the scope belongs to one of its nodes, or records one of them.
fn has_block(snapshot: &Snapshot, scope: &Scope) -> bool {
    for stored in &snapshot.blocks {
        if !scope.has_network(stored.value.key) {
            continue;
        }
        // A block that cannot be decoded may belong to any node.
        let Some(block) = stored.value.content.sound() else {
            return true;
        };
        if block.host().is_some_and(|host| scope.nodes.contains(host)) {
            return true;
        }
        let mut nodes = block.attributes().flat_map(|record| record.get("node"));
        if nodes.any(|node| scope.nodes.contains(&node.to_string())) {
            return true;
        }
    }
    false
}

/// True if an endpoint, a pod or a tunnel on a node of the scope uses an address in its networks.
fn has_use(snapshot: &Snapshot, scope: &Scope) -> bool {
    for endpoint in &snapshot.endpoints {
        let node = endpoint.value.node().to_string();
        if is_use_in_scope(scope, &node, endpoint.value.addresses()) {
            return true;
        }
    }
    for pod in &snapshot.pods {
        let node = pod.value.node().to_string();
        if is_use_in_scope(scope, &node, pod.value.addresses()) {
            return true;
        }
    }
    for node in &snapshot.nodes {
        let tunnels = node.value.tunnels.iter().map(|(_, address)| *address);
        if is_use_in_scope(scope, &node.value.name, tunnels) {
            return true;
        }
    }
    false
}

/// True if the node is in the scope, and one of its addresses in the networks.
fn is_use_in_scope(scope: &Scope, node: &str, mut addresses: impl Iterator<Item = IpAddr>) -> bool {
    scope.nodes.contains(node) && addresses.any(|address| scope.has_network(address.into()))
}
