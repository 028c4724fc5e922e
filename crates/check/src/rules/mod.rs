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
mod owners;
#[cfg(test)]
pub(crate) mod pool_tests;
mod pools;
#[cfg(test)]
pub(crate) mod random_tests;
#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod settle_tests;
pub(crate) mod stranded;
#[cfg(test)]
mod structure_tests;
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
    /// Of the addresses that were checked, those that blocks record and nothing uses.
    pub unused: Vec<IpAddr>,
}

/// Runs all rules.
pub(crate) fn run(context: &Context<'_>) -> Vec<Finding> {
    run_on(context, None).findings
}

/// Runs all rules, those about addresses and handles on a part of these if one is given. The walk over addresses takes as long
/// as all others together, so that it runs at the same time.
pub(crate) fn run_on(context: &Context<'_>, part: Option<&Part>) -> Found {
    std::thread::scope(|scope| {
        let walk = scope.spawn(|| {
            let mut findings = Vec::new();
            let unused = addresses::check(context, part.map(|part| &part.addresses), &mut findings);
            Found { findings, unused }
        });
        let mut findings = run_others(context, part);
        match walk.join() {
            Ok(walked) => {
                findings.extend(walked.findings);
                Found { findings, unused: walked.unused }
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// What is found before the first block is there.
pub(crate) fn run_unused(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    pools::check_settings(context, &mut findings);
    findings
}

fn run_others(context: &Context<'_>, part: Option<&Part>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (occupancy, claimants) = (Occupancy::new(context), Claimants::new(context));
    blocks::check(context, &mut findings);
    affinities::check(context, &mut findings);
    block_limit::check(context, &claimants, &mut findings);
    handles::check(context, part, &mut findings);
    pools::check(context, &occupancy, &mut findings);
    stranded::check(context, &occupancy, &claimants, &mut findings);
    configuration::check(context, &mut findings);
    endpoints::check(context, &mut findings);
    workloads::check(context, &mut findings);
    workloads::check_services(context, &mut findings);
    custom_resources::check(context, part, &mut findings);
    defects::check(context, &mut findings);
    findings
}
