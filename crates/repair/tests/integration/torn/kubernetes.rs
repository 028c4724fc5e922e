//! API servers that fail at every request in turn, and at chosen requests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use calipam_model::attributes::Attribute;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Precondition, Step};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_repair::Execution;
use calipam_repair::journal::Recorded;
use calipam_testkit::kube::{Flavour, find, read};
use calipam_testkit::servers::{Tear, Tearing};
use calipam_testkit::{World, datastore};
use serde_json::{Value, json};

use super::{Cluster, ORPHAN, TornSite, orphan, rebuild, tear_every_request};
use crate::cluster::{Site, sound};
use crate::execute::release;
use crate::kubernetes::{steps, values, world};

const FLAVOUR: Flavour = Flavour::Classic;

struct OnKubernetes {
    world: World,
    site: TornSite,
    /// The initial objects, by path.
    base: BTreeMap<String, Value>,
}

impl OnKubernetes {
    async fn new() -> Self {
        let world = world(FLAVOUR);
        let torn = Tearing::kubernetes(world.server()).unwrap();
        let store = datastore::kubernetes(&torn.kubeconfig());
        let site = TornSite::new(torn, store, Site::open(world.overrides()).await).await;
        Self {
            world,
            site,
            base: BTreeMap::new(),
        }
    }

    /// Starts a cluster with a handle that nothing refers to.
    async fn with_orphan() -> Self {
        let mut cluster = Self::new().await;
        cluster
            .world
            .create(&Key::Handle(ORPHAN.into()), &json!({"block": {"10.0.0.0/30": 1}}));
        cluster.base = cluster.stored();
        cluster
    }

    fn read(&self, path: &str) -> Value {
        read(self.world.server(), path)
    }

    /// The objects by path, without versions and fields that the server adds.
    fn stored(&mut self) -> BTreeMap<String, Value> {
        let mut stored = BTreeMap::new();
        for plural in [
            "ipamblocks",
            "ipamhandles",
            "blockaffinities",
            "clusterinformations",
        ] {
            let list = self
                .world
                .server()
                .request("GET", &FLAVOUR.path(plural), "")
                .unwrap();
            let list: Value = serde_json::from_str(&list.body).unwrap();
            for item in list["items"].as_array().unwrap() {
                let path = format!(
                    "{}/{}",
                    FLAVOUR.path(plural),
                    item["metadata"]["name"].as_str().unwrap()
                );
                let metadata = json!({"name": item["metadata"]["name"]});
                let object = json!({"apiVersion": item["apiVersion"], "kind": item["kind"],
                    "metadata": metadata, "spec": item["spec"]});
                stored.insert(path, object);
            }
        }
        stored
    }
}

impl Cluster for OnKubernetes {
    const TEARS: &'static [Tear] = &[
        Tear::Drop,
        Tear::Swallow,
        Tear::Status(409),
        Tear::Status(422),
        Tear::Status(429),
        Tear::Status(500),
        Tear::Delay(Duration::from_millis(50)),
    ];

    fn site(&mut self) -> &mut TornSite {
        &mut self.site
    }

    async fn values(&mut self) -> BTreeMap<String, Value> {
        values(&self.site.snapshot().await)
    }

    /// Deletes the changed objects and creates them again.
    async fn reset(&mut self) {
        let now = self.stored();
        for path in now.keys().filter(|path| self.base.get(*path) != now.get(*path)) {
            assert_eq!(
                self.world.server().request("DELETE", path, "").unwrap().status,
                200,
                "{path}"
            );
        }
        for (path, object) in self
            .base
            .iter()
            .filter(|(path, object)| now.get(*path) != Some(*object))
        {
            let folder = &path[..path.rfind('/').unwrap()];
            let answer = self
                .world
                .server()
                .request("POST", folder, &object.to_string())
                .unwrap();
            assert_eq!(answer.status, 201, "{}", answer.body);
        }
    }

    /// One failed request does not end the run.
    fn copes(_: Tear, execution: Option<&Execution>) -> bool {
        execution.is_none_or(|execution| execution.failure.is_none())
    }
}

fn gone() -> (Key, Precondition) {
    (
        Key::Pod {
            namespace: "default".into(),
            name: "gone".into(),
        },
        Precondition::Absent,
    )
}

/// The remaining releases of the first address of each block.
fn releases(snapshot: &Snapshot) -> Vec<Step> {
    let held = sound(snapshot).filter(|block| block.allocation(0).is_some());
    let mut steps: Vec<Step> = held.map(|block| release(block, &[0], vec![gone()])).collect();
    let recorded = |id: &str| sound(snapshot).any(|block| block.handles().any(|(_, held)| held == *id));
    steps.extend(
        ["net.0-0", "net.4-0"]
            .iter()
            .filter(|id| !recorded(id))
            .filter_map(|id| orphan(snapshot, id)),
    );
    steps
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_torn_in_turn() {
    let mut cluster = OnKubernetes::with_orphan().await;
    let targets = ["10.0.0.0", "10.0.0.4"]
        .map(|address| address.parse().unwrap())
        .into();
    tear_every_request(&mut cluster, &targets, releases).await;
    let cidr = "10.0.0.0/30".parse().unwrap();
    tear_every_request(&mut cluster, &BTreeSet::new(), |snapshot| rebuild(snapshot, cidr)).await;
}

/// If a block cannot be written after its handle, the handle's count is lowered again.
#[tokio::test(flavor = "multi_thread")]
async fn a_handles_count_is_lowered_if_its_block_cannot_be_written() {
    let mut cluster = OnKubernetes::new().await;
    let base = cluster.values().await;
    let cidr = "10.0.0.0/30".parse().unwrap();
    let record = |id: &str| Attribute {
        handle: Some(id.to_owned()),
        ..Attribute::default()
    };
    // One handle is new, and the other has a count already.
    for id in ["net.new", "net.0-0"] {
        let mut step = Step::new("unallocated-in-use");
        step.whole().edits = vec![
            Edit::Handle(id.into(), HandleEdit::Increment(cidr, 1)),
            Edit::Block(
                cidr,
                BlockEdit::Assign {
                    records: vec![(2, record(id))],
                },
            ),
        ];
        // The API server refuses the block.
        cluster.site.torn.plan(
            |seen| match seen.method == "PUT" && seen.path.contains("/ipamblocks/") {
                true => Tear::Status(422),
                false => Tear::Pass,
            },
        );
        let (execution, journal) = cluster.site.run(vec![step]).await;
        let execution = execution.unwrap();
        let found = (execution.partly, execution.written, execution.conflicts.len());
        assert_eq!(found, (0, 0, 1), "{execution:?}");
        assert!(!Recorded::read(&journal).unwrap().intents.is_empty() && execution.failure.is_none());
        assert!(
            execution.conflicts[0]
                .reason
                .contains("rejects the request (422)"),
            "{execution:?}"
        );
        assert_eq!(cluster.values().await, base, "{id}");
        cluster.site.torn.plan(|_| Tear::Pass);
        assert!(cluster.site.undo(&journal).await.unwrap().is_complete());
        assert_eq!(cluster.values().await, base, "{id}");
    }
}

/// A deletion that is killed between its two steps leaves an empty block. Both a second run and an undo can continue
/// from that state.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_killed_between_its_two_steps() {
    for is_undone in [true, false] {
        let mut cluster = OnKubernetes::new().await;
        let base = cluster.values().await;
        let block = format!("{}/10-0-0-4-30", FLAVOUR.path("ipamblocks"));
        let plan: Vec<Step> = steps(&cluster.site.snapshot().await, &[0, 1]).split_off(1);
        let path = block.clone();
        cluster
            .site
            .torn
            .plan(move |seen| match (seen.method, seen.path == path) {
                ("DELETE", true) => Tear::Status(422),
                _ => Tear::Pass,
            });
        let (execution, journal) = cluster.site.run(plan).await;
        // A block that is only marked for deletion is not reported as deleted.
        let execution = execution.unwrap();
        assert_eq!((execution.partly, execution.written), (1, 0), "{execution:?}");
        assert!(
            execution.conflicts[0].reason.contains("could not be deleted"),
            "{execution:?}"
        );
        cluster.site.torn.plan(|_| Tear::Pass);
        let stored = cluster.read(&block);
        assert_eq!(stored["spec"]["deleted"], true);
        assert_eq!(stored["spec"]["allocations"], json!([null, null, null, null]));
        let uid = stored["metadata"]["uid"].clone();
        if is_undone {
            let undone = cluster.site.undo(&journal).await.unwrap();
            assert!(undone.is_complete(), "{undone:?}");
            assert_eq!(cluster.values().await, base);
            // Nothing is created under the UID that is about to be deleted.
            assert_ne!(cluster.read(&block)["metadata"]["uid"], uid);
            continue;
        }
        let snapshot = cluster.site.snapshot().await;
        let marked = snapshot
            .blocks
            .iter()
            .find(|block| block.value.content.is_deleted())
            .unwrap();
        let mut step = Step::new("half-deleted 10.0.0.4/30");
        step.whole().edits = vec![Edit::Delete(
            Key::Block("10.0.0.4/30".parse().unwrap()),
            marked.revision.clone(),
        )];
        let (execution, _) = cluster.site.run(vec![step]).await;
        assert!(execution.unwrap().is_complete());
        assert_eq!(find(cluster.world.server(), &block), None);
    }
}

/// In the second step of a deletion, Calico names the object's UID. A handle that is needed again must therefore get
/// another UID.
#[tokio::test(flavor = "multi_thread")]
async fn a_marked_handle_is_created_anew() {
    let mut cluster = OnKubernetes::new().await;
    let path = format!("{}/net.0-0", FLAVOUR.path("ipamhandles"));
    let marked = cluster.read(&path);
    cluster.world.edit(&Key::Handle("net.0-0".into()), |handle| {
        handle["deleted"] = true.into()
    });
    let mut step = Step::new("missing-handle net.0-0");
    let cidr = "10.0.0.0/30".parse().unwrap();
    step.whole().edits = vec![Edit::Handle("net.0-0".into(), HandleEdit::Increment(cidr, 1))];
    step.whole().evidence = vec![gone()].into();
    let (execution, _) = cluster.site.run(vec![step]).await;
    assert!(execution.unwrap().is_complete());
    let now = cluster.read(&path);
    assert!(
        now["spec"]["deleted"] != true && now["metadata"]["uid"] != marked["metadata"]["uid"],
        "{now}"
    );
    assert_eq!(now["spec"]["block"], json!({"10.0.0.0/30": 1}));
}
