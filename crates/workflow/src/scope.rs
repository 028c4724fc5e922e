//! Names of nodes, pools and namespaces in a request.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use calipam_check::Scope;
use calipam_datastore::Datastore;
use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::Block;
use calipam_model::cidr::{overlap, to_canonical};
use calipam_model::config::ClusterInformation;
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::selector::Selector;
use calipam_model::snapshot::{Defect, Snapshot, Source};
use calipam_model::text::TextRef;
use calipam_model::words::joined;
use wildmatch::WildMatch;

use crate::failure::{Failure, Kind, Result};

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
        if not_found.is_empty() { Ok(found) } else { Err(not_found.swap_remove(0)) }
    }

    /// Returns the scope of the names that are found, and an error for each name that is not.
    ///
    /// # Errors
    /// The same as for [`Self::scope`], except that unknown nodes or pools are an error only if none of the named ones
    /// is found.
    pub fn found(&self, states: &[&Snapshot]) -> Result<Found<Scope>> {
        let known = LazyCell::new(|| known_nodes(states));
        // A node that exists is found without a search of all records.
        let exists =
            |name: &str| states.iter().any(|all| all.nodes.iter().any(|node| node.value.name == name));
        let named = |name: &String| {
            if exists(name) { Ok(vec![name.clone()]) } else { named_nodes(name, &known) }
        };
        let Found { found: nodes, mut not_found } = Found::of(self.nodes.iter().map(named))?;
        let mut nodes: BTreeSet<String> = nodes.into_iter().flatten().collect();
        if let Some(selector) = &self.selector {
            nodes = selected(selector, states, nodes)?;
        }
        let pools = Found::of(self.pools.iter().map(|name| pool(states, name)))?;
        not_found.extend(pools.not_found);
        // Both states may have the same pool.
        let networks: BTreeSet<IpNet> = pools.found.into_iter().flatten().collect();
        let networks = networks.into_iter().collect();
        let scope = Scope { nodes, networks, namespace: self.namespace.clone() };
        have_in_common(states, &scope)?;
        self.namespace.iter().try_for_each(|name| known_namespace(states, name))?;
        Ok(Found { found: scope, not_found })
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
    fn of(each: impl Iterator<Item = Result<T>>) -> Result<Self> {
        let mut found = Vec::new();
        let mut not_found = Vec::new();
        for one in each {
            match one {
                Ok(one) => found.push(one),
                Err(error) => not_found.push(error),
            }
        }
        match found.is_empty() && !not_found.is_empty() {
            true => Err(not_found.swap_remove(0)),
            false => Ok(Self { found, not_found }),
        }
    }
}

/// The GUID of the cluster in a datastore; empty if it has none.
pub async fn guid(datastore: &Datastore) -> Result<String> {
    Ok(cluster_information(datastore).await?.map(|information| information.guid).unwrap_or_default())
}

/// Reads the ClusterInformation; `None` if it is missing or cannot be decoded.
pub async fn cluster_information(datastore: &Datastore) -> Result<Option<ClusterInformation>> {
    let stored = datastore.stored(&[Key::ClusterInformation("default".into())]).await?.pop().flatten();
    Ok(stored.and_then(|stored| ClusterInformation::parse(&stored.raw).ok()))
}

/// Returns the known name that was probably meant: the first one that contains the text, otherwise the one with the
/// smallest edit distance, if that is small.
pub fn nearest<'k>(text: &str, known: impl Iterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let part = |name: &&str| text.len() > 3 && name.contains(text);
    known.clone().find(part).or_else(|| {
        let near = known.map(|name| (strsim::levenshtein(text, name), name)).min();
        near.filter(|(distance, _)| *distance <= 3 && *distance < text.len()).map(|(_, name)| name)
    })
}

/// Adds the most similar known name to a hint, as a suggestion for an unknown name.
pub(crate) fn did_you_mean(name: &str, known: &BTreeSet<String>, hint: impl Into<Hint>) -> Hint {
    let Hint { text, mut calls } = hint.into();
    let Some(near) = nearest(name, known.iter().map(String::as_str)) else { return Hint { text, calls } };
    calls.insert(0, Call::Name(near.to_owned()));
    Hint { text: format!("did you mean `{{}}`? {text}").into(), calls }
}

pub(crate) fn unknown_node(name: &str, known: &BTreeSet<String>) -> Failure {
    let list = Hint::new("{} lists nodes and what they hold", [Call::ShowNodes]);
    Failure::refused(format!("node {name:?} not found")).hint(did_you_mean(name, known, list))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool {0:?} not found")]
pub struct UnknownPool(pub String);

pub(crate) fn unknown_pool(states: &[&Snapshot], name: &str) -> Failure {
    let pools = states.iter().flat_map(|snapshot| &snapshot.pools);
    let known = pools.map(|pool| pool.value.name.clone()).collect();
    let list = Hint::new("{} lists the pools; a CIDR is accepted as well", [Call::Show]);
    let hint = did_you_mean(name, &known, list);
    Failure::of(Kind::Refused, UnknownPool(name.to_owned()), Some(hint))
}

pub(crate) fn unknown_network(cidr: IpNet) -> Failure {
    Failure::refused(format!("nothing is in {cidr}: no pool, no block, and no address in use"))
        .hint(Hint::new("{} lists the pools", [Call::Show]))
}

/// The error for a CIDR that contains no block.
pub(crate) fn unknown_block(cidr: IpNet) -> Failure {
    Failure::refused(format!("block {cidr} not found"))
        .hint(Hint::new("{} lists the blocks", [Call::ShowBlocks]))
}

/// The error for names that have no address in common.
pub(crate) fn nothing_in_common(some: impl IntoIterator<Item: ToString>, others: &[IpNet]) -> Failure {
    let [some, others] = [joined(some, ", "), joined(others, ", ")];
    Failure::refused(format!("{some} and {others} have nothing in common"))
        .hint(Hint::new("{} lists blocks with pool and node", [Call::ShowBlocks]))
}

/// The maximum number of handles that an error lists.
const CANDIDATES: usize = 10;

/// Returns the only handle with this prefix; `None` if there is none. Fails if there are several.
pub(crate) fn only_handle(begin: &str, ids: impl IntoIterator<Item = String>) -> Result<Option<String>> {
    let mut ids: Vec<String> = ids.into_iter().collect();
    if ids.len() < 2 {
        return Ok(ids.pop());
    }
    let more = if ids.len() > CANDIDATES { "\n  …" } else { "" };
    ids.truncate(CANDIDATES);
    let text = format!("use a longer prefix of one of these IDs:{}{more}", "\n  {}".repeat(ids.len()));
    let named: Vec<Call> = ids.into_iter().map(Call::Name).collect();
    Err(Failure::refused(format!("several handles begin with {begin:?}")).hint(Hint::new(text, named)))
}

/// All owner records in sound blocks.
fn attributes(snapshot: &Snapshot) -> impl Iterator<Item = AttributeRef<'_>> {
    let sound = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    sound.flat_map(Block::attributes)
}

/// Adds strings that are not empty. Neighboring records mostly have the same string, which is added only once.
fn add<'s>(known: &mut BTreeSet<String>, texts: impl Iterator<Item = TextRef<'s>>) {
    let mut last = TextRef::EMPTY;
    for text in texts {
        if text != last {
            known.insert(text.to_string());
            last = text;
        }
    }
}

/// The namespaces that every cluster has.
const OF_KUBERNETES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Accepts a namespace that a pod, an endpoint, a service or a record names; namespaces themselves are not read.
fn known_namespace(states: &[&Snapshot], name: &str) -> Result<()> {
    let mut known: BTreeSet<String> = OF_KUBERNETES.map(str::to_owned).into();
    for snapshot in states {
        let of_records = attributes(snapshot).flat_map(|record| [Some(record.owner()), record.alternate()]);
        let named = of_records.flatten().filter_map(|owner| owner.get("namespace"));
        add(&mut known, named);
        add(&mut known, snapshot.pods.iter().map(|pod| pod.value.namespace()));
        add(&mut known, snapshot.endpoints.iter().map(|endpoint| endpoint.value.namespace()));
        known.extend(snapshot.services.iter().map(|service| service.value.namespace.to_string()));
    }
    if known.contains(name) {
        return Ok(());
    }
    let message = format!("namespace {name:?} not found: no pod, endpoint, service or record names it");
    let hint = did_you_mean(name, &known, "namespaces without any addresses are unknown");
    Err(Failure::refused(message).hint(hint))
}

/// Returns the pod that was probably meant, as `namespace/name`; `None` if the named pod exists or no name is similar.
pub fn nearest_pod(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<String> {
    let of_record = |record: AttributeRef<'_>| {
        let owner = record.owner();
        Some(format!("{}/{}", owner.get("namespace")?, owner.get("pod")?))
    };
    let mut known: BTreeSet<String> = attributes(snapshot).filter_map(of_record).collect();
    let endpoints = snapshot.endpoints.iter().map(|endpoint| &endpoint.value);
    known.extend(endpoints.map(|endpoint| format!("{}/{}", endpoint.namespace(), endpoint.pod())));
    known.extend(snapshot.pods.iter().map(|pod| format!("{}/{}", pod.value.namespace(), pod.value.name())));
    let meant = format!("{namespace}/{name}");
    let near = nearest(&meant, known.iter().map(String::as_str));
    near.filter(|near| *near != meant).map(str::to_owned)
}

/// Returns the nodes with this name, or whose names match this pattern (`*`: any characters, `?`: one).
fn named_nodes(name: &str, known: &BTreeSet<String>) -> Result<Vec<String>> {
    let meant: Vec<&String> =
        if is_pattern(name) { matching(name, known) } else { known.get(name).into_iter().collect() };
    if meant.is_empty() { Err(unknown_node(name, known)) } else { Ok(meant.into_iter().cloned().collect()) }
}

/// The nodes with matching labels. Unless `named` is empty, only nodes in `named`.
fn selected(selector: &Selector, states: &[&Snapshot], named: BTreeSet<String>) -> Result<BTreeSet<String>> {
    let nodes = states.iter().flat_map(|snapshot| &snapshot.nodes).map(|node| &node.value);
    let matching = nodes.filter(|node| selector.matches(&node.labels)).map(|node| node.name.clone());
    let selected: BTreeSet<String> =
        matching.filter(|name| named.is_empty() || named.contains(name)).collect();
    if selected.is_empty() {
        return Err(Failure::refused("the selector matches no node").hint(
            "it selects by Calico's node labels: `calicoctl get nodes -o yaml` or `kubectl get nodes --show-labels`",
        ));
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

/// The nodes that exist, and those that an affinity, a block, an endpoint or a record still names.
pub(crate) fn known_nodes(states: &[&Snapshot]) -> BTreeSet<String> {
    let owner = |block: &Block| block.host().map(str::to_owned);
    let mut known = BTreeSet::new();
    for snapshot in states {
        known.extend(snapshot.nodes.iter().map(|node| node.value.name.clone()));
        known.extend(snapshot.affinities.iter().map(|affinity| affinity.value.key.node.clone()));
        known.extend(snapshot.blocks.iter().filter_map(|block| owner(block.value.content.sound()?)));
        add(&mut known, snapshot.endpoints.iter().map(|endpoint| endpoint.value.node()));
        add(&mut known, attributes(snapshot).filter_map(|record| record.get("node")));
    }
    known
}

/// Returns the CIDRs of a pool by its name. Instead of a name, accepts a CIDR that overlaps a block or an address in
/// use, since a block may be in no pool. If pools were not read, accepts any CIDR.
pub(crate) fn pool(states: &[&Snapshot], name: &str) -> Result<Vec<IpNet>> {
    let pools = states.iter().flat_map(|snapshot| &snapshot.pools).map(|pool| &pool.value);
    let named: Vec<IpNet> = pools.filter(|pool| pool.name == name).map(|pool| pool.cidr).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let cidr = name.parse().map(|cidr: IpNet| to_canonical(cidr.trunc()));
    let cidr = cidr.map_err(|_| unknown_pool(states, name))?;
    if states.iter().any(|snapshot| !snapshot.has_read(Source::Pools)) || is_known_network(states, cidr) {
        return Ok(vec![cidr]);
    }
    Err(unknown_network(cidr))
}

/// True if a pool, a block or an address in use shares an address with the network.
pub(crate) fn is_known_network(states: &[&Snapshot], cidr: IpNet) -> bool {
    let is_named = |snapshot: &&Snapshot| {
        let endpoints = snapshot.endpoints.iter().flat_map(|endpoint| endpoint.value.addresses());
        let pods = snapshot.pods.iter().flat_map(|pod| pod.value.addresses());
        let tunnels =
            snapshot.nodes.iter().flat_map(|node| node.value.tunnels.iter().map(|(_, address)| *address));
        snapshot.pools.iter().any(|pool| overlap(pool.value.cidr, cidr))
            || endpoints.chain(pods).chain(tunnels).any(|address| cidr.contains(&address))
    };
    is_known_block(states, cidr) || states.iter().any(is_named)
}

/// True if a block shares an address with the network. Blocks that cannot be decoded or are only referenced count as
/// well.
pub(crate) fn is_known_block(states: &[&Snapshot], cidr: IpNet) -> bool {
    let is_undecodable =
        |defect: &Defect| matches!(&defect.key, Some(Key::Block(key)) if overlap(*key, cidr));
    states.iter().any(|snapshot| {
        let mut of_handles = snapshot.handles.iter().flat_map(|handle| handle.value.blocks());
        snapshot.blocks.iter().any(|block| overlap(block.value.key, cidr))
            || snapshot.affinities.iter().any(|affinity| overlap(affinity.value.key.cidr, cidr))
            || of_handles.any(|(named, _)| overlap(named, cidr))
            || snapshot.defects.iter().any(is_undecodable)
    })
}

/// If both nodes and pools are named, checks that one of the nodes has a block, an affinity or an address in one of the
/// pools.
fn have_in_common(states: &[&Snapshot], scope: &Scope) -> Result<()> {
    let Scope { nodes, networks, .. } = scope;
    let has_any = |snapshot: &&Snapshot| has_any(snapshot, scope);
    if nodes.is_empty() || networks.is_empty() || states.iter().any(has_any) {
        return Ok(());
    }
    Err(nothing_in_common(nodes, networks))
}

fn has_any(snapshot: &Snapshot, scope: &Scope) -> bool {
    let is_named = |node: &str| scope.nodes.contains(node);
    let is_there = |cidr: IpNet| scope.has_network(cidr);

    let by_affinity = || {
        let keys = snapshot.affinities.iter().map(|affinity| &affinity.value.key);
        keys.into_iter().any(|key| is_named(&key.node) && is_there(key.cidr))
    };
    // A block that cannot be decoded may belong to any node.
    let by_block = || {
        let there = snapshot.blocks.iter().filter(|block| is_there(block.value.key));
        there.into_iter().any(|block| {
            block.value.content.sound().is_none_or(|block| {
                let mut records = block.attributes().flat_map(|record| record.get("node"));
                block.host().is_some_and(is_named) || records.any(|node| is_named(&node.to_string()))
            })
        })
    };
    let by_use = || {
        let endpoints =
            snapshot.endpoints.iter().filter(|endpoint| is_named(&endpoint.value.node().to_string()));
        let of_endpoints = endpoints.flat_map(|endpoint| endpoint.value.addresses());
        let pods = snapshot.pods.iter().filter(|pod| is_named(&pod.value.node().to_string()));
        let of_pods = pods.flat_map(|pod| pod.value.addresses());
        let tunnels = snapshot.nodes.iter().filter(|node| is_named(&node.value.name));
        let of_tunnels = tunnels.flat_map(|node| node.value.tunnels.iter().map(|(_, address)| *address));
        of_endpoints.chain(of_pods).chain(of_tunnels).any(|address| is_there(address.into()))
    };
    by_affinity() || by_block() || by_use()
}
