//! A check with a cache reads what a whole read reads, on a real API server; and whatever is wrong with the cache, or has happened
//! to the server, everything is read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use calipam_check::{Options, check};
use calipam_datastore::Datastore;
use calipam_datastore::cache::{CacheUse, CachedRead, KindUse, WhyWhole, Worth};
use calipam_model::snapshot::Snapshot;
use calipam_testkit::allocator::{Churn, ChurnLog, Target};
use calipam_testkit::cluster::ClusterSpec;
use calipam_testkit::kube::{self, Flavour, create, service_account_token};
use calipam_testkit::servers::KubeApiserver;
use serde_json::{Value, json};

use super::access::{BINDINGS, ROLES, documented};
use super::support::{kubeconfig_with_token, open, pod, resource, seed, server, settings};
use crate::support::{observe, open_file, quiet};

/// However little there is.
const EVERYTHING: Worth = Worth { all: 0, kind: 0 };
const LIMIT: Duration = Duration::from_secs(90);
/// Least reads with changes that a test wants to see.
const READS: usize = 4;

async fn read(store: &Datastore, folder: &Path) -> CachedRead {
    store.observe_with_cache_from(folder, EVERYTHING, &quiet()).await.unwrap()
}

/// What was read of each kind.
fn kinds(read: &CachedRead) -> BTreeMap<&'static str, &KindUse> {
    assert_eq!(read.unsaved, None);
    let CacheUse::Kinds(kinds) = &read.used else { panic!("{:?}", read.used) };
    assert_eq!(kinds.len(), 4, "{kinds:?}");
    kinds.iter().map(|used| (used.kind, used)).collect()
}

/// The changes of blocks, affinities, handles and pods.
fn changes(read: &CachedRead) -> [Option<usize>; 4] {
    let kinds = kinds(read);
    ["ipamblocks", "blockaffinities", "ipamhandles", "pods"].map(|kind| kinds[kind].read.clone().ok())
}

fn why(read: &CachedRead, kind: &str) -> WhyWhole {
    kinds(read)[kind].read.clone().unwrap_err()
}

/// Where nothing changes, it is what a whole read reads, in the same order.
async fn assert_whole(store: &Datastore, read: &CachedRead) {
    let found = &read.snapshot;
    let mut whole = observe(store).await.unwrap();
    whole.revision.clone_from(&found.revision);
    (whole.taken_at, whole.newest_creation) = (found.taken_at, found.newest_creation);
    assert_eq!(whole.defects, found.defects);
    assert!(whole == *found, "the objects or their order differ");
    let report = |snapshot: &Snapshot| check(snapshot, &Options::default());
    assert_eq!(report(&whole), report(found));
}

/// The objects of a snapshot, with their versions.
fn objects(snapshot: &Snapshot) -> BTreeMap<&'static str, Vec<String>> {
    fn texts<T: std::fmt::Debug>(objects: &[T]) -> Vec<String> {
        let mut texts: Vec<String> = objects.iter().map(|object| format!("{object:?}")).collect();
        texts.sort();
        texts
    }
    BTreeMap::from([
        ("ipamblocks", texts(&snapshot.blocks)),
        ("blockaffinities", texts(&snapshot.affinities)),
        ("ipamhandles", texts(&snapshot.handles)),
        ("pods", texts(&snapshot.pods)),
    ])
}

/// Each kind is what the server says that it was at that very version, also while others write.
async fn assert_exact(server: &KubeApiserver, flavour: Flavour, read: &CachedRead) {
    let kinds = kinds(read);
    let mut items = Vec::new();
    for (kind, used) in &kinds {
        let path = if *kind == "pods" { "/api/v1/pods".to_owned() } else { flavour.path(kind) };
        let at = format!("{path}?resourceVersion={}&resourceVersionMatch=Exact", used.version);
        let answer = server.request("GET", &at, "").unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        let mut list: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(list["metadata"]["resourceVersion"], used.version.as_str());
        for item in list["items"].as_array_mut().unwrap() {
            if *kind == "pods" {
                (item["apiVersion"], item["kind"]) = ("v1".into(), "Pod".into());
            }
            items.push(item.take());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.json");
    fs::write(&path, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
    let exact = observe(&open_file(&path).await.unwrap()).await.unwrap();
    let (exact, found) = (objects(&exact), objects(&read.snapshot));
    for kind in kinds.keys() {
        assert_eq!(exact[kind], found[kind], "{kind} at {}", kinds[kind].version);
    }
    // What uses addresses is as it was later than what records them.
    let version = |kind: &str| kinds[kind].version.parse::<u64>().unwrap();
    assert!(version("pods") >= version("ipamblocks").max(version("blockaffinities")));
}

/// Objects that no allocator writes: names that are not those of what they hold, and unknown fields.
fn odd(server: &KubeApiserver, flavour: Flavour, number: usize) {
    let request = |method: &str, path: &str, body: &str| {
        let answer = server.request(method, path, body).unwrap();
        assert!(answer.status < 300, "{method} {path}: {}", answer.body);
    };
    let handle = |name: &str, id: String| {
        let spec = json!({"handleID": id, "block": {"10.9.9.0/30": number}, "deleted": false});
        resource(flavour, "IPAMHandle", name, spec).to_string()
    };
    let handles = flavour.path("ipamhandles");
    request("POST", &handles, &handle(&format!("odd.{number}"), format!("Another.{number}")));
    if number > 0 {
        request("DELETE", &format!("{handles}/odd.{}", number - 1), "");
        request("DELETE", &format!("{}/odd-block", flavour.path("ipamblocks")), "");
    }
    let mut block = super::support::block(flavour);
    block["metadata"]["name"] = "odd-block".into();
    block["spec"]["cidr"] = "10.9.9.0/30".into();
    request("POST", &flavour.path("ipamblocks"), &block.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn while_others_write_a_cache_gives_what_a_whole_read_finds() {
    let flavour = Flavour::Classic;
    let (spec, server) = (ClusterSpec::new(9).v4_only(), Arc::new(KubeApiserver::start().unwrap()));
    let nodes = kube::seed(&server, flavour, &spec, 4).unwrap();
    let (store, folder) = (open(&server).await, tempfile::tempdir().unwrap());
    let enough = |log: &ChurnLog| log.started > 20;
    let churn =
        Churn { workers: 4, operations: 100_000, enough, limit: LIMIT, leaks: 80, ..Churn::default() };
    let (activity, shared) = (churn.activity.clone(), Arc::clone(&server));
    let work = std::thread::spawn(move || {
        churn.run_on(Target::Kubernetes(&shared, flavour), &spec, &nodes).unwrap()
    });
    while activity.done() < 40 && !work.is_finished() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (mut reads, mut number) = (Vec::new(), 0);
    let is_each_kind_read = |reads: &[[Option<usize>; 4]]| {
        (0..4).all(|kind| reads.iter().filter_map(|changes| changes[kind]).sum::<usize>() > 0)
    };
    while (reads.len() < READS || !is_each_kind_read(&reads)) && !work.is_finished() {
        odd(&server, flavour, number);
        number += 1;
        let found = read(&store, folder.path()).await;
        assert_exact(&server, flavour, &found).await;
        if changes(&found).iter().all(Option::is_some) {
            reads.push(changes(&found));
        }
    }
    activity.stop();
    let log = work.join().unwrap();
    assert!(enough(&log) && reads.len() >= READS && is_each_kind_read(&reads), "{reads:?}, {log:?}");

    let found = read(&store, folder.path()).await;
    assert_exact(&server, flavour, &found).await;
    assert_whole(&store, &found).await;
    assert_eq!(changes(&read(&store, folder.path()).await), [Some(0); 4], "nothing has happened since");

    // Without a file of its own, a kind is as before.
    let whole = store.observe_with_cache(folder.path(), &quiet()).await.unwrap();
    assert_whole(&store, &whole).await;
}

fn file_of(folder: &Path, kind: &str) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let end = format!("-{kind}.cache");
    let files: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with(&end)).collect();
    let [only] = files.as_slice() else { panic!("{files:?}") };
    only.clone()
}

fn write_pod(server: &KubeApiserver, name: &str) {
    create(server, "/api/v1/namespaces/default/pods", &[pod(name, "node-1")]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_is_damaged_or_strange_is_passed_over() {
    let flavour = Flavour::Native;
    let server = server(flavour);
    seed(&server, flavour);
    let (store, folder) = (open(&server).await, tempfile::tempdir().unwrap());
    let first = read(&store, folder.path()).await;
    assert_eq!(why(&first, "pods"), WhyWhole::NoCacheYet);
    let path = file_of(folder.path(), "pods");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    write_pod(&server, "web-1");
    let found = read(&store, folder.path()).await;
    assert_eq!(changes(&found), [Some(0), Some(0), Some(0), Some(1)]);
    assert_whole(&store, &found).await;

    // Of all kinds one is damaged, of another kind, cut or a link: the others are read as ever.
    let sound = fs::read(&path).unwrap();
    let mut flipped = sound.clone();
    flipped[60] ^= 0x10;
    let handles = fs::read(file_of(folder.path(), "ipamhandles")).unwrap();
    for (what, bytes) in [("flipped", &flipped), ("another kind", &handles), ("empty", &Vec::new())] {
        fs::write(&path, bytes).unwrap();
        let found = read(&store, folder.path()).await;
        assert!(matches!(why(&found, "pods"), WhyWhole::Unusable(_)), "{what}: {:?}", found.used);
        assert_eq!(changes(&found), [Some(0), Some(0), Some(0), None], "{what}");
        assert_whole(&store, &found).await;
    }
    // What a killed run left at the end is passed over: the change is read once more.
    fs::write(&path, &sound[..sound.len() - 30]).unwrap();
    let found = read(&store, folder.path()).await;
    assert_eq!(changes(&found), [Some(0), Some(0), Some(0), Some(1)]);
    assert_whole(&store, &found).await;

    // Of two runs at once one finds the change, the other finds it too, or in the cache already.
    fs::write(&path, &sound[..sound.len() - 30]).unwrap();
    let (one, two) = tokio::join!(read(&store, folder.path()), read(&store, folder.path()));
    assert!([&one, &two].iter().any(|found| changes(found)[3] == Some(1)), "{:?} {:?}", one.used, two.used);
    for found in [one, two] {
        assert!(matches!(changes(&found)[..], [Some(0), Some(0), Some(0), Some(0 | 1)]), "{:?}", found.used);
        assert_whole(&store, &found).await;
    }

    // The documented role is enough; without the right to watch everything is read.
    let token = service_account_token(&server, "calipam").unwrap();
    let [mut role, mut binding, ..]: [_; 5] = documented().try_into().unwrap();
    binding["subjects"][0]["namespace"] = "default".into();
    create(&server, ROLES, &[role.clone()]).unwrap();
    create(&server, BINDINGS, &[binding]).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let reader = settings(&kubeconfig_with_token(&server, elsewhere.path(), &token));
    let read_until = async |done: &dyn Fn(&CachedRead) -> bool| {
        // Permissions take a moment to count.
        for _ in 0..200 {
            let store = Datastore::open(&reader).await.unwrap();
            let read = store.observe_with_cache_from(folder.path(), EVERYTHING, &quiet()).await;
            if let Ok(read) = read
                && done(&read)
            {
                return read;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the permissions never count");
    };
    read_until(&|read| changes(read) == [Some(0); 4]).await;
    role["rules"].as_array_mut().unwrap().retain(|rule| rule["verbs"] != json!(["watch"]));
    let changed = server.request("PUT", &format!("{ROLES}/calipam-reader"), &role.to_string()).unwrap();
    assert_eq!(changed.status, 200, "{}", changed.body);
    let found = read_until(&|read| changes(read) == [None; 4]).await;
    for kind in kinds(&found).keys() {
        let forbidden = why(&found, kind);
        assert!(!forbidden.is_usual() && forbidden.to_string().contains("permission denied"), "{forbidden}");
    }
    assert_whole(&store, &found).await;

    // A cluster with another ClusterInformation is another one, also if it calls itself the same.
    let cluster = format!("{}/default", flavour.path("clusterinformations"));
    let old = fs::read(file_of(folder.path(), "pods")).unwrap();
    assert_eq!(server.request("DELETE", &cluster, "").unwrap().status, 200);
    let found = read(&store, folder.path()).await;
    assert!(matches!(why(&found, "pods"), WhyWhole::Unusable(_)), "{:?}", found.used);
    let spec = json!({"clusterGUID": "0f0e1d2c", "calicoVersion": "v3.32.1", "datastoreReady": true});
    let again = resource(flavour, "ClusterInformation", "default", spec);
    create(&server, &flavour.path("clusterinformations"), &[again]).unwrap();
    for file in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(why(&read(&store, folder.path()).await, "pods"), WhyWhole::NoCacheYet);
    fs::write(file_of(folder.path(), "pods"), old).unwrap();
    let found = read(&store, folder.path()).await;
    assert!(why(&found, "pods").to_string().contains("of another cluster"), "{:?}", found.used);
    assert_whole(&store, &found).await;

    // A place that cannot be written is told, and the check goes on.
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    let unsaved = read(&store, &file).await;
    assert!(unsaved.unsaved.is_some(), "{:?}", unsaved.used);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

/// Opens a server that was started again as soon as it can be read: until it holds custom resources it refuses to list them.
async fn open_again(server: &KubeApiserver) -> Datastore {
    for _ in 0..600 {
        if let Ok(store) = Datastore::open(&settings(&server.kubeconfig())).await
            && observe(&store).await.is_ok()
        {
            return store;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it can never be read");
}

/// A server that was started again knows nothing of what was before; one whose etcd was restored, something else.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_started_anew_or_restored_is_read_whole() {
    let flavour = Flavour::Classic;
    let mut server = server(flavour);
    seed(&server, flavour);
    let (folder, backup) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = |from: &Path, to: &Path| {
        let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
        assert!(status.success());
    };
    read(&open(&server).await, folder.path()).await;
    server
        .restart(|etcd| {
            etcd.kill();
            copy(&etcd.data_dir(), &backup.path().join("data"));
            etcd.restart()
        })
        .unwrap();
    let store = open_again(&server).await;
    let found = read(&store, folder.path()).await;
    assert_eq!(why(&found, "pods"), WhyWhole::Compacted);
    // The last write is still one that is no longer known.
    assert_eq!(why(&read(&store, folder.path()).await, "pods"), WhyWhole::Compacted);
    for n in 0..30 {
        write_pod(&server, &format!("lost-{n}"));
    }
    read(&store, folder.path()).await;
    write_pod(&server, "lost-30");
    let found = read(&store, folder.path()).await;
    assert_eq!(changes(&found)[3], Some(1), "{:?}", found.used);
    assert_whole(&store, &found).await;

    // The backup is before the version of the cache; then the server has come further than that, with other pods.
    let kept = fs::read(file_of(folder.path(), "pods")).unwrap();
    server
        .restart(|etcd| {
            etcd.kill();
            fs::remove_dir_all(etcd.data_dir()).unwrap();
            copy(&backup.path().join("data"), &etcd.data_dir());
            etcd.restart()
        })
        .unwrap();
    let store = open_again(&server).await;
    let found = read(&store, folder.path()).await;
    let before = why(&found, "pods");
    assert!(matches!(before, WhyWhole::AnotherHistory(_)) && !before.is_usual(), "{before:?}");
    assert_whole(&store, &found).await;

    let version = kinds(&found)["pods"].version.clone();
    let written = server.etcd().with_client(async |mut client| {
        // As many as the versions that were lost, and more.
        for n in 0..200 {
            client.put("/elsewhere", n.to_string(), None).await?;
        }
        Ok(())
    });
    written.unwrap();
    write_pod(&server, "other");
    fs::write(file_of(folder.path(), "pods"), kept).unwrap();
    let found = read(&store, folder.path()).await;
    assert!(kinds(&found)["pods"].version.parse::<u64>().unwrap() > version.parse::<u64>().unwrap() + 200);
    assert!(matches!(why(&found, "pods"), WhyWhole::AnotherHistory(_)), "{:?}", found.used);
    assert_whole(&store, &found).await;
}
