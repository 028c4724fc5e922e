//! Nothing is written without a journal.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use calipam_files::frames::Packer;
use calipam_repair::journal::Recorded;
use calipam_testkit::cluster::Cluster;

use super::site::*;
use crate::cli::program::{Run, command};

/// Releases leaks, and writes the journal to a path.
fn release_with(site: &Site, journal: &str) -> Run {
    site.release(&["--leaked", "--journal", journal])
}

/// A cluster with a leaked pod on each of many nodes.
fn leaky(nodes: u32) -> Cluster {
    let mut cluster = Cluster::plain(*healthy().spec(), nodes, 1);
    for node in 0..nodes {
        leak(&mut cluster, node as usize);
    }
    cluster
}

#[test]
fn a_place_that_cannot_be_written() {
    let site = Site::of(&leaky(1));
    let before = site.dump();
    let at = |name: &str| site.home.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("file"), "mine").unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    // Permissions do not stop root. Below a file and in /proc, however, not even root can create a journal.
    let nowhere = ["/proc/run.journal", "/proc/nowhere/run.journal"].map(str::to_owned);
    for place in [at("file/run.journal"), at("file"), at("folder")].into_iter().chain(nowhere) {
        let run = release_with(&site, &place).exits(3);
        let told = format!("error: cannot write the journal {place}: ");
        assert!(run.stderr.contains(&told), "{run:?}");
        assert!(
            run.stderr.contains("\nhint: nothing is written to the datastore without a journal: name a file with `calipam release --leaked "),
            "{run:?}"
        );
        assert!(!run.stderr.contains("calipam undo"), "there is nothing to undo: {run:?}");
    }
    assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "mine");
    without_a_place(&site);
    assert_eq!(site.dump(), before);
}

/// Tests an environment that names no folder for journals.
fn without_a_place(site: &Site) {
    let calicoctl = site.home.path().join("calicoctl");
    symlink(crate::cli::PROGRAM, &calicoctl).unwrap();
    let homeless = |program: &Path, arguments: &[&str]| {
        let mut command = command(program);
        command.args(arguments).env("ETCD_ENDPOINTS", site.etcd.endpoint()).env("HOME", "./x");
        Run::of(command.env_remove("XDG_STATE_HOME").stdin(Stdio::null()))
    };
    let calipam = Path::new(crate::cli::PROGRAM);
    let release = [&["release", "--leaked", "--yes"], &AT_ONCE[..]].concat();
    let told = "error: neither HOME nor XDG_STATE_HOME is an absolute path, so there is no place for journals\nhint: ";
    for (program, arguments, hint) in [
        (calipam, &release[..], "name a file with `calipam release --leaked "),
        (
            calipam,
            &["undo", "--list", "--journal", "j"],
            "set HOME or XDG_STATE_HOME to an absolute path, or name the journal",
        ),
        (calipam, &["undo", "--last"], "set HOME or XDG_STATE_HOME to an absolute path, or name the journal"),
        (
            &calicoctl,
            &["ipam", "configure", "--strictaffinity=true"],
            "set HOME or XDG_STATE_HOME to an absolute path\n",
        ),
    ] {
        let run = homeless(program, arguments);
        assert!(run.code != 0 && run.stderr.contains(&format!("{told}{hint}")), "{run:?}");
    }
    // A command that only reads needs no folder for journals.
    homeless(calipam, &[&["release", "--leaked", "--dry-run"], &AT_ONCE[..]].concat()).succeeded();
}

#[test]
fn a_journal_is_for_its_user_alone() {
    let site = Site::of(&leaky(1));
    let run = site.release(&["--leaked"]);
    let journal = site.journals().pop().unwrap();
    assert_eq!(journal_of(&run), journal.to_str().unwrap());
    assert_eq!(std::fs::metadata(journal).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Runs a command with a limit on the size of files, in blocks of 512 bytes. This acts like a full disk.
fn on_a_small_disk(command: &Command, blocks: u32) -> Run {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!(r#"trap "" XFSZ; ulimit -f {blocks}; exec "$0" "$@""#)]);
    shell.arg(command.get_program()).args(command.get_args()).env_clear().stdin(Stdio::null());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(command.get_current_dir().unwrap());
    Run::of(shell)
}

#[test]
fn a_full_disk_stops_it() {
    let site = Site::of(&leaky(40));
    let whole = journal_of(&site.release(&["--leaked"]));
    let needed = u32::try_from(std::fs::metadata(&whole).unwrap().len()).unwrap();
    assert_eq!(site.undo(&whole).code, 0);
    let before = site.dump();
    let arguments = [&["release", "--leaked", "--yes"], &AT_ONCE[..]].concat();
    // With 0 blocks, not even the first line of the journal fits; with 1, it fits, but the first intent does not.
    for blocks in [0, 1] {
        let run =
            on_a_small_disk(&site.command(&arguments), blocks).failed(3, "error: cannot write the journal ");
        assert!(run.stderr.contains("\nhint: "), "{run:?}");
        assert!(run.stderr.contains("File too large"), "{run:?}");
        assert_eq!(site.dump(), before, "{blocks}");
        if blocks == 1 {
            assert!(run.stderr.contains(" not started"), "{run:?}");
            let recorded = Recorded::read(&site.journals().pop().unwrap()).unwrap();
            assert!(recorded.intents.is_empty() && !recorded.ended);
        }
    }
    // The writes before the disk was full are in the journal, and can be undone. The size of a journal depends on its
    // compression, so a part of it fits only on some of these disks.
    let mut parts = 0;
    for eighths in (2..8).rev() {
        let start = site.dump();
        let run = on_a_small_disk(&site.command(&arguments), needed / 512 * eighths / 8);
        let during = site.dump();
        if run.code == 0 {
            assert_eq!(site.undo(&journal_of(&run)).code, 0);
            continue;
        }
        assert_eq!(run.code, 3, "{run:?}");
        if during != start {
            assert!(recorded(&during).len() < recorded(&start).len(), "{run:?}");
            parts += u32::from(run.stderr.contains(" not started"));
            site.undo(&journal_of(&run)).failed(1, "did not finish");
        }
        assert_eq!(values(&site.dump()), values(&before), "{eighths}");
    }
    assert!(parts > 0, "no disk held a part of what was to be written");
    // With free space, the remaining addresses are released.
    let again = site.release(&["--leaked"]);
    assert_eq!((again.code, site.findings(&[])), (0, set::<String>([])), "{again:?}");
}

#[test]
fn undo_refuses_files_that_are_not_journals() {
    let site = Site::of(&leaky(1));
    let run = site.release(&["--leaked"]);
    let journal = journal_of(&run);
    let before = site.dump();
    let lines = zstd::stream::decode_all(std::fs::File::open(&journal).unwrap()).unwrap();
    let text = String::from_utf8(lines).unwrap();
    let damaged = text.replacen("\"intent\"", "\"inten\"", 1);
    let other = text.replacen("\"format\":1", "\"format\":99", 1);
    let strange = text.replace("/calico/ipam/v2/handle/", "/registry/secrets/");
    let cases = [
        ("words", "just words\n".to_owned(), "is not a calipam journal", 3),
        ("empty", String::new(), "is not a calipam journal", 3),
        ("damaged", damaged, "line 2 of the journal", 3),
        ("other", other, "has format 99; this program reads format 1", 3),
        ("strange", strange, "line 2 of the journal", 3),
    ];
    for (name, text, told, code) in cases {
        let path = site.home.path().join(name);
        let mut frame = Vec::new();
        Packer::new().unwrap().push(text.as_bytes(), &mut frame).unwrap();
        std::fs::write(&path, frame).unwrap();
        let run = site.undo(path.to_str().unwrap());
        assert_eq!(run.code, code, "{name}: {run:?}");
        assert!(run.stderr.contains(told) && run.stderr.contains("\nhint: "), "{name}: {run:?}");
    }
    site.undo("/nonexistent/journal").failed(3, "cannot read the journal /nonexistent/journal");
    assert_eq!(site.dump(), before);
}
