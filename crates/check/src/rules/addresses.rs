//! The walk over all addresses that are recorded or in use, and the rules that check each one.

use std::net::IpAddr;

use calipam_model::cidr_set::runs;
use calipam_model::{IpNet, cidr};

use super::{in_use, leaks, owners};
use crate::Context;
use crate::finding::{AddressEvidence, Finding};
use crate::index::{Index, IndexedBlock, Use};
use crate::record::Record;

/// An address that is recorded or in use, and not in a block whose records cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address<'a, 'c, 's> {
    pub address: IpAddr,
    /// The address's records in readable blocks; several where blocks overlap.
    pub records: &'a [Record<'c, 's>],
    pub uses: &'a [Use],
    /// The largest block that contains the address, and all blocks inside of that one.
    pub blocks: &'c [IndexedBlock<'s>],
}

/// Checks the addresses for which `is_wanted` is true.
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
            unused.extend(address.records.iter().filter(|r| leaks::is_candidate(context, r)).copied());
        } else {
            in_use::check(context, &address, out);
            owners::check(context, &address, out);
        }
        in_use::check_records(context, &address, out);
        owners::check_borrowing(context, &address, out);
    });
    leaks::check(context, &unused, out);
}

/// Visits every [`Address`] once, ascending.
fn walk<'c, 's>(index: &'c Index<'s>, mut visit: impl FnMut(Address<'_, 'c, 's>)) {
    let mut records: Vec<Record<'c, 's>> = Vec::new();
    let mut uses = index.uses.as_slice();
    for run in runs(&index.blocks, |block| block.key) {
        let around = run[0].key;
        let (before, within) = uses.split_at(uses.partition_point(|u| u.address < around.network()));
        visit_gap(index, before, &mut visit);
        let (within, later) = within.split_at(within.partition_point(|u| u.address <= around.broadcast()));
        uses = later;
        records.clear();
        for block in run {
            let allocations = block.usable.into_iter().flat_map(|b| b.allocations());
            records.extend(allocations.map(|allocation| Record { block, allocation }));
        }
        if run.len() > 1 {
            records.sort_by_key(|r| r.allocation.address);
        }
        let hidden = index.is_unknown(around);
        merge(&records, within, |address, records, uses| {
            if !hidden || !index.is_unknown(address.into()) {
                visit(Address { address, records, uses, blocks: run });
            }
        });
    }
    visit_gap(index, uses, &mut visit);
}

/// Visits addresses that are in use outside of blocks.
fn visit_gap<'c, 's>(index: &'c Index<'s>, uses: &[Use], visit: &mut impl FnMut(Address<'_, 'c, 's>)) {
    merge(&[], uses, |address, records, uses| {
        if !index.is_unknown(IpNet::from(address)) {
            visit(Address { address, records, uses, blocks: &[] });
        }
    });
}

/// Merges records and uses of the same address; both are ascending.
fn merge<'c, 's>(
    mut records: &[Record<'c, 's>],
    mut uses: &[Use],
    mut visit: impl FnMut(IpAddr, &[Record<'c, 's>], &[Use]),
) {
    loop {
        let recorded = records.first().map(|r| r.allocation.address);
        let used = uses.first().map(|u| u.address);
        let Some(address) = [recorded, used].into_iter().flatten().min() else { return };
        let here = records.iter().take_while(|r| r.allocation.address == address).count();
        let users = uses.iter().take_while(|u| u.address == address).count();
        visit(address, &records[..here], &uses[..users]);
        records = &records[here..];
        uses = &uses[users..];
    }
}

impl<'a, 'c, 's> Address<'a, 'c, 's> {
    /// Returns the records of the address, except those in which it is cooling down.
    pub(crate) fn holding(&self) -> impl Iterator<Item = &'a Record<'c, 's>> + Clone + use<'a, 'c, 's> {
        self.records.iter().filter(|r| !r.allocation.attribute.is_cooling())
    }

    pub(crate) fn evidence(&self, context: &Context<'_>) -> AddressEvidence {
        AddressEvidence {
            pool: context.index.pools_around(self.address.into()).next().map(|p| p.name.clone()),
            owners: context.index.describe_users(self.address, self.uses),
            records: self.records.iter().map(Record::evidence).collect(),
            ..AddressEvidence::default()
        }
    }

    /// Returns the readable blocks that contain the address.
    pub(crate) fn containing_blocks(&self) -> impl Iterator<Item = &'c IndexedBlock<'s>> {
        let address = self.address;
        self.blocks.iter().filter(move |b| b.usable.is_some() && cidr::ordinal_of(b.key, address).is_some())
    }
}
