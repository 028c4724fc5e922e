//! The caches that an API server of Kubernetes (1.31 and later) answers lists from: one of each kind of objects.
//!
//! A list tells the newest write to anything. The cache of its kind knows it at once where the write was to that kind; else
//! the server has to ask etcd how far the cache is, which it does not more often than once in a period (100 ms), and lists
//! wait for the answer.

use calipam_assign::{Query, Record};

use crate::time::Micros;

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Blocks,
    Affinities,
    Handles,
    Pools,
    Reservations,
    /// What is never listed here.
    Other,
}

impl Kind {
    /// What a query lists; `None` if it reads one object.
    pub(super) fn listed_by(query: &Query) -> Option<Self> {
        match query {
            Query::Get(_) | Query::BlockKey(_) | Query::Overlapping(_) => None,
            Query::Pools => Some(Self::Pools),
            Query::Reservations => Some(Self::Reservations),
            Query::Affinities { .. } | Query::HostAffinities => Some(Self::Affinities),
            Query::Blocks(_) | Query::BlockKeys(_) | Query::BlockRevisions(_) => Some(Self::Blocks),
        }
    }

    pub(super) fn of(record: &Record) -> Self {
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

/// What the caches know.
#[derive(Default)]
pub(super) struct Caches {
    /// The newest write, and its kind.
    newest: Option<(Micros, Kind)>,
    /// When the server asked last how far the cache of a kind is, or will; by `Kind`.
    asked: [Option<Micros>; 6],
}

impl Caches {
    pub(super) fn note_write(&mut self, now: Micros, kind: Kind) {
        self.newest = Some((now, kind));
    }

    /// When a list that arrives now can be answered, where the server asks at most once in `period`.
    pub(super) fn ready(&mut self, now: Micros, kind: Kind, period: Micros) -> Micros {
        let Some((written, of)) = self.newest else { return now };
        let asked = &mut self.asked[kind as usize];
        if of == kind || period.is_zero() || asked.is_some_and(|asked| written < asked && asked <= now) {
            return now;
        }
        // Another list may wait for the same answer already.
        let next = asked.map_or(now, |asked| if asked > now { asked } else { now.max(asked + period) });
        *asked = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Micros = Micros::from_millis(100);

    fn at(millis: u64) -> Micros {
        Micros::from_millis(millis)
    }

    #[test]
    fn lists_wait_where_the_newest_write_is_of_another_kind_and_the_server_has_just_asked() {
        let mut caches = Caches::default();
        assert_eq!(caches.ready(at(0), Kind::Pools, PERIOD), at(0), "nothing was written");
        caches.note_write(at(1), Kind::Handles);
        assert_eq!(caches.ready(at(5), Kind::Handles, PERIOD), at(5), "its own kind");
        assert_eq!(caches.ready(at(5), Kind::Affinities, PERIOD), at(5), "the server asks at once");
        assert_eq!(caches.ready(at(7), Kind::Affinities, PERIOD), at(7), "nothing was written since");
        caches.note_write(at(10), Kind::Blocks);
        assert_eq!(caches.ready(at(20), Kind::Affinities, PERIOD), at(105), "not more often");
        assert_eq!(caches.ready(at(30), Kind::Affinities, PERIOD), at(105), "two wait for one answer");
        assert_eq!(caches.ready(at(30), Kind::Pools, PERIOD), at(30), "each kind is asked about alone");
        assert_eq!(caches.ready(at(110), Kind::Affinities, PERIOD), at(110));
        caches.note_write(at(111), Kind::Blocks);
        assert_eq!(caches.ready(at(300), Kind::Affinities, PERIOD), at(300), "the last time was long ago");
        assert_eq!(caches.ready(at(301), Kind::Pools, Micros::ZERO), at(301), "servers before 1.31");
    }
}
