//! Suggestions for the values of options, from the cluster that the line names and from the user's files.

use std::ffi::OsStr;
use std::sync::Arc;

use calipam_datastore::read::NameKind;
use clap::Arg;
use clap_complete::ArgValueCompleter;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};

use super::cluster::{Cluster, Wanted};
use super::journals;

impl Cluster {
    /// Returns the completer for an argument of a command, which suggests names from the cluster, contexts, journals or
    /// files; `None` if clap's own suggestions are enough.
    pub(super) fn completer(self: &Arc<Self>, arg: &Arg, command: &str) -> Option<ArgValueCompleter> {
        let wanted = match (arg.get_long(), command) {
            (Some("context"), _) => Wanted::OfKubeconfig(|names| names.contexts),
            (Some("cluster"), _) => Wanted::OfKubeconfig(|names| names.clusters),
            (Some("user"), _) => Wanted::OfKubeconfig(|names| names.users),
            (Some("node"), _) => Wanted::OfObjects(NameKind::Nodes),
            (None, "show" | "history") if arg.is_positional() => Wanted::OfObjects(NameKind::Nodes),
            (Some("pool"), _) | (Some("from" | "to"), "migrate") => Wanted::OfObjects(NameKind::Pools),
            (Some("block"), _) => Wanted::OfObjects(NameKind::Blocks),
            // Assigned addresses cannot be assigned again.
            (Some("ip"), "assign") => return None,
            (Some("ip"), _) => Wanted::OfObjects(NameKind::Addresses),
            (Some("handle"), _) => Wanted::OfObjects(NameKind::Handles),
            (Some("service"), "explain") => Wanted::OfObjects(NameKind::Services),
            (Some("pod"), _) => Wanted::OfObjects(NameKind::Pods),
            (Some("namespace"), _) => Wanted::OfObjects(NameKind::Namespaces),
            (Some("datastore"), _) => return Some(ArgValueCompleter::new(datastores)),
            (None, "diff") if arg.is_positional() => return Some(ArgValueCompleter::new(datastores)),
            (None, "undo") if arg.is_positional() => return Some(ArgValueCompleter::new(journals::complete)),
            _ => return None,
        };
        if !arg.get_action().takes_values() {
            return None;
        }
        let cluster = Arc::clone(self);
        Some(ArgValueCompleter::new(move |typed: &OsStr| {
            match typed.to_str() {
                Some(typed) => cluster
                    .names(wanted, typed)
                    .into_iter()
                    .map(CompletionCandidate::new)
                    .collect(),
                None => Vec::new(),
            }
        }))
    }
}

/// Suggests datastore kinds and files.
fn datastores(typed: &OsStr) -> Vec<CompletionCandidate> {
    let kinds = [
        ("etcd", "etcd v3, Calico's own datastore"),
        ("etcdv2", "etcd v2, Calico 2.x's datastore"),
        ("kubernetes", "The Kubernetes API"),
    ];
    let mut candidates = Vec::new();
    for (kind, about) in kinds {
        if typed.to_str().is_some_and(|typed| kind.starts_with(typed)) {
            candidates.push(CompletionCandidate::new(kind).help(Some(about.into())));
        }
    }
    candidates.extend(PathCompleter::file().complete(typed));
    candidates
}
