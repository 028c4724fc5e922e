//! The positions and time up to which recordings have been read. The next recording continues from that point.

use jiff::{SignedDuration, Timestamp};

use super::changes::{Changes, Wanted};
use super::{Change, Group, Positions, kind_of};
use crate::archived::Archived;
use crate::error::{Error, Result};

/// The period that an export and its changes cover.
#[derive(Debug)]
pub struct Reached {
    pub from: Timestamp,
    /// The end of the period that is completely known.
    pub until: Timestamp,
    /// True if there is no gap between the earlier recordings and this one.
    pub continues: bool,
    /// True if changes are recorded, even if there are none yet.
    pub is_recorded: bool,
    /// The longest time by which the recorder's clock was set back.
    pub set_back: SignedDuration,
    /// Damage that ends the recording early.
    pub damage: Option<Error>,
}

/// The positions and time up to which exports and recordings have been read. A change that two recorders have recorded
/// is returned only once, since changes are identified by their revisions, not by a clock.
#[derive(Debug, Default)]
pub struct Known {
    positions: Positions,
    pub(super) until: Option<Timestamp>,
}

impl Known {
    /// True if the change of a kind at a revision has been read.
    pub(super) fn has(&self, kind: &str, revision: i64) -> bool {
        self.positions
            .get(kind)
            .is_some_and(|known| revision <= known.revision)
    }

    /// True if all changes up to these positions have been read.
    fn has_all(&self, positions: &Positions) -> bool {
        let mut positions = positions.iter();
        positions.all(|(kind, position)| self.has(kind, position.revision))
    }

    /// Opens the changes after an export; `None` if there are none, or if the beginning of their file is damaged. Also
    /// returns the period that is known without them, and whether it continues the earlier recordings.
    pub(super) fn open(
        &mut self,
        export: &Archived,
        is_wanted: Wanted<'_>,
    ) -> Result<(Option<Changes>, Reached)> {
        let mut changes = None;
        let mut damage = None;
        match Changes::open(export, is_wanted) {
            Ok(opened) => changes = opened,
            // Without its changes, the export can still be read.
            Err(error) if error.is_damage() => damage = Some(error),
            Err(error) => return Err(error),
        }
        let overlaps = self.until.is_some_and(|until| export.taken_at <= until);
        let mut continues = overlaps;
        if let Some(Changes { header, .. }) = &changes {
            if header.restored && !overlaps {
                // Revisions of another history are not comparable.
                self.positions.clear();
            }
            // If the changes begin at revisions that are known, nothing is missing in between.
            continues |= self.until.is_some() && self.has_all(&header.positions);
        }
        let from = self.not_before(export.taken_at);
        let reached = Reached {
            from,
            until: from,
            continues,
            is_recorded: changes.is_some(),
            set_back: SignedDuration::ZERO,
            damage,
        };
        Ok((changes, reached))
    }

    /// The later of `time` and `until`, since clocks can disagree.
    fn not_before(&self, time: Timestamp) -> Timestamp {
        match self.until {
            Some(until) => time.max(until),
            None => time,
        }
    }

    /// Passes the groups after an export to `take` until it returns false, and notes in `reached` how far they go. Omits
    /// changes that have already been read. Damage ends the groups, but is no error.
    pub(super) fn each_group(
        &mut self,
        changes: Option<Changes>,
        reached: &mut Reached,
        is_wanted: Wanted<'_>,
        mut take: impl FnMut(Group) -> Result<bool>,
    ) -> Result<()> {
        let Some(mut changes) = changes else { return Ok(()) };
        let is_new = |change: &Change| !self.has(kind_of(&change.key), change.revision);
        loop {
            let mut group = match changes.next(is_wanted) {
                Ok(Some(group)) => group,
                Ok(None) => break,
                Err(damage) if damage.is_damage() => {
                    reached.damage = Some(damage);
                    break;
                }
                Err(error) => return Err(error),
            };

            group.time = self.not_before(group.time);
            group.changes.retain(is_new);
            let time = group.time;
            let set_back = group.set_back;
            if !take(group)? {
                break;
            }
            reached.until = time;
            reached.set_back = reached.set_back.max(set_back);
        }

        // Another recording may have come further already.
        for (kind, position) in changes.codec.positions {
            if !self.has(&kind, position.revision) {
                self.positions.insert(kind, position);
            }
        }
        Ok(())
    }
}
