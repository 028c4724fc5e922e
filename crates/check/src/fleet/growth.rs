//! How fast pools fill, by two states of their cluster.

use jiff::Timestamp;
use serde::Serialize;

use crate::views::PoolView;

/// How the use of a pool has grown, and when nothing is free if it goes on so. It is a straight line through two states, and no more
/// than that: what grew and was released in between is not seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Growth {
    /// When the earlier state was read.
    pub since: Timestamp,
    /// Seconds from then to the later one.
    pub over: i64,
    /// Addresses in use that were added in a day; negative where they became fewer.
    pub per_day: f64,
    /// Days until all that are free are in use; `None` if the use does not grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days_left: Option<f64>,
}

const DAY: f64 = 86_400.0;

impl Growth {
    /// Of a pool in two states, each with the time at which it was read. `None` if nothing can be said: blocks cannot be decoded,
    /// Calico does not allocate from the pool, or the second state is not later.
    pub fn between(earlier: (&PoolView, Timestamp), later: (&PoolView, Timestamp)) -> Option<Self> {
        let ((before, since), (now, at)) = (earlier, later);
        let over = at.duration_since(since).as_secs();
        let is_known = |pool: &PoolView| pool.enabled && pool.unknown.0 == 0;
        if over <= 0 || !is_known(before) || !is_known(now) {
            return None;
        }
        let per_day = (now.in_use.0 as f64 - before.in_use.0 as f64) / (over as f64 / DAY);
        let days_left = (per_day > 0.0).then(|| now.free.0 as f64 / per_day);
        Some(Self { since, over, per_day, days_left })
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::snapshot::Snapshot;

    use super::*;
    use crate::views::{self, Count};

    fn pool(in_use: u128) -> PoolView {
        let mut snapshot = Snapshot::default();
        let value = br#"{"kind":"IPPool","metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24"}}"#;
        snapshot.add_entry(b"/calico/resources/v3/projectcalico.org/ippools/p", value, 1);
        let pool = views::pools(&snapshot).pools.remove(0);
        PoolView { in_use: Count(in_use), free: Count(pool.total.0 - in_use), ..pool }
    }

    #[test]
    fn a_pool_is_full_when_what_is_free_is_used_at_the_rate_so_far() {
        let at = |days: i64| Timestamp::from_second(1_780_000_000 + days * 86_400).unwrap();
        let growth = Growth::between((&pool(56), at(0)), (&pool(76), at(10))).unwrap();
        assert_eq!((growth.per_day, growth.over), (2.0, 10 * 86_400));
        assert_eq!(growth.days_left, Some(90.0));
        assert_eq!(Growth::between((&pool(0), at(0)), (&pool(256), at(1))).unwrap().days_left, Some(0.0));

        let fewer = Growth::between((&pool(9), at(0)), (&pool(4), at(10))).unwrap();
        assert_eq!((fewer.per_day, fewer.days_left), (-0.5, None));
        assert_eq!(Growth::between((&pool(4), at(0)), (&pool(4), at(1))).unwrap().days_left, None);
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let growth =
            |before: &PoolView, now: &PoolView, then| Growth::between((before, at(5)), (now, at(then)));
        assert_eq!(growth(&pool(1), &pool(2), 5), None, "no time has passed");
        assert_eq!(growth(&pool(1), &pool(2), 4), None, "the clock was set back");
        let broken = PoolView { unknown: Count(64), ..pool(1) };
        assert_eq!(growth(&broken, &pool(2), 9), None);
        assert_eq!(growth(&pool(1), &broken, 9), None);
        let disabled = PoolView { enabled: false, ..pool(2) };
        assert_eq!(growth(&pool(1), &disabled, 9), None);
    }
}
