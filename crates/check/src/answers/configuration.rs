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
            shown_by_pods(snapshot)
        } else {
            shown_by_endpoints(snapshot)
        };
        let is_known = families != [false; 2];
        if !is_known {
            families = of_pools(snapshot);
        }

        // A pod got its network with such an annotation only if the configuration allows the annotation.
        let some_pod_runs_with = |annotation: u8| {
            let mut pods = snapshot.pods.iter().map(|stored| &stored.value);
            pods.any(|pod| {
                let has_sandbox = !pod.finished && pod.running && !pod.lacks_sandbox;
                has_sandbox && pod.named_by(annotation).next().is_some()
            })
        };
        let of_cluster = CniConfiguration {
            families,
            allows_no_ipam: some_pod_runs_with(evidence::NO_IPAM),
            allows_floating: some_pod_runs_with(evidence::FLOATING),
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

/// The families of the pools for pods, if no pod shows what the configuration asks for. Without any pool, this is Calico's
/// default.
fn of_pools(snapshot: &Snapshot) -> [bool; 2] {
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
fn shown_by_pods(snapshot: &Snapshot) -> [bool; 2] {
    let namespaces = snapshot.namespaces.iter().flatten();
    let asking = namespaces.filter(|(_, namespace)| !namespace.annotations.families.is_empty());
    let asking: HashSet<&str> = asking.map(|(name, _)| name.as_str()).collect();
    let mut families = [false; 2];
    for pod in snapshot.pods.iter().map(|stored| &stored.value) {
        if families == [true; 2] {
            break;
        }
        let is_calicos = snapshot.datastore != DatastoreKind::Kubernetes || pod.is_annotated();
        if pod.host_network || pod.finished || !is_calicos || !shows_configuration(pod) {
            continue;
        }
        if asking.is_empty() || !asking.contains(pod.namespace().to_string().as_str()) {
            add(&mut families, families_of(pod.addresses()));
        }
    }
    families
}

/// The families of the addresses of all endpoints, except for those of OpenStack.
fn shown_by_endpoints(snapshot: &Snapshot) -> [bool; 2] {
    let mut families = [false; 2];
    for endpoint in snapshot.endpoints.iter().map(|stored| &stored.value) {
        if families == [true; 2] {
            break;
        }
        if !endpoint.is_of_openstack() {
            add(&mut families, families_of(endpoint.addresses()));
        }
    }
    families
}

fn add(families: &mut [bool; 2], more: [bool; 2]) {
    for (known, shown) in families.iter_mut().zip(more) {
        *known |= shown;
    }
}

/// True unless the pod asks for certain families or addresses, or gets those of its virtual machine.
fn shows_configuration(pod: &Pod) -> bool {
    pod.request.as_ref().is_none_or(|request| {
        let annotations = &request.annotations;
        annotations.families.is_empty() && annotations.addresses.is_empty() && annotations.no_ipam.is_empty()
    })
}
