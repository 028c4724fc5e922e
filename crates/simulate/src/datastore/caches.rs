//! The caches from which a Kubernetes API server (1.31 and later) answers list requests, one for each kind of object.
//!
//! For each list request, the server asks etcd for the newest write to objects of any kind. If that write was to the
//! listed kind, the cache already has it. Otherwise the server must ask etcd for the cache's progress, at most once per
//! period (100 ms), and list requests wait for the answer. Since other clients write in the meantime, a plugin call
//! that sends two list requests can wait twice.

use calipam_assign::{Query, Record};

use crate::time::Micros;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Blocks,
    Affinities,
    Handles,
    Pools,
    Reservations,
    /// Objects that are never listed in simulations.
    Other,
}

impl Kind {
    /// The kind of object that a query lists; `None` if it lists none.
    pub(super) fn listed_by(query: &Query) -> Option<Self> {
        match query {
            Query::Get(_) | Query::BlockKey(_) | Query::Overlapping(_) => None,
            Query::Pools => Some(Self::Pools),
            Query::Reservations => Some(Self::Reservations),
            Query::Affinities { .. } | Query::HostAffinities => Some(Self::Affinities),
            Query::Blocks(_) | Query::BlockKeys(_) | Query::BlockRevisions(_) => Some(Self::Blocks),
        }
    }

    /// The kind of a record's list.
    pub(super) fn of_record(record: &Record) -> Self {
        match record {
            Record::Block(_) => Self::Blocks,
            Record::Affinity(_) => Self::Affinities,
            Record::Handle(_) => Self::Handles,
            Record::Pool(_) => Self::Pools,
            Record::Reservation(_) => Self::Reservations,
            _ => Self::Other,
        }
    }
}

/// The progress of the caches.
#[derive(Default)]
pub(super) struct Caches {
    /// The time of the newest write, and the kind of the written object.
    newest: Option<(Micros, Kind)>,
    /// The last time, by `Kind`, at which the server asked for a cache's progress. It can be in the future.
    last_asked: [Option<Micros>; 6],
}

impl Caches {
    pub(super) fn note_write(&mut self, now: Micros, kind: Kind) {
        self.newest = Some((now, kind));
    }

    /// Returns the time at which a list request that arrives now can be answered, so that the newest write is included.
    /// The server asks etcd for a cache's progress at most once per `period`, and has the answer after `answer_time`.
    pub(super) fn ready(&mut self, now: Micros, kind: Kind, period: Micros, answer_time: Micros) -> Micros {
        let Some((written, written_kind)) = self.newest else {
            return now;
        };
        // The write itself has brought the cache of its kind up to date.
        if written_kind == kind || period.is_zero() {
            return now;
        }

        let last_asked = &mut self.last_asked[kind as usize];
        let asked_at = match *last_asked {
            // The answer to this earlier request includes the write.
            Some(earlier) if written < earlier => earlier,
            Some(earlier) => now.max(earlier + period),
            None => now,
        };
        *last_asked = Some(asked_at);
        now.max(asked_at + answer_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Micros {
        Micros::from_millis(millis)
    }

    /// The time, in milliseconds, at which a list request can be answered, if etcd answers after 2 ms and is asked
    /// every 100 ms.
    fn ready(caches: &mut Caches, millis: u64, kind: Kind) -> u64 {
        caches.ready(at(millis), kind, at(100), at(2)).0 / 1_000
    }

    #[test]
    fn lists_wait_if_the_newest_write_is_of_another_kind_and_the_server_has_just_asked() {
        let mut caches = Caches::default();
        assert_eq!(ready(&mut caches, 0, Kind::Pools), 0, "nothing was written");
        caches.note_write(at(1), Kind::Handles);
        assert_eq!(ready(&mut caches, 5, Kind::Handles), 5, "its own kind");
        assert_eq!(
            ready(&mut caches, 5, Kind::Affinities),
            7,
            "the server asks at once"
        );
        assert_eq!(
            ready(&mut caches, 6, Kind::Affinities),
            7,
            "the answer is on its way"
        );
        assert_eq!(
            ready(&mut caches, 8, Kind::Affinities),
            8,
            "nothing was written since"
        );
        caches.note_write(at(10), Kind::Blocks);
        assert_eq!(ready(&mut caches, 20, Kind::Affinities), 107, "not more often");
        assert_eq!(
            ready(&mut caches, 30, Kind::Affinities),
            107,
            "two wait for one answer"
        );
        assert_eq!(
            ready(&mut caches, 30, Kind::Pools),
            32,
            "each kind is asked about alone"
        );
        assert_eq!(ready(&mut caches, 110, Kind::Affinities), 110);
        caches.note_write(at(111), Kind::Blocks);
        assert_eq!(
            ready(&mut caches, 112, Kind::Affinities),
            207,
            "a call that lists again waits again"
        );
        assert_eq!(
            caches.ready(at(301), Kind::Pools, Micros::ZERO, at(2)),
            at(301),
            "servers before 1.31"
        );
    }
}
