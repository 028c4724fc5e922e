//! The command line: what is printed where, and with which exit code.
//!
//! Expected texts are in `tests/snapshots/`. `INSTA_UPDATE=always cargo test -p calipam` writes them anew;
//! look at the difference before you commit it.

mod accepted;
mod changes;
mod check;
mod color;
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
mod generated;
mod healthy;
mod help;
mod hints;
mod history;
mod kube_cluster;
mod kubectl_options;
mod kubernetes;
mod links;
mod login;
mod map;
mod pages;
mod pod_states;
mod program;
mod pty;
mod readers;
mod refusals;
mod repair;
mod reports;
mod scheduled;
mod selection;
mod serve;
mod shell;
mod show;
mod simulate;
mod stories;
mod terminal;
mod width;
