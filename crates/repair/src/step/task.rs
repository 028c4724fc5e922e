//! Some edits of a step as a task of the engine.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_datastore::write::{Batch, Change, Stored};
use calipam_model::IpNet;
use calipam_model::cidr::address_at;
use calipam_model::edit::{BlockEdit, Current, Edit, Expect, Held, apply};
use calipam_model::key::Key;
use calipam_model::object::Object;
use calipam_model::snapshot::Revision;
use jiff::Timestamp;

use super::parts::{Parts, held};
use crate::engine::{Decision, LeftOut, Objects, Omission, Part, Task};

/// Edits that are made in one batch. Where guards of some parts fail, the others go on.
pub(super) struct EditTask {
    pub edits: Vec<Edit>,
    /// What all of them rest on.
    pub evidence: Vec<(Key, Expect)>,
    /// The parts of the whole step.
    pub parts: Arc<Parts>,
    /// Addresses that later steps free of the same handles. They are looked at before the first of a handle is
    /// freed: a handle goes as a whole or not at all.
    pub later: Vec<(IpNet, Held)>,
}

impl Task for EditTask {
    fn reads(&self) -> Vec<Key> {
        let mut keys: BTreeSet<Key> = self.writes().into_iter().collect();
        keys.extend(self.all_evidence().map(|(key, _)| key.clone()));
        keys.extend(self.later.iter().map(|(block, _)| Key::Block(*block)));
        keys.into_iter().collect()
    }

    fn writes(&self) -> Vec<Key> {
        self.edits.iter().map(Edit::key).collect()
    }

    fn decide(&self, objects: &Objects, left_out: &LeftOut) -> Decision {
        if let Some(reason) = broken(&self.evidence, objects) {
            return Decision::Conflict(reason);
        }
        let edits = self.without(left_out);
        let now = Timestamp::now();
        let omissions = self.failing(&edits, objects, left_out, now);
        if !omissions.is_empty() {
            return self.leave_out(&edits, omissions);
        }
        match apply_to(&edits, objects, now) {
            Ok(changes) => self.write(&edits, changes, objects),
            Err(reason) => match self.apart(&edits, objects, now) {
                omissions if omissions.is_empty() => Decision::Conflict(reason),
                omissions => self.leave_out(&edits, omissions),
            },
        }
    }
}

impl EditTask {
    /// The edits without what is left out.
    fn without(&self, left_out: &LeftOut) -> Cow<'_, [Edit]> {
        if left_out.is_empty() {
            return Cow::Borrowed(&self.edits);
        }
        Cow::Owned(self.parts.only(&self.edits, |part| !left_out.has(part)))
    }

    /// Addresses whose evidence fails, or whose handle cannot go as a whole.
    fn failing(
        &self,
        edits: &[Edit],
        objects: &Objects,
        left_out: &LeftOut,
        now: Timestamp,
    ) -> Vec<Omission> {
        let mut failing: Vec<Omission> = Vec::new();
        let later = self.later.iter().map(|(block, held)| (*block, held, true));
        let own = held(edits).map(|(block, held)| (block, held, false));
        for (block, held, is_later) in own.chain(later) {
            let part = self.parts.of_held(block, held);
            if failing.iter().any(|omission| omission.part == part) || left_out.has(&part) {
                continue;
            }
            let elsewhere = || left_out.elsewhere(&part).map(|reason| format!("its handle stays: {reason}"));
            let evidence = || {
                broken(&held.evidence, objects)
                    .map(|reason| format!("{}: {reason}", address_at(block, held.ordinal)))
            };
            let guard = || is_later.then(|| is_not_held(block, held, objects, now)).flatten();
            if let Some(reason) = elsewhere().or_else(evidence).or_else(guard) {
                failing.push(self.omission(part, reason));
            }
        }
        failing
    }

    /// The parts that cannot be made even alone.
    fn apart(&self, edits: &[Edit], objects: &Objects, now: Timestamp) -> Vec<Omission> {
        let fails = |part: Part| {
            let own = self.parts.only(edits, |other| *other == part);
            let reason = apply_to(&own, objects, now).err()?;
            Some(self.omission(part, reason))
        };
        self.parts.all(edits).into_iter().filter_map(fails).collect()
    }

    fn omission(&self, part: Part, reason: String) -> Omission {
        let own = held(&self.edits).filter(|(block, held)| self.parts.of_held(*block, held) == part);
        let addresses = own.map(|(block, held)| address_at(block, held.ordinal)).collect();
        Omission { part, addresses, reason }
    }

    /// What a step does besides freeing addresses may rest on all of them going.
    fn leave_out(&self, edits: &[Edit], mut omissions: Vec<Omission>) -> Decision {
        let parts = self.parts.all(edits);
        if omissions.iter().all(|omission| omission.part == Part::Rest) && parts.len() == 1 {
            let reasons = omissions.into_iter().map(|omission| omission.reason);
            return Decision::Conflict(reasons.collect::<Vec<_>>().join("; "));
        }
        if parts.contains(&Part::Rest) && omissions.iter().all(|omission| omission.part != Part::Rest) {
            let reason = "not all of its addresses go".to_owned();
            omissions.push(self.omission(Part::Rest, reason));
        }
        Decision::LeaveOut(omissions)
    }

    fn write(&self, edits: &[Edit], changes: Vec<(Key, Option<Object>)>, objects: &Objects) -> Decision {
        let change = |(key, object): (Key, Option<Object>)| {
            let version = objects.get(&key).and_then(Option::as_ref).map(|stored| stored.revision.clone());
            change(key, object.as_ref(), version)
        };
        let changes: Vec<Change> = changes.into_iter().filter_map(change).collect();
        if changes.is_empty() {
            return Decision::Already;
        }
        let of_addresses = held(edits).flat_map(|(_, held)| &held.evidence);
        let mut seen = BTreeSet::new();
        let evidence = self.evidence.iter().chain(of_addresses).filter(|(key, _)| seen.insert(key)).cloned();
        Decision::Write(Batch { changes, evidence: evidence.collect() })
    }

    fn all_evidence(&self) -> impl Iterator<Item = &(Key, Expect)> {
        let later = self.later.iter().flat_map(|(_, held)| &held.evidence);
        let own = held(&self.edits).flat_map(|(_, held)| &held.evidence);
        self.evidence.iter().chain(own).chain(later)
    }
}

/// The first piece of evidence that does not hold, for people.
fn broken(evidence: &[(Key, Expect)], objects: &Objects) -> Option<String> {
    evidence.iter().find_map(|(key, expect)| {
        let found = objects.get(key).and_then(Option::as_ref).map(|stored| &stored.revision);
        let what = match (expect, found) {
            (Expect::Absent, None) => return None,
            (Expect::At(version), Some(found)) if version.to_string() == found.to_string() => return None,
            (_, Some(_)) => "is there, or has changed",
            (_, None) => "is gone",
        };
        Some(format!("the evidence no longer holds: {key} {what}"))
    })
}

/// Why an address is not held as it was; `None` where it is.
fn is_not_held(block: IpNet, held: &Held, objects: &Objects, now: Timestamp) -> Option<String> {
    let release = BlockEdit::Release { held: vec![held.clone()], cooldown: 0 };
    apply_to(&[Edit::Block(block, release)], objects, now).err()
}

fn apply_to(edits: &[Edit], objects: &Objects, now: Timestamp) -> Result<Vec<(Key, Option<Object>)>, String> {
    apply(edits, now, |key| objects.get(key).and_then(Option::as_ref).map(current))
}

fn current(stored: &Stored) -> Current<'_> {
    Current { revision: &stored.revision, object: stored.object.as_ref().map(Cow::Borrowed) }
}

fn change(key: Key, object: Option<&Object>, version: Option<Revision>) -> Option<Change> {
    match (object, version) {
        (Some(object), Some(version)) => Some(Change::update(key, version, object.encode())),
        (Some(object), None) => Some(Change::create(key, object.encode())),
        (None, version) => version.map(|version| Change::delete(key, version)),
    }
}
