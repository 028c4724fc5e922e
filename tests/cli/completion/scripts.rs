//! The completion scripts of shells.

use std::os::unix::fs::symlink;

use super::super::program::{Run, command};
use super::NAMES;

#[test]
fn every_shell_gets_a_script_for_each_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in NAMES {
        let link = folder.path().join(name);
        symlink(crate::cli::PROGRAM, &link).unwrap();
        for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
            let words = ["completion", shell];
            let run = Run::of(command(&link).args(words));
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{shell}");
            let packaged = calipam::completion_scripts().find(|(file, _)| *file == format!("{name}.{shell}"));
            assert!(packaged.unwrap().1 == run.stdout.as_bytes(), "{name}.{shell}: {}", run.stdout);
            assert!(run.stdout.len() < 2000, "{name}.{shell}: the script asks the program, and is small");
        }
    }
}

#[test]
fn a_shell_can_ask_for_the_script_as_clap_has_it() {
    let asked = command(crate::cli::PROGRAM).env("COMPLETE", "/usr/bin/fish").output();
    Run::ended(asked.unwrap()).succeeded().prints("complete ").prints("calipam");
}
