//! Names of nodes, pools and namespaces in a request.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::Scope;
use calipam_datastore::Datastore;
use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::cidr::overlap;
use calipam_model::config::ClusterInformation;
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::selector::Selector;
use calipam_model::snapshot::{Defect, Snapshot, Source};
use calipam_model::text::TextRef;
use wildmatch::WildMatch;

use crate::failure::{Failure, Kind};
use crate::operator::Pending;

/// The part of a cluster that a call names; the whole cluster if nothing is named.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Names, or patterns of names.
    pub nodes: Vec<String>,
    /// Names or CIDRs.
    pub pools: Vec<String>,
    pub namespace: Option<String>,
    /// Selects nodes by label.
    pub selector: Option<Selector>,
}

impl Names {
    /// Returns the scope of the names.
    ///
    /// # Errors
    /// If a name is not found, or nodes and pools have nothing in common: such a scope never has findings, and would
    /// look like a clean cluster.
    pub fn scope(&self, snapshot: &Snapshot) -> Result<Scope, Failure> {
        self.found(snapshot)?.all()
    }

    /// Returns the scope of the names that are found, and an error for each name that is not.
    ///
    /// # Errors
    /// As for [`Self::scope`], but for unknown names only if none of the nodes or none of the pools is found.
    pub fn found(&self, snapshot: &Snapshot) -> Result<Found<Scope>, Failure> {
        let Found { found: nodes, mut not_found } =
            found_nodes(snapshot, &self.nodes, self.selector.as_ref())?;
        let pools = found_pools(snapshot, &self.pools)?;
        not_found.extend(pools.not_found);
        let scope = Scope { nodes, networks: pools.found, namespace: self.namespace.clone() };
        have_in_common(snapshot, &scope)?;
        self.namespace.iter().try_for_each(|name| known_namespace(snapshot, name))?;
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

impl<T> Found<T> {
    /// Returns what was found for all names.
    ///
    /// # Errors
    /// If a name does not exist.
    fn all(mut self) -> Result<T, Failure> {
        if self.not_found.is_empty() { Ok(self.found) } else { Err(self.not_found.swap_remove(0)) }
    }
}

impl<T> Found<Vec<T>> {
    /// Collects what was found for each name.
    ///
    /// # Errors
    /// If none of the names exists: an empty list would mean everything.
    fn of(each: impl Iterator<Item = Result<T, Failure>>) -> Result<Self, Failure> {
        let (mut found, mut not_found) = (Vec::new(), Vec::new());
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
pub fn guid<'a>(datastore: &'a Datastore) -> Pending<'a, Result<String, Failure>> {
    Box::pin(async move {
        let stored = datastore.stored(&[Key::ClusterInformation("default".into())]).await?.pop().flatten();
        let information = stored.and_then(|stored| ClusterInformation::parse(&stored.raw).ok());
        Ok(information.map(|information| information.guid).unwrap_or_default())
    })
}

/// Accepts a node that exists, or that an affinity, a block, an endpoint or a record still names.
///
/// # Errors
/// If the node is not found: a misspelt name would look like a clean cluster.
fn known_node(snapshot: &Snapshot, name: &str) -> Result<(), Failure> {
    let owns = |owner: Option<&BlockOwner>| owner.and_then(BlockOwner::host).is_some_and(|host| host == name);
    let is_known = snapshot.nodes.iter().any(|node| node.value.name == name)
        || snapshot.affinities.iter().any(|affinity| affinity.value.key.node == name)
        || snapshot.blocks.iter().any(|b| b.value.content.sound().is_some_and(|block| owns(block.owner())))
        || snapshot.endpoints.iter().any(|endpoint| endpoint.value.node() == *name)
        || attributes(snapshot).any(|record| record.get("node").is_some_and(|node| node == *name));
    if is_known { Ok(()) } else { Err(unknown_node(name, &known_nodes(snapshot))) }
}

/// Returns the known name that was probably meant: the first one that contains the text, otherwise the one with the
/// smallest edit distance.
pub fn nearest<'k>(text: &str, known: impl Iterator<Item = &'k str> + Clone) -> Option<&'k str> {
    let part = |name: &&str| text.len() > 3 && name.contains(text);
    known.clone().find(part).or_else(|| {
        let near = known.map(|name| (strsim::levenshtein(text, name), name)).min();
        near.filter(|(distance, _)| *distance <= 3 && *distance < text.len()).map(|(_, name)| name)
    })
}

/// Adds the most similar known name to a hint, as a suggestion for an unknown name.
fn did_you_mean(name: &str, known: &BTreeSet<String>, hint: impl Into<Hint>) -> Hint {
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
#[error("there is no pool {0:?}")]
pub struct UnknownPool(pub String);

pub(crate) fn unknown_pool(snapshot: &Snapshot, name: &str) -> Failure {
    let known = snapshot.pools.iter().map(|pool| pool.value.name.clone()).collect();
    let list = Hint::new("{} lists the pools; a CIDR is accepted as well", [Call::Show]);
    let hint = did_you_mean(name, &known, list);
    Failure::of(Kind::Refused, UnknownPool(name.to_owned()), Some(hint))
}

pub(crate) fn unknown_network(cidr: IpNet) -> Failure {
    Failure::refused(format!("nothing is in {cidr}: no pool, no block, and no address in use"))
        .hint(Hint::new("{} lists the pools", [Call::Show]))
}

/// An error for a CIDR without any block or address in use.
pub(crate) fn unknown_block(cidr: IpNet) -> Failure {
    Failure::refused(format!("there is no block {cidr}"))
        .hint(Hint::new("{} lists the blocks", [Call::ShowBlocks]))
}

/// An error for names that have no address in common.
pub(crate) fn nothing_in_common(some: &str, others: &[IpNet]) -> Failure {
    Failure::refused(format!("{some} and {} have nothing in common", texts(others)))
        .hint(Hint::new("{} lists blocks with pool and node", [Call::ShowBlocks]))
}

/// The most handles that an error names.
const CANDIDATES: usize = 10;

/// Returns the only handle with this prefix; `None` if there is none.
pub(crate) fn only_handle(
    begin: &str,
    ids: impl IntoIterator<Item = String>,
) -> Result<Option<String>, Failure> {
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

/// All records in sound blocks.
fn attributes(snapshot: &Snapshot) -> impl Iterator<Item = AttributeRef<'_>> {
    let sound = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    sound.flat_map(Block::attributes)
}

/// The namespaces that every cluster has.
const OF_KUBERNETES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Accepts a namespace that a pod, an endpoint, a service or a record names; namespaces themselves are not read.
fn known_namespace(snapshot: &Snapshot, name: &str) -> Result<(), Failure> {
    let of_records = attributes(snapshot).flat_map(|record| [Some(record.owner()), record.alternate()]);
    let named = of_records.flatten().filter_map(|owner| owner.get("namespace"));
    let named = named
        .chain(snapshot.pods.iter().map(|pod| pod.value.namespace()))
        .chain(snapshot.endpoints.iter().map(|endpoint| endpoint.value.namespace()));
    let mut known: BTreeSet<String> = OF_KUBERNETES.map(str::to_owned).into();
    known.extend(snapshot.services.iter().map(|service| service.value.namespace.to_string()));
    // Neighboring records mostly name the same namespace.
    let mut last = TextRef::EMPTY;
    for namespace in named {
        if namespace != last {
            known.insert(namespace.to_string());
            last = namespace;
        }
    }
    if known.contains(name) {
        return Ok(());
    }
    let message = format!("namespace {name:?} not found: no pod, endpoint, service or record names it");
    let hint = did_you_mean(name, &known, "namespaces without any addresses are unknown");
    Err(Failure::refused(message).hint(hint))
}

/// Returns the pod that was probably meant, as `namespace/name`; `None` if it exists.
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

/// Returns the nodes with these names or patterns (`*`: any characters, `?`: one), or all nodes if there are no names.
/// A selector keeps only nodes with matching labels.
pub fn nodes(
    snapshot: &Snapshot,
    names: &[String],
    selector: Option<&Selector>,
) -> Result<BTreeSet<String>, Failure> {
    found_nodes(snapshot, names, selector)?.all()
}

/// Like [`nodes`], with an error for each name that is not found.
pub fn found_nodes(
    snapshot: &Snapshot,
    names: &[String],
    selector: Option<&Selector>,
) -> Result<Found<BTreeSet<String>>, Failure> {
    let known = LazyCell::new(|| known_nodes(snapshot));
    let named = |name: &String| {
        if !is_pattern(name) {
            return known_node(snapshot, name).map(|()| vec![name.clone()]);
        }
        let pattern = WildMatch::new(name);
        let matching: Vec<String> = known.iter().filter(|node| pattern.matches(node)).cloned().collect();
        if matching.is_empty() { Err(unknown_node(name, &known)) } else { Ok(matching) }
    };
    let Found { found, not_found } = Found::of(names.iter().map(named))?;
    let found: BTreeSet<String> = found.into_iter().flatten().collect();

    let Some(selector) = selector else { return Ok(Found { found, not_found }) };
    let matching =
        snapshot.nodes.iter().map(|node| &node.value).filter(|node| selector.matches(&node.labels));
    let is_named = |name: &String| names.is_empty() || found.contains(name);
    let selected: BTreeSet<String> = matching.map(|node| node.name.clone()).filter(is_named).collect();
    if selected.is_empty() {
        return Err(Failure::refused("the selector matches no node").hint(
            "it selects by Calico's node labels: `calicoctl get nodes -o yaml` or `kubectl get nodes --show-labels`",
        ));
    }
    Ok(Found { found: selected, not_found })
}

/// True for a name with wildcards.
pub(crate) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// The names that a pattern with `*` and `?` matches.
pub fn matching<'n>(pattern: &str, names: &'n [String]) -> Vec<&'n String> {
    let pattern = WildMatch::new(pattern);
    names.iter().filter(|name| pattern.matches(name)).collect()
}

fn known_nodes(snapshot: &Snapshot) -> BTreeSet<String> {
    let owner = |block: &Block| block.owner().and_then(BlockOwner::host).map(str::to_owned);
    let mut known: BTreeSet<String> = snapshot.nodes.iter().map(|node| node.value.name.clone()).collect();
    known.extend(snapshot.affinities.iter().map(|affinity| affinity.value.key.node.clone()));
    known.extend(snapshot.blocks.iter().filter_map(|block| owner(block.value.content.sound()?)));
    known.extend(snapshot.endpoints.iter().map(|endpoint| endpoint.value.node().to_string()));
    known.extend(attributes(snapshot).filter_map(|record| Some(record.get("node")?.to_string())));
    known
}

/// Returns the CIDR of a pool by its name, or the CIDR itself if anything is in it: a block may be in no pool.
pub fn pool(snapshot: &Snapshot, name: &str) -> Result<IpNet, Failure> {
    if let Some(pool) = snapshot.pools.iter().find(|pool| pool.value.name == name) {
        return Ok(pool.value.cidr);
    }
    let cidr = name.parse().map(|cidr: IpNet| cidr.trunc());
    let cidr = cidr.map_err(|_| unknown_pool(snapshot, name))?;
    if !snapshot.has_read(Source::Pools) || is_known_network(snapshot, cidr) {
        return Ok(cidr);
    }
    Err(unknown_network(cidr))
}

/// The CIDRs of the pools that are found.
pub fn found_pools(snapshot: &Snapshot, names: &[String]) -> Result<Found<Vec<IpNet>>, Failure> {
    Found::of(names.iter().map(|name| pool(snapshot, name)))
}

/// True if a pool, a block or an address in use shares an address with the network.
pub(crate) fn is_known_network(snapshot: &Snapshot, cidr: IpNet) -> bool {
    let lies_there = |address: IpAddr| cidr.contains(&address);
    let endpoints = snapshot.endpoints.iter().flat_map(|endpoint| endpoint.value.addresses());
    let pods = snapshot.pods.iter().flat_map(|pod| pod.value.addresses());
    let tunnels =
        snapshot.nodes.iter().flat_map(|node| node.value.tunnels.iter().map(|(_, address)| *address));
    snapshot.pools.iter().any(|pool| overlap(pool.value.cidr, cidr))
        || is_known_block(snapshot, cidr)
        || endpoints.chain(pods).chain(tunnels).any(lies_there)
}

/// True if a block shares an address with the network, even one that cannot be decoded or is only referenced.
pub(crate) fn is_known_block(snapshot: &Snapshot, cidr: IpNet) -> bool {
    let is_undecodable =
        |defect: &Defect| matches!(&defect.key, Some(Key::Block(key)) if overlap(*key, cidr));
    snapshot.blocks.iter().any(|block| overlap(block.value.key, cidr))
        || snapshot.affinities.iter().any(|affinity| overlap(affinity.value.key.cidr, cidr))
        || snapshot.handles.iter().any(|handle| handle.value.blocks().any(|(named, _)| overlap(named, cidr)))
        || snapshot.defects.iter().any(is_undecodable)
}

/// Checks that one of the nodes has something in one of the pools, if both nodes and pools are named.
fn have_in_common(snapshot: &Snapshot, scope: &Scope) -> Result<(), Failure> {
    let Scope { nodes, networks, .. } = scope;
    if nodes.is_empty() || networks.is_empty() || has_any(snapshot, scope) {
        return Ok(());
    }
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    Err(nothing_in_common(&nodes.join(", "), networks))
}

pub(crate) fn texts(pools: &[IpNet]) -> String {
    pools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn has_any(snapshot: &Snapshot, scope: &Scope) -> bool {
    let is_named = |node: &str| scope.nodes.contains(node);
    let lies_there = |cidr: IpNet| scope.has_network(cidr);

    let by_affinity = || {
        let keys = snapshot.affinities.iter().map(|affinity| &affinity.value.key);
        keys.into_iter().any(|key| is_named(&key.node) && lies_there(key.cidr))
    };
    // A block that cannot be decoded may belong to any node.
    let by_block = || {
        let there = snapshot.blocks.iter().filter(|block| lies_there(block.value.key));
        there.into_iter().any(|block| {
            block.value.content.sound().is_none_or(|block| {
                let owner = block.owner().and_then(BlockOwner::host);
                let mut records = block.attributes().flat_map(|record| record.get("node"));
                owner.is_some_and(is_named) || records.any(|node| is_named(&node.to_string()))
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
        of_endpoints.chain(of_pods).chain(of_tunnels).any(|address| lies_there(address.into()))
    };
    by_affinity() || by_block() || by_use()
}
