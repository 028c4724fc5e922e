//! Addresses in use that are not allocated, or more than once.

use super::addresses::{Address, Record};
use super::evidence::{name_of_claim, names_of_owners, nodes_of, of_address};
use crate::Context;
use crate::code::Code;
use crate::finding::{AddressEvidence, Evidence, Finding, Subject};
use crate::index::{Index, Owner, Use};

/// Makes a finding about an address.
pub(crate) fn finding(
    code: Code,
    address: &Address<'_, '_, '_>,
    evidence: AddressEvidence,
    says: &str,
) -> Finding {
    let nodes = nodes_of(&evidence);
    let message = format!("{} {says}", address.address);
    Finding::new(code, Subject::Address(address.address), message, Evidence::Address(Box::new(evidence)))
        .on_nodes(nodes)
}

/// Judges an address that somebody uses.
pub(crate) fn judge(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    if has_several_owners(&context.index, address) {
        let evidence = of_address(context, address);
        let says = format!("used by {}", names_of_owners(&evidence.owners));
        out.push(finding(Code::DuplicateAddress, address, evidence, &says));
    }
    let in_pool = context.index.pools_around(address.address.into()).next().is_some();
    if !in_pool {
        if !context.index.pools_incomplete {
            let evidence = of_address(context, address);
            let says = format!("used by {}, lies in no pool", names_of_owners(&evidence.owners));
            out.push(finding(Code::InUseOutsidePools, address, evidence, &says));
        }
    } else if address.holding().next().is_none() {
        let evidence = of_address(context, address);
        let owners = names_of_owners(&evidence.owners);
        let how = match (address.records.first(), address.containing_blocks().next()) {
            (Some(record), _) => format!("only cooling in {}", record.block.key),
            (None, Some(block)) => format!("free in {}", block.key),
            (None, None) => "in no block".to_owned(),
        };
        out.push(finding(Code::UnallocatedInUse, address, evidence, &format!("used by {owners}, but {how}")));
    }
}

/// Judges what blocks record about an address, used or not.
pub(crate) fn judge_records(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    if address.records.len() < 2 || address.holding().count() < 2 {
        return;
    }
    let claim = |r: &Record<'_, '_>| format!("{} for {}", r.block.key, name_of_claim(r));
    let claims: Vec<String> = address.holding().map(claim).collect();
    let says = format!("allocated in {}", claims.join(" and in "));
    out.push(finding(Code::AddressInSeveralBlocks, address, of_address(context, address), &says));
}

/// True where the users are not all one owner: an endpoint of one pod, tunnels of one node, and the pods
/// of one virtual machine count as one.
fn has_several_owners(index: &Index<'_>, address: &Address<'_, '_, '_>) -> bool {
    let Some((first, others)) = address.uses.split_first() else { return false };
    others
        .iter()
        .any(|other| !is_same_owner(index, first, other) && !is_same_machine(index, address, first, other))
}

fn is_same_owner(index: &Index<'_>, a: &Use, b: &Use) -> bool {
    match (a.owner, b.owner) {
        (Owner::Tunnel(a, _), Owner::Tunnel(b, _)) => a == b,
        (Owner::Endpoint(a), Owner::Endpoint(b)) => {
            let (a, b) = (index.endpoint(a), index.endpoint(b));
            let named = !a.pod().is_empty() && a.pod() == b.pod();
            a.namespace() == b.namespace() && (named || a.name() == b.name())
        }
        _ => false,
    }
}

/// True where both are pods of the virtual machine whose address it is: source and target of a live
/// migration share it (facts 2.14).
fn is_same_machine(index: &Index<'_>, address: &Address<'_, '_, '_>, a: &Use, b: &Use) -> bool {
    let (Owner::Endpoint(a), Owner::Endpoint(b)) = (a.owner, b.owner) else { return false };
    address.holding().any(|record| {
        let attribute = record.allocation.attribute;
        let Some(machine) = attribute.get("vmi-name") else { return false };
        let prefix = format!("virt-launcher-{machine}-");
        [a, b].into_iter().all(|place| {
            let endpoint = index.endpoint(place);
            let pod = Some(endpoint.pod());
            let recorded =
                attribute.get("pod") == pod || attribute.alternate().and_then(|o| o.get("pod")) == pod;
            attribute.get("namespace") == Some(endpoint.namespace())
                && (recorded || endpoint.pod().to_string().starts_with(&prefix))
        })
    })
}
