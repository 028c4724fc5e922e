//! The walk over all addresses that are recorded or in use, and the rules that check each one.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::cidr_set::runs;

use super::address::Address;
use super::{in_use, leaks, owners};
use crate::Context;
use crate::finding::Finding;
use crate::index::{Index, Record, Use};

/// Checks the addresses for which `is_wanted` is true: those in use by their users and records, and the records of all
/// others as possible leaks.
pub(crate) fn check(
    context: &Context<'_>,
    is_wanted: impl Fn(&Address<'_, '_, '_>) -> bool,
    out: &mut Vec<Finding>,
) {
    let mut unused = Vec::new();
    walk(&context.index, |address| {
        if !is_wanted(&address) {
            return;
        }
        if address.uses.is_empty() {
            for record in address.records {
                if leaks::is_candidate(context, record) {
                    unused.push(*record);
                }
            }
        } else {
            in_use::check(context, &address, out);
            owners::check(context, &address, out);
        }
        in_use::check_records(context, &address, out);
        owners::check_borrowing(context, &address, out);
    });
    leaks::check(context, &unused, out);
}

/// Counts the addresses that strict affinity does not allow where they are, as if it were on.
pub(crate) fn count_borrowed(context: &Context<'_>) -> usize {
    let mut number = 0;
    walk(&context.index, |address| {
        if owners::borrowing(context, &address).is_some() {
            number += 1;
        }
    });
    number
}

/// Visits every [`Address`] once, ascending.
fn walk<'c, 's>(index: &'c Index<'s>, mut visit: impl FnMut(Address<'_, 'c, 's>)) {
    let mut records: Vec<Record<'c, 's>> = Vec::new();
    let mut uses = index.uses.as_slice();
    for run in runs(&index.blocks, |block| block.key) {
        // The first block of a run contains the other ones.
        let region = run[0].key;
        let start = uses.partition_point(|used| used.address < region.network());
        let (uses_before, uses_from_start) = uses.split_at(start);
        visit_gap(index, uses_before, &mut visit);
        let len = uses_from_start.partition_point(|used| used.address <= region.broadcast());
        let (uses_inside, uses_after) = uses_from_start.split_at(len);
        uses = uses_after;

        records.clear();
        for block in run {
            let allocations = block.usable.into_iter().flat_map(|usable| usable.allocations());
            records.extend(allocations.map(|allocation| Record { block, allocation }));
        }
        if run.len() > 1 {
            records.sort_by_key(|record| record.allocation.address);
        }

        let is_partly_unknown = index.is_unknown(region);
        merge(&records, uses_inside, |address, records, uses| {
            if !is_partly_unknown || !index.is_unknown(address.into()) {
                visit(Address {
                    address,
                    records,
                    uses,
                    blocks: run,
                });
            }
        });
    }
    visit_gap(index, uses, &mut visit);
}

/// Visits addresses that are in use outside of blocks.
fn visit_gap<'c, 's>(index: &'c Index<'s>, uses: &[Use], visit: &mut impl FnMut(Address<'_, 'c, 's>)) {
    merge(&[], uses, |address, records, uses| {
        if !index.is_unknown(IpNet::from(address)) {
            visit(Address {
                address,
                records,
                uses,
                blocks: &[],
            });
        }
    });
}

/// Merges records and uses, both ascending: visits each address with all of its records and uses.
fn merge<'c, 's>(
    mut records: &[Record<'c, 's>],
    mut uses: &[Use],
    mut visit: impl FnMut(IpAddr, &[Record<'c, 's>], &[Use]),
) {
    loop {
        let next_recorded = records.first().map(|record| record.allocation.address);
        let next_used = uses.first().map(|used| used.address);
        let Some(address) = [next_recorded, next_used].into_iter().flatten().min() else {
            return;
        };

        let with_address = records
            .iter()
            .take_while(|record| record.allocation.address == address);
        let (records_of_address, later_records) = records.split_at(with_address.count());
        let with_address = uses.iter().take_while(|used| used.address == address);
        let (uses_of_address, later_uses) = uses.split_at(with_address.count());
        visit(address, records_of_address, uses_of_address);
        records = later_records;
        uses = later_uses;
    }
}
