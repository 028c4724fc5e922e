//! API servers that fail at every request in turn: no live address is freed, no handle of one is lost, the lock is
//! restored or reported, and running again converges.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use calipam_datastore::Datastore;
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::attributes::Attribute;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Precondition, Step};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::writable::Object;
use calipam_repair::journal::{Recorded, resolve};
use calipam_repair::{Execution, Options, UndoPlan, execute, undo};
use calipam_testkit::kube::{Connection, Flavour, Kinds, Lease, create, lease};
use calipam_testkit::rounds;
use calipam_testkit::servers::{Tear, Tearing};
use serde_json::{Value, json};

use crate::cluster::{consent, journal_path, observe};
use crate::execute::release;
use crate::kubernetes::{GUID, open, open_at, seed, steps, values};

const FLAVOUR: Flavour = Flavour::Classic;

const TEARS: [Tear; 7] = [
    Tear::Drop,
    Tear::Swallow,
    Tear::Status(409),
    Tear::Status(422),
    Tear::Status(429),
    Tear::Status(500),
    Tear::Delay(Duration::from_millis(50)),
];

struct Site {
    server: Lease,
    torn: Tearing,
    store: Datastore,
    /// Opened past the proxy.
    sound: Datastore,
    folder: tempfile::TempDir,
    runs: usize,
    connection: Connection,
    /// The objects at first, by path.
    base: BTreeMap<String, Value>,
}

impl Site {
    async fn new() -> Self {
        let server = lease(Kinds::Calico(FLAVOUR)).unwrap();
        seed(&server, FLAVOUR);
        let torn = Tearing::kubernetes(&server).unwrap();
        let (store, sound) = (open_at(&torn.kubeconfig()).await, open(&server).await);
        let (folder, connection) = (tempfile::tempdir().unwrap(), Connection::open(&server).unwrap());
        let mut site =
            Self { server, torn, store, sound, folder, runs: 0, connection, base: BTreeMap::new() };
        site.base = site.stored();
        site
    }

    /// With a handle that nothing refers to.
    async fn with_orphan() -> Self {
        let mut site = Self::new().await;
        let orphan = json!({"apiVersion": FLAVOUR.api_version(), "kind": "IPAMHandle", "metadata": {"name": ORPHAN},
            "spec": {"handleID": ORPHAN, "block": {"10.0.0.0/30": 1}, "deleted": false}});
        create(&site.server, &FLAVOUR.path("ipamhandles"), &[orphan]).unwrap();
        site.base = site.stored();
        site
    }

    fn path(&mut self) -> PathBuf {
        self.runs += 1;
        journal_path(self.folder.path(), &self.runs.to_string())
    }

    /// The result of a run, which is `None` if it could not begin, and its journal.
    async fn run(&mut self, steps: Vec<Step>) -> (Option<Execution>, PathBuf) {
        let options = Options { lock: true, ..Options::new("a test", self.path()) };
        let run = execute(&self.store, GUID, steps, consent(GUID), &options).await;
        (run.ok(), options.journal)
    }

    async fn undo(&mut self, journal: &Path) -> Option<Execution> {
        let options = Options { lock: true, ..Options::new("undo", self.path()) };
        let recorded = resolve(Recorded::read(journal).unwrap(), &self.sound).await.unwrap().0;
        let plan = UndoPlan::new(&recorded).unwrap();
        undo(&self.store, &plan, consent(GUID), &options).await.ok()
    }

    async fn snapshot(&self) -> Snapshot {
        observe(&self.sound).await
    }

    async fn is_locked(&self) -> bool {
        self.snapshot().await.cluster.unwrap().datastore_ready == Some(false)
    }

    /// The kept addresses are recorded under their handles, and the lock is removed or reported.
    async fn is_settled(&self, execution: Option<&Execution>, what: &str) {
        let now = self.snapshot().await;
        let recorded: Vec<(u32, String)> = now
            .blocks
            .iter()
            .filter_map(|block| block.value.content.sound())
            .flat_map(|block| {
                block.handles().map(|(ordinal, id)| (ordinal, id.to_string())).collect::<Vec<_>>()
            })
            .collect();
        let stays = recorded.iter().filter(|(ordinal, _)| *ordinal == 1).count();
        assert_eq!(stays, 2, "{what}: {execution:?}");
        for (_, id) in recorded {
            assert!(now.handles.iter().any(|handle| handle.value.id() == *id), "{what}: {id} {execution:?}");
        }
        let is_named = execution.is_none_or(|execution| execution.lock_left.is_some());
        assert!(!self.is_locked().await || is_named, "{what}: {execution:?}");
    }

    /// The objects by path, without versions and fields that the server adds.
    fn stored(&mut self) -> BTreeMap<String, Value> {
        let mut stored = BTreeMap::new();
        for plural in ["ipamblocks", "ipamhandles", "blockaffinities", "clusterinformations"] {
            let list = self.connection.request("GET", &FLAVOUR.path(plural), "").unwrap();
            let list: Value = serde_json::from_str(&list.body).unwrap();
            for item in list["items"].as_array().unwrap() {
                let path = format!("{}/{}", FLAVOUR.path(plural), item["metadata"]["name"].as_str().unwrap());
                let metadata = json!({"name": item["metadata"]["name"]});
                let object = json!({"apiVersion": item["apiVersion"], "kind": item["kind"],
                    "metadata": metadata, "spec": item["spec"]});
                stored.insert(path, object);
            }
        }
        stored
    }

    /// Restores the first state: changed objects are deleted and created again.
    fn reset(&mut self) {
        let now = self.stored();
        for path in now.keys().filter(|path| self.base.get(*path) != now.get(*path)) {
            assert_eq!(self.connection.request("DELETE", path, "").unwrap().status, 200, "{path}");
        }
        for (path, object) in self.base.iter().filter(|(path, object)| now.get(*path) != Some(*object)) {
            let folder = &path[..path.rfind('/').unwrap()];
            let answer = self.connection.request("POST", folder, &object.to_string()).unwrap();
            assert_eq!(answer.status, 201, "{}", answer.body);
        }
    }
}

const ORPHAN: &str = "net.orphan";

fn gone() -> (Key, Precondition) {
    (Key::Pod { namespace: "default".into(), name: "gone".into() }, Precondition::Absent)
}

/// The remaining releases of the first address of each block.
fn releases(snapshot: &Snapshot) -> Vec<Step> {
    let blocks = || snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    let held = blocks().filter(|block| block.allocation(0).is_some());
    let mut steps: Vec<Step> = held.map(|block| release(block, &[0], vec![gone()])).collect();
    let recorded = |id: &str| blocks().any(|block| block.handles().any(|(_, held)| held == *id));
    steps.extend(
        ["net.0-0", "net.4-0"].iter().filter(|id| !recorded(id)).filter_map(|id| orphan(snapshot, id)),
    );
    steps
}

/// The remaining steps for an address in use with its handle, an affinity with its block, and the deletion of an orphan
/// handle.
fn rebuild(snapshot: &Snapshot) -> Vec<Step> {
    let cidr: IpNet = "10.0.0.0/30".parse().unwrap();
    let block = snapshot.blocks.iter().find(|block| block.value.key == cidr).unwrap();
    let mut steps = Vec::new();
    if !block.value.content.sound().unwrap().handles().any(|(_, id)| id == *"net.new") {
        let counts = snapshot.handles.iter().find(|handle| handle.value.id() == *"net.new");
        let mut step = Step::new("unallocated-in-use");
        if counts.is_none() {
            step.whole().edits = vec![Edit::Handle("net.new".into(), HandleEdit::Increment(cidr, 1))];
        }
        let record = Attribute { handle: Some("net.new".to_owned()), ..Attribute::default() };
        let assign = BlockEdit::Assign { records: vec![(2, record)] };
        step.whole().edits.push(Edit::Block(cidr, assign));
        steps.push(step);
    }
    if snapshot.affinities.is_empty() {
        let key = AffinityKey { kind: AffinityType::Host, node: "node-1".into(), cidr };
        let mut step = Step::new("block-without-affinity");
        let affinity = Object::Affinity(Affinity::new(key.clone(), AffinityState::Confirmed));
        let create = Edit::Create(Key::Affinity(key), Box::new(affinity));
        step.whole().edits = vec![Edit::Block(cidr, BlockEdit::Touch), create];
        steps.push(step);
    }
    steps.extend(orphan(snapshot, ORPHAN));
    steps
}

fn orphan(snapshot: &Snapshot, id: &str) -> Option<Step> {
    let handle = snapshot.handles.iter().find(|handle| handle.value.id() == *id)?;
    let mut step = Step::new("orphan-handle");
    step.whole().edits = vec![Edit::Delete(Key::Handle(id.into()), handle.revision.clone())];
    let blocks = handle.value.blocks();
    step.whole().evidence =
        blocks.map(|(block, _)| (Key::Block(block), Precondition::Records(id.into(), 0..=0))).collect();
    Some(step)
}

async fn tear_every_request(plan: fn(&Snapshot) -> Vec<Step>) {
    let mut site = Site::with_orphan().await;
    let base = values(&site.snapshot().await);
    site.torn.plan(|_| Tear::Pass);
    let (execution, _) = site.run(plan(&site.snapshot().await)).await;
    assert!(execution.unwrap().is_complete());
    let (requests, wanted) = (site.torn.count(), values(&site.snapshot().await));
    for number in 0..requests {
        for round in 0..rounds(1).min(TEARS.len()) {
            let tear = TEARS[(number + round) % TEARS.len()];
            let what = format!("{tear:?} at {number} of {requests}");
            site.reset();
            site.torn.tear_at(number, tear);
            let (torn, journal) = site.run(plan(&site.snapshot().await)).await;
            site.is_settled(torn.as_ref(), &what).await;
            // One failed request does not end the run.
            assert!(torn.as_ref().is_none_or(|torn| torn.failure.is_none()), "{what}: {torn:?}");

            // The run is undone, or running again converges.
            site.torn.plan(|_| Tear::Pass);
            if number % 2 == 0 && torn.is_some() {
                let undone = site.undo(&journal).await.unwrap();
                assert!(undone.is_complete(), "{what}: {torn:?}\n{undone:?}");
                assert_eq!(values(&site.snapshot().await), base, "{what}: {torn:?}");
            }
            let (again, _) = site.run(plan(&site.snapshot().await)).await;
            assert!(again.as_ref().unwrap().is_complete(), "{what}: {torn:?}\n{again:?}");
            assert_eq!(values(&site.snapshot().await), wanted, "{what}: {torn:?}\n{again:?}");

            // So does an undo.
            site.reset();
            let (whole, journal) = site.run(plan(&site.snapshot().await)).await;
            assert!(whole.unwrap().is_complete(), "{what}");
            site.torn.tear_at(number, tear);
            let undone = site.undo(&journal).await;
            site.is_settled(undone.as_ref(), &what).await;
            assert!(undone.as_ref().is_none_or(|undone| undone.failure.is_none()), "{what}: {undone:?}");
            site.torn.plan(|_| Tear::Pass);
            site.undo(&journal).await.unwrap();
            assert_eq!(values(&site.snapshot().await), base, "undo, {what}: {undone:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_a_release_torn_in_turn() {
    tear_every_request(releases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_a_rebuild_torn_in_turn() {
    tear_every_request(rebuild).await;
}

/// A handle that was counted for an address whose block could not be written is counted back.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_without_its_block_is_counted_back() {
    let mut site = Site::new().await;
    let base = values(&site.snapshot().await);
    let cidr = "10.0.0.0/30".parse().unwrap();
    let record = |id: &str| Attribute { handle: Some(id.to_owned()), ..Attribute::default() };
    // One handle is new, the other counts already.
    for id in ["net.new", "net.0-0"] {
        let mut step = Step::new("unallocated-in-use");
        step.whole().edits = vec![
            Edit::Handle(id.into(), HandleEdit::Increment(cidr, 1)),
            Edit::Block(cidr, BlockEdit::Assign { records: vec![(2, record(id))] }),
        ];
        // The API server refuses the block.
        site.torn.plan(|seen| match seen.method == "PUT" && seen.path.contains("/ipamblocks/") {
            true => Tear::Status(422),
            false => Tear::Pass,
        });
        let (execution, journal) = site.run(vec![step]).await;
        let execution = execution.unwrap();
        assert_eq!(
            (execution.partly, execution.written, execution.conflicts.len()),
            (0, 0, 1),
            "{execution:?}"
        );
        assert!(!Recorded::read(&journal).unwrap().intents.is_empty() && execution.failure.is_none());
        assert!(execution.conflicts[0].reason.contains("rejects the request (422)"), "{execution:?}");
        assert_eq!(values(&site.snapshot().await), base, "{id}");
        site.torn.plan(|_| Tear::Pass);
        assert!(site.undo(&journal).await.unwrap().is_complete());
        assert_eq!(values(&site.snapshot().await), base, "{id}");
    }
}

/// A deletion that is killed between its two steps leaves an empty block. Both running again and an undo go on from
/// there.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_got_as_far_as_the_mark() {
    for is_undone in [true, false] {
        let mut site = Site::new().await;
        let base = values(&site.snapshot().await);
        let block = format!("{}/10-0-0-4-30", FLAVOUR.path("ipamblocks"));
        let plan: Vec<Step> = steps(&site.snapshot().await, &[0, 1]).split_off(1);
        let path = block.clone();
        site.torn.plan(move |seen| match (seen.method, seen.path == path) {
            ("DELETE", true) => Tear::Status(422),
            _ => Tear::Pass,
        });
        let (execution, journal) = site.run(plan).await;
        // A block that is only marked is not reported as deleted.
        let execution = execution.unwrap();
        assert_eq!((execution.partly, execution.written), (1, 0), "{execution:?}");
        assert!(execution.conflicts[0].reason.contains("could not be deleted"), "{execution:?}");
        site.torn.plan(|_| Tear::Pass);
        let stored: Value =
            serde_json::from_str(&site.server.request("GET", &block, "").unwrap().body).unwrap();
        assert_eq!(stored["spec"]["deleted"], true);
        assert_eq!(stored["spec"]["allocations"], json!([null, null, null, null]));
        let uid = stored["metadata"]["uid"].clone();
        if is_undone {
            let undone = site.undo(&journal).await.unwrap();
            assert!(undone.is_complete(), "{undone:?}");
            assert_eq!(values(&site.snapshot().await), base);
            // Nothing is created under the UID that is about to be deleted.
            let stored = site.server.request("GET", &block, "").unwrap().body;
            assert_ne!(serde_json::from_str::<Value>(&stored).unwrap()["metadata"]["uid"], uid);
            continue;
        }
        let revision = site
            .snapshot()
            .await
            .blocks
            .iter()
            .find(|b| b.value.content.is_deleted())
            .unwrap()
            .revision
            .clone();
        let mut step = Step::new("half-deleted 10.0.0.4/30");
        step.whole().edits = vec![Edit::Delete(Key::Block("10.0.0.4/30".parse().unwrap()), revision)];
        let (execution, _) = site.run(vec![step]).await;
        assert!(execution.unwrap().is_complete());
        assert_eq!(site.server.request("GET", &block, "").unwrap().status, 404);
    }
}

/// Calico's second step of a deletion names the UID: a handle that is needed again must get another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_marked_handle_is_created_anew() {
    let mut site = Site::new().await;
    let path = format!("{}/net.0-0", FLAVOUR.path("ipamhandles"));
    let read = |site: &Site| -> Value {
        serde_json::from_str(&site.server.request("GET", &path, "").unwrap().body).unwrap()
    };
    let mut marked = read(&site);
    marked["spec"]["deleted"] = true.into();
    assert_eq!(site.server.request("PUT", &path, &marked.to_string()).unwrap().status, 200);
    let mut step = Step::new("missing-handle net.0-0");
    let cidr = "10.0.0.0/30".parse().unwrap();
    step.whole().edits = vec![Edit::Handle("net.0-0".into(), HandleEdit::Increment(cidr, 1))];
    let node = Key::Pod { namespace: "default".into(), name: "gone".into() };
    step.whole().evidence = vec![(node, Precondition::Absent)];
    let (execution, _) = site.run(vec![step]).await;
    assert!(execution.unwrap().is_complete());
    let now = read(&site);
    assert!(now["spec"]["deleted"] != true && now["metadata"]["uid"] != marked["metadata"]["uid"], "{now}");
    assert_eq!(now["spec"]["block"], json!({"10.0.0.0/30": 1}));
}
