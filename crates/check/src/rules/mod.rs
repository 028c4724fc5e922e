//! The rules, one file per family. Each looks at the whole snapshot and adds what it finds.

#[cfg(test)]
mod address_tests;
mod addresses;
mod affinities;
pub(crate) mod aged;
#[cfg(test)]
mod aged_tests;
mod block_limit;
mod blocks;
mod configuration;
mod custom_resources;
mod defects;
mod endpoints;
#[cfg(test)]
mod feature_tests;
#[cfg(test)]
mod finding_tests;
mod handles;
mod in_use;
#[cfg(test)]
mod in_use_tests;
#[cfg(test)]
pub(crate) mod kubernetes_tests;
mod leaks;
#[cfg(test)]
mod machine_tests;
mod other_ipam;
#[cfg(test)]
mod other_ipam_tests;
mod owners;
#[cfg(test)]
pub(crate) mod pool_tests;
mod pools;
#[cfg(test)]
pub(crate) mod random_tests;
#[cfg(test)]
mod service_tests;
mod services;
#[cfg(test)]
mod settle_tests;
pub(crate) mod stranded;
#[cfg(test)]
mod structure_tests;
#[cfg(test)]
mod tunnel_tests;
mod tunnels;
mod workloads;

use std::collections::HashSet;
use std::net::IpAddr;

use calipam_model::IpNet;

pub(crate) use self::handles::{hash_of_bytes, hash_of_name};
use crate::Context;
use crate::cidr_set::CidrSet;
use crate::finding::Finding;
use crate::occupancy::{Claimants, Occupancy};

/// Which addresses and handles are checked where not all are.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub addresses: CidrSet,
    /// [Hashes](hash_of_name) of their IDs. All handles with these that are stored are in the snapshot, and all addresses that blocks
    /// record under them are among the addresses of the part.
    pub handles: HashSet<u64>,
}

impl Part {
    /// True where an address of the block is checked, as all are where there is no part.
    fn has(part: Option<&Self>, block: IpNet) -> bool {
        part.is_none_or(|part| part.addresses.within(block).next().is_some())
    }
}

/// What the rules have found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub findings: Vec<Finding>,
    /// What the [rules about the layout](run_layout) have found.
    pub layout: Vec<Finding>,
    /// Of the addresses that were checked, those that blocks record and nothing uses.
    pub unused: Vec<IpAddr>,
}

impl Found {
    /// All findings.
    pub(crate) fn all(mut self) -> Vec<Finding> {
        self.findings.append(&mut self.layout);
        self.findings
    }
}

/// Runs all rules.
pub(crate) fn run(context: &Context<'_>) -> Found {
    let occupancy = Occupancy::new(context);
    let (walked, (others, layout)) = beside_walk(context, None, || {
        let layout = run_layout(context, &occupancy, &Claimants::new(context));
        (run_others(context, &occupancy, None), layout)
    });
    walked.with(others, layout)
}

/// Runs the rules but those about the layout; those about addresses and handles on a part of these.
pub(crate) fn run_on(context: &Context<'_>, occupancy: &Occupancy<'_, '_>, part: &Part) -> Found {
    let (walked, others) = beside_walk(context, Some(part), || run_others(context, occupancy, Some(part)));
    walked.with(others, Vec::new())
}

/// What was found in a walk over addresses.
struct Walked {
    findings: Vec<Finding>,
    unused: Vec<IpAddr>,
}

impl Walked {
    fn with(self, mut findings: Vec<Finding>, layout: Vec<Finding>) -> Found {
        findings.extend(self.findings);
        Found { findings, layout, unused: self.unused }
    }
}

/// The walk over addresses takes as long as all other rules together, so that these run at the same time.
fn beside_walk<T>(context: &Context<'_>, part: Option<&Part>, others: impl FnOnce() -> T) -> (Walked, T) {
    std::thread::scope(|scope| {
        let walk = scope.spawn(|| {
            let mut findings = Vec::new();
            let unused = addresses::check(context, part.map(|part| &part.addresses), &mut findings);
            Walked { findings, unused }
        });
        let others = others();
        (walk.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), others)
    })
}

/// What is found before the first block is there.
pub(crate) fn run_unused(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    pools::check_settings(context, &mut findings);
    other_ipam::check(context, &mut findings);
    findings
}

/// Runs the rules about whose the blocks are, and what nodes can still get. Of what a block holds they see only whether it is full or
/// empty; their findings also say how many addresses are taken.
pub(crate) fn run_layout(
    context: &Context<'_>,
    occupancy: &Occupancy<'_, '_>,
    claimants: &Claimants<'_, '_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    blocks::check(context, &mut findings);
    affinities::check(context, &mut findings);
    block_limit::check(context, claimants, &mut findings);
    stranded::check(context, occupancy, claimants, &mut findings);
    findings
}

fn run_others(context: &Context<'_>, occupancy: &Occupancy<'_, '_>, part: Option<&Part>) -> Vec<Finding> {
    let mut findings = Vec::new();
    handles::check(context, part, &mut findings);
    pools::check(context, occupancy, &mut findings);
    configuration::check(context, &mut findings);
    other_ipam::check(context, &mut findings);
    endpoints::check(context, &mut findings);
    tunnels::check(context, &mut findings);
    workloads::check(context, &mut findings);
    services::check(context, &mut findings);
    custom_resources::check(context, part, &mut findings);
    defects::check(context, &mut findings);
    findings
}
