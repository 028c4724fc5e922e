//! Findings that appear when the same snapshot is checked at a later time.
//!
//! Only a few rules depend on the time: those about the ages of allocations, of waiting or finished pods and of
//! services without an address, and about release times in the future. Therefore, little has to be checked again, and
//! usually nothing.

use std::collections::HashSet;
use std::net::IpAddr;

use calipam_model::attributes::AttributeRef;
use calipam_model::block::BlockProblem;
use calipam_model::pod::evidence;
use jiff::Timestamp;

use super::address::Address;
use super::{addresses, run, services, without_address, workloads};
use crate::Context;
use crate::code::Code;
use crate::finding::{Finding, Subject};
use crate::index::Index;

/// Runs the rules that can have new findings at the time `later`, with the addresses that have become old enough by
/// then ([`Context::aged`]). Findings whose codes are not in `codes` can be missing.
pub(crate) fn findings(
    mut context: Context<'_>,
    later: Timestamp,
    codes: &HashSet<Code>,
) -> HashSet<(Code, Subject)> {
    let earlier = std::mem::replace(&mut context.now, later);
    let mut problems = context.index.blocks.iter().flat_map(|block| &block.problems);
    if problems.any(|problem| matches!(problem, BlockProblem::ReleasedInFuture { .. })) {
        // A block with a release time in the future can become sound, and any rule can have a finding about it.
        context.index = Index::new(context.snapshot, later);
        return into_keys(run(&context));
    }

    let mut findings = Vec::new();
    // The codes from `owners` and `leaks` that depend on the age of an allocation.
    let codes_of_addresses = [
        Code::OwnerMismatch,
        Code::LeakedAddress,
        Code::ServiceAddressExtra,
    ];
    if codes_of_addresses.iter().any(|code| codes.contains(code)) {
        check_addresses(&context, earlier, &mut findings);
    }
    let mut pods = context.snapshot.pods.iter();
    if codes.contains(&Code::EndpointWithoutPod) && pods.any(|pod| pod.value.finished) {
        workloads::check(&context, &mut findings);
    }
    if codes.contains(&Code::ServiceWithoutAddress) {
        services::check(&context, &mut findings);
    }
    if codes.contains(&Code::NodeWithoutAddresses) || codes.contains(&Code::PodWithoutAddress) {
        without_address::check(&context, &mut findings);
    }
    into_keys(findings)
}

fn into_keys(findings: Vec<Finding>) -> HashSet<(Code, Subject)> {
    findings
        .into_iter()
        .map(|finding| (finding.code, finding.subject))
        .collect()
}

/// Checks the addresses with an allocation that is young at `earlier`, but no longer young at the time of the context, and
/// those of pods that were leaving.
fn check_addresses(context: &Context<'_>, earlier: Timestamp, out: &mut Vec<Finding>) {
    let mut leaving: HashSet<IpAddr> = HashSet::new();
    for pod in context.snapshot.pods.iter().map(|stored| &stored.value) {
        if pod.leaving_since.is_some() {
            leaving.extend(pod.named_by(evidence::STATUS));
        }
    }

    let has_aged =
        |record: &AttributeRef<'_>| context.is_young_at(earlier, record) && !context.is_young(record);
    let blocks = context.index.blocks.iter().filter_map(|block| block.usable);
    let mut records = blocks.flat_map(|block| block.attributes());
    if leaving.is_empty() && !records.any(|record| has_aged(&record)) {
        return;
    }

    let is_wanted = |address: &Address<'_, '_, '_>| {
        let mut attributes = address.records.iter().map(|record| &record.allocation.attribute);
        leaving.contains(&address.address) || attributes.any(has_aged)
    };
    addresses::check(context, is_wanted, out);
}
