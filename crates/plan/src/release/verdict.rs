//! Why an address that is asked for cannot be released.

use std::net::IpAddr;

use calipam_check::claim::Claim;
use calipam_check::owner::{Unread, unread};
use calipam_check::{Subject, names_of_owners};
use calipam_model::block::Allocation;

use crate::basis::Basis;
use crate::skipped::{SkipReason, Skipped};

/// Why an address is not released although no finding says that it is leaked.
pub(super) fn why_not(basis: &Basis<'_>, address: IpAddr) -> Skipped {
    let (reason, detail) = judge(basis, address);
    Skipped::new(Subject::Address(address), reason, detail)
}

fn judge(basis: &Basis<'_>, address: IpAddr) -> (SkipReason, String) {
    let index = &basis.context.index;
    if index.is_unjudged(address.into()) {
        return (
            SkipReason::Unjudged,
            format!("{address} lies in a block that is corrupt or cannot be decoded"),
        );
    }
    let around = index.blocks.iter().filter(|block| block.key.contains(&address));
    let records: Vec<Allocation<'_>> =
        around.filter_map(|block| block.sound?.allocation_of(address)).collect();
    let owners = basis.context.owners_of(address);
    if !owners.is_empty() {
        return (SkipReason::InUse, format!("{address} is used by {}", names_of_owners(&owners)));
    }
    if records.is_empty() {
        return (SkipReason::NotAllocated, format!("no block records {address}"));
    }
    if index.is_mentioned(address) {
        let detail = "is named by a pod, an endpoint or a service, although not as its owner for certain";
        return (SkipReason::InUse, format!("{address} {detail}"));
    }
    let verdicts = records.iter().map(|record| of_record(basis, record));
    verdicts.min().unwrap_or((SkipReason::NotAllocated, String::new()))
}

fn of_record(basis: &Basis<'_>, record: &Allocation<'_>) -> (SkipReason, String) {
    let address = record.address;
    let claim = Claim::of(&record.attribute);
    match claim {
        Claim::Cooling => (SkipReason::Cooling, format!("{address} was released already and cools down")),
        Claim::WindowsReserved => (
            SkipReason::WindowsReserved,
            format!("{address} is reserved by a Windows node and never handed out"),
        ),
        _ if basis.context.is_young(&record.attribute) => {
            let grace = basis.context.grace;
            let detail =
                format!("{address} was allocated less than {grace:#} ago: its pod may still be starting");
            (SkipReason::Young, detail)
        }
        claim => match unread(basis.snapshot, &claim) {
            Some(Unread::Users) => {
                (SkipReason::NotRead, format!("{address}: what uses addresses was not read"))
            }
            Some(source) => {
                let what = if source == Unread::Services { "services" } else { "virtual machines" };
                (SkipReason::NotRead, format!("{address} is held for one of the {what}, which were not read"))
            }
            None => {
                (SkipReason::OwnerMayLive, format!("{address} is unused now, but its owner may still live"))
            }
        },
    }
}
