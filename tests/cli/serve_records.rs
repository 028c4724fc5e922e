//! `calipam serve --record` records while it checks, and uses earlier records for its forecast.

use std::fs;
use std::path::{Path, PathBuf};

use calipam_files::recording::{Change, Journal, Position, Recorder};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use jiff::{SignedDuration, Timestamp};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::history::{ADDRESS, Site};
use super::program::{calipam, command, on_etcd};
use super::record::{length, spans, wait};
use super::serve::Server;

#[test]
fn serve_records_or_continues_without_recording() {
    let etcd = Etcd::of(&Cluster::plain(ClusterSpec::new(31).at(Timestamp::now()), 2, 3)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let record = format!("--settle 0 --record {} --keep 24h:all", folder.path().display());
    let arguments = format!("{record} --etcd-endpoints {}", etcd.endpoint());
    let server = Server::start(&arguments);
    server.wait("/healthz", |answer| answer.status == 200);
    wait(|| length(folder.path()) > 0);
    // The folder is in use by the first server.
    let second = Server::start(&arguments);
    second.wait("/healthz", |answer| answer.status == 200);
    let (code, said) = second.terminate();
    assert!(
        code == Some(0) && said.contains("another run is writing to this archive"),
        "{said}"
    );
    assert_eq!(server.terminate().0, Some(0));
}

/// A server with a limit on the size of files, which acts like a full disk. The limit can be changed while the server
/// runs.
struct OnSmallDisk(Server);

impl OnSmallDisk {
    /// Starts a server with a limit in blocks of 512 bytes, or without one.
    fn start(folder: &Path, endpoint: &str, blocks: &str) -> Self {
        let script = format!(
            "trap '' XFSZ; ulimit -S -f {blocks}; exec {} serve --listen 127.0.0.1:0 --settle 0 --record {} --etcd-endpoints {endpoint}",
            crate::cli::PROGRAM,
            folder.display()
        );
        let server = Server::of(command("/bin/sh").args(["-c", &script]));
        server.wait("/healthz", |answer| answer.status == 200);
        Self(server)
    }

    /// Changes the limit.
    fn limit(&self, bytes: Option<u64>) {
        let process = Pid::from_raw(self.0.process_id().cast_signed());
        let maximum = getrlimit(Resource::Fsize).maximum;
        prlimit(
            process,
            Resource::Fsize,
            Rlimit {
                current: bytes.or(maximum),
                maximum,
            },
        )
        .unwrap();
    }
}

#[test]
fn a_disk_that_fills_leaves_a_gap_and_checks_go_on() {
    let mut site = Site::begin(Etcd::start().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut server = OnSmallDisk::start(folder.path(), &site.etcd.endpoint(), "unlimited");
    let after = |change: &mut dyn FnMut()| {
        let before = length(folder.path());
        change();
        wait(|| length(folder.path()) > before);
    };
    wait(|| length(folder.path()) > 0);
    after(&mut || _ = site.assign("web-0"));
    let recorded = length(folder.path());

    server.limit(Some(recorded));
    site.release();
    server.0.wait_for_line("File too large");
    site.put_other();
    server
        .0
        .wait("/report.json", |answer| answer.body.contains("orphan-handle"));
    assert_eq!(length(folder.path()), recorded);
    let kept = site.assign("api-0");
    site.compact(kept);

    server.limit(None);
    server
        .0
        .wait_for_line("a gap: the server no longer has the changes");
    after(&mut || _ = site.release());
    let archive = folder.path().display();
    let told = calipam(&format!("history --archive {archive} --ip {ADDRESS} -o json")).json();
    assert_eq!(spans(&told), 2, "{told}");
    assert_eq!(server.0.terminate().0, Some(0));
}

#[test]
fn a_disk_that_is_full_at_the_start_has_no_part_of_a_state() {
    let site = Site::begin(Etcd::start().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut server = OnSmallDisk::start(folder.path(), &site.etcd.endpoint(), "0");
    server.0.wait_for_line("File too large");
    server
        .0
        .wait_for_line("nothing is recorded; trying again in 10 s");
    let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap());
    let written: Vec<_> = files.filter(|file| file.metadata().unwrap().len() > 0).collect();
    assert!(written.is_empty(), "{written:?}");

    server.limit(None);
    wait(|| length(folder.path()) > 0);
    assert_eq!(server.0.terminate().0, Some(0));
}

/// The records cover more than an hour before the start, with an assignment every ten minutes.
#[test]
fn the_forecast_knows_what_was_recorded_before_the_start() {
    let mut site = Site::begin(Etcd::start().unwrap());
    let [exported, folder] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let file = exported.path().join("export.jsonl");
    on_etcd(&site.etcd, &format!("export {}", file.display())).succeeded();
    let text = fs::read_to_string(&file).unwrap();
    let (header, entries) = text.split_once('\n').unwrap();
    let mut header: serde_json::Value = serde_json::from_str(header).unwrap();
    let begin = Timestamp::now() - SignedDuration::from_mins(75);
    header["takenAt"] = begin.to_string().into();
    fs::write(&file, format!("{header}\n{entries}")).unwrap();
    let archive = exported.path().join("archive");
    calipam(&format!(
        "export --archive {} -d {}",
        archive.display(),
        file.display()
    ))
    .succeeded();
    let is_export = |path: &PathBuf| path.extension().is_some_and(|end| end == "zst");
    let packed = fs::read_dir(archive)
        .unwrap()
        .map(|file| file.unwrap().path())
        .find(is_export)
        .unwrap();
    let revision = header["revision"].as_str().unwrap().parse().unwrap();

    let recorder = Recorder::open(folder.path()).unwrap();
    let adding = recorder.begin().unwrap();
    fs::copy(packed, adding.path()).unwrap();
    let added = adding.finish(0).unwrap();
    let positions = [("etcd".to_owned(), Position::at(revision))].into();
    let mut journal = Journal::create(&added, positions, false).unwrap();
    for step in 0..7 {
        let revision = site.assign_at(10 + step);
        let (key, value) = site.block();
        let change = Change {
            key,
            revision,
            value: Some(value),
        };
        let now = begin + SignedDuration::from_mins(10 * i64::from(step) + 5);
        journal
            .append(now, [("etcd".to_owned(), revision)].into(), vec![change])
            .unwrap();
    }
    drop((journal, recorder));

    let record = format!("--interval 1s --settle 0 --record {}", folder.path().display());
    let server = Server::start(&format!("{record} --etcd-endpoints {}", site.etcd.endpoint()));
    let has_forecast = |text: &str| {
        let mut lines = text
            .lines()
            .filter(|line| line.starts_with("calipam_ippool_exhaustion_seconds{"));
        lines.any(|line| line.contains("expected") && !line.ends_with("+Inf"))
    };
    server.wait("/metrics", |answer| has_forecast(&answer.body));
    assert_eq!(server.terminate().0, Some(0));
}
