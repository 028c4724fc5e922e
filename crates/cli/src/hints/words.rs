//! Formats the hints that libraries add to errors and notes.

use calipam_model::hint::{Call, Hint};
use calipam_workflow::Failure;

use super::command::is_command;
use super::{
    calicoctl, command, command_elsewhere, connected, dry_run, kubectl, this_call, with_journal_option,
};
use crate::render::text::{escape, joined, shell_word};

pub(crate) fn of_failure(failure: &Failure) -> Option<String> {
    failure.hint.as_ref().map(text)
}

/// Formats a hint: each `{}` in its text stands for the next of its calls.
pub(crate) fn text(hint: &Hint) -> String {
    // Names in the text can contain braces, too, so no more are replaced than there are calls.
    let mut parts = hint.text.splitn(hint.calls.len() + 1, "{}");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (call, following) in hint.calls.iter().zip(parts) {
        text.push_str(&line(call));
        text.push_str(following);
    }
    text
}

/// Formats a call as a command line in backticks or, for some calls, as words about it.
fn line(call: &Call) -> String {
    match call {
        Call::Name(name) => escape(name).into_owned(),
        Call::Command(words) => command(&checked(words)),
        Call::Elsewhere(words) => command_elsewhere(&checked(words)),
        Call::Kubectl(words) => kubectl(&quoted(words)),
        Call::Calicoctl(words) => calicoctl(&quoted(words)),
        Call::Again { with, without } => this_call(&as_strs(with), without),
        Call::Connected { with, without } => connected(&as_strs(with), without),
        Call::DryRun => dry_run(),
        Call::JournalPlace => name_journal_place(),
    }
}

/// The end of a hint: the option for the journal, or the variables that give it a default place.
fn name_journal_place() -> String {
    let set_variable = "set HOME or XDG_STATE_HOME to an absolute path";
    match with_journal_option() {
        Some(call) => format!("name a file with {call}, or {set_variable}"),
        None => set_variable.to_owned(),
    }
}

/// Returns the words. Asserts in debug builds, and so in tests, that they are a command line of this program.
fn checked(words: &[String]) -> Vec<&str> {
    let words = as_strs(words);
    debug_assert!(is_command(&words), "{words:?} is no command");
    words
}

/// Quotes words for a shell.
fn quoted(words: &[String]) -> String {
    joined(words.iter().map(|word| shell_word(word)), " ")
}

fn as_strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use calipam_datastore::{Cause, Error, Failure, Server, SettingsError, Tried};

    use super::*;

    #[test]
    fn options_are_named_in_a_command_that_can_be_run() {
        let none = String::new;
        let request = |server, failure| Error::Request {
            server,
            endpoint: none(),
            what: none(),
            failure,
        };
        let connect = |cause: Cause| {
            Error::Connect(vec![Tried {
                endpoint: none(),
                failure: cause.into(),
            }])
        };
        let connection = [
            connect(Cause::Refused),
            connect(Cause::NameNotResolved),
            connect(Cause::ServerWantsTls),
            connect(Cause::CertificateNotTrusted),
            connect(Cause::ClientCertificateRequired),
            request(Server::Etcd, Failure::NoQuorum(none())),
            request(Server::Kubernetes, Cause::Refused.into()),
            Error::Kubeconfig {
                what: none(),
                reason: none(),
            },
            SettingsError::no_endpoints().into(),
            SettingsError::context_alone("prod").into(),
        ];
        for error in connection {
            let hint = text(&error.hint().unwrap());
            let commands: Vec<&str> = hint.split('`').skip(1).step_by(2).collect();
            assert!(
                commands
                    .iter()
                    .any(|command| command.starts_with("calipam check --")),
                "{hint}"
            );
            assert!(commands.iter().all(|command| !command.starts_with('-')), "{hint}");
        }
    }

    #[test]
    fn commands_are_those_of_the_program() {
        for words in [
            &["show", "--blocks", "--pool", "10.0.0.0/26"][..],
            &[
                "migrate",
                "--from",
                "-pool",
                "--block-size",
                "26",
                "--via",
                "OTHER-CIDR",
            ],
            &["undo", "-journal"],
        ] {
            assert!(is_command(words), "{words:?}");
        }
        for words in [
            &["shows"][..],
            &["show", "--blocs"],
            &["undo", "--list", "--journals"],
            &["migrate", "--from"],
        ] {
            assert!(!is_command(words), "{words:?}");
        }
    }

    #[test]
    fn names_are_shown_escaped_and_never_taken_for_calls() {
        let hint = Hint::new("{} is {}; {}", [Call::Name("a{}\r".into()), Call::to(["show"])]);
        assert_eq!(text(&hint), "a{}\\r is `calipam show`; {}");
    }
}
