//! The plugin replaces Calico's and restores it, even if it is killed.

use std::fs::{self, hard_link};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use calipam_cni::install::place::{Place, Program};
use calipam_testkit::servers::{EtcdVersion, Tool, left_out};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use tempfile::TempDir;

use crate::node::{Node, calicos};
use crate::runtime::PLUGIN;
use crate::world::World;

/// All system calls that change a folder or its files, except for file creation. A kill after a file was created is
/// tested as a kill before the next change.
const CHANGES: [&str; 7] = ["renameat2", "rename", "unlink", "copy_file_range", "write", "fchmod", "fsync"];
/// A number of system calls of one kind that no run reaches.
const MOST: usize = 50;

#[test]
fn it_replaces_calicos_plugin_and_restores_it() {
    let node = Node::with_calico(30);
    let installed = node.run(&["install"]);
    assert!(installed.status.success(), "{installed:?}");
    assert!(String::from_utf8_lossy(&installed.stderr).contains("Calico's, which is kept"), "{installed:?}");
    node.assert_installed(30);
    let version = Command::new(node.path("calico-ipam")).arg("-v").output().unwrap().stdout;
    assert!(version.starts_with(b"calipam "), "{version:?}");

    assert!(node.run(&["install"]).status.success());
    node.assert_installed(30);

    // Calico is updated in between, and the updated plugin is restored.
    node.calico_installs(31);
    assert!(node.run(&["install"]).status.success());
    node.assert_installed(31);
    assert!(node.run(&["uninstall"]).status.success());
    node.assert_calicos(31);
    assert!(node.run(&["uninstall"]).status.success());
    node.assert_calicos(31);
}

#[test]
fn an_update_of_calico_that_was_not_replaced_yet_stays() {
    let node = Node::with_calico(30);
    assert!(node.run(&["install"]).status.success());
    node.calico_installs(31);
    assert!(!node.place().restore().unwrap());
    node.assert_beside(31, 30);
}

/// An existing backup, or a link to it, can come from another program.
#[test]
fn without_an_installation_nothing_is_removed() {
    let node = Node::with_calico(31);
    node.write("calico-ipam.calico", &calicos(30));
    assert!(node.run(&["uninstall"]).status.success());
    node.assert_beside(31, 30);
    let ways: [fn(PathBuf, PathBuf) -> io::Result<()>; 2] = [symlink, hard_link];
    for linked in ways {
        fs::remove_file(node.path("calico-ipam")).unwrap();
        linked(node.path("calico-ipam.calico"), node.path("calico-ipam")).unwrap();
        assert!(node.run(&["uninstall"]).status.success());
        node.assert_beside(30, 30);
        assert!(node.run(&["install"]).status.success());
        node.assert_installed(30);
        assert!(node.run(&["uninstall"]).status.success());
        node.assert_calicos(30);
        node.write("calico-ipam.calico", &calicos(30));
    }
}

#[test]
fn on_a_full_disk_nothing_is_left() {
    let node = Node::with_calico(30);
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -f 1; exec "$0" "$@""#]).arg(PLUGIN);
    let full = shell.args(["install", "--no-check", "--bin-dir"]).arg(node.folder.path()).output().unwrap();
    let error = String::from_utf8_lossy(&full.stderr);
    assert!(full.status.code() == Some(1) && error.contains("cannot write "), "{error}");
    node.assert_calicos(30);
}

#[test]
fn a_broken_plugin_is_replaced_by_the_original() {
    let node = Node::with_calico(30);
    let broken = || {
        let whole = fs::read("/bin/sh").unwrap();
        node.write("calico-ipam", &whole[..whole.len() - 100]);
        let file = fs::File::options().write(true).open(node.path("calico-ipam")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_mins(2)).unwrap();
    };
    broken();
    assert_eq!(node.run(&["install"]).status.code(), Some(1), "there is no original");
    assert_eq!(node.run(&["uninstall"]).status.code(), Some(1), "there is no original");
    node.assert_files(&["calico-ipam"]);

    node.write("calico-ipam.calico", &calicos(30));
    assert!(node.run(&["install"]).status.success());
    node.assert_installed(30);
    broken();
    assert!(node.run(&["uninstall"]).status.success());
    node.assert_calicos(30);
}

#[test]
fn a_pipe_is_refused_without_blocking() {
    let node = Node::with_calico(30);
    fs::remove_file(node.path("calico-ipam")).unwrap();
    pipe(&node.path("calico-ipam"));
    for order in ["install", "uninstall"] {
        let refused = node.run(&[order]);
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && error.contains("it is not a regular file"), "{error}");
    }
}

#[test]
fn another_version_of_itself_is_not_kept_as_calicos() {
    let node = Node::with_calico(30);
    let mut other = fs::read(PLUGIN).unwrap();
    other.extend_from_slice(b"another version");
    node.write("other", &other);
    assert!(Place::new(node.folder.path(), &node.path("other")).install().is_ok());
    fs::remove_file(node.path("other")).unwrap();
    let updated = node.run(&["install"]);
    assert!(String::from_utf8_lossy(&updated.stderr).contains("another version of itself"), "{updated:?}");
    node.assert_installed(30);
}

#[test]
fn it_waits_for_calico_and_replaces_no_file_that_is_being_written() {
    let node = Node::with_calico(30);
    fs::remove_file(node.path("calico-ipam")).unwrap();
    let refused = node.run(&["install"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Calico is not installed"), "{refused:?}");
    node.assert_files(&[]);

    // First, a program that is not executable yet; then, a program whose end is missing.
    node.write("calico-ipam", &calicos(30));
    fs::set_permissions(node.path("calico-ipam"), fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(node.place().plugin().unwrap(), Program::Unfinished);
    let whole = fs::read("/bin/sh").unwrap();
    node.write("calico-ipam", &whole[..whole.len() - 100]);
    assert_eq!(node.place().plugin().unwrap(), Program::Unfinished);
    assert_eq!(node.run(&["uninstall"]).status.code(), Some(1));
    node.write("calico-ipam", &whole);
    assert_eq!(node.place().plugin().unwrap(), Program::Calicos);
}

#[test]
fn without_the_original_it_stays_with_a_hint() {
    let node = Node::with_calico(30);
    assert!(node.run(&["install"]).status.success());
    fs::remove_file(node.path("calico-ipam.calico")).unwrap();
    let refused = node.run(&["uninstall"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("hint: restart"), "{refused:?}");
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
            assert!(node.run(&["install"]).status.success());
        }
        if overwritten {
            node.calico_installs(31);
        }
        node
    };
    for (order, installed, overwritten) in
        [("install", false, false), ("install", true, true), ("uninstall", true, false)]
    {
        let newest = if overwritten { 31 } else { 30 };
        let least = if order == "install" { 8 } else { 2 };
        let mut killed = 0;
        // strace counts each kind of call separately.
        let steps = CHANGES.iter().flat_map(|change| (1..MOST).map(move |step| (change, step)));
        let mut over = None;
        for (change, step) in steps {
            if over == Some(change) {
                continue;
            }
            let node = begin(installed, overwritten);
            let mut strace = Command::new("strace");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={change}")]);
            strace.args(["-e", &format!("inject={change}:signal=SIGKILL:when={step}")]).arg(PLUGIN);
            strace.arg(order).arg("--bin-dir").arg(node.folder.path());
            let status = strace.args((order == "install").then_some("--no-check")).output().unwrap().status;
            if status.success() {
                over = Some(change);
                continue;
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

            assert!(node.run(&[order]).status.success(), "{order}, step {step}");
            if order == "install" {
                node.assert_installed(newest);
                assert!(node.run(&["uninstall"]).status.success());
            }
            node.assert_calicos(newest);
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
    fs::write(folder.path().join("00-other.conf"), json!({"name": "x", "type": "bridge"}).to_string())
        .unwrap();
    pipe(&folder.path().join("01-pipe.conf"));
    folder
}

#[test]
fn it_is_not_installed_if_it_could_not_assign() {
    let world = World::etcd(EtcdVersion::default());
    let folder = configuration(&world);
    let install = |node: &Node| {
        let mut command = Command::new(PLUGIN);
        command.arg("install").arg("--bin-dir").arg(node.folder.path());
        command.arg("--conf-dir").arg(folder.path()).env_clear().output().unwrap()
    };
    let node = Node::with_calico(30);
    let information = |version: &str| {
        let spec = json!({"clusterGUID": "0f0e1d2c3b4a59687786951423324150", "calicoVersion": version});
        world.put("clusterinformations", "ClusterInformation", "default", &spec, &json!({}));
    };
    information("v3.99.0");
    let refused = install(&node);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("Calico v3.99.0 is newer"), "{error}");
    assert!(error.contains("hint: "), "{error}");
    node.assert_calicos(30);

    information("v3.32.1");
    let installed = install(&node);
    assert!(installed.status.success(), "{installed:?}");
    node.assert_installed(30);

    // An installed plugin is not checked again, because the datastore can be down for a moment.
    drop(world);
    assert!(install(&node).status.success());
    node.run(&["uninstall"]);
    let refused = install(&node);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("cannot assign addresses on this node"), "{error}");
    node.assert_calicos(30);
}
