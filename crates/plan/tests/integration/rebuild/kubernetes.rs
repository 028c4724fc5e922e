//! Rebuilds on Kubernetes: pods instead of endpoints, labels, and names that differ only in case.

use std::net::IpAddr;
use std::sync::Arc;

use calipam_check::Code;
use calipam_model::edit::{Condition, Edit, Precondition, User};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::pod::{Pod, PodParts};
use calipam_model::pool::PoolUse;
use calipam_model::service::Service;
use calipam_model::snapshot::{
    Coverage, DatastoreKind, ObjectVersion, Revision, Snapshot, Source, Versioned, WhySkipped,
};
use calipam_plan::rebuild::{Request, needs_endpoints_only};
use calipam_plan::{SkipReason, Verb};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use jiff::SignedDuration;

use super::judge::{at_first_sight, rebuild, words};
use crate::checked::edits;

fn version(number: usize) -> Revision {
    let (resource_version, uid) = (number.to_string(), format!("uid-{number}"));
    Revision::Kubernetes(Box::new(ObjectVersion {
        resource_version,
        uid,
        ..ObjectVersion::default()
    }))
}

/// Makes pods from endpoints. The pods refer to nodes by their names in Kubernetes.
fn pods_of(snapshot: &Snapshot) -> Vec<Versioned<Pod>> {
    let mut pods = Vec::new();
    for (number, endpoint) in snapshot.endpoints.iter().enumerate() {
        let endpoint = &endpoint.value;
        if endpoint.pod().is_empty() {
            continue;
        }
        let addresses: Vec<String> = endpoint.addresses().map(|a| a.to_string()).collect();
        let (namespace, name) = (endpoint.namespace().to_string(), endpoint.pod().to_string());
        let (mut node, container) = (endpoint.node().to_string(), endpoint.container_id().to_string());
        let known = snapshot.nodes.iter().find(|n| n.value.name == node);
        if let Some(name) = known.and_then(|n| n.value.kubernetes_name.clone()) {
            node = name;
        }
        let all = addresses.join(",");
        let parts = PodParts {
            namespace: &namespace,
            name: &name,
            node: &node,
            phase: "Running",
            status_ips: addresses.iter().map(String::as_str).collect(),
            cni_ips: Some(&all),
            container_id: &container,
            ..PodParts::default()
        };
        let value = Pod::new(&parts).0;
        pods.push(Versioned {
            value,
            revision: version(100_000 + number),
        });
    }
    pods
}

/// Converts a snapshot of etcd into one of the Kubernetes datastore.
fn on_kubernetes(mut snapshot: Snapshot) -> Snapshot {
    snapshot.datastore = DatastoreKind::Kubernetes;
    snapshot.pods = pods_of(&snapshot);
    snapshot.endpoints.clear();
    let skipped = Coverage::Skipped(WhySkipped::PodsInstead);
    snapshot.coverage.insert(Source::Endpoints, skipped);
    snapshot.mark_read([Source::Pods, Source::Services, Source::Machines]);
    let blocks = snapshot.blocks.iter_mut().map(|block| &mut block.revision);
    let handles = snapshot.handles.iter_mut().map(|handle| &mut handle.revision);
    let nodes = snapshot.nodes.iter_mut().map(|node| &mut node.revision);
    blocks
        .chain(handles)
        .chain(nodes)
        .enumerate()
        .for_each(|(number, revision)| *revision = version(number));
    for (number, affinity) in snapshot.affinities.iter_mut().enumerate() {
        let labels = affinity
            .value
            .key
            .labels()
            .map(|(name, value)| (name.to_owned(), value));
        let Revision::Kubernetes(mut object) = version(20_000 + number) else {
            return snapshot;
        };
        object.labels = labels.into();
        affinity.revision = Revision::Kubernetes(object);
    }
    snapshot
}

fn plain() -> Snapshot {
    on_kubernetes(Cluster::plain(ClusterSpec::new(6), 3, 3).snapshot())
}

#[test]
fn every_fault_that_kubernetes_can_have() {
    let only_etcd = [Fault::CorruptKey, Fault::CarriageReturn, Fault::CarriageReturnKey];
    for fault in Fault::ALL.iter().filter(|fault| !only_etcd.contains(fault)) {
        let cluster = Cluster::plain(ClusterSpec::new(6), 2, 2).with(*fault, 1);
        rebuild(
            fault.name(),
            on_kubernetes(cluster.snapshot()),
            &Request::default(),
        );
    }
}

#[test]
fn every_fault_on_an_etcd_beside_kubernetes() {
    for (seed, fault) in Fault::ALL.iter().enumerate() {
        let cluster = Cluster::plain(ClusterSpec::new(seed as u64), 3, 3).with(*fault, 1);
        let mut snapshot = cluster.snapshot();
        snapshot.pods = pods_of(&snapshot);
        snapshot.mark_read([Source::Pods]);
        rebuild(fault.name(), snapshot, &Request::default());
    }
}

#[test]
fn a_record_names_the_node_by_its_name_in_calico() {
    let mut cluster = Cluster::plain(ClusterSpec::new(6), 2, 2);
    let pod = cluster.add_pod_on(0);
    cluster.free_pod(&pod);
    let mut snapshot = cluster.snapshot();
    snapshot.nodes[0].value.kubernetes_name = Some("worker-a.example.org".to_owned());
    snapshot.pods = pods_of(&snapshot);
    snapshot.mark_read([Source::Pods]);
    // The pod no longer has an endpoint, so only its own object names its node.
    snapshot
        .endpoints
        .retain(|endpoint| endpoint.value.pod() != *pod.name.pod.as_str());
    let rebuilt = rebuild("renamed", snapshot, &Request::default());
    let block = rebuilt
        .after
        .blocks
        .iter()
        .find(|b| b.value.key == pod.block())
        .unwrap();
    let allocation = block
        .value
        .content
        .sound()
        .unwrap()
        .allocation_of(pod.address())
        .unwrap();
    let node = allocation.attribute.get("node").map(|node| node.to_string());
    assert_eq!(node, Some(pod.node));
}

#[test]
fn pods_that_were_read_need_no_consent() {
    let snapshot = plain();
    assert!(!needs_endpoints_only(&snapshot));
    assert!(
        rebuild("healthy", snapshot, &Request::default())
            .plan
            .warnings
            .is_empty()
    );
    let etcd = Cluster::plain(ClusterSpec::new(6), 2, 2).snapshot();
    assert!(needs_endpoints_only(&etcd));
    assert_eq!(
        rebuild("etcd", etcd.clone(), &Request::default())
            .plan
            .warnings
            .len(),
        1
    );
    let agreed = Request {
        endpoints_only: true,
        ..Request::default()
    };
    assert!(rebuild("etcd", etcd, &agreed).plan.warnings.is_empty());
}

#[test]
fn lost_labels_are_written_again() {
    let mut snapshot = plain();
    let Revision::Kubernetes(object) = &mut snapshot.affinities[0].revision else {
        panic!("no labels")
    };
    object.labels.remove("projectcalico.org/hostname-hash");
    let key = snapshot.affinities[0].value.key.clone();
    let rebuilt = rebuild("labels", snapshot, &Request::default());
    let [action] = rebuilt.plan.actions.as_slice() else {
        panic!("{}", words(&rebuilt.plan))
    };
    let edits: Vec<&Edit> = edits(&rebuilt.plan).collect();
    let [Edit::Affinity(found, ..)] = edits[..] else {
        panic!("{edits:?}")
    };
    assert_eq!((&**found, action.changes[0].action), (&key, Verb::LabelAffinity));
    assert!(rebuilt.later.findings.is_empty());
}

#[test]
fn handles_that_share_an_object_are_left_alone() {
    let mut snapshot = plain();
    let id = snapshot
        .handles
        .iter()
        .map(|h| h.value.id().to_string())
        .find(|id| id.starts_with("k8s"))
        .unwrap();
    let mut twin = Handle::new(&id.to_uppercase());
    twin.set_count(snapshot.blocks[0].value.key, 1);
    snapshot.handles.push(Versioned {
        value: twin,
        revision: version(7),
    });
    // The addresses of one of the two colliding handles are leaked.
    snapshot
        .pods
        .retain(|pod| !id.ends_with(&pod.value.container_id().to_string()));
    let rebuilt = rebuild("collision", snapshot, &Request::default());
    let reasons: Vec<SkipReason> = rebuilt
        .plan
        .skipped
        .iter()
        .map(|skipped| skipped.reason)
        .collect();
    assert!(rebuilt.plan.is_empty(), "{}", words(&rebuilt.plan));
    assert!(reasons.len() >= 3, "{reasons:?}");
    assert!(
        reasons.iter().all(|reason| *reason == SkipReason::NeedsDecision),
        "{reasons:?}"
    );
    let mut skipped = rebuilt.plan.skipped.iter();
    let of_collision = skipped
        .find(|skipped| skipped.code == Some(Code::HandleCaseCollision))
        .unwrap();
    let says = "recreate the pods of one of the handles";
    assert!(of_collision.detail.ends_with(says), "{}", of_collision.detail);
}

fn web(address: IpAddr) -> Service {
    Service {
        namespace: "default".into(),
        name: "web".into(),
        ingress: vec![address],
        ..Service::default()
    }
}

#[test]
fn the_record_of_a_service_is_made_as_calicos_controller_makes_it() {
    let mut snapshot = plain();
    let address: IpAddr = "10.244.1.60".parse().unwrap();
    snapshot.pools[0].value.allowed_uses = vec![PoolUse::LoadBalancer];
    let service = Service {
        uid: "8d3d8a3e-8b8c-4c55-9c0a-0a2f1d6f7b11".into(),
        ..web(address)
    };
    snapshot.services.push(Versioned {
        value: service.clone(),
        revision: version(9),
    });
    let Revision::Kubernetes(read) = version(9) else {
        panic!()
    };
    let rebuilt = rebuild("service", snapshot, &Request::default());
    let block = rebuilt
        .after
        .blocks
        .iter()
        .find(|b| b.value.key.contains(&address))
        .unwrap();
    let record = block
        .value
        .content
        .sound()
        .unwrap()
        .allocation_of(address)
        .unwrap()
        .attribute
        .to_attribute();
    assert_eq!(
        record.handle.as_deref(),
        Some("lb-gJQ1RAoOYNAQTWk3dC76lcU6rH4TdxLLDONLknY5xk")
    );
    let owner = record.owner.unwrap();
    let of = |key: &str| owner.get(key).map(String::as_str);
    let expected = (Some("LoadBalancer"), Some("web"), Some("default"));
    assert_eq!((of("type"), of("service"), of("namespace")), expected);
    assert_eq!(
        (of("timestamp"), of("node")),
        (Some("2026-06-01 08:00:00 +0000 UTC"), None)
    );
    let key = Key::Service {
        namespace: "default".into(),
        name: "web".into(),
    };
    let evidence: Vec<_> = rebuilt
        .plan
        .actions
        .iter()
        .flat_map(|action| action.step.evidence())
        .collect();
    let as_read = Condition::SameUser(read.uid, Arc::new(User::Service(service)));
    assert_eq!(evidence, [&(key, Precondition::Matches(as_read))]);

    // The service now has another address.
    let mut later = rebuilt.after;
    later.taken_at += SignedDuration::from_hours(1);
    later.services[0].value.ingress = vec!["203.0.113.7".parse().unwrap()];
    let plan = rebuild("service with another address", later, &Request::default()).plan;
    let extra = plan
        .skipped
        .iter()
        .find(|skipped| skipped.code == Some(Code::ServiceAddressExtra))
        .unwrap();
    assert!(
        extra.detail.ends_with("release the address if nothing uses it"),
        "{}",
        extra.detail
    );
}

#[test]
fn a_service_without_uid_and_a_machine_get_no_record() {
    let mut snapshot = plain();
    let addresses: [IpAddr; 2] = ["10.244.1.60".parse().unwrap(), "10.244.1.61".parse().unwrap()];
    snapshot.pools[0].value.allowed_uses = vec![PoolUse::Workload, PoolUse::Tunnel, PoolUse::LoadBalancer];
    snapshot.services.push(Versioned {
        value: web(addresses[0]),
        revision: version(9),
    });
    let parts = PodParts {
        namespace: "vms",
        name: "runner",
        node: "node-1",
        phase: "Running",
        cni_ips: Some("10.244.1.61"),
        container_id: "0123456789abcdef",
        machine: Some("vm-1"),
        ..PodParts::default()
    };
    snapshot.pods.push(Versioned {
        value: Pod::new(&parts).0,
        revision: version(10),
    });
    let rebuilt = rebuild("no record", snapshot, &Request::default());
    let reason = |address| rebuilt.reason(Code::UnallocatedInUse, address);
    assert_eq!(
        addresses.map(reason),
        [Some(SkipReason::OwnerNotFound), Some(SkipReason::NeedsDecision)]
    );
}

#[test]
fn the_version_of_a_kubernetes_node_is_no_evidence() {
    let cluster = Cluster::plain(ClusterSpec::new(6), 2, 2).with(Fault::UnallocatedTunnel, 1);
    let evidence = |snapshot: Snapshot| -> usize {
        let rebuilt = rebuild("tunnel", snapshot, &Request::default());
        assert!(rebuilt.later.findings.is_empty());
        rebuilt
            .plan
            .actions
            .iter()
            .map(|action| action.step.evidence().count())
            .sum()
    };
    assert_eq!(evidence(cluster.snapshot()), 1);
    assert_eq!(evidence(on_kubernetes(cluster.snapshot())), 0);
}

#[test]
fn addresses_of_long_finished_pods_are_released_at_once() {
    let mut cluster = Cluster::plain(ClusterSpec::new(6), 2, 2);
    let name = cluster.add_pod_on(0).name;
    let cluster = on_kubernetes(cluster.snapshot());
    let after = |finished: Option<SignedDuration>, again: bool| {
        let mut snapshot = cluster.clone();
        let place = snapshot
            .pods
            .iter()
            .position(|p| p.value.name() == *name.pod.as_str())
            .unwrap();
        let pod = &mut snapshot.pods[place].value;
        (pod.finished, pod.finished_at) = (true, finished.map(|ago| snapshot.taken_at - ago));
        if again {
            let mut second = snapshot.pods[place].clone();
            second.value.finished_at = None;
            snapshot.pods.push(second);
        }
        let plan = at_first_sight(snapshot);
        assert!(
            plan.skipped.iter().all(|s| s.reason == SkipReason::SeenOnce),
            "{:?}",
            plan.skipped
        );
        (plan.totals().addresses, plan.skipped.len())
    };
    let grace = calipam_check::DEFAULT_GRACE;
    assert_eq!(after(Some(grace + SignedDuration::from_secs(1)), false), (2, 0));
    assert_eq!(after(Some(grace), false), (0, 2));
    assert_eq!(after(None, false), (0, 2));
    // Pods that were listed at different times can include two with this name, one of which may have just finished.
    assert_eq!(after(Some(grace * 2), true), (0, 2));
}

/// An affinity of a deleted node is deleted with the owner of its block, whatever else is wrong with the affinity.
#[test]
fn an_object_that_the_plan_deletes_is_not_skipped_as_well() {
    let cluster = Cluster::plain(ClusterSpec::new(6), 2, 2).with(Fault::BlockOfMissingNode, 1);
    let mut snapshot = on_kubernetes(cluster.snapshot());
    for affinity in &mut snapshot.affinities {
        let Revision::Kubernetes(object) = &mut affinity.revision else {
            panic!("no labels")
        };
        object.labels.remove("projectcalico.org/hostname-hash");
    }
    let plan = rebuild("unlabelled", snapshot, &Request::default()).plan;
    let deleted = plan
        .changes()
        .filter(|change| change.action == Verb::DeleteAffinity);
    let deleted: Vec<_> = deleted.map(|change| &change.subject).collect();
    let skipped = plan
        .skipped
        .iter()
        .find(|skipped| deleted.contains(&&skipped.subject));
    assert!(!deleted.is_empty() && skipped.is_none(), "{}", words(&plan));
}
