//! The events of a block as those about an address, handle, block or node.

use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::block::BlockOwner;
use calipam_model::cidr::{address_at, ordinal_of};
use calipam_model::handle::clean_id;

use super::block::{BlockEvent, BlockState};
use super::event::{Holder, What, owner};
use super::state::Record;
use super::when::{Recorded, recorded};
use super::{About, Raw, raw};

/// How it was when what is kept begins.
pub(crate) fn known(cidr: IpNet, revision: i64, state: &BlockState, about: &About) -> Vec<Raw> {
    let fields = match state {
        BlockState::Absent => return Vec::new(),
        BlockState::Hidden(reason) => {
            let event = BlockEvent::Undecodable(reason.clone());
            return of_event(cidr, None, revision, &event, about).into_iter().collect();
        }
        BlockState::Stored(fields) => fields,
    };
    let held = |subject: Subject, record: Option<&Record>, detail: String| {
        let after = record.map(|record| Holder::of(&record.attribute));
        let mut event_of = raw(revision, What::Known, subject, [None, after], detail, None);
        event_of.event.block = matches!(event_of.event.subject, Subject::Address(_)).then_some(cidr);
        event_of
    };
    let block = format!("{cidr} of {}", owner(&fields.owner));
    let of_records = |wanted: &dyn Fn(&Record) -> bool| -> Vec<Raw> {
        let records = fields.held.iter().filter(|(_, record)| wanted(record));
        let subject = |ordinal: u32| Subject::Address(fields.address(ordinal));
        records
            .map(|(ordinal, record)| held(subject(*ordinal), Some(record), format!("in {block}")))
            .collect()
    };
    match about {
        About::Address(address) => {
            let ordinal = ordinal_of(cidr, *address);
            let record = ordinal.and_then(|ordinal| fields.held.get(&ordinal));
            let free = if record.is_none() { "free " } else { "" };
            vec![held(Subject::Address(*address), record, format!("{free}in {block}"))]
        }
        About::Handle(id) => of_records(&|record| is_of_handle(record, id)),
        About::Block(_) => {
            vec![held(
                Subject::Block(cidr),
                None,
                format!("of {}, {} taken", owner(&fields.owner), fields.held.len()),
            )]
        }
        About::Node(node) => {
            let own = fields.owner.as_ref().and_then(BlockOwner::host) == Some(node.as_str());
            let mut all = of_records(&|record| node_of(record).as_deref() == Some(node));
            if own {
                let detail = format!("of {}, {} taken", owner(&fields.owner), fields.held.len());
                all.insert(0, held(Subject::Block(cidr), None, detail));
            }
            all
        }
    }
}

fn is_of_handle(record: &Record, id: &str) -> bool {
    record.attribute.handle.as_deref().is_some_and(|handle| clean_id(handle) == clean_id(id))
}

fn node_of(record: &Record) -> Option<String> {
    Holder::of(&record.attribute).node
}

/// The events of a block as those about the subject.
pub(crate) fn raw_events(
    cidr: IpNet,
    block_owner: Option<&BlockOwner>,
    revision: i64,
    event: &BlockEvent,
    next: &BlockState,
    about: &About,
) -> Vec<Raw> {
    match event {
        BlockEvent::Known => known(cidr, revision, next, about),
        event => of_event(cidr, block_owner, revision, event, about).into_iter().collect(),
    }
}

/// An event of a block as one about the subject; `None` if it does not concern it.
fn of_event(
    cidr: IpNet,
    block_owner: Option<&BlockOwner>,
    revision: i64,
    event: &BlockEvent,
    about: &About,
) -> Option<Raw> {
    let records = event.records();
    if !concerns(cidr, block_owner, event, about) {
        return None;
    }
    let address = event.ordinal().map(|ordinal| address_at(cidr, ordinal));
    let subject = address.map_or(Subject::Block(cidr), Subject::Address);
    let holders = records.map(|record| record.map(|record| Holder::of(&record.attribute)));
    let text = |value: &Option<serde_json::Value>| value.as_ref().map_or("-".to_owned(), ToString::to_string);
    let (what, detail) = match event {
        BlockEvent::Claimed { owner: by, .. } => (What::BlockClaimed, format!("by {}", owner(by))),
        BlockEvent::Assigned { .. } => (What::Assigned, String::new()),
        BlockEvent::Changed { .. } => (What::AttributesChanged, String::new()),
        BlockEvent::Released { with_block: true, .. } => (What::Released, "its block was deleted".to_owned()),
        BlockEvent::Released { .. } => (What::Released, String::new()),
        BlockEvent::Cooling { .. } => (What::Cooling, String::new()),
        BlockEvent::Owner { before, after, .. } => {
            (What::OwnerChanged, format!("{} → {}", owner(before), owner(after)))
        }
        BlockEvent::ClaimedAgain { claim_time } => {
            (What::ClaimedAgain, claim_time.as_ref().map(|at| format!("at {at}")).unwrap_or_default())
        }
        BlockEvent::Marked(true) => (What::MarkedDeleted, String::new()),
        BlockEvent::Marked(false) => (What::FieldChanged, "deleted: true → false".to_owned()),
        BlockEvent::Undecodable(reason) => (What::Undecodable, reason.clone()),
        BlockEvent::GivenUp => (What::BlockReleased, String::new()),
        BlockEvent::Field { name, before, after } => {
            (What::FieldChanged, format!("{name}: {} → {}", text(before), text(after)))
        }
        BlockEvent::Known => return None,
    };
    let recorded = time_of(event);
    let mut event_of = raw(revision, what, subject, holders, detail, recorded);
    event_of.event.block = address.map(|_| cidr);
    Some(event_of)
}

/// The time that was recorded with an event.
pub(crate) fn time_of(event: &BlockEvent) -> Option<Recorded> {
    let text = match event {
        BlockEvent::Assigned { record, .. } => record.attribute.owner.as_ref()?.get("timestamp")?,
        BlockEvent::Cooling { record, .. } => record.attribute.released_at.as_ref()?,
        BlockEvent::Claimed { claim_time, .. }
        | BlockEvent::Owner { claim_time, after: Some(_), .. }
        | BlockEvent::ClaimedAgain { claim_time } => claim_time.as_ref()?,
        _ => return None,
    };
    recorded(text)
}

fn concerns(cidr: IpNet, block_owner: Option<&BlockOwner>, event: &BlockEvent, about: &About) -> bool {
    let records = || event.records().into_iter().flatten();
    match about {
        About::Address(address) => {
            let ordinal = ordinal_of(cidr, *address);
            ordinal.is_some() && event.ordinal().is_none_or(|own| Some(own) == ordinal)
        }
        About::Handle(id) => match event {
            // Only blocks that the handle names are read.
            BlockEvent::Undecodable(_) => true,
            _ => records().any(|record| is_of_handle(record, id)),
        },
        About::Block(block) => *block == cidr,
        About::Node(node) => {
            let is_node = |owner: &BlockOwner| owner.host() == Some(node.as_str());
            let by_owner = match event {
                BlockEvent::Owner { before, after, .. } => before.iter().chain(after).any(is_node),
                // Only blocks of its affinities are read.
                BlockEvent::Undecodable(_) => block_owner.is_none_or(is_node),
                other => other.ordinal().is_none() && block_owner.is_some_and(is_node),
            };
            by_owner || records().any(|record| node_of(record).as_deref() == Some(node))
        }
    }
}
