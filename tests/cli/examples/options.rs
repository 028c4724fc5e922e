//! Every option in a document or manifest exists, and every existing option is in a document. Generated documents, man
//! pages and help do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use clap::{Arg, Command};

use super::document::documents;
use super::spoken::spans;
use crate::cli::help::{called, commands};
use crate::cli::program::{files, root};

/// Options of other programs that documents and manifests mention without the program.
const OTHERS: [(&str, &str); 13] = [
    ("--enable-v2", "etcd"),
    ("--service-cluster-ip-range", "kube-apiserver"),
    ("--create-namespace", "helm"),
    ("--set", "helm"),
    ("--collector", "node_exporter"),
    ("--web", "node_exporter"),
    ("--profile", "cargo test"),
    ("--check", "cargo xtask dist"),
    ("--twice", "cargo xtask dist"),
    ("--hours", "cargo xtask explore"),
    ("--faults", "cargo xtask explore"),
    ("--keep-going", "cargo xtask explore"),
    ("--seeds", "cargo xtask explore"),
];

/// The commands that the program has under the name `calicoctl`, and an empty entry for the help of the program.
const CALICOCTL: [&str; 8] = [
    "",
    "ipam check",
    "ipam release",
    "ipam show",
    "ipam split",
    "ipam configure",
    "datastore migrate lock",
    "version",
];

/// Finds the long options in `text`.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    words.filter(|word| {
        word.strip_prefix("--")
            .is_some_and(|name| name.starts_with(|c| c != '-'))
    })
}

/// Calls `of` with each option of a command and of its subcommands.
fn each(command: &Command, of: &mut impl FnMut(&Command, &Arg)) {
    command.get_arguments().for_each(|arg| of(command, arg));
    command.get_subcommands().for_each(|below| each(below, of));
}

/// Returns the options of the program under all its names, and the options of the plugin's installer.
fn known() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    each(&calipam::command(), &mut |_, arg| {
        let names = arg
            .get_long()
            .into_iter()
            .chain(arg.get_all_aliases().into_iter().flatten());
        known.extend(names.map(|name| format!("--{name}")));
    });
    for command in CALICOCTL {
        let help = called("calicoctl", &format!("{command} --help")).stdout;
        known.extend(options(&help).map(str::to_owned));
    }
    let installer = fs::read_to_string(root().join("crates/cni/src/install/options.rs")).unwrap();
    known.extend(options(&installer).map(str::to_owned));
    known
}

/// Returns the options in manifests, and the options in documents that stand alone or follow a command. Each has a
/// place where it occurs. Other tests cover options that follow a name of the program, in examples and in running text.
fn named() -> BTreeMap<String, String> {
    let commands = commands();
    let mut named = BTreeMap::new();
    let mut add = |place: &str, text: &str| {
        for option in options(text) {
            named.entry(option.to_owned()).or_insert_with(|| place.to_owned());
        }
    };
    for (file, text) in documents() {
        for span in spans(&text) {
            let first = span.split(' ').next().unwrap_or_default();
            if first.starts_with('-') || commands.iter().any(|name| name == first) {
                add(&file, span);
            }
        }
    }
    let manifests = ["docs/kubernetes", "docs/systemd"]
        .into_iter()
        .flat_map(|name| files(&root().join(name)));
    for file in manifests.filter(|file| file.extension().is_none_or(|ending| ending != "json")) {
        add(&file.display().to_string(), &fs::read_to_string(&file).unwrap());
    }
    named
}

#[test]
fn options_in_documents_and_manifests_exist() {
    let (named, known) = (named(), known());
    assert!(named.len() > 80, "{named:?}");
    let is_other = |option: &str| OTHERS.iter().any(|(other, _)| *other == option);
    let unknown: Vec<_> = named
        .iter()
        .filter(|(option, _)| !known.contains(*option) && !is_other(option))
        .collect();
    assert!(unknown.is_empty(), "no program has these options: {unknown:?}");
    for (option, program) in OTHERS {
        assert!(
            named.contains_key(option),
            "no document names {option} of {program} any more"
        );
    }
}

#[test]
fn every_option_is_in_a_document() {
    let documents = documents();
    let described: BTreeSet<&str> = documents.iter().flat_map(|(_, text)| options(text)).collect();
    let mut missing = BTreeSet::new();
    each(&calipam::command(), &mut |command, arg| {
        let option = arg.get_long().map(|name| format!("--{name}"));
        let option = option.filter(|option| !described.contains(option.as_str()));
        missing.extend(option.map(|option| format!("{} {option}", command.get_name())));
    });
    assert!(missing.is_empty(), "no document names these options: {missing:?}");
}
