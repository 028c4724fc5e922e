//! The rules, one module per subject. Each checks the entire snapshot and adds its findings.

mod address;
#[cfg(test)]
mod address_tests;
pub(crate) mod addresses;
mod affinities;
pub(crate) mod aged;
#[cfg(test)]
mod aged_tests;
mod block_limit;
mod blocks;
#[cfg(test)]
mod changed_tests;
mod configuration;
mod custom_resources;
mod defects;
mod endpoints;
#[cfg(test)]
mod finding_tests;
mod handles;
mod in_use;
#[cfg(test)]
mod in_use_tests;
#[cfg(test)]
mod kubernetes_tests;
mod leaks;
#[cfg(test)]
mod machine_tests;
mod needed_handles;
#[cfg(test)]
mod node_tests;
mod other_ipam;
#[cfg(test)]
mod other_ipam_tests;
mod owners;
#[cfg(test)]
mod plugin_tests;
#[cfg(test)]
mod pool_tests;
mod pools;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod read_later_tests;
#[cfg(test)]
mod service_tests;
mod services;
#[cfg(test)]
mod settle_tests;
#[cfg(test)]
mod structure_tests;
#[cfg(test)]
mod tunnel_tests;
mod tunnels;
mod unrecorded;
pub(crate) mod without_address;
#[cfg(test)]
mod without_address_tests;
mod workloads;

use crate::Context;
use crate::finding::Finding;
use crate::occupancy::Occupancy;

/// Runs all rules. The walk over addresses takes as long as all other rules together, so both run at the same time.
pub(crate) fn run(context: &Context<'_>) -> Vec<Finding> {
    std::thread::scope(|scope| {
        let walk = scope.spawn(|| {
            let mut findings = Vec::new();
            addresses::check(context, |_| true, &mut findings);
            findings
        });
        let mut findings = run_others(context);
        findings.extend(
            walk.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        );
        needed_handles::note(context, &mut findings);
        findings
    })
}

/// Runs the rules that make sense before the first block exists: those about pools and about who gets an address.
pub(crate) fn run_unused(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    pools::check_settings(context, &mut findings);
    without_address::check(context, &mut findings);
    other_ipam::check(context, &mut findings);
    services::check(context, &mut findings);
    findings
}

/// Runs all rules except those of the walk over addresses.
fn run_others(context: &Context<'_>) -> Vec<Finding> {
    let occupancy = Occupancy::new(context);
    let mut findings = Vec::new();
    blocks::check(context, &mut findings);
    affinities::check(context, &mut findings);
    block_limit::check(context, &mut findings);
    without_address::check(context, &mut findings);
    handles::check(context, &mut findings);
    pools::check(context, &occupancy, &mut findings);
    configuration::check(context, &mut findings);
    other_ipam::check(context, &mut findings);
    endpoints::check(context, &mut findings);
    tunnels::check(context, &mut findings);
    workloads::check(context, &mut findings);
    services::check(context, &mut findings);
    unrecorded::check(context, &mut findings);
    custom_resources::check(context, &mut findings);
    defects::check(context, &mut findings);
    findings
}
