//! Every object of a plan is changed in turn between plan and execution, on every datastore. A change that breaks the
//! guards of an address keeps that address; other changes do no harm.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::{Options as Judgement, check};
use calipam_datastore::Datastore;
use calipam_model::edit::{Precondition, Step};
use calipam_model::key::Key;
use calipam_plan::{Basis, release};
use calipam_repair::{Conflict, Options, execute};
use calipam_testkit::kube::{Flavour, Kinds, Lease, create, lease};
use calipam_testkit::servers::Etcd;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::cluster::{consent, journal_path, observe, open};
use crate::kubernetes::open as open_kubernetes;

const GUID: &str = "0f0e1d2c";

/// The changes, each with the ordinals that are free after the run. For each change, there is a block with two leaked
/// addresses. The change affects the first of these addresses.
const CASES: [(Meanwhile, &[u64]); 9] = [
    (Meanwhile::Nothing, &[0, 1]),
    (Meanwhile::Reassigned, &[1]),
    (Meanwhile::Freed, &[0, 1]),
    (Meanwhile::OtherAddress, &[0, 1]),
    (Meanwhile::BlockGone, &[]),
    (Meanwhile::HandleGrew, &[0, 1]),
    (Meanwhile::HandleGone, &[0, 1]),
    (Meanwhile::WorkloadThere, &[1]),
    (Meanwhile::NodeThere, &[]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    /// The first address has the same record and another sequence number.
    Reassigned,
    /// The first address is free already.
    Freed,
    /// An address outside of the plan was assigned.
    OtherAddress,
    BlockGone,
    /// The handle of the first address also counts addresses in another block.
    HandleGrew,
    HandleGone,
    /// The endpoint or pod in the record of the first address exists.
    WorkloadThere,
    /// The deleted node exists again.
    NodeThere,
}

enum World {
    Etcd(Box<Etcd>),
    Kubernetes(Box<Lease>, Flavour),
}

impl World {
    fn etcd() -> Self {
        Self::Etcd(Box::new(Etcd::start().unwrap()))
    }

    fn kubernetes(flavour: Flavour) -> Self {
        let server = lease(Kinds::Calico(flavour)).unwrap();
        Self::Kubernetes(Box::new(server), flavour)
    }

    async fn open(&self) -> Datastore {
        match self {
            Self::Etcd(etcd) => open(&etcd.endpoint()).await,
            Self::Kubernetes(server, _) => open_kubernetes(server).await,
        }
    }

    /// Stores a block, a handle or cluster information.
    async fn create(&self, key: &Key, value: Value) {
        match self {
            Self::Etcd(etcd) => {
                etcd.client().await.unwrap().put(key.to_string(), value.to_string(), None).await.unwrap();
            }
            Self::Kubernetes(server, flavour) => {
                let (path, name, kind) = place(*flavour, key);
                let spec = if matches!(key, Key::ClusterInformation(_)) { &value["spec"] } else { &value };
                let object = json!({
                    "apiVersion": flavour.api_version(), "kind": kind, "metadata": {"name": name}, "spec": spec,
                });
                create(server, &path, &[object]).unwrap();
            }
        }
    }

    /// Changes a block or handle, or deletes it if `edit` sets it to null.
    async fn change(&self, key: &Key, edit: impl Fn(&mut Value)) {
        match self {
            Self::Etcd(etcd) => {
                let mut client = etcd.client().await.unwrap();
                let read = client.get(key.to_string(), None).await.unwrap();
                let mut value: Value = serde_json::from_slice(read.kvs()[0].value()).unwrap();
                edit(&mut value);
                if value.is_null() {
                    client.delete(key.to_string(), None).await.unwrap();
                } else {
                    client.put(key.to_string(), value.to_string(), None).await.unwrap();
                }
            }
            Self::Kubernetes(server, flavour) => {
                let (path, name, _) = place(*flavour, key);
                let path = format!("{path}/{name}");
                let send = |method: &str, body: &str| {
                    let response = server.request(method, &path, body).unwrap();
                    assert_eq!(response.status, 200, "{method} {path}: {}", response.body);
                    response.body
                };
                let mut object: Value = serde_json::from_str(&send("GET", "")).unwrap();
                edit(&mut object["spec"]);
                if object["spec"].is_null() {
                    send("DELETE", "");
                } else {
                    send("PUT", &object.to_string());
                }
            }
        }
    }

    /// Creates an object that was absent.
    async fn appear(&self, key: &Key) {
        match (self, key) {
            (Self::Etcd(etcd), key) => {
                let value = r#"{"kind":"Any","metadata":{"name":"x"},"spec":{}}"#;
                etcd.client().await.unwrap().put(key.to_string(), value, None).await.unwrap();
            }
            (Self::Kubernetes(server, _), Key::Pod { namespace, name }) => {
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                });
                create(server, &format!("/api/v1/namespaces/{namespace}/pods"), &[pod]).unwrap();
            }
            (Self::Kubernetes(server, _), Key::Node(name)) => {
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
                create(server, "/api/v1/nodes", &[node]).unwrap();
            }
            (_, other) => panic!("{other} is no evidence on Kubernetes"),
        }
    }

    /// Creates the blocks of all cases, whose addresses belong to deleted nodes.
    async fn seed(&self) {
        let spec = json!({"clusterGUID": GUID, "calicoVersion": "v3.32.1", "datastoreReady": true});
        let information = json!({
            "kind": "ClusterInformation", "apiVersion": "projectcalico.org/v3", "metadata": {"name": "default"},
            "spec": spec,
        });
        self.create(&Key::ClusterInformation("default".into()), information).await;
        if let Self::Kubernetes(server, _) = self {
            let account =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
            server
                .request("POST", "/api/v1/namespaces/default/serviceaccounts", &account.to_string())
                .unwrap();
        }
        for case in 0..CASES.len() {
            let record = |n: usize| {
                let owner = json!({
                    "namespace": "default", "node": format!("node-{case}"), "pod": format!("pod-{case}-{n}"),
                });
                json!({"handle_id": id(case, n), "secondary": owner})
            };
            let block = json!({
                "cidr": cidr(case), "affinity": "host:other", "allocations": [0, 1, null, null],
                "unallocated": [2, 3], "attributes": [record(0), record(1)], "sequenceNumber": 7,
                "sequenceNumberForAllocation": {"0": 5, "1": 6}, "deleted": false, "strictAffinity": false,
            });
            self.create(&block_key(case), block).await;
            for n in 0..2 {
                let counts = BTreeMap::from([(cidr(case), 1)]);
                let handle = json!({"handleID": id(case, n), "block": counts, "deleted": false});
                self.create(&Key::Handle(id(case, n)), handle).await;
            }
        }
    }

    async fn happens(&self, case: usize, step: &Step) {
        let (block, handle) = (block_key(case), Key::Handle(id(case, 0)));
        match CASES[case].0 {
            Meanwhile::Nothing => {}
            Meanwhile::Reassigned => {
                self.change(&block, |b| b["sequenceNumberForAllocation"]["0"] = 9.into()).await;
            }
            Meanwhile::Freed => {
                self.change(&block, |b| {
                    b["allocations"] = json!([null, 0, null, null]);
                    b["unallocated"] = json!([2, 3, 0]);
                    b["attributes"] = json!([b["attributes"][1].clone()]);
                })
                .await;
            }
            Meanwhile::OtherAddress => {
                self.change(&block, |b| {
                    b["allocations"] = json!([0, 1, 1, null]);
                    b["unallocated"] = json!([3]);
                })
                .await;
            }
            Meanwhile::BlockGone => self.change(&block, |b| *b = Value::Null).await,
            Meanwhile::HandleGrew => self.change(&handle, |h| h["block"]["10.9.9.0/30"] = 2.into()).await,
            Meanwhile::HandleGone => self.change(&handle, |h| *h = Value::Null).await,
            Meanwhile::WorkloadThere => {
                let is_workload = |key: &Key| matches!(key, Key::Endpoint { .. } | Key::Pod { .. });
                self.appear(&absent(step, is_workload)).await;
            }
            Meanwhile::NodeThere => self.appear(&absent(step, |key| matches!(key, Key::Node(_)))).await,
        }
    }
}

fn cidr(case: usize) -> String {
    format!("10.0.{case}.0/30")
}

fn id(case: usize, n: usize) -> String {
    format!("net.{case}-{n}")
}

fn block_key(case: usize) -> Key {
    Key::Block(cidr(case).parse().unwrap())
}

/// The path, name and kind of a Calico object.
fn place(flavour: Flavour, key: &Key) -> (String, String, &'static str) {
    let (plural, name, kind) = match key {
        Key::Block(cidr) => ("ipamblocks", cidr.to_string().replace(['.', '/'], "-"), "IPAMBlock"),
        Key::Handle(id) => ("ipamhandles", id.clone(), "IPAMHandle"),
        Key::ClusterInformation(name) => ("clusterinformations", name.clone(), "ClusterInformation"),
        other => panic!("{other} is not made here"),
    };
    (flavour.path(plural), name, kind)
}

/// The object that `wanted` accepts, and that must be absent for the release of the first address.
fn absent(step: &Step, wanted: fn(&Key) -> bool) -> Key {
    let evidence = &step.parts[0].evidence;
    let found = evidence.iter().find(|(key, expect)| *expect == Precondition::Absent && wanted(key));
    found.unwrap_or_else(|| panic!("{evidence:?}")).0.clone()
}

async fn every_object_in_turn(world: World) {
    world.seed().await;
    let store = world.open().await;
    let judgement = Judgement { grace: Some(SignedDuration::ZERO), ..Judgement::default() };
    let snapshot = observe(&store).await;
    let report = check(&snapshot, &judgement);
    let all = release::Request { leaked: true, ..release::Request::default() };
    let steps = release::plan(&Basis::new(&snapshot, &report, &judgement), &all).divide().1;
    assert_eq!(steps.len(), CASES.len(), "{steps:?}");
    for (case, step) in steps.iter().enumerate() {
        assert_eq!(step.parts[0].edits[0].key(), block_key(case));
        world.happens(case, step).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new("a test", journal_path(folder.path(), "run"));
    let execution = execute(&store, GUID, steps, consent(GUID), &options).await.unwrap();
    assert!(execution.failure.is_none() && !execution.is_complete(), "{execution:?}");
    let after = observe(&store).await;
    for (case, (what, gone)) in CASES.iter().enumerate() {
        let block = after.blocks.iter().filter_map(|b| b.value.content.sound());
        let block = block.into_iter().find(|b| b.cidr().to_string() == cidr(case));
        let free = |n: u32| block.is_some_and(|block| block.allocation(n).is_none());
        let free: BTreeSet<u64> = [0, 1].into_iter().filter(|n| free(*n)).map(u64::from).collect();
        assert_eq!(free, gone.iter().copied().collect(), "{what:?}: {execution:?}");
        let conflicts: Vec<&Conflict> = execution.conflicts.iter().filter(|c| c.step == case).collect();
        let first = format!("10.0.{case}.0");
        match what {
            Meanwhile::Reassigned | Meanwhile::Freed | Meanwhile::WorkloadThere => {
                let [only] = conflicts[..] else { panic!("{what:?}: {conflicts:?}") };
                assert_eq!(only.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), [&*first]);
                assert!(only.what.contains(&first) && only.reason.contains(&first), "{only:?}");
            }
            Meanwhile::BlockGone | Meanwhile::NodeThere => assert!(!conflicts.is_empty(), "{what:?}"),
            _ => assert!(conflicts.is_empty(), "{what:?}: {conflicts:?}"),
        }
        // A handle is kept as long as it counts an address.
        let handles = (0..2).filter(|n| after.handles.iter().any(|h| h.value.id() == *id(case, *n)));
        let kept: Vec<usize> = match what {
            Meanwhile::Reassigned | Meanwhile::Freed | Meanwhile::HandleGrew | Meanwhile::WorkloadThere => {
                vec![0]
            }
            Meanwhile::BlockGone | Meanwhile::NodeThere => vec![0, 1],
            _ => Vec::new(),
        };
        assert_eq!(handles.collect::<Vec<_>>(), kept, "{what:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_in_turn_on_etcd() {
    every_object_in_turn(World::etcd()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_in_turn_on_kubernetes() {
    for flavour in [Flavour::Classic, Flavour::Native] {
        every_object_in_turn(World::kubernetes(flavour)).await;
    }
}
