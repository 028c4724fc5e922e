//! Formats the hints that libraries add to errors and notes.

use calipam_model::hint::{Call, Hint};
use calipam_workflow::Failure;

use super::{again, command, command_elsewhere, connected, dry_run, with_journal};
use crate::render::text::escape;

pub(crate) fn of_failure(failure: &Failure) -> Option<String> {
    failure.hint.as_ref().map(text)
}

/// Formats a hint with its command lines.
pub(crate) fn text(hint: &Hint) -> String {
    let mut parts = hint.text.splitn(hint.calls.len() + 1, "{}");
    let first = parts.next().unwrap_or_default().to_owned();
    hint.calls.iter().zip(parts).fold(first, |text, (call, part)| text + &line(call) + part)
}

/// Options with placeholders for their values.
const ENDPOINTS: [&str; 2] = ["--etcd-endpoints", "https://HOST:2379"];
const CA: [&str; 2] = ["--etcd-cacert", "FILE"];

fn line(call: &Call) -> String {
    match call {
        Call::Name(name) => escape(name).into_owned(),
        Call::Again => again(&[], &[]),
        Call::DryRun => dry_run(),
        Call::Agreed => again(&["--yes"], &[]),
        Call::Forced => again(&["--force"], &[]),
        Call::Locked => again(&["--lock"], &[]),
        Call::Unlocked => again(&[], &["lock"]),
        Call::JournalPlace => {
            let named = with_journal().map(|call| format!("name a file with {call}, or "));
            named.unwrap_or_default() + "set HOME or XDG_STATE_HOME to an absolute path"
        }
        Call::MaxChanges(most) => again(&["--max-changes", &most.to_string()], &["max_changes"]),
        Call::EndpointsOnly => again(&["--endpoints-only"], &[]),
        Call::ByName => again(&["--name", "NAME"], &["name", "cidr"]),
        Call::As(option, name) => again(&[option, name], &["object"]),
        Call::AutoAllocation => again(&["--auto-allocate-blocks", "true"], &["auto_allocate_blocks"]),
        Call::StrictAffinity => again(&["--strict-affinity", "true"], &["strict_affinity"]),
        Call::NoBlockLimit => again(&["--max-blocks-per-host", "0"], &["max_blocks_per_host"]),
        Call::Kubeconfig => connected(&["--kubeconfig", "FILE"], &[]),
        Call::KubeconfigAndContext => connected(&["--kubeconfig", "FILE", "--context", "NAME"], &[]),
        Call::OtherKubeconfig => connected(&["--kubeconfig", "FILE"], &["context"]),
        Call::Context => connected(&["--context", "NAME"], &[]),
        Call::OtherConfig => connected(&["--config", "FILE"], &[]),
        Call::Etcd => connected(&ENDPOINTS, &[]),
        Call::EtcdCa => connected(&CA, &[]),
        Call::EtcdWithCa => connected(&[ENDPOINTS, CA].concat(), &[]),
        Call::EtcdKeyPair => connected(&["--etcd-cert", "FILE", "--etcd-key", "FILE"], &[]),
        Call::EtcdUrl => connected(&["--etcd-endpoints", "URL"], &["datastore"]),
        Call::File => connected(&["--datastore", "FILE"], &["datastore"]),
        Call::EtcdInstead => connected(&ENDPOINTS, &["datastore", "kubeconfig", "context"]),
        Call::FileInstead => {
            let of_etcd = ["etcd_endpoints", "etcd_cacert", "etcd_cert", "etcd_key"];
            connected(&["--datastore", "FILE"], &of_etcd)
        }
        Call::Show => command(&["show"]),
        Call::ShowNodes => command(&["show", "--nodes"]),
        Call::ShowBlocks => command(&["show", "--blocks"]),
        Call::ShowBlock(block) => command(&["show", "--blocks", "--pool", &block.to_string()]),
        Call::ShowConfiguration => command(&["show", "--configuration"]),
        Call::NoCooldown => command(&["configure", "--ip-cooldown-seconds", "0"]),
        Call::Check => command(&["check", "-o", "json"]),
        Call::Export => command_elsewhere(&["export", "FILE"]),
        Call::Archive(folder) => command(&["export", "--archive", &folder.to_string_lossy()]),
        Call::Record(folder) => command(&["record", &folder.to_string_lossy()]),
        Call::Journals => command_elsewhere(&["undo", "--list"]),
        Call::Undo(journal) => command(&["undo", &journal.to_string_lossy()]),
        Call::Migrate(pool) => command(&["migrate", "--from", pool]),
        Call::ApplyMigration(pool) => command(&["migrate", "--apply", "--from", pool]),
        Call::MigrateBack(temporary) => command(&["migrate", "--from", temporary, "--to", "OLD-POOL"]),
        Call::MigrateThrough { pool, block_size } => {
            let size = block_size.to_string();
            command(&["migrate", "--from", pool, "--block-size", &size, "--via", "OTHER-CIDR"])
        }
    }
}

#[cfg(test)]
mod tests {
    use calipam_datastore::{Cause, Error, Failure, Server, SettingsError, Tried};

    use super::*;

    #[test]
    fn options_are_named_in_a_command_that_can_be_run() {
        let none = String::new;
        let request = |server, failure| Error::Request { server, endpoint: none(), what: none(), failure };
        let connect = |cause: Cause| Error::Connect(vec![Tried { endpoint: none(), failure: cause.into() }]);
        let connection = [
            connect(Cause::Refused),
            connect(Cause::NameNotResolved),
            connect(Cause::ServerWantsTls),
            connect(Cause::CertificateNotTrusted),
            connect(Cause::ClientCertificateRequired),
            request(Server::Etcd, Failure::NoQuorum(none())),
            request(Server::Kubernetes, Cause::Refused.into()),
            Error::NoCalicoKinds { endpoint: none() },
            Error::Kubeconfig { what: none(), reason: none() },
            SettingsError::no_endpoints().into(),
            SettingsError::context_alone("prod").into(),
        ];
        for error in connection {
            let hint = text(&error.hint().unwrap());
            let commands: Vec<&str> = hint.split('`').skip(1).step_by(2).collect();
            assert!(commands.iter().any(|command| command.starts_with("calipam check --")), "{hint}");
            assert!(commands.iter().all(|command| !command.starts_with('-')), "{hint}");
        }
    }

    #[test]
    fn commands_are_those_of_the_program() {
        let (pool, path) = (|| "pool".to_owned(), || "path".into());
        let calls = [
            Call::Show,
            Call::ShowNodes,
            Call::ShowBlocks,
            Call::ShowBlock("10.0.0.0/26".parse().unwrap()),
            Call::ShowConfiguration,
            Call::NoCooldown,
            Call::Check,
            Call::Export,
            Call::Archive(path()),
            Call::Record(path()),
            Call::Journals,
            Call::Undo(path()),
            Call::Migrate(pool()),
            Call::ApplyMigration(pool()),
            Call::MigrateBack(pool()),
        ];
        for line in calls.iter().map(line) {
            let words = line.trim_matches('`').split(' ');
            let parsed = crate::args::command().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    #[test]
    fn names_are_shown_escaped_and_never_taken_for_calls() {
        let hint = Hint::new("{} is {}; {}", [Call::Name("a{}\r".into()), Call::Show]);
        assert_eq!(text(&hint), "a{}\\r is `calipam show`; {}");
    }
}
