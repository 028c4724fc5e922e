//! The command line of this process, for hints that repeat all or parts of it.

mod programs;

use std::path::PathBuf;

use calipam_datastore::redact_url;
use calipam_datastore::settings::{KubectlOptions, Overrides};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::args::CONNECTION;
use crate::render::text::joined;

/// The IDs of the connection options that calipam shares with calicoctl, but for the context. kubectl does not have
/// them.
const OF_CALICOCTL: [&str; 6] = [
    "datastore",
    "config",
    "etcd_endpoints",
    "etcd_cacert",
    "etcd_cert",
    "etcd_key",
];

/// A parsed command line: the command, and the options that were typed, in the order in which clap defines them.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// The command, such as `release`.
    command: Vec<String>,
    typed: Vec<TypedArg>,
}

/// An option or argument that was typed.
#[derive(Clone, Debug)]
struct TypedArg {
    /// The option's ID in the definition: the name of its field.
    id: String,
    is_connection: bool,
    words: Vec<String>,
}

impl Call {
    /// Collects the command and the options that the user typed, in the order of the command's definition. `matches`
    /// are those of the whole line, and `definition` that of the program.
    pub(super) fn new(definition: &Command, matches: &ArgMatches) -> Self {
        // Descends to the command whose options these are.
        let mut definition = definition;
        let mut matches = matches;
        let mut command = Vec::new();
        while let Some((name, matches_below)) = matches.subcommand()
            && let Some(subcommand) = definition.find_subcommand(name)
        {
            // `calipam ipam check` means `calipam check`, and the name `kubectl calico ipam` already includes `ipam`.
            if name != "ipam" {
                command.push(name.to_owned());
            }
            definition = subcommand;
            matches = matches_below;
        }

        let mut typed = Vec::new();
        for arg in definition.get_arguments() {
            if is_typed(arg, matches) {
                typed.extend(TypedArg::read(arg, matches));
            }
        }
        Self { command, typed }
    }

    /// Creates a call of which only the connection options are known.
    pub(super) fn of_connection(connection: &Overrides) -> Self {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let options = [
            ("datastore", connection.datastore.clone()),
            ("config", path(&connection.config)),
            ("etcd_endpoints", connection.etcd_endpoints.clone()),
            ("etcd_cacert", path(&connection.etcd_cacert)),
            ("etcd_cert", path(&connection.etcd_cert)),
            ("etcd_key", path(&connection.etcd_key)),
            ("kubeconfig", connection.kubeconfig.clone()),
            ("context", connection.context.clone()),
        ];
        let mut typed = Vec::new();
        for (id, value) in options {
            let Some(value) = value else { continue };
            let option = format!("--{}", id.replace('_', "-"));
            typed.push(TypedArg {
                id: id.to_owned(),
                is_connection: true,
                words: option_words(&option, without_passwords(id, &value)),
            });
        }
        Self {
            command: Vec::new(),
            typed,
        }
    }

    /// Creates a call of which only the connection to a cluster of this call's fleet is known. It includes kubectl's
    /// options of this call, such as `--as`, if they apply to the cluster.
    pub(super) fn of_cluster(&self, connection: &Overrides) -> Self {
        let mut cluster = Self::of_connection(connection);
        if connection.kubectl != KubectlOptions::default() {
            let ids_of_connection = [&OF_CALICOCTL[..], &["kubeconfig", "context"]].concat();
            for arg in &self.typed {
                if arg.is_connection && !ids_of_connection.contains(&arg.id.as_str()) {
                    cluster.typed.push(arg.clone());
                }
            }
        }
        cluster
    }

    /// True if the command is known, not only the connection.
    pub(super) fn is_known(&self) -> bool {
        !self.command.is_empty()
    }

    pub(super) fn connection(&self) -> Vec<&str> {
        self.connection_but(&[])
    }

    /// Returns the options with which another command reads the same data. For a `diff`, which has two states, this is
    /// the later one.
    pub(super) fn same_data(&self) -> Vec<&str> {
        let mut words = self.connection();
        if let Some(new) = self.later_state() {
            words.push("--datastore");
            words.extend(new.words());
        }
        words
    }

    /// Returns the argument of `diff` that names the later state; `None` if it is a revision of the connection's etcd.
    fn later_state(&self) -> Option<&TypedArg> {
        if self.command != ["diff"] {
            return None;
        }
        let is_revision = |arg: &TypedArg| arg.words.iter().any(|word| word.starts_with("etcd@"));
        self.typed.iter().find(|arg| arg.id == "new" && !is_revision(arg))
    }

    /// Returns the connection options without those whose IDs are in `without`.
    pub(super) fn connection_but(&self, without: &[&str]) -> Vec<&str> {
        let wanted = |arg: &&TypedArg| arg.is_connection && !without.contains(&arg.id.as_str());
        self.typed
            .iter()
            .filter(wanted)
            .flat_map(TypedArg::words)
            .collect()
    }

    /// Returns the words of the typed options with these IDs.
    pub(super) fn options(&self, ids: &[&str]) -> Vec<&str> {
        let wanted = |arg: &&TypedArg| ids.contains(&arg.id.as_str());
        self.typed
            .iter()
            .filter(wanted)
            .flat_map(TypedArg::words)
            .collect()
    }

    /// Returns the command, options and arguments, without connection options and without those whose IDs are in
    /// `without`.
    pub(super) fn words(&self, without: &[&str]) -> Vec<&str> {
        let wanted = |arg: &&TypedArg| !arg.is_connection && !without.contains(&arg.id.as_str());
        let own = self.typed.iter().filter(wanted).flat_map(TypedArg::words);
        self.command.iter().map(String::as_str).chain(own).collect()
    }
}

/// True if an option or argument was typed, and hints that repeat the call include it.
fn is_typed(arg: &Arg, matches: &ArgMatches) -> bool {
    let id = arg.get_id().as_str();
    !["verbose", "quiet", "_all_namespaces", "_dry_run"].contains(&id)
        && matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// True if the value is a secret. Secrets are left out of hints, since hints appear on screens and in logs.
fn is_secret(id: &str) -> bool {
    id.contains("password") || id.contains("token")
}

impl TypedArg {
    /// Reads a typed option or argument with its values, without passwords in URLs. Returns `None` for a secret.
    fn read(arg: &Arg, matches: &ArgMatches) -> Option<Self> {
        let id = arg.get_id().as_str();
        if is_secret(id) {
            return None;
        }
        let option = match (arg.get_long(), arg.get_short()) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => String::new(),
        };
        let has_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let mut words = Vec::new();
        if has_value {
            // An option with several values is repeated.
            for typed_value in matches.get_raw(id).into_iter().flatten() {
                let value = without_passwords(id, &typed_value.to_string_lossy());
                words.extend(option_words(&option, value));
            }
        } else {
            words.push(option);
        }
        Some(Self {
            id: id.to_owned(),
            is_connection: arg.get_help_heading() == Some(CONNECTION),
            words,
        })
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }
}

/// Returns the words of an option and its value, which are one word if the value looks like an option itself. An
/// argument has no `option`.
fn option_words(option: &str, value: String) -> Vec<String> {
    match option {
        "" => vec![value],
        _ if value.starts_with('-') && value != "-" => vec![format!("{option}={value}")],
        _ => vec![option.to_owned(), value],
    }
}

/// Removes users and passwords from the URLs in a value.
fn without_passwords(id: &str, value: &str) -> String {
    if !["etcd_endpoints", "server"].contains(&id) && !value.contains("://") {
        return value.to_owned();
    }
    joined(value.split(',').map(redact_url), ",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    pub(super) fn call(words: &[&str]) -> Call {
        let mut definition = args::tidy(args::command());
        let all = std::iter::once(&"calipam").chain(words);
        let matches = definition.try_get_matches_from_mut(all).unwrap();
        Call::new(&definition, &matches)
    }

    #[test]
    fn the_connection_has_the_typed_connection_options() {
        let call = call(&[
            "-d",
            "etcd",
            "check",
            "-qo",
            "wide",
            "--context",
            "admin@prod",
            "--node=a,b",
        ]);
        assert_eq!(
            call.connection(),
            ["--datastore", "etcd", "--context", "admin@prod"]
        );
        assert_eq!(call.words(&["output"]), ["check", "--node", "a", "--node", "b"]);
    }

    #[test]
    fn other_commands_read_the_later_state_of_a_comparison() {
        let compared = |new: &str| {
            call(&["diff", "old.jsonl", new, "--context", "prod"])
                .same_data()
                .join(" ")
        };
        assert_eq!(compared("new.jsonl"), "--context prod --datastore new.jsonl");
        assert_eq!(compared("etcd@7"), "--context prod");
        assert_eq!(call(&["check", "-d", "x"]).same_data(), ["--datastore", "x"]);
    }

    #[test]
    fn a_call_is_repeated_without_some_options() {
        let words = [
            "ipam",
            "release",
            "--handle",
            "-x",
            "-y",
            "--dry-run",
            "--max-changes",
            "3",
        ];
        let call = call(&words);
        assert_eq!(
            call.words(&["dry_run", "yes"]),
            ["release", "--handle=-x", "--max-changes", "3"]
        );
        assert!(call.connection().is_empty());
    }

    /// `rebuild` and `migrate` only plan by default, so a hint that adds `--apply` must not repeat `--dry-run`.
    #[test]
    fn options_that_name_a_default_are_not_repeated() {
        assert_eq!(call(&["rebuild", "--dry-run"]).words(&[]), ["rebuild"]);
        assert_eq!(
            call(&["migrate", "--dry-run", "--from", "p"]).words(&[]),
            ["migrate", "--from", "p"]
        );
    }

    #[test]
    fn kubectls_options_belong_to_the_connection() {
        let words = [
            "check",
            "--token",
            "hunter2",
            "--as",
            "jane",
            "--as-group",
            "dev",
            "--request-timeout=30",
        ];
        let call = call(&[&words[..], &["-s", "u:hunter2@h", "--insecure-skip-tls-verify"]].concat());
        let mut connection = call.connection();
        connection.sort_unstable();
        let expected = "--as --as-group --insecure-skip-tls-verify --request-timeout --server 30 dev h jane";
        assert_eq!(connection.join(" "), expected);
        assert_eq!(call.words(&[]), ["check"]);
    }

    #[test]
    fn a_cluster_of_a_fleet_has_its_own_connection() {
        let call = call(&["check", "--context", "prod-*", "--as", "jane"]);
        let contexts = Overrides {
            datastore: Some("kubernetes".to_owned()),
            context: Some("prod-eu".to_owned()),
            kubectl: KubectlOptions {
                as_user: Some("jane".to_owned()),
                ..KubectlOptions::default()
            },
            ..Overrides::default()
        };
        assert_eq!(
            call.of_cluster(&contexts).connection().join(" "),
            "--datastore kubernetes --context prod-eu --as jane"
        );
        let etcd = Overrides {
            etcd_endpoints: Some("https://root:hunter2@a:2379".to_owned()),
            etcd_cacert: Some("us/ca.pem".into()),
            ..Overrides::default()
        };
        assert_eq!(
            call.of_cluster(&etcd).connection().join(" "),
            "--etcd-endpoints https://a:2379 --etcd-cacert us/ca.pem"
        );
    }

    #[test]
    fn hints_contain_no_secrets() {
        for id in ["token", "etcd_password"] {
            assert!(is_secret(id));
        }
        let endpoints = "https://root:hunter2@a:2379,root:hunter2@b:2379";
        let call = call(&[
            "check",
            "--etcd-endpoints",
            endpoints,
            "-d",
            "http://u:hunter2@c/x",
        ]);
        let expected = [
            "--datastore",
            "http://c/…2d711642",
            "--etcd-endpoints",
            "https://a:2379,b:2379",
        ];
        assert_eq!(call.connection(), expected);
    }
}
