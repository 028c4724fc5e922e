//! The pods of the old pool by controller, and the annotations that pin them to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use calipam_datastore::workloads::{AddressRequest, Budget, RequestingNamespace, WorkloadPod, Workloads};
use calipam_model::cidr::{parse_go_address, parse_pool};
use calipam_model::pool::Pool;
use calipam_model::snapshot::Snapshot;
use calipam_plan::migrate::{Survey, UserKind};
use serde::Serialize;

use super::Eviction;
use super::estimate::Estimate;
use super::eviction::{Moves, moves};

/// Pods of the old pool that have the same controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    pub namespace: String,
    /// The kind of the controller; `None` for pods without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The name of the controller, or of a pod without one.
    pub name: String,
    pub pods: usize,
    /// The disruption budgets for these pods, and how many evictions each budget allows now.
    pub budgets: BTreeMap<String, i64>,
}

impl Group {
    /// Returns true if an eviction gives the pods other addresses, unless an annotation pins them. `machines` is true if
    /// a live migration does that for virtual machines.
    pub fn can_move(&self, machines: bool) -> bool {
        self.kind.as_deref().is_some_and(|kind| moves(kind, machines))
    }
}

/// An annotation that asks for the old pool, or for one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Pin {
    /// `Namespace web`, `Deployment web/api` or `Pod web/one`.
    pub subject: String,
    pub annotation: &'static str,
    pub value: String,
}

/// The surveyed state of a migration.
#[derive(Clone, Debug)]
pub struct Surveyed {
    pub survey: Survey,
    /// The controllers of the pods, and annotations that pin them to the pool; `None` without Kubernetes.
    pub moving: Option<Moving>,
}

/// Kubernetes data about the users that move.
#[derive(Clone, Debug, Default)]
pub struct Moving {
    pub workloads: Vec<Group>,
    pub pins: Vec<Pin>,
    /// The number of pods that the requested eviction evicts, or one of all pods.
    pub evictable: usize,
    /// An estimate of the eviction; `None` if no pod shows how long it took to start, or the simulation fails.
    pub estimate: Option<Estimate>,
    /// True if a live migration gives a virtual machine another address, as before Calico 3.32.
    pub live_migration_moves: bool,
    /// Errors for data that could not be read or simulated.
    pub unread: Vec<String>,
}

impl Moving {
    /// Reads the data. Errors do not stop the read: [`Self::unread`] lists them.
    pub(super) async fn read(
        workloads: &Workloads,
        snapshot: &Snapshot,
        survey: &Survey,
        eviction: Option<&Eviction>,
        live_migration_moves: bool,
    ) -> Self {
        let mut unread = Vec::new();
        let pods = or_unread(workloads.pods().await, &mut unread);
        let budgets = or_unread(workloads.budgets().await, &mut unread);
        let namespaces = or_unread(workloads.namespaces().await, &mut unread);

        let mut pods_by_name: HashMap<String, &WorkloadPod> = HashMap::new();
        for pod in &pods {
            pods_by_name.insert(format!("{}/{}", pod.namespace, pod.name), pod);
        }
        let mut moving: BTreeMap<&str, &WorkloadPod> = BTreeMap::new();
        for user in &survey.users {
            if user.kind == UserKind::Pod
                && let Some(pod) = pods_by_name.get(&user.name)
            {
                moving.insert(&user.name, pod);
            }
        }
        let moving: Vec<&WorkloadPod> = moving.into_values().collect();

        let old = &survey.migration.old;
        let moves = Moves {
            machines: live_migration_moves,
        };
        let pins = Pins::of(old, &namespaces);
        let mut evicted: Vec<&WorkloadPod> = Vec::new();
        for pod in &moving {
            let is_selected = match eviction {
                Some(eviction) => eviction.is_selected(pod),
                None => true,
            };
            if is_selected && moves.can_move(pod, old.cidr) && !pins.pin(pod) {
                evicted.push(pod);
            }
        }
        let estimate = match Estimate::simulate(snapshot, &survey.migration, &evicted, eviction) {
            Ok(None) if !evicted.is_empty() => {
                unread.push(
                    "the duration of the eviction is not known: none of its pods shows how long it took to start"
                        .to_owned(),
                );
                None
            }
            Ok(estimate) => estimate,
            Err(error) => {
                unread.push(format!("cannot estimate the duration of the eviction: {error}"));
                None
            }
        };
        Self {
            evictable: evicted.len(),
            estimate,
            workloads: group_by_controller(&moving, &budgets),
            pins: list_pins(&pods, &namespaces, old),
            live_migration_moves,
            unread,
        }
    }
}

/// Lists the annotations of all pods and namespaces that ask for the old pool.
fn list_pins(pods: &[WorkloadPod], namespaces: &[RequestingNamespace], old: &Pool) -> Vec<Pin> {
    let mut pins: BTreeSet<Pin> = BTreeSet::new();
    for pod in pods {
        let subject = match &pod.controller {
            Some(controller) => format!("{} {}/{}", controller.kind, pod.namespace, controller.name),
            None => format!("Pod {}/{}", pod.namespace, pod.name),
        };
        pins.extend(pins_of_subject(&subject, &pod.requests, old));
    }
    for namespace in namespaces {
        let subject = format!("Namespace {}", namespace.name);
        pins.extend(pins_of_subject(&subject, &namespace.requests, old));
    }
    pins.into_iter().collect()
}

/// Returns the data of a read, or the empty list if it failed, whose error is added to `unread`.
fn or_unread<T>(read: calipam_datastore::Result<Vec<T>>, unread: &mut Vec<String>) -> Vec<T> {
    read.unwrap_or_else(|error| {
        unread.push(error.to_string());
        Vec::new()
    })
}

/// Groups pods by their controllers; a pod without one is a group of its own.
fn group_by_controller(pods: &[&WorkloadPod], budgets: &[Budget]) -> Vec<Group> {
    let mut groups: BTreeMap<(String, Option<String>, String), Group> = BTreeMap::new();
    for pod in pods {
        let kind = pod.controller.as_ref().map(|controller| controller.kind.clone());
        let name = match &pod.controller {
            Some(controller) => controller.name.clone(),
            None => pod.name.clone(),
        };
        let key = (pod.namespace.clone(), kind.clone(), name.clone());
        let group = groups.entry(key).or_insert_with(|| Group {
            namespace: pod.namespace.clone(),
            kind,
            name,
            pods: 0,
            budgets: BTreeMap::new(),
        });
        group.pods += 1;
        for budget in budgets {
            if budget.covers(pod) {
                group.budgets.insert(budget.name.clone(), budget.allowed);
            }
        }
    }
    groups.into_values().collect()
}

/// Returns the requests of a subject that ask for the old pool.
fn pins_of_subject(subject: &str, requests: &[AddressRequest], old: &Pool) -> Vec<Pin> {
    let mut pins = Vec::new();
    for request in requests {
        if asks_for(request, old) {
            pins.push(Pin {
                subject: subject.to_owned(),
                annotation: request.annotation,
                value: request.value.clone(),
            });
        }
    }
    pins
}

/// Returns true for an annotation that asks for the pool, by name or CIDR, or for one of its addresses.
fn asks_for(request: &AddressRequest, old: &Pool) -> bool {
    let Ok(texts) = serde_json::from_str::<Vec<String>>(&request.value) else {
        return false;
    };
    for text in texts {
        if text == old.name || parse_pool(&text) == Some(old.cidr) {
            return true;
        }
        if let Some(address) = parse_go_address(&text)
            && old.cidr.contains(&address)
        {
            return true;
        }
    }
    false
}

/// Annotations that pin pods to the old pool. Such pods would get addresses from this pool again, or would not start
/// while it is disabled.
pub(super) struct Pins<'p> {
    old: &'p Pool,
    namespaces: HashMap<&'p str, &'p [AddressRequest]>,
}

impl<'p> Pins<'p> {
    /// Looks for requests of pods and their namespaces that ask for the old pool.
    pub(super) fn of(old: &'p Pool, namespaces: &'p [RequestingNamespace]) -> Self {
        let mut requests_by_namespace: HashMap<&str, &[AddressRequest]> = HashMap::new();
        for namespace in namespaces {
            requests_by_namespace.insert(&namespace.name, &namespace.requests);
        }
        Self {
            old,
            namespaces: requests_by_namespace,
        }
    }

    /// True if the pod asks for the old pool, or if its namespace does and the pod has no such annotation itself.
    pub(super) fn pin(&self, pod: &WorkloadPod) -> bool {
        if pod.requests.iter().any(|request| asks_for(request, self.old)) {
            return true;
        }
        let Some(namespace_requests) = self.namespaces.get(pod.namespace.as_str()) else {
            return false;
        };
        // An annotation of the pod overrides that of its namespace.
        let is_overridden = |annotation: &str| pod.requests.iter().any(|own| own.annotation == annotation);
        namespace_requests
            .iter()
            .any(|request| asks_for(request, self.old) && !is_overridden(request.annotation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_tied_by_its_own_annotations_before_those_of_its_namespace() {
        let old = br#"{"spec":{"cidr":"10.7.0.0/16"}}"#;
        let old = Pool::parse("p", old).unwrap().value;
        let request = |annotation, value: &str| AddressRequest {
            annotation,
            value: value.to_owned(),
        };
        let pools = "cni.projectcalico.org/ipv4pools";
        let addresses = "cni.projectcalico.org/ipAddrs";
        let pinned = |of_pod: &[AddressRequest], of_namespace: &[AddressRequest]| {
            let namespaces = [RequestingNamespace {
                name: "n".into(),
                requests: of_namespace.to_vec(),
            }];
            let pod = WorkloadPod {
                namespace: "n".into(),
                requests: of_pod.to_vec(),
                ..WorkloadPod::default()
            };
            Pins::of(&old, &namespaces).pin(&pod)
        };
        assert!(!pinned(&[], &[]));
        for value in [
            r#"["p"]"#,
            r#"["other","10.7.0.0/16"]"#,
            r#"["10.7.9.9/16"]"#,
            r#"["::ffff:10.7.0.0/112"]"#,
        ] {
            let pool = [request(pools, value)];
            assert!(pinned(&pool, &[]) && pinned(&[], &pool), "{value}");
        }
        for addresses in [addresses, "cni.projectcalico.org/ipAddrsNoIpam"] {
            for value in [r#"["10.7.0.9"]"#, r#"["::ffff:10.7.0.9"]"#] {
                assert!(pinned(&[request(addresses, value)], &[]), "{addresses} {value}");
            }
        }
        let others = [
            request(pools, r#"["other"]"#),
            request(addresses, r#"["10.8.0.9"]"#),
            request(pools, "p"),
        ];
        for other in &others {
            assert!(!pinned(std::slice::from_ref(other), &[]), "{other:?}");
        }
        assert!(
            !pinned(&others[..1], &[request(pools, r#"["p"]"#)]),
            "the pod asks for another pool"
        );
        assert!(pinned(&others[1..2], &[request(pools, r#"["p"]"#)]));
    }
}
