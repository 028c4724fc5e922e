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
        if let Some(completer) = file_completer(arg, command) {
            return Some(completer);
        }
        let wanted = match arg.get_long() {
            Some(option) => wanted_by_option(option, command)?,
            None if arg.is_positional() => wanted_by_positional(command)?,
            None => return None,
        };
        if !arg.get_action().takes_values() {
            return None;
        }
        let cluster = Arc::clone(self);
        Some(ArgValueCompleter::new(move |typed: &OsStr| {
            cluster.candidates(wanted, typed)
        }))
    }

    /// Returns the names that begin with `typed`, as suggestions.
    fn candidates(&self, wanted: Wanted, typed: &OsStr) -> Vec<CompletionCandidate> {
        // Names are UTF-8, so none begins with other bytes.
        let Some(typed) = typed.to_str() else {
            return Vec::new();
        };
        let names = self.names(wanted, typed);
        names.into_iter().map(CompletionCandidate::new).collect()
    }
}

/// Returns the completer for an argument whose values are files of the user; `None` for other arguments.
fn file_completer(arg: &Arg, command: &str) -> Option<ArgValueCompleter> {
    if arg.get_long() == Some("datastore") {
        return Some(ArgValueCompleter::new(datastores));
    }
    if !arg.is_positional() {
        return None;
    }
    match command {
        "diff" => Some(ArgValueCompleter::new(datastores)),
        "undo" => Some(ArgValueCompleter::new(journals::complete)),
        _ => None,
    }
}

/// Returns the names to suggest for the positional argument of a command.
fn wanted_by_positional(command: &str) -> Option<Wanted> {
    match command {
        "show" | "history" => Some(Wanted::OfObjects(NameKind::Nodes)),
        _ => None,
    }
}

/// Returns the names to suggest for an option of a command, without its dashes.
fn wanted_by_option(option: &str, command: &str) -> Option<Wanted> {
    match option {
        "context" => Some(Wanted::OfKubeconfig(|names| names.contexts)),
        "cluster" => Some(Wanted::OfKubeconfig(|names| names.clusters)),
        "user" => Some(Wanted::OfKubeconfig(|names| names.users)),
        _ => object_kind(option, command).map(Wanted::OfObjects),
    }
}

/// Returns the kind of the objects that an option of a command names.
fn object_kind(option: &str, command: &str) -> Option<NameKind> {
    match option {
        "node" => Some(NameKind::Nodes),
        "pool" => Some(NameKind::Pools),
        "from" | "to" if command == "migrate" => Some(NameKind::Pools),
        "block" => Some(NameKind::Blocks),
        // Assigned addresses cannot be assigned again.
        "ip" if command == "assign" => None,
        "ip" => Some(NameKind::Addresses),
        "handle" => Some(NameKind::Handles),
        "service" if command == "explain" => Some(NameKind::Services),
        "pod" => Some(NameKind::Pods),
        "namespace" => Some(NameKind::Namespaces),
        _ => None,
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
