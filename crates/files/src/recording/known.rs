//! The reach of recordings that were told, from which the next one goes on.

use jiff::{SignedDuration, Timestamp};

use super::read::{Changes, Wanted};
use super::{Change, Group, Header, Positions, kind_of};
use crate::archive::Archived;
use crate::error::{Error, Result};

/// How far an export and its changes reach.
#[derive(Debug)]
pub struct Reached {
    pub from: Timestamp,
    /// The last time of which everything is known.
    pub until: Timestamp,
    /// Nothing is missing between what was told before and it.
    pub continues: bool,
    /// There are changes, if only none so far.
    pub is_recorded: bool,
    /// By how much the clock of the recorder was set back at most.
    pub set_back: SignedDuration,
    /// What ends it there: it is not as it was written.
    pub damage: Option<Error>,
}

/// The reach of the exports and recordings that were told so far. What two recorders have recorded is told once: the revision of a change
/// says whether it was told, and no clock.
#[derive(Debug, Default)]
pub struct Known {
    positions: Positions,
    pub(super) until: Option<Timestamp>,
}

impl Known {
    pub(super) fn has(&self, kind: &str, revision: i64) -> bool {
        self.positions.get(kind).is_some_and(|known| revision <= known.revision)
    }

    /// Opens the changes of an export. If their beginning is not as it was written there are none.
    pub(super) fn open(
        &mut self,
        export: &Archived,
        is_wanted: Wanted<'_>,
    ) -> Result<(Option<Changes>, Reached)> {
        let (changes, damage) = match Changes::open(export, is_wanted) {
            Ok(changes) => (changes, None),
            Err(damage) if damage.is_damage() => (None, Some(damage)),
            Err(error) => return Err(error),
        };
        let overlaps = self.until.is_some_and(|until| export.taken_at <= until);
        let header = changes.as_ref().map(|changes| &changes.header);
        if !overlaps && header.is_some_and(|header| header.restored) {
            self.positions.clear();
        }
        let has_all = |header: &Header| {
            header.positions.iter().all(|(kind, position)| self.has(kind, position.revision))
        };
        let from = self.not_before(export.taken_at);
        let reached = Reached {
            from,
            until: from,
            continues: overlaps || self.until.is_some() && header.is_some_and(has_all),
            is_recorded: changes.is_some(),
            set_back: SignedDuration::ZERO,
            damage,
        };
        Ok((changes, reached))
    }

    /// The time, as one after what is known: of clocks that disagree the later one counts.
    fn not_before(&self, time: Timestamp) -> Timestamp {
        self.until.map_or(time, |until| time.max(until))
    }

    /// Gives the groups after an export to `take`, with what was not told before, until it says that it has enough.
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
            match changes.next(is_wanted) {
                Ok(Some(mut group)) => {
                    group.time = self.not_before(group.time);
                    group.changes.retain(is_new);
                    let (time, set_back) = (group.time, group.set_back);
                    if !take(group)? {
                        break;
                    }
                    reached.until = time;
                    reached.set_back = reached.set_back.max(set_back);
                }
                Ok(None) => break,
                Err(damage) if damage.is_damage() => {
                    reached.damage = Some(damage);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        for (kind, position) in changes.into_codec().positions {
            if !self.has(&kind, position.revision) {
                self.positions.insert(kind, position);
            }
        }
        Ok(())
    }
}
