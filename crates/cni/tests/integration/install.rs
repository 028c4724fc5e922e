//! The plugin replaces Calico's and restores it, even if it is killed.

use std::fs::{self, hard_link};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use calipam_cni::install::place::{Place, Program};
use calipam_testkit::servers::{Tool, left_out};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use tempfile::TempDir;

use crate::node::{Node, calicos};
use crate::runtime::{Outcome, PLUGIN};
use crate::world::World;

/// All system calls that change a folder or its files, except for file creation. A kill after a file was created is
/// tested as a kill before the next change.
const CHANGES: [&str; 7] = [
    "renameat2",
    "rename",
    "unlink",
    "copy_file_range",
    "write",
    "fchmod",
    "fsync",
];

#[test]
fn it_replaces_calicos_plugin_and_restores_it() {
    let node = Node::with_calico(30);
    let said = node.succeed("install");
    assert!(said.contains("Calico's, which is kept"), "{said}");
    node.assert_installed(30);
    let version = Command::new(node.path("calico-ipam"))
        .arg("-v")
        .output()
        .unwrap()
        .stdout;
    assert!(version.starts_with(b"calipam "), "{version:?}");

    node.succeed("install");
    node.assert_installed(30);

    // Calico is updated in between, and the updated plugin is restored.
    node.calico_installs(31);
    node.succeed("install");
    node.assert_installed(31);
    node.succeed("uninstall");
    node.assert_calicos(31);
    node.succeed("uninstall");
    node.assert_calicos(31);
}

#[test]
fn a_dry_run_says_what_would_be_replaced() {
    let node = Node::with_calico(30);
    let said = node.succeed("install --dry-run");
    assert!(said.contains("would replace Calico's"), "{said}");
    node.assert_calicos(30);

    node.succeed("install");
    let said = node.succeed("install --dry-run");
    assert!(
        said.contains("is already in place; nothing was changed"),
        "{said}"
    );
    node.assert_installed(30);

    fs::remove_file(node.path("calico-ipam")).unwrap();
    fs::remove_file(node.path("calico-ipam.calico")).unwrap();
    let error = node.fail("install --dry-run");
    assert!(error.contains("there is no calico-ipam to replace"), "{error}");
}

#[test]
fn a_dry_run_finds_what_an_installation_finds() {
    let node = Node::with_calico(30);
    // A killed installation, or a person, has left only the backup.
    fs::rename(node.path("calico-ipam"), node.path("calico-ipam.calico")).unwrap();
    let said = node.succeed("install --dry-run");
    assert!(said.contains("would replace Calico's"), "{said}");
    node.assert_files(&["calico-ipam.calico"]);
    node.succeed("install");
    node.assert_installed(30);
}

#[test]
fn uninstall_names_a_missing_program() {
    let node = Node::with_calico(30);
    let said = node.succeed("uninstall");
    assert!(
        said.contains("is not this program; nothing was changed"),
        "{said}"
    );
    fs::remove_file(node.path("calico-ipam")).unwrap();
    let said = node.succeed("uninstall");
    let folder = node.folder.path().display();
    assert_eq!(
        said,
        format!("there is no calico-ipam in {folder}; nothing was changed\n")
    );
}

/// A hint is the command that the user can run: with the program's own name, and with the folders of the call.
#[test]
fn a_configuration_that_is_no_json_is_named_with_its_place() {
    let node = Node::with_calico(30);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("10-calico.conflist");
    fs::write(&file, "{\n  \"name\": \"net\",\n  \"plugins\": [}\n").unwrap();
    let install = |more: &[&str]| {
        let mut command = Command::new(PLUGIN);
        command
            .arg("install")
            .args(more)
            .arg("--bin-dir")
            .arg(node.folder.path());
        Outcome::from(
            command
                .arg("--conf-dir")
                .arg(folder.path())
                .env_clear()
                .output()
                .unwrap(),
        )
    };
    for more in [&[][..], &["--dry-run"]] {
        let refused = install(more);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        let said = format!("{} is not JSON: ", file.display());
        assert!(refused.stderr.contains(&said), "{refused:?}");
        assert!(refused.stderr.contains(" at line 3 column "), "{refused:?}");
        assert!(
            refused.stderr.contains("\nhint: correct the file, or restart"),
            "{refused:?}"
        );
        node.assert_calicos(30);
    }

    // The file is right, and the datastore does not answer.
    let network = json!({"name": "net", "plugins": [{"type": "calico", "etcd_endpoints": "http://127.0.0.1:1",
        "ipam": {"type": "calico-ipam"}}]});
    fs::write(&file, network.to_string()).unwrap();
    let refused = install(&["--dry-run"]);
    let bin = node.folder.path().display();
    let conf = folder.path().display();
    let anyway = format!("`{PLUGIN} install --bin-dir {bin} --conf-dir {conf} --no-check` installs anyway");
    assert!(refused.stderr.contains(&anyway), "{refused:?}");
}

#[test]
fn an_update_of_calico_that_was_not_replaced_yet_stays() {
    let node = Node::with_calico(30);
    node.succeed("install");
    node.calico_installs(31);
    assert!(!node.place().restore().unwrap());
    node.assert_beside(31, 30);
}

/// An existing backup, or a link to it, can come from another program.
#[test]
fn without_an_installation_nothing_is_removed() {
    let node = Node::with_calico(31);
    node.write("calico-ipam.calico", &calicos(30));
    node.succeed("uninstall");
    node.assert_beside(31, 30);
    let ways: [fn(PathBuf, PathBuf) -> io::Result<()>; 2] = [symlink, hard_link];
    for linked in ways {
        fs::remove_file(node.path("calico-ipam")).unwrap();
        linked(node.path("calico-ipam.calico"), node.path("calico-ipam")).unwrap();
        node.succeed("uninstall");
        node.assert_beside(30, 30);
        node.succeed("install");
        node.assert_installed(30);
        node.succeed("uninstall");
        node.assert_calicos(30);
        node.write("calico-ipam.calico", &calicos(30));
    }
}

#[test]
fn on_a_full_disk_nothing_is_left() {
    let node = Node::with_calico(30);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", r#"trap "" XFSZ; ulimit -f 1; exec "$0" "$@""#])
        .arg(PLUGIN);
    let full = shell
        .args(["install", "--no-check", "--bin-dir"])
        .arg(node.folder.path())
        .output();
    let full = Outcome::from(full.unwrap());
    assert!(
        full.code == Some(1) && full.stderr.contains("cannot write "),
        "{full:?}"
    );
    node.assert_calicos(30);
}

#[test]
fn a_broken_plugin_is_replaced_by_the_original() {
    let node = Node::with_calico(30);
    let broken = || {
        let whole = fs::read("/bin/sh").unwrap();
        node.write("calico-ipam", &whole[..whole.len() - 100]);
        let file = fs::File::options()
            .write(true)
            .open(node.path("calico-ipam"))
            .unwrap();
        file.set_modified(SystemTime::now() - Duration::from_mins(2))
            .unwrap();
    };
    broken();
    // There is no original.
    node.fail("install");
    node.fail("uninstall");
    node.assert_files(&["calico-ipam"]);

    node.write("calico-ipam.calico", &calicos(30));
    node.succeed("install");
    node.assert_installed(30);
    broken();
    node.succeed("uninstall");
    node.assert_calicos(30);
}

#[test]
fn a_pipe_is_refused_without_blocking() {
    let node = Node::with_calico(30);
    fs::remove_file(node.path("calico-ipam")).unwrap();
    pipe(&node.path("calico-ipam"));
    for order in ["install", "uninstall"] {
        let error = node.fail(order);
        assert!(error.contains("it is not a regular file"), "{error}");
    }
}

#[test]
fn another_version_of_itself_is_not_kept_as_calicos() {
    let node = Node::with_calico(30);
    let mut other = fs::read(PLUGIN).unwrap();
    other.extend_from_slice(b"another version");
    node.write("other", &other);
    assert!(
        Place::new(node.folder.path(), &node.path("other"))
            .install()
            .is_ok()
    );
    fs::remove_file(node.path("other")).unwrap();
    let said = node.succeed("install");
    assert!(said.contains("another version of itself"), "{said}");
    node.assert_installed(30);
}

#[test]
fn it_waits_for_calico_and_replaces_no_file_that_is_being_written() {
    let node = Node::with_calico(30);
    fs::remove_file(node.path("calico-ipam")).unwrap();
    let error = node.fail("install");
    assert!(error.contains("Calico is not installed"), "{error}");
    node.assert_files(&[]);

    // First, a program that is not executable yet; then, a program whose end is missing.
    node.write("calico-ipam", &calicos(30));
    fs::set_permissions(node.path("calico-ipam"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(node.place().plugin().unwrap(), Program::Unfinished);
    let whole = fs::read("/bin/sh").unwrap();
    node.write("calico-ipam", &whole[..whole.len() - 100]);
    assert_eq!(node.place().plugin().unwrap(), Program::Unfinished);
    node.fail("uninstall");
    node.write("calico-ipam", &whole);
    assert_eq!(node.place().plugin().unwrap(), Program::Calicos);
}

#[test]
fn without_the_original_it_stays_with_a_hint() {
    let node = Node::with_calico(30);
    node.succeed("install");
    fs::remove_file(node.path("calico-ipam.calico")).unwrap();
    let error = node.fail("uninstall");
    assert!(error.contains("\nhint: restart"), "{error}");
    assert_eq!(node.place().plugin().unwrap(), Program::This);
}

/// Kills a run before each of its changes in turn. The plugin is always a whole program, and the next run ends as if
/// nothing had happened.
#[test]
fn killed_at_any_step_a_working_plugin_is_in_place() {
    if left_out(&[Tool::Strace]) {
        return;
    }
    let begin = |installed: bool, overwritten: bool| {
        let node = Node::with_calico(30);
        if installed {
            node.succeed("install");
        }
        if overwritten {
            node.calico_installs(31);
        }
        node
    };
    for (order, installed, overwritten) in [
        ("install", false, false),
        ("install", true, true),
        ("uninstall", true, false),
    ] {
        let newest = if overwritten { 31 } else { 30 };
        let least = if order == "install" { 8 } else { 2 };
        let mut killed = 0;
        // strace counts each kind of call separately.
        for change in CHANGES {
            for step in 1.. {
                let node = begin(installed, overwritten);
                let mut strace = Command::new("strace");
                strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={change}")]);
                strace
                    .args(["-e", &format!("inject={change}:signal=SIGKILL:when={step}")])
                    .arg(PLUGIN);
                strace.arg(order).arg("--bin-dir").arg(node.folder.path());
                let status = strace
                    .args((order == "install").then_some("--no-check"))
                    .output()
                    .unwrap()
                    .status;
                if status.success() {
                    break;
                }
                let step = format!("{change} {step}");
                assert_eq!(status.signal(), Some(9), "{order}, step {step}");
                killed += 1;

                let content = fs::read(node.path("calico-ipam")).unwrap();
                let is_whole =
                    [calicos(30), calicos(31)].contains(&content) || content == fs::read(PLUGIN).unwrap();
                assert!(is_whole, "{order}, step {step}: {} bytes", content.len());
                let version = Command::new(node.path("calico-ipam")).arg("-v").output().unwrap();
                assert!(version.status.success(), "{order}, step {step}: {version:?}");

                assert_eq!(node.run(&[order]).code, Some(0), "{order}, step {step}");
                if order == "install" {
                    node.assert_installed(newest);
                    node.succeed("uninstall");
                }
                node.assert_calicos(newest);
            }
        }
        assert!(killed >= least, "{order}: killed {killed} times");
    }
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// The configuration of a cluster's network, as Calico's installer writes it.
pub(crate) fn configuration(world: &World) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let network = json!({"name": "net", "cniVersion": "0.3.1", "plugins": [world.runtime().configuration, {"type": "portmap"}]});
    fs::write(folder.path().join("10-calico.conflist"), network.to_string()).unwrap();
    fs::write(
        folder.path().join("00-other.conf"),
        json!({"name": "x", "type": "bridge"}).to_string(),
    )
    .unwrap();
    pipe(&folder.path().join("01-pipe.conf"));
    folder
}

#[test]
fn it_is_not_installed_if_it_could_not_assign() {
    let world = World::etcd();
    let folder = configuration(&world);
    let install = |node: &Node| {
        let mut command = Command::new(PLUGIN);
        command.arg("install").arg("--bin-dir").arg(node.folder.path());
        Outcome::from(
            command
                .arg("--conf-dir")
                .arg(folder.path())
                .env_clear()
                .output()
                .unwrap(),
        )
    };
    let node = Node::with_calico(30);
    world.put_information("v3.99.0");
    let refused = install(&node);
    assert!(
        refused.code != Some(0) && refused.stderr.contains("Calico v3.99.0 is newer"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("\nhint: "), "{refused:?}");
    node.assert_calicos(30);

    world.put_information("v3.32.1");
    let installed = install(&node);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    node.assert_installed(30);

    // An installed plugin is not checked again, because the datastore can be down for a moment.
    drop(world);
    assert_eq!(install(&node).code, Some(0));
    let mut dry_run = Command::new(PLUGIN);
    dry_run
        .args(["install", "--dry-run", "--bin-dir"])
        .arg(node.folder.path());
    let dry_run = Outcome::from(dry_run.env_clear().output().unwrap());
    assert_eq!(dry_run.code, Some(0), "a dry run agrees: {dry_run:?}");
    node.run(&["uninstall"]);
    let refused = install(&node);
    let said = "cannot assign addresses on this node";
    assert!(
        refused.code != Some(0) && refused.stderr.contains(said),
        "{refused:?}"
    );
    node.assert_calicos(30);
}
