//! A cluster in etcd or behind an API server, for a migration under load.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_testkit::allocator::Target;
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::Tearing;
use serde_json::Value;

use super::super::kubernetes::{self, KubeSite};
use super::super::site::*;
use crate::cli::program::Run;

/// The migrated cluster, in its datastore.
pub(super) enum Scene<'s> {
    Etcd(&'s Site),
    Kubernetes(&'s KubeSite, Flavour),
}

impl Scene<'_> {
    pub(super) fn target<'a>(&'a self, endpoint: &'a str) -> Target<'a> {
        match self {
            Self::Etcd(_) => Target::Etcd(endpoint),
            Self::Kubernetes(site, flavour) => Target::Kubernetes(&site.server, *flavour),
        }
    }

    pub(super) fn endpoint(&self) -> String {
        match self {
            Self::Etcd(site) => site.etcd.endpoint(),
            Self::Kubernetes(..) => String::new(),
        }
    }

    pub(super) fn tearing(&self) -> Tearing {
        match self {
            Self::Etcd(site) => Tearing::etcd(&site.etcd).unwrap(),
            Self::Kubernetes(site, _) => Tearing::kubernetes(&site.server).unwrap(),
        }
    }

    /// Prepares a run of the program that connects through a proxy.
    pub(super) fn command(&self, torn: &Tearing, arguments: &[&str]) -> Command {
        match self {
            Self::Etcd(site) => {
                let mut command = site.command(arguments);
                command.env("ETCD_ENDPOINTS", torn.url());
                command
            }
            Self::Kubernetes(site, _) => site.command_by(torn.kubeconfig(), arguments),
        }
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Run {
        match self {
            Self::Etcd(site) => site.run(arguments),
            Self::Kubernetes(site, _) => site.run(arguments),
        }
    }

    pub(super) fn journals(&self) -> Vec<PathBuf> {
        match self {
            Self::Etcd(site) => site.journals(),
            Self::Kubernetes(site, _) => site.journal_files(),
        }
    }

    /// Returns the specifications of all pools.
    pub(super) fn pools(&self) -> Vec<Value> {
        let value = |raw: &Vec<u8>| serde_json::from_slice::<Value>(raw).unwrap()["spec"].take();
        match self {
            Self::Etcd(site) => {
                let dump = site.dump();
                dump.iter()
                    .filter(|(key, _)| key.contains("/ippools/"))
                    .map(|(_, (raw, _))| value(raw))
                    .collect()
            }
            Self::Kubernetes(site, _) => {
                site.list("ippools").into_values().map(|mut pool| pool["spec"].take()).collect()
            }
        }
    }

    /// Returns the CIDRs of all blocks and of all affinities.
    pub(super) fn cidrs(&self) -> [Vec<IpNet>; 2] {
        match self {
            Self::Etcd(site) => {
                let keys: Vec<Key> = site.dump().keys().filter_map(|key| Key::parse(key).ok()?).collect();
                let blocks = keys.iter().filter_map(|key| match key {
                    Key::Block(cidr) => Some(*cidr),
                    _ => None,
                });
                let affinities = keys.iter().filter_map(|key| match key {
                    Key::Affinity(affinity) => Some(affinity.cidr),
                    _ => None,
                });
                [blocks.collect(), affinities.collect()]
            }
            Self::Kubernetes(site, _) => ["ipamblocks", "blockaffinities"].map(|plural| {
                let cidr = |object: Value| object["spec"]["cidr"].as_str().unwrap().parse().unwrap();
                site.list(plural).into_values().map(cidr).collect()
            }),
        }
    }

    /// Checks the cluster, and lists findings as `severity code subject`.
    pub(super) fn findings(&self) -> BTreeSet<String> {
        findings(&self.run(&[&["check", "-o", "json"], &AT_ONCE[..]].concat()))
    }

    /// Returns the number of assigned addresses.
    pub(super) fn assigned(&self) -> usize {
        match self {
            Self::Etcd(site) => recorded(&site.dump()).len(),
            Self::Kubernetes(site, _) => kubernetes::recorded(&site.objects(), false).len(),
        }
    }
}
