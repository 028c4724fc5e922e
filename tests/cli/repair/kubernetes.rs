//! Repairs on the Kubernetes datastore, in both API groups.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use calipam_testkit::cluster::Form;
use calipam_testkit::kube::{Kinds, Lease, lease, seed};
use tempfile::TempDir;

use super::site::*;

/// Defines two tests that call the same function, one for each API group. They run in parallel.
macro_rules! in_each_group {
    ($work:ident: $classic:ident, $native:ident) => {
        #[test]
        fn $classic() {
            $work(calipam_testkit::kube::Flavour::Classic);
        }

        #[test]
        fn $native() {
            $work(calipam_testkit::kube::Flavour::Native);
        }
    };
}
pub(super) use in_each_group;

/// The kinds that a release may change, and the kind of the lock.
const KINDS: [&str; 4] = [
    "ipamblocks",
    "ipamhandles",
    "blockaffinities",
    "clusterinformations",
];

/// Objects by `plural/name`.
pub(super) type Objects = BTreeMap<String, Value>;

pub(super) struct KubeSite {
    pub server: Lease,
    pub flavour: Flavour,
    home: TempDir,
}

impl KubeSite {
    /// Stores a cluster on a new server.
    pub(super) fn of(cluster: &Cluster, flavour: Flavour) -> Self {
        let server = lease(Kinds::CalicoAndKubevirt(flavour)).unwrap();
        cluster.kubernetes(flavour).write_to_server(&server).unwrap();
        Self {
            server,
            flavour,
            home: tempfile::tempdir().unwrap(),
        }
    }

    /// Stores a large cluster in the etcd of a new server.
    pub(super) fn of_large(cluster: &Cluster, flavour: Flavour) -> Self {
        let server = lease(Kinds::CalicoAndKubevirt(flavour)).unwrap();
        cluster.write_to_etcd_of(&server, flavour, |_| ()).unwrap();
        Self {
            server,
            flavour,
            home: tempfile::tempdir().unwrap(),
        }
    }

    /// Creates an empty cluster on a new server. It has a pool, and nodes without tunnels. Returns the names of the
    /// nodes.
    pub(super) fn seeded(flavour: Flavour, spec: &ClusterSpec, nodes: usize) -> (Self, Vec<String>) {
        let server = lease(Kinds::Calico(flavour)).unwrap();
        let names = seed(&server, flavour, spec, nodes).unwrap();
        (
            Self {
                server,
                flavour,
                home: tempfile::tempdir().unwrap(),
            },
            names,
        )
    }

    /// Prepares a run of the program on the cluster that a kubeconfig names.
    pub(super) fn command_by(&self, kubeconfig: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
        let mut command = command_in(self.home.path(), arguments);
        command
            .args(["--datastore", "kubernetes", "--kubeconfig"])
            .arg(kubeconfig);
        command
    }

    /// Undoes a run, and asserts that all values are those of `before`.
    #[track_caller]
    pub(super) fn undo_to(&self, run: &Run, before: &Objects) {
        self.undo(&journal_of(run)).succeeded();
        assert_eq!(values(&self.objects()), values(before));
    }

    /// Returns every object that a release could change.
    pub(super) fn objects(&self) -> Objects {
        let of_kind = |kind| {
            self.list(kind)
                .into_iter()
                .map(move |(name, o)| (format!("{kind}/{name}"), o))
        };
        KINDS.into_iter().flat_map(of_kind).collect()
    }

    /// Replaces the GUID of the cluster.
    fn set_guid(&self, guid: &Value) {
        let mut information = self.list("clusterinformations").remove("default").unwrap();
        information["spec"]["clusterGUID"] = guid.clone();
        self.replace("clusterinformations", &information);
    }

    /// Replaces an object, as another client would.
    pub(super) fn replace(&self, plural: &str, object: &Value) {
        let path = format!(
            "{}/{}",
            self.flavour.path(plural),
            object["metadata"]["name"].as_str().unwrap()
        );
        let response = self.server.request("PUT", &path, &object.to_string()).unwrap();
        assert_eq!(response.status, 200, "{}", response.body);
    }

    /// Returns the objects of a kind, by name.
    pub(super) fn list(&self, plural: &str) -> Objects {
        let response = self
            .server
            .request("GET", &self.flavour.path(plural), "")
            .unwrap();
        let mut list: Value = serde_json::from_str(&response.body).unwrap();
        let items = list["items"].as_array_mut().unwrap().iter_mut();
        items
            .map(|o| (o["metadata"]["name"].as_str().unwrap().to_owned(), o.take()))
            .collect()
    }
}

impl Runs for KubeSite {
    fn home(&self) -> &Path {
        self.home.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_by(self.server.kubeconfig(), arguments)
    }
}

/// Returns the objects without their versions and sequence numbers, which always increase.
pub(super) fn values(objects: &Objects) -> BTreeMap<&str, Value> {
    let value = |object: &Value| {
        let mut value = json!({"spec": object["spec"], "labels": object["metadata"]["labels"]});
        let spec = value["spec"].as_object_mut().unwrap();
        spec.remove("sequenceNumber");
        spec.remove("sequenceNumberForAllocation");
        value
    };
    objects
        .iter()
        .map(|(name, object)| (name.as_str(), value(object)))
        .collect()
}

/// Returns the names of the objects that differ, including new and deleted ones.
fn differing(before: &Objects, after: &Objects) -> BTreeSet<String> {
    let names = before.keys().chain(after.keys());
    names
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
        .collect()
}

/// Returns the addresses that blocks record for an owner or, if `cooling`, as released.
pub(super) fn recorded(objects: &Objects, cooling: bool) -> BTreeSet<String> {
    let blocks = objects.iter().filter(|(name, _)| name.starts_with("ipamblocks/"));
    let blocks: Vec<Block> = blocks
        .filter_map(|(_, block)| Block::read(block["spec"].to_string().as_bytes()))
        .collect();
    let records = blocks.iter().flat_map(Block::records);
    let held = records.filter(|(_, record)| record.released_at.is_some() == cooling);
    held.map(|(address, _)| address.to_string()).collect()
}

/// An undo uses the cluster in its journal, whatever the current context is, and refuses any other cluster.
#[test]
fn an_undo_finds_the_context_of_its_journal() {
    let mut cluster = healthy();
    let pod = leak(&mut cluster, 0);
    let site = KubeSite::of(&cluster, Flavour::Classic);
    let before = site.objects();
    let journal = journal_of(&site.release(&["--handle", &pod.handle]));

    // The kubeconfig has two clusters, and the wrong current context.
    let path = site.home.path().join("kubeconfig");
    let merged = |current: &str| {
        let own = std::fs::read_to_string(site.server.kubeconfig()).unwrap();
        let mut both: Value = serde_yaml::from_str(&own).unwrap();
        both["contexts"][0]["name"] = "there".into();
        let mut other = both.clone();
        other["clusters"][0]["name"] = "other".into();
        other["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1".into();
        other["contexts"][0]["name"] = "elsewhere".into();
        other["contexts"][0]["context"]["cluster"] = "other".into();
        for list in ["clusters", "contexts"] {
            both[list]
                .as_array_mut()
                .unwrap()
                .insert(0, other[list][0].take());
        }
        both["current-context"] = current.into();
        std::fs::write(&path, both.to_string()).unwrap();
    };
    let undo = |journal: &str, more: &[&str]| {
        let mut command = command_in(site.home(), &[&["undo", journal, "--yes"], more].concat());
        Run::of(
            command
                .env("KUBECONFIG", &path)
                .env("DATASTORE_TYPE", "kubernetes"),
        )
    };
    merged("elsewhere");
    let own = site.objects()["clusterinformations/default"]["spec"]["clusterGUID"].clone();
    site.set_guid(&json!("ffffffffffff"));
    undo(&journal, &[]).failed(1, "was made for cluster");
    site.set_guid(&own);

    // A context on the command line takes precedence over that of the journal.
    undo(&journal, &["--context", "elsewhere"]).exits(3);
    undo(&journal, &[]).succeeded().says(" (context there)\n");
    assert_eq!(values(&site.objects()), values(&before));
    merged("there");
    undo(&journal, &[]).does_not_say("connecting to the journal");
}

fn leaked_goes_and_comes_back(flavour: Flavour) {
    let mut cluster = healthy();
    let faults = [
        Fault::LeakedNoOwner,
        Fault::LeakedMoved,
        Fault::LeakedHalf,
        Fault::LeakedLegacy,
        Fault::NodeGone,
        Fault::OrphanHandle,
        Fault::OrphanHandleNoBlock,
        Fault::PodFinished,
        Fault::PodEvicted,
        Fault::ServiceGone,
        Fault::MachineGone,
    ];
    let exists = |fault: &Fault| fault.exists_in(Form::of(flavour));
    faults
        .into_iter()
        .filter(exists)
        .for_each(|fault| cluster.inject(fault, 1));
    let site = KubeSite::of(&cluster, flavour);
    let truth = cluster.kubernetes(flavour).truth().clone();
    let of_code = |code: &str| set(truth.iter().filter(|f| f.code == code).map(|f| f.subject));
    let before = site.objects();
    let run = site.release(&["--leaked", "--orphan-handles", "--lock", "-o", "json"]);
    let plan = run.json();
    assert_eq!(plan["execution"]["conflicts"], json!([]), "{run:?}");
    let held = subjects(&skips(&plan), "handle-held ");
    let released: BTreeSet<String> = of_code("leaked-address")
        .difference(&held)
        .map(|a| format!("release-address {a}"))
        .collect();
    let deleted: BTreeSet<String> = of_code("orphan-handle")
        .iter()
        .map(|id| format!("delete-handle {id}"))
        .collect();
    assert_eq!(changes(&plan), &released | &deleted);
    assert_eq!(
        (skips(&plan).len(), held.len(), run.code),
        (1, 1, 1),
        "of half a pod nothing goes"
    );

    let after = site.objects();
    let gone: BTreeSet<String> = recorded(&before, false)
        .difference(&recorded(&after, false))
        .cloned()
        .collect();
    assert_eq!(
        recorded(&after, true),
        gone,
        "both schemas have a field for the time"
    );
    assert_eq!(
        gone,
        of_code("leaked-address").difference(&held).cloned().collect()
    );
    let of_rules = "leaked-address,orphan-handle,missing-handle,handle-count,half-deleted,corrupt-block,\
                    datastore-locked";
    let expected = held
        .iter()
        .map(|address| format!("error leaked-address {address}"))
        .collect();
    assert_eq!(site.findings(&["--rule", of_rules]), expected);
    let strays = differing(&before, &after).into_iter().filter(|name| {
        let is_lock = name == "clusterinformations/default";
        let is_block = name.starts_with("ipamblocks/") && after.contains_key(name);
        let is_handle = name.starts_with("ipamhandles/");
        !(is_lock || is_block || is_handle)
    });
    assert_eq!(strays.collect::<Vec<_>>(), Vec::<String>::new());

    site.undo_to(&run, &before);
}

in_each_group!(
    leaked_goes_and_comes_back: leaked_goes_and_comes_back_classic,
    leaked_goes_and_comes_back_native
);

#[test]
fn records_of_a_deleted_node_with_live_pods() {
    let mut cluster = healthy();
    let pod = cluster.add_pod_on(0);
    cluster.inject(Fault::NodeGone, 1);
    let node = cluster.nodes().last().unwrap().name.clone();
    let site = KubeSite::of(&cluster, Flavour::Classic);
    let before = site.objects();
    let refused = site.release(&["--handle", &pod.handle, "-o", "json"]);
    assert_eq!(
        (refused.code, skips(&refused.json())),
        (1, of_pods("in-use", [&pod])),
        "{refused:?}"
    );
    assert_eq!(site.objects(), before);

    let run = site.release(&["--node", &node]).succeeded();
    let after = site.objects();
    let affinities = format!("blockaffinities/{node}-");
    assert!(
        !after.keys().any(|name| name.starts_with(&affinities)),
        "{:?}",
        after.keys()
    );
    let owner = format!("host:{node}");
    assert!(
        !after
            .values()
            .any(|object| object["spec"]["affinity"] == owner.as_str())
    );
    let of_node = "leaked-address,block-of-missing-node,affinity-of-missing-node,half-deleted";
    assert_eq!(site.findings(&["--rule", of_node]), BTreeSet::new());
    site.undo_to(&run, &before);
}
