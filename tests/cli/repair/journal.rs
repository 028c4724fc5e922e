//! Nothing is written without a journal, and `undo --list` and `--last` find the journals of a user.

use std::os::unix::fs::{PermissionsExt, symlink};

use calipam_files::frames::Packer;
use calipam_repair::journal::{Header, Journal, LockMark, Recorded};

use super::site::*;
use crate::cli::program::{calipam, command};

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
    for place in [at("file/run.journal"), at("file"), at("folder")]
        .into_iter()
        .chain(nowhere)
    {
        let told = format!("error: cannot write the journal {place}: ");
        let run = site.release(&["--leaked", "--journal", &place]).failed(3, &told);
        let run = run.says("\nhint: nothing is written to the datastore without a journal: name a file with `calipam release --leaked ");
        assert!(
            !run.stderr.contains("calipam undo"),
            "there is nothing to undo: {run:?}"
        );
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
        command
            .args(arguments)
            .env("ETCD_ENDPOINTS", site.etcd.endpoint())
            .env("HOME", "./x");
        // Root can write every folder, but no folder below a file.
        Run::of(
            command
                .env("STATE_DIRECTORY", "/dev/null/calipam")
                .stdin(Stdio::null()),
        )
    };
    let calipam = Path::new(crate::cli::PROGRAM);
    let release = [&["release", "--leaked", "--yes"], &AT_ONCE[..]].concat();
    let told = "error: there is no place for journals: neither HOME nor XDG_STATE_HOME is an absolute path, and \
                /var/lib/calipam cannot be written\nhint: ";
    let set = "set HOME or XDG_STATE_HOME to an absolute path";
    let or_name = format!("{set}, or name the journal");
    for (program, arguments, hint) in [
        (
            calipam,
            &release[..],
            "name a file with `calipam release --leaked ",
        ),
        (calipam, &["undo", "--list", "--journal", "j"], &or_name),
        (calipam, &["undo", "--last"], &or_name),
        (
            &calicoctl,
            &["ipam", "configure", "--strictaffinity=true"],
            &format!("{set}\n"),
        ),
    ] {
        let run = homeless(program, arguments);
        assert!(
            run.code != 0 && run.stderr.contains(&format!("{told}{hint}")),
            "{run:?}"
        );
    }
    // A command that only reads needs no folder for journals.
    homeless(
        calipam,
        &[&["release", "--leaked", "--dry-run"], &AT_ONCE[..]].concat(),
    )
    .succeeded();
}

/// A container has no home, but may have a volume.
#[test]
fn without_a_home_journals_are_in_the_state_directory_of_the_system() {
    let (site, _) = Site::leaky();
    let volume = site.home.path().join("volume");
    let mut release = command(crate::cli::PROGRAM);
    release
        .args(["release", "--leaked", "--yes"])
        .args(AT_ONCE)
        .stdin(Stdio::null());
    release
        .env("ETCD_ENDPOINTS", site.etcd.endpoint())
        .env_remove("HOME")
        .env("STATE_DIRECTORY", &volume);
    let run = Run::of(&mut release).succeeded();
    let journal = journal_of(&run);
    assert!(
        Path::new(&journal).starts_with(&volume) && Path::new(&journal).exists(),
        "{journal}"
    );
}

/// Runs a command with a limit on the size of files, in blocks of 512 bytes. This acts like a full disk.
fn on_a_small_disk(command: &Command, blocks: u32) -> Run {
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        &format!(r#"trap "" XFSZ; ulimit -f {blocks}; exec "$0" "$@""#),
    ]);
    shell
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .stdin(Stdio::null());
    shell.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    shell.current_dir(command.get_current_dir().unwrap());
    Run::of(shell)
}

#[test]
fn a_full_disk_stops_it() {
    let site = Site::of(&leaky(40));
    let whole = journal_of(&site.release(&["--leaked"]));
    let needed = u32::try_from(std::fs::metadata(&whole).unwrap().len()).unwrap();
    site.undo(&whole).succeeded();
    let before = site.dump();
    let arguments = [&["release", "--leaked", "--yes"], &AT_ONCE[..]].concat();
    // With 0 blocks, not even the first line of the journal fits; with 1, it fits, but the first intent does not.
    for blocks in [0, 1] {
        let run = on_a_small_disk(&site.command(&arguments), blocks);
        let run = run
            .failed(3, "error: cannot write the journal ")
            .says("\nhint: ")
            .says("File too large");
        assert_eq!(site.dump(), before, "{blocks}");
        if blocks == 1 {
            assert!(run.stderr.contains(" not started"), "{run:?}");
            assert!(!run.stderr.contains("not answered"), "no write was sent: {run:?}");
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
            site.undo(&journal_of(&run)).succeeded();
            continue;
        }
        let run = run.exits(3);
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
    assert_eq!(
        (again.code, site.findings(&[])),
        (0, BTreeSet::new()),
        "{again:?}"
    );
}

#[test]
fn a_journal_is_for_its_user_alone_and_undo_refuses_other_files() {
    let site = Site::of(&leaky(1));
    let journal = journal_of(&site.release(&["--leaked"]));
    assert_eq!(site.journals(), [PathBuf::from(&journal)]);
    assert_eq!(
        std::fs::metadata(&journal).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let before = site.dump();
    let lines = zstd::stream::decode_all(std::fs::File::open(&journal).unwrap()).unwrap();
    let text = String::from_utf8(lines).unwrap();
    let damaged = text.replacen("\"intent\"", "\"inten\"", 1);
    let other = text.replacen("\"format\":1", "\"format\":99", 1);
    let strange = text.replace("/calico/ipam/v2/handle/", "/registry/secrets/");
    for (name, text, told) in [
        ("words", "just words\n".to_owned(), "is not a calipam journal"),
        ("empty", String::new(), "is not a calipam journal"),
        ("damaged", damaged, "line 2 of the journal"),
        ("other", other, "has format 99; this program reads format 1"),
        ("strange", strange, "line 2 of the journal"),
    ] {
        let path = site.home.path().join(name);
        let mut frame = Vec::new();
        Packer::new().unwrap().push(text.as_bytes(), &mut frame).unwrap();
        std::fs::write(&path, frame).unwrap();
        site.undo(path.to_str().unwrap()).failed(3, told).says("\nhint: ");
    }
    site.undo("/nonexistent/journal")
        .failed(3, "cannot read the journal /nonexistent/journal");
    assert_eq!(site.dump(), before);
}

/// Lists the journals of the user.
fn listed(site: &Site) -> Vec<Value> {
    let list = site.run(&["undo", "--list", "-o", "json"]).json();
    assert_eq!(list["kind"], "JournalList", "{list}");
    list["journals"].as_array().unwrap().clone()
}

#[test]
fn the_last_run_is_undone_in_its_cluster() {
    let mut cluster = healthy();
    let [first, second] = [leak(&mut cluster, 0), leak(&mut cluster, 1)];
    let site = Site::of(&cluster);
    site.run(&["undo", "--last", "--yes"])
        .failed(1, "error: there is no run to undo in ");

    let before = site.dump();
    for pod in [&first, &second] {
        assert_eq!(site.release(&["--handle", &pod.handle]).code, 0);
    }
    let released = site.dump();
    let journals = listed(&site);
    let of = |journal: &Value, name: &str| journal[name].as_str().unwrap().to_owned();
    assert_eq!(journals.len(), 2);
    for journal in &journals {
        let [command, state] = ["command", "state"].map(|name| of(journal, name));
        assert_eq!(
            (&*command, &*state),
            ("release --handle", "ended"),
            "{journals:?}"
        );
        assert!(
            journal["objects"].as_u64().unwrap() > 1 && journal["undone"] == false,
            "{journals:?}"
        );
    }
    assert!(of(&journals[0], "startedAt") > of(&journals[1], "startedAt"));

    // The environment names another cluster, but the journal contains the location of the cluster that was changed.
    let last = |more: &[&str]| {
        let mut command = site.command(&[&["undo", "--last", "--yes"], more].concat());
        Run::of(command.env("ETCD_ENDPOINTS", "http://127.0.0.1:1"))
    };
    let undone = last(&[]).succeeded();
    let told = format!(
        "connecting to the journal's datastore: etcd {}\n",
        site.etcd.endpoint()
    );
    assert!(undone.stderr.starts_with(&told), "{undone:?}");
    assert!(recorded(&site.dump()).contains_key(&second.address()));
    assert!(
        !recorded(&site.dump()).contains_key(&first.address()),
        "only the last one"
    );

    // The next run to undo is the earlier one. The undo itself and the run that was undone do not count.
    let again = last(&["--etcd-endpoints", &site.etcd.endpoint()]);
    assert_eq!(
        (again.code, values(&site.dump())),
        (0, values(&before)),
        "{again:?}"
    );
    let journals = listed(&site);
    let states: Vec<bool> = journals.iter().map(|journal| journal["undone"] == true).collect();
    assert_eq!(states, [false, false, true, true], "{journals:?}");
    assert_eq!(last(&[]).code, 1, "nothing is left to undo");

    // An undo can be undone by the name of its journal. This repeats the undone run.
    assert_eq!(site.undo(&of(&journals[1], "journal")).code, 0);
    assert!(recorded(&site.dump()).len() == recorded(&released).len() + first.addresses.len());
}

/// Adds the journal of a run that was killed after it had locked the datastore, before its first change.
fn kill_while_locking(site: &Site, before: &str) {
    let open = String::from_utf8(site.value(INFORMATION).unwrap()).unwrap();
    site.put(
        INFORMATION,
        open.replace("\"datastoreReady\":true", "\"datastoreReady\":false"),
    );
    let (_, revision) = site.dump()[INFORMATION];
    let (command, started_at) = ("split".to_owned(), Timestamp::now().to_string());
    let header = Header {
        command,
        started_at,
        ..Recorded::read(Path::new(before)).unwrap().header
    };
    let journal = Journal::create(&Path::new(before).with_file_name("killed.journal"), &header).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for mark in [
        LockMark::Taking(Some(true)),
        LockMark::Taken(revision.to_string()),
    ] {
        runtime.block_on(journal.mark_lock(mark)).unwrap();
    }
}

#[test]
fn the_last_run_is_the_newest_whatever_it_did() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    let first = journal_of(&site.release(&["--leaked"]).succeeded());
    let released = site.dump();
    let undo = || site.run(&["undo", "--last", "--yes"]);

    // Nobody knows what the run of a damaged journal did.
    let damaged = Path::new(&first).with_file_name("damaged.journal");
    let mut bytes = std::fs::read(&first).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    undo().failed(3, "line ").says("damaged.journal").says("\nhint: ");
    let mut frame = Vec::new();
    Packer::new().unwrap().push(b"{}\n", &mut frame).unwrap();
    std::fs::write(&damaged, frame).unwrap();
    undo()
        .failed(1, "is newer than the newest run")
        .says("\nhint: ")
        .says(&first);
    assert_eq!(site.dump(), released);
    std::fs::remove_file(&damaged).unwrap();

    kill_while_locking(&site, &first);
    let unlocked = undo()
        .exits(1)
        .says("The datastore is no longer locked.")
        .says("changed nothing else");
    assert_eq!(values(&site.dump()), values(&released), "{unlocked:?}");

    // Nothing is left of that run, so the one before it is the next.
    undo()
        .succeeded()
        .says("passing over `split` of ")
        .says("which changed nothing (journal ");
    assert_eq!(values(&site.dump()), values(&before));
}

#[test]
fn the_last_run_and_a_journal_are_those_of_one_cluster() {
    let (site, _) = Site::leaky();
    let run = site.release(&["--leaked"]).succeeded();
    let other = Site::leaky().0;
    other.become_another_cluster();
    let before = other.dump();
    let there = other.etcd.endpoint();
    let undo = |which: &str| site.run(&["undo", which, "--yes", "--etcd-endpoints", &there]);
    undo("--last").failed(1, "there is no run of cluster ffffffff");
    undo(&journal_of(&run))
        .failed(1, "made for cluster 0f0e1d2c")
        .says("\nhint: ");
    assert_eq!(other.dump(), before);
}

#[test]
fn the_undo_hint_is_printed_once() {
    for arguments in [
        &["undo"][..],
        &["undo", "x", "--last"],
        &["undo", "--last", "--list"],
    ] {
        calipam(arguments).exits(2).prints_nothing();
    }
    calipam(&["undo"])
        .says("undo --last` undoes the newest run")
        .says("undo --list` lists");
}
