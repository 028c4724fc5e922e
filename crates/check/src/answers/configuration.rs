//! The CNI configuration of the nodes, as far as pods show it. The configuration itself is in files of the nodes.

use std::collections::HashSet;

use calipam_assign::Family;
use calipam_model::CniConfiguration;
use calipam_model::pod::{Pod, evidence};
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};

use super::families_of;
use crate::Context;

/// The CNI configuration of the cluster's nodes, as far as it is known.
pub(crate) struct Configurations {
    of_cluster: CniConfiguration,
    /// True if a pod shows the families. Otherwise, they are guessed from the pools.
    pub(crate) is_known: bool,
}

impl Configurations {
    /// Takes the given CNI configuration, or else the one that pods, endpoints or pools show.
    pub(super) fn new(context: &Context<'_>) -> Self {
        if let Some(given) = &context.cni_configuration {
            return Self {
                of_cluster: given.clone(),
                is_known: true,
            };
        }

        let snapshot = context.snapshot;
        let mut families = if snapshot.has_read(Source::Pods) {
            families_of_pods(snapshot)
        } else {
            families_of_endpoints(snapshot)
        };
        let is_known = families != [false; 2];
        if !is_known {
            families = families_of_pools(snapshot);
        }

        // A pod got its network with such an annotation only if the configuration allows the annotation.
        let of_cluster = CniConfiguration {
            families,
            allows_no_ipam: a_pod_runs_with(snapshot, evidence::NO_IPAM),
            allows_floating: a_pod_runs_with(snapshot, evidence::FLOATING),
            ..CniConfiguration::default()
        };
        Self { of_cluster, is_known }
    }

    pub(crate) fn of_cluster(&self) -> &CniConfiguration {
        &self.of_cluster
    }

    /// True if pods ask for addresses of the family, unless they say otherwise.
    pub(crate) fn is_asked_for(&self, family: Family) -> bool {
        self.of_cluster.families[family as usize]
    }
}

/// True if a pod with an address from this annotation has a network.
fn a_pod_runs_with(snapshot: &Snapshot, annotation: evidence::Bits) -> bool {
    let mut pods = snapshot.pods.iter().map(|stored| &stored.value);
    pods.any(|pod| !pod.finished && pod.has_network() && pod.named_by(annotation).next().is_some())
}

/// The families of the pools for pods, if no pod shows what the configuration asks for. Without any pool, this is Calico's
/// default.
fn families_of_pools(snapshot: &Snapshot) -> [bool; 2] {
    let mut existing = [false; 2];
    let mut serving = [false; 2];
    for pool in snapshot.pools.iter().map(|stored| &stored.value) {
        let family = Family::of(pool.cidr) as usize;
        existing[family] = true;
        serving[family] |= pool.is_enabled() && pool.automatic && pool.allows(PoolUse::Workload);
    }

    if serving != [false; 2] {
        serving
    } else if existing != [false; 2] {
        existing
    } else {
        CniConfiguration::default().families
    }
}

/// The families of the addresses of pods that get them as the configuration says.
fn families_of_pods(snapshot: &Snapshot) -> [bool; 2] {
    let asking_namespaces = namespaces_that_ask(snapshot);
    let mut families = [false; 2];
    for pod in snapshot.pods.iter().map(|stored| &stored.value) {
        let are_all_found = families == [true; 2];
        if are_all_found {
            break;
        }
        if !has_address_of_calico(snapshot, pod) || !shows_configuration(pod) {
            continue;
        }
        let namespace_asks =
            !asking_namespaces.is_empty() && asking_namespaces.contains(pod.namespace().to_string().as_str());
        if !namespace_asks {
            add_families(&mut families, families_of(pod.addresses()));
        }
    }
    families
}

/// Returns the names of the namespaces that ask for families for all of their pods.
fn namespaces_that_ask(snapshot: &Snapshot) -> HashSet<&str> {
    let mut asking: HashSet<&str> = HashSet::new();
    for (name, namespace) in snapshot.namespaces.iter().flatten() {
        if !namespace.annotations.families.is_empty() {
            asking.insert(name);
        }
    }
    asking
}

/// Returns true if Calico can have given the pod its addresses. Only with the Kubernetes datastore, Calico's plugin
/// annotates its pods.
fn has_address_of_calico(snapshot: &Snapshot, pod: &Pod) -> bool {
    if pod.host_network || pod.finished {
        return false;
    }
    snapshot.datastore != DatastoreKind::Kubernetes || pod.is_annotated()
}

/// The families of the addresses of all endpoints, except for those of OpenStack.
fn families_of_endpoints(snapshot: &Snapshot) -> [bool; 2] {
    let mut families = [false; 2];
    for endpoint in snapshot.endpoints.iter().map(|stored| &stored.value) {
        if families == [true; 2] {
            break;
        }
        if !endpoint.is_of_openstack() {
            add_families(&mut families, families_of(endpoint.addresses()));
        }
    }
    families
}

fn add_families(families: &mut [bool; 2], added: [bool; 2]) {
    for (is_in, is_added) in families.iter_mut().zip(added) {
        *is_in |= is_added;
    }
}

/// True unless the pod asks for certain families or addresses, or gets those of its virtual machine.
pub(crate) fn shows_configuration(pod: &Pod) -> bool {
    let Some(request) = &pod.request else {
        return true;
    };
    let annotations = &request.annotations;
    annotations.families.is_empty() && annotations.addresses.is_empty() && annotations.no_ipam.is_empty()
}
