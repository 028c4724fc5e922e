//! The CNI configuration of nodes, as far as their pods show it. The configuration itself is in files of the nodes.

use std::collections::HashMap;
use std::net::IpAddr;

use calipam_assign::{CniConfiguration, Family};
use calipam_model::node::Node;
use calipam_model::pod::{Pod, evidence};
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::{DatastoreKind, Source};
use calipam_model::text::{Text, TextRef};

use super::families_of;
use crate::{Context, FastMap};

/// The CNI configurations of the nodes: the families of the addresses of the pods on a node or, if it has none, of the
/// pods of the cluster.
pub(crate) struct Configurations<'s> {
    /// The families of each node, by its packed name in pods or endpoints.
    of_nodes: FastMap<&'s [u8], [bool; 2]>,
    of_cluster: CniConfiguration,
    /// True if a pod shows the families. Otherwise, they are guessed from the pools.
    pub(crate) is_known: bool,
}

impl<'s> Configurations<'s> {
    pub(super) fn new(context: &Context<'s>) -> Self {
        let mut shown = Shown { context, of_nodes: FastMap::default(), last: None };
        match context.snapshot.has_read(Source::Pods) {
            true => shown.by_pods(),
            false => shown.by_endpoints(),
        }
        let Shown { of_nodes, .. } = shown;
        let mut families = [false; 2];
        for of_node in of_nodes.values() {
            for (family, is_asked) in families.iter_mut().zip(of_node) {
                *family |= is_asked;
            }
        }
        let is_known = families != [false; 2];
        if !is_known {
            families = of_pools(context);
        }
        let allows = |kind: u8| {
            let mut pods = context.snapshot.pods.iter().map(|stored| &stored.value);
            pods.any(|pod| !pod.finished && pod.running && !pod.lacks_sandbox && pod.named_by(kind).next().is_some())
        };
        let of_cluster = CniConfiguration {
            families,
            allows_no_ipam: allows(evidence::NO_IPAM),
            allows_floating: allows(evidence::FLOATING),
        };
        Self { of_nodes, of_cluster, is_known }
    }

    /// The configuration of a node that a pod names.
    pub(crate) fn of_pod_node(&self, name: TextRef<'_>) -> CniConfiguration {
        let families = self.of_nodes.get(name.packed()).copied().unwrap_or(self.of_cluster.families);
        CniConfiguration { families, ..self.of_cluster }
    }

    pub(crate) fn of_node(&self, node: &Node) -> CniConfiguration {
        let mut shown = node.names().filter_map(|name| self.of_nodes.get(Text::new(name).as_ref().packed()));
        let families = shown.next().copied().unwrap_or(self.of_cluster.families);
        CniConfiguration { families, ..self.of_cluster }
    }

    /// True if a pod of the cluster has an address of the family, or it is not known.
    pub(crate) fn is_asked_for(&self, family: Family) -> bool {
        self.of_cluster.families[family as usize]
    }
}

/// The families of the pools for pods, if no pod shows what the configuration asks for. A cluster with pools of both
/// families usually asks for both. Without any pool, this is Calico's default.
fn of_pools(context: &Context<'_>) -> [bool; 2] {
    let has = |family: Family, is_usable: bool| {
        let mut pools = context.snapshot.pools.iter().map(|stored| &stored.value);
        pools.any(|pool| {
            Family::of(pool.cidr) == family && (!is_usable || pool.is_enabled() && pool.allows(PoolUse::Workload))
        })
    };
    let usable = Family::BOTH.map(|family| has(family, true));
    if usable != [false; 2] {
        return usable;
    }
    match Family::BOTH.map(|family| has(family, false)) {
        [false, false] => CniConfiguration::default().families,
        families => families,
    }
}

/// The families that pods show.
struct Shown<'c, 's> {
    context: &'c Context<'s>,
    of_nodes: FastMap<&'s [u8], [bool; 2]>,
    /// The node of the pod or endpoint before. Most name the same node as the one before.
    last: Option<(&'s [u8], [bool; 2])>,
}

impl<'s> Shown<'_, 's> {
    fn by_pods(&mut self) {
        let snapshot = self.context.snapshot;
        let namespaces = snapshot.namespaces.iter().flatten();
        let asking: HashMap<&str, ()> = namespaces
            .filter(|(_, namespace)| !namespace.annotations.families.is_empty())
            .map(|(name, _)| (name.as_str(), ()))
            .collect();
        for pod in snapshot.pods.iter().map(|stored| &stored.value) {
            if pod.host_network || pod.finished || !shows_configuration(pod) {
                continue;
            }
            if !asking.is_empty() && asking.contains_key(pod.namespace().to_string().as_str()) {
                continue;
            }
            if snapshot.datastore == DatastoreKind::Kubernetes && !pod.is_annotated() {
                continue;
            }
            self.add(pod.node(), pod.addresses());
        }
    }

    fn by_endpoints(&mut self) {
        for endpoint in self.context.snapshot.endpoints.iter().map(|stored| &stored.value) {
            if !endpoint.is_of_openstack() {
                self.add(endpoint.node(), endpoint.addresses());
            }
        }
    }

    fn add(&mut self, node: TextRef<'s>, addresses: impl Iterator<Item = IpAddr>) {
        let families = families_of(addresses);
        if families == [false; 2] || self.last == Some((node.packed(), families)) {
            return;
        }
        let known = self.of_nodes.entry(node.packed()).or_default();
        for (known, shown) in known.iter_mut().zip(families) {
            *known |= shown;
        }
        self.last = Some((node.packed(), families));
    }
}

/// True unless the pod asks for certain families or addresses, or gets those of its virtual machine.
fn shows_configuration(pod: &Pod) -> bool {
    pod.request.as_ref().is_none_or(|request| {
        let annotations = &request.annotations;
        annotations.families.is_empty() && annotations.addresses.is_empty() && annotations.no_ipam.is_empty()
    })
}
