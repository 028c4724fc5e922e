//! The program under the name `calicoctl`. Commands that calipam does not have run the real calicoctl, which is a
//! script here that prints its arguments.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::PROGRAM;
use super::program::{Run, command};

/// Folders that each contain a program called `calicoctl`.
struct Place(tempfile::TempDir);

const REAL: &str = "#!/bin/sh\nprintf '%s|' real \"$@\"\nexit 7\n";

impl Place {
    /// Creates the first folder, with the link to calipam.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        symlink(PROGRAM, place.calicoctl("link")).unwrap();
        place
    }

    fn calicoctl(&self, folder: &str) -> PathBuf {
        let folder = self.0.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        folder.join("calicoctl")
    }

    fn script(&self, folder: &str, text: &str) -> PathBuf {
        let path = self.calicoctl(folder);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Runs the link with these folders in PATH, and with `named` in the variable that names the real calicoctl.
    fn run(&self, path: &[&str], named: Option<&Path>, arguments: &[&str]) -> Run {
        let path = path
            .iter()
            .map(|folder| self.0.path().join(folder))
            .chain(["/usr/bin".into(), "/bin".into()]);
        let mut command = command(self.calicoctl("link"));
        command
            .env("PATH", std::env::join_paths(path).unwrap())
            .args(arguments);
        named.map(|named| command.env("CALIPAM_CALICOCTL", named));
        Run::of(command)
    }
}

#[test]
fn other_commands_run_the_next_calicoctl_in_path() {
    let place = Place::new();
    place.script("real", REAL);
    place.calicoctl("empty");
    fs::create_dir(place.calicoctl("folder")).unwrap();
    fs::write(place.calicoctl("text"), REAL).unwrap();
    let path = ["empty", "folder", "text", "link", "real"];
    for arguments in [
        &["get", "nodes", "-o", "wide", "--config=/x y", ""][..],
        &["-l", "debug", "--context", "c", "node", "status"],
        &["datastore", "migrate", "export", "--ipam"],
        &["version", "--poll=1s"],
        &["help"],
    ] {
        let run = place.run(&path, None, arguments).exits(7).says_nothing();
        assert_eq!(run.stdout, format!("real|{}|", arguments.join("|")));
    }
    // calipam handles its own commands, including their errors.
    for (arguments, code) in [
        (&["ipam", "frobnicate"][..], 1),
        (&["ipam"], 1),
        (&["datastore"], 1),
        (&["-l", "no-level", "get"], 1),
        (&["--help"], 0),
    ] {
        place.run(&path, None, arguments).exits(code).omits("real|");
    }
}

#[test]
fn the_variable_must_name_the_program_of_the_real_calicoctl() {
    let place = Place::new();
    place.script("first", "#!/bin/sh\nexit 9\n");
    let named = place.script("named", REAL);
    let run = place.run(&["first"], Some(&named), &["get", "nodes"]);
    assert_eq!((run.code, run.stdout.as_str()), (7, "real|get|nodes|"), "{run:?}");
    assert_eq!(
        place.run(&["first"], Some(Path::new("")), &["get"]).code,
        9,
        "empty is unset"
    );

    let copy = place.calicoctl("copy");
    fs::hard_link(PROGRAM, &copy)
        .or_else(|_| symlink(PROGRAM, &copy))
        .unwrap();
    fs::write(place.calicoctl("text"), REAL).unwrap();
    for (named, why) in [
        (place.calicoctl("link"), "is calipam itself"),
        (copy, "is calipam itself"),
        (place.calicoctl("missing"), "is not an executable program"),
        (place.calicoctl("text"), "is not an executable program"),
        (place.0.path().join("copy"), "is not an executable program"),
    ] {
        let error = format!("error: CALIPAM_CALICOCTL is {}, which {why}\n", named.display());
        let run = place
            .run(&["first"], Some(&named), &["get"])
            .refused(1, &error)
            .says_first(&error);
        run.says("\nhint: set it to the path of the real calicoctl");
    }
    let broken = place.script("broken", "#!/no/such/interpreter\n");
    let run = place.run(&[], Some(&broken), &["get"]).exits(1);
    assert!(
        run.stderr
            .starts_with(&format!("error: cannot run {}: ", broken.display())),
        "{run:?}"
    );
}

/// Links, copies and wrappers that start calipam again are skipped, or at least run only once.
#[test]
fn no_link_copy_or_wrapper_of_calipam_makes_a_loop() {
    let place = Place::new();
    symlink(PROGRAM, place.calicoctl("linked")).unwrap();
    fs::copy(PROGRAM, place.calicoctl("copied")).unwrap();
    let link = place.calicoctl("link");
    let wrapper = place.script("wrapper", &format!("#!/bin/sh\nexec {} \"$@\"\n", link.display()));
    place.script("child", &format!("#!/bin/sh\n{} \"$@\"\n", link.display()));
    let path = ["link", "linked", "copied", "wrapper", "child"];

    let run = place
        .run(&path, None, &["get", "nodes"])
        .exits(1)
        .prints_nothing();
    let expected = "error: `get` is a command of the real calicoctl, but this is calipam under its name, and PATH has \
                    no other calicoctl\nhint: to have both, put the real calicoctl into a folder in PATH, or name it: \
                    `export CALIPAM_CALICOCTL=/opt/calico/bin/calicoctl`\n";
    assert_eq!(run.stderr, expected);
    place
        .run(&path, Some(&wrapper), &["get", "nodes"])
        .failed(1, "/wrapper/calicoctl, which runs calipam again\n");

    place.script("real", REAL);
    let run = place.run(&[&path[..], &["real"]].concat(), None, &["get", "nodes"]);
    let wanted = (7, "real|get|nodes|", "");
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        wanted,
        "behind all of them"
    );
}

/// With a relative folder in PATH, any program in the working directory could run.
#[test]
fn a_program_below_a_relative_folder_is_not_run() {
    let place = Place::new();
    place.script("here", REAL);
    let mut command = command(place.calicoctl("link"));
    command
        .current_dir(place.0.path().join("here"))
        .env("PATH", ":.:../here")
        .args(["get", "\u{1b}[31m"]);
    Run::of(command)
        .exits(1)
        .says_first("error: `get` is a command of the real");
}
