//! The command line: output and exit codes.
//!
//! Expected texts are in `tests/snapshots/`. `INSTA_UPDATE=always cargo test -p calipam` updates them; look at the
//! difference before you commit it.

mod accepted;
mod alerts;
mod archive;
mod changes;
mod check;
mod compare;
mod completion;
mod diff;
mod documents;
mod errors;
mod etcd;
mod etcdv2;
mod examples;
mod explain;
mod export;
mod failures;
mod finished_pods;
mod fleet;
mod from_archive;
mod generated;
mod healthy;
mod help;
mod hints;
mod history;
mod hostile;
mod kube_cluster;
mod kubectl_options;
mod kubernetes;
mod links;
mod live;
mod live_changes;
mod login;
mod manifests;
mod map;
mod options;
mod other_ipam;
mod page_widths;
mod pages;
mod pod_states;
mod program;
mod pty;
mod ranges;
mod readers;
mod real_calicoctl;
mod record;
mod repair;
mod reports;
mod scheduled;
mod schemas;
mod selection;
mod serve;
mod serve_kubernetes;
mod serve_records;
mod shell;
mod show;
mod simulate;
mod stories;
mod terminal;
mod watch;
mod why;
mod width;

/// The program under test: the one that is built with the tests, or a packaged one.
const PROGRAM: &str = match option_env!("CALIPAM_TEST_PROGRAM") {
    Some(program) => program,
    None => env!("CARGO_BIN_EXE_calipam"),
};
