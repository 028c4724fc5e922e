//! Completion of command lines.

use super::program::{Run, calipam, command, root};

#[test]
fn every_shell_gets_the_script_that_is_committed() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let run = calipam(&["completion", shell]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{shell}");
        let committed = std::fs::read_to_string(root().join(format!("completions/calipam.{shell}"))).unwrap();
        assert!(
            run.stdout == committed,
            "completions/calipam.{shell} is not current: `cargo xtask generate`"
        );
    }
}

/// bash itself reads the script and completes a command with it.
#[test]
fn bash_completes() {
    let script = root().join("completions/calipam.bash");
    let ask = "source \"$0\"; COMP_WORDS=(calipam check --fail-on w); COMP_CWORD=3; \
               _calipam calipam w --fail-on; echo \"${COMPREPLY[@]}\"";
    let run = Run::of(command("bash").args(["-c", ask]).arg(script).output().expect("bash starts"));
    assert_eq!(run.stdout.trim(), "warning", "{run:?}");
}

#[test]
fn kubectl_gets_suggestions_and_a_directive() {
    let run = calipam(&["__complete", "check", "--fail-on", "w"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "warning\tDrift\n:4\n"));
    let run = calipam(&["__complete", "check", "--sett"]);
    assert!(run.stdout.starts_with("--settle\t") && run.stdout.ends_with(":4\n"), "{run:?}");
    let run = calipam(&["__complete", "check", "--ignore", ""]);
    assert_eq!(run.stdout, ":0\n");
}
