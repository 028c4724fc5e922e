//! Whether the owner that a record names is gone, whoever uses the address now.

use calipam_model::IpNet;
use calipam_model::snapshot::Source;

use super::addresses::Record;
use super::leaks::reasons;
use crate::Context;
use crate::finding::LeakReason;
use crate::record::Claim;

/// By place (block and ordinal): why the recorded owner is gone, by the evidence that makes an unused address
/// leaked. `None` where it may live, or where what could show it was not read.
pub(crate) fn why_gone(context: &Context<'_>, places: &[(IpNet, u32)]) -> Vec<Option<Vec<LeakReason>>> {
    let snapshot = context.snapshot;
    let workloads_read = snapshot.has_read(Source::Endpoints) || snapshot.has_read(Source::Pods);
    let record = |(cidr, ordinal): &(IpNet, u32)| {
        let block = context.index.block(*cidr)?;
        Some(Record { block, allocation: block.sound?.allocation(*ordinal)? })
    };
    let records: Vec<Option<Record<'_, '_>>> = places.iter().map(record).collect();
    let known: Vec<Record<'_, '_>> = records.iter().flatten().copied().collect();
    let mut judged = reasons(context, &known).into_iter();
    let of_record = |record: &Option<Record<'_, '_>>| {
        let (record, reasons) = (record.as_ref()?, judged.next()??);
        let claim = Claim::of(&record.allocation.attribute);
        let nobodys = matches!(claim, Claim::Cooling | Claim::WindowsReserved);
        let read = workloads_read && snapshot.has_read(Source::Nodes) && !claim.needs_unread_source(snapshot);
        (read && !nobodys).then_some(reasons)
    };
    records.iter().map(of_record).collect()
}
