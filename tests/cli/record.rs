//! `calipam record` keeps every change for `history`, `show` and `diff`, despite kills, compactions and full disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::allocator::{Churn, Scene};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::{Etcd, EtcdVersion, Tool, left_out};
use jiff::Timestamp;
use serde_json::Value;

use super::from_archive::simulate;
use super::history::{ADDRESS, Site, events, is_told};
use super::kube_cluster::{KubeCluster, Record, pod};
use super::program::{EXAMPLE, GUID, Run, calipam, edited_example, on_example, prepare, scratch};
use super::serve::Server;

/// The timeout for every wait, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running recorder.
struct Recorder {
    program: Server,
    folder: PathBuf,
}

impl Recorder {
    /// Starts a recorder, and waits until it records. Also returns what it says about that.
    fn start(folder: &Path, connection: &[&str]) -> (Self, String) {
        let before = length(folder);
        let program = Server::after(prepare("record").arg(folder).args(connection), "recording ");
        // The recorder first records the changes that are already pending.
        wait(|| length(folder) > before);
        let said = program.address.clone();
        (
            Self {
                program,
                folder: folder.to_owned(),
            },
            said,
        )
    }

    /// Makes a change, and waits until it is recorded.
    fn after<T>(&self, change: impl FnOnce() -> T) -> T {
        let before = length(&self.folder);
        let changed = change();
        wait(|| length(&self.folder) > before);
        changed
    }

    fn kill(self) {
        self.program.kill();
    }

    /// Ends the recorder with SIGTERM, and returns the rest of its output.
    fn terminate(self) -> String {
        let (code, said) = self.program.terminate();
        assert_eq!(code, Some(0));
        said
    }
}

/// Returns the total length of the change files in a folder.
pub(super) fn length(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let changes = files.filter(|file| file.file_name().to_string_lossy().ends_with(".changes"));
    changes.map(|file| file.metadata().unwrap().len()).sum()
}

pub(super) fn wait(is_recorded: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_recorded() {
        assert!(begin.elapsed() < PATIENCE, "nothing is recorded");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a command on what is recorded about the address.
fn of_archive(archive: &str, command: &str, more: &[&str]) -> Run {
    calipam(&[&[command, "--archive", archive, "--ip", ADDRESS], more].concat())
}

/// True if the recorded state equals that of the datastore.
fn is_recorded(archive: &str, datastore: &str) -> bool {
    let line = format!(
        "diff --settle 0 --archive {archive} --at {} {datastore}",
        Timestamp::now()
    );
    calipam(&line).completed().code == 0
}

pub(super) fn spans(told: &Value) -> usize {
    told["recorded"].as_array().unwrap().len()
}

/// Asserts that a simulation has the rates of these pods.
fn has_rates(load: Run, pods: &str) {
    let scenario = &load.says(pods).json()["scenario"];
    assert!(
        scenario["arrival"].is_string() && scenario["lifetime"].is_string(),
        "{scenario}"
    );
}

#[test]
fn a_recording_shows_the_owner_of_an_address_at_a_time() {
    is_told("calipam record /var/lib/calipam/archive --keep 24h:all,30d:daily,1y:monthly");
    let mut site = Site::begin(Etcd::start().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().to_str().unwrap();
    let connection = ["--etcd-endpoints", &site.etcd.endpoint()];
    let (recorder, _) = Recorder::start(folder.path(), &connection);
    recorder.after(|| site.assign("web-0"));
    let had = Timestamp::now();
    thread::sleep(Duration::from_millis(10));
    recorder.after(|| site.release());
    // Several changes occur within one second. Each revision of etcd is recorded.
    recorder.after(|| {
        site.assign("short-0");
        site.release();
    });
    recorder.kill();

    let history = || of_archive(archive, "history", &["-o", "json"]).succeeded().json();
    let told = history();
    assert_eq!(
        events(&told),
        ["known", "assigned", "released", "reused", "released"],
        "{told}"
    );
    let between = &told["events"][2]["time"];
    assert!(
        between["after"].as_str().unwrap() > told["exports"][0].as_str().unwrap(),
        "{told}"
    );
    assert_eq!(spans(&told), 1);

    let load = simulate(
        archive,
        &["--pool", "10.0.0.0/16", "--nodes", "1", "--pods-per-node", "1"],
    );
    has_rates(
        load,
        " 2 pods started and 2 pods ended; the average number of pods was ",
    );

    // Changes while no recorder runs are recorded later, if etcd still has them.
    let latest = site.assign("api-0");
    let (recorder, line) = Recorder::start(folder.path(), &connection);
    assert!(line.starts_with("continues after "), "{line}");
    recorder.after(|| site.release());
    recorder.kill();
    let told = history();
    assert_eq!(events(&told)[5..], ["reused", "released"], "{told}");
    assert_eq!(spans(&told), 1);

    // After a compaction, the history shows the gap, and the events before and after it.
    site.assign("gone-0");
    site.release();
    let kept = site.assign("last-0");
    site.compact(kept);
    assert!(kept > latest);
    let (recorder, line) = Recorder::start(folder.path(), &connection);
    assert!(line.starts_with("continues after "), "{line}");
    recorder.after(|| site.put_other());
    let said = recorder.terminate();
    assert!(
        said.contains("a gap: the server no longer has the changes"),
        "{said}"
    );
    let told = history();
    assert_eq!(events(&told)[7..], ["reused"], "{told}");
    assert_eq!(told["events"][7]["after"]["allocatedTo"], "shop/last-0");
    assert_eq!(spans(&told), 2);

    // etcd itself still has the events since the compaction.
    site.release();
    site.assign("etcd-0");
    let load = simulate("etcd", &connection).says_first("etcd: in ");
    has_rates(
        load,
        " 1 pod started and 1 pod ended; the average number of pods was ",
    );
    let text = of_archive(archive, "history", &[]).stdout;
    assert!(
        text.contains("every change was recorded from ") && text.contains(", with a gap: "),
        "{text}"
    );

    // Shows the state at the time at which the pod had the address.
    let at = had.to_string();
    let shown = of_archive(archive, "show", &["--at", &at, "-o", "json"]).does_not_say("nothing is known");
    assert!(
        shown.stdout.contains("\"web-0\"") || shown.stdout.contains("shop/web-0"),
        "{shown:?}"
    );
    let checked = calipam(&["check", "--archive", archive, "--at", &at, "-o", "json"]).completed();
    let taken = checked.json()["cluster"]["takenAt"]
        .as_str()
        .unwrap()
        .parse::<Timestamp>()
        .unwrap();
    assert!(taken <= had, "{taken} is later than {had}");
    let gap = told["recorded"][0]["until"]
        .as_str()
        .unwrap()
        .parse::<Timestamp>()
        .unwrap();
    let diff = of_archive(archive, "diff", &["--at", &at, "-o", "json"]).exits(1);
    assert_eq!(diff.json()["addresses"][0]["change"], "moved", "{diff:?}");
    let in_gap = (gap + Duration::from_secs(600)).to_string();
    let until = told["recorded"][1]["until"]
        .as_str()
        .unwrap()
        .parse::<Timestamp>()
        .unwrap();
    // People get no fractions of seconds.
    let last = format!("this is the state of {until:.0}: nothing is known after it\n");
    calipam(&["show", "--archive", archive, "--at", &in_gap])
        .succeeded()
        .says(&last);
    assert!(
        text.contains("; changes in a gap, and later ones, are not known"),
        "{text}"
    );
    calipam(&["show", "--archive", archive, "--at", "2020-01-01T00:00Z"]).failed(2, "has no export from");
}

#[test]
fn two_recorders_are_one_history_and_do_not_share_a_folder() {
    let mut site = Site::begin(Etcd::start().unwrap());
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let connection = ["--etcd-endpoints", &site.etcd.endpoint()];
    let (first, _) = Recorder::start(folders[0].path(), &connection);
    first.after(|| site.assign("web-0"));
    calipam(&[
        "record",
        folders[0].path().to_str().unwrap(),
        connection[0],
        connection[1],
    ])
    .failed(3, "another run is writing to this archive");
    thread::sleep(Duration::from_millis(10));
    // Another recorder takes over, and both run for a while.
    let (second, _) = Recorder::start(folders[1].path(), &connection);
    first.after(|| second.after(|| site.release()));
    first.kill();
    second.after(|| site.assign("api-0"));
    second.kill();
    for entry in fs::read_dir(folders[1].path()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folders[0].path().join(path.file_name().unwrap())).unwrap();
    }
    let archive = folders[0].path().to_str().unwrap();
    let told = of_archive(archive, "history", &["-o", "json"]).json();
    assert_eq!(
        events(&told),
        ["known", "assigned", "released", "reused"],
        "{told}"
    );
    assert_eq!(
        (spans(&told), told["exports"].as_array().unwrap().len()),
        (1, 2),
        "{told}"
    );
}

/// After thousands of changes by several clients, the recorded state equals that of the datastore.
#[test]
fn after_churn_the_recording_equals_the_datastore() {
    let scene = Scene::on_etcd(&Cluster::plain(ClusterSpec::new(41).at(Timestamp::now()), 4, 10));
    let etcd = scene.world.keys();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().to_str().unwrap();
    let endpoint = etcd.endpoint();
    let (recorder, _) = Recorder::start(folder.path(), &["--etcd-endpoints", &endpoint]);
    // This value is larger than the default message limit of etcd clients, and than the usual frame of a recording.
    let large = format!(r#"{{"block":{{}}{}}}"#, " ".repeat(5 << 20));
    recorder.after(|| etcd.put("/calico/ipam/v2/handle/large", large.clone()).unwrap());
    let log = scene.churn(&Churn {
        operations: 60,
        ..Churn::default()
    });
    // The last group of changes is written after a second, or later on a busy machine.
    wait(|| is_recorded(archive, &format!("etcd --etcd-endpoints {endpoint}")));
    let length = length(folder.path());
    recorder.terminate();
    println!("{} writes of records, {length} bytes of changes", log.writes);
    assert!(log.writes > 100);
}

#[test]
fn kubernetes_is_recorded() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_namespace("shop");
    cluster.add_node("node-1", serde_json::json!({}));
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().to_str().unwrap();
    let kubeconfig = cluster.server.kubeconfig().to_str().unwrap().to_owned();
    let connection = ["--datastore", "kubernetes", "--kubeconfig", kubeconfig.as_str()];
    let (recorder, _) = Recorder::start(folder.path(), &connection);
    let has = |ip: &str, wanted: &[&str]| {
        let told = calipam(&["history", "--archive", archive, "--ip", ip, "-o", "json"]).json();
        wanted.iter().all(|wanted| events(&told).contains(wanted))
    };
    cluster.add_block(
        "10.0.0.0/26",
        "node-1",
        &[Record::of_pod(3, "shop", "web-0", "node-1")],
    );
    cluster.add_pods(&[pod("shop", "web-0", "node-1", "10.0.0.3", 1)]);
    wait(|| has("10.0.0.3", &["assigned", "pod-created"]));
    let delete = |path: &str| {
        assert_eq!(
            cluster.server.request("DELETE", path, "").unwrap().status,
            200,
            "{path}"
        );
    };
    delete("/api/v1/namespaces/shop/pods/web-0?gracePeriodSeconds=0");
    delete("/apis/crd.projectcalico.org/v1/ipamblocks/10-0-0-0-26");
    wait(|| has("10.0.0.3", &["assigned", "pod-created", "pod-gone", "released"]));
    recorder.kill();
    // The API server still has the later events.
    cluster.add_block(
        "10.0.0.64/26",
        "node-1",
        &[Record::of_pod(1, "shop", "web-1", "node-1")],
    );
    let (recorder, line) = Recorder::start(folder.path(), &connection);
    assert!(line.starts_with("continues after "), "{line}");
    cluster.add_pods(&[pod("shop", "web-1", "node-1", "10.0.0.65", 2)]);
    wait(|| has("10.0.0.65", &["assigned", "pod-created"]));
    wait(|| is_recorded(archive, &format!("kubernetes --kubeconfig {kubeconfig}")));
    assert_eq!(recorder.terminate(), "");
    let told = calipam(&["history", "--archive", archive, "--ip", "10.0.0.65", "-o", "json"]).json();
    assert_eq!(spans(&told), 1, "{told}");
}

#[test]
fn recordings_of_files_or_beside_another_cluster_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().to_str().unwrap();
    on_example(&["record", archive]).failed(2, "a recording needs a live datastore");

    // The folder contains the exports of another cluster.
    let other = edited_example(folder.path(), "other.jsonl", &[(GUID, &"f".repeat(32))]);
    calipam(&["export", "--archive", archive, "--datastore", &other]).succeeded();
    let etcd = Etcd::of(&Cluster::plain(ClusterSpec::new(31).at(Timestamp::now()), 2, 3)).unwrap();
    calipam(&["record", archive, "--etcd-endpoints", &etcd.endpoint()]).failed(3, "an archive of cluster");
    calipam(&[
        "show",
        "--archive",
        archive,
        "--at",
        "2026-11-20T03:12Z",
        "-d",
        EXAMPLE,
    ])
    .failed(2, "with --archive, --datastore has no effect");
}

/// Some versions of etcd, such as 3.4.23, could omit changes.
#[test]
fn an_etcd_that_could_leave_changes_out_is_refused() {
    if left_out(&[Tool::OldEtcd]) {
        return;
    }
    let etcd = Etcd::start_version(EtcdVersion::V3_4).unwrap();
    let (_folder, folder) = scratch("recording");
    let endpoint = etcd.endpoint();
    let version = etcd
        .with_client(async |mut client| client.status().await)
        .unwrap()
        .version()
        .to_owned();
    if !["3.4.23", "3.4.24"].contains(&version.as_str()) {
        return;
    }
    calipam(&["record", folder.to_str().unwrap(), "--etcd-endpoints", &endpoint])
        .failed(3, "update it to 3.4.25, 3.5.8 or later");
    assert!(
        !folder.exists() || fs::read_dir(&folder).unwrap().next().is_none(),
        "nothing is recorded"
    );
}
