//! Trends of pools: the numbers of assigned and released addresses, and a forecast of when a pool will be exhausted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::Block;
use calipam_model::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};

use crate::block_change::assigned_and_released;
use crate::past::Past;

/// The length of a span: the period that one sum of changes covers.
const SPAN: SignedDuration = SignedDuration::from_mins(10);
/// The time for which sums are kept.
pub const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// The minimum number of sums for a forecast.
const MIN_SUMS: usize = 6;

/// The trends of the pools in a followed cluster, by CIDR.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trends(BTreeMap<IpNet, Trend>);

/// The trend of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Trend {
    /// Addresses that were assigned since calipam began to follow the cluster.
    pub assigned: u64,
    pub released: u64,
    /// The beginning of the current span.
    begin: Timestamp,
    growing: i64,
    /// The number of assigned minus released addresses in each span, with the end of the span, oldest first. Spans with
    /// unknown changes are left out.
    sums: VecDeque<(Timestamp, i64)>,
}

/// The seconds until a pool has no free address: 0 if it has none now, infinite if usage does not grow. The true number
/// is between `earliest` and `latest` in 95 of 100 cases, if spans are independent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    pub earliest: f64,
    pub expected: f64,
    pub latest: f64,
}

impl Trends {
    /// Adds the changes between two states of blocks, and the time that has passed. `snapshot` has the pools and the
    /// time of the state `now`. Skips blocks that cannot be decoded in one of the states.
    pub fn add_changes(&mut self, before: &Snapshot, now: &Snapshot, snapshot: &Snapshot) {
        self.reach_in_pools(snapshot);
        let blocks_before = usable_blocks(before);
        let blocks_now = usable_blocks(now);
        let cidrs: BTreeSet<IpNet> = blocks_before.keys().chain(blocks_now.keys()).copied().collect();
        for cidr in cidrs {
            let block_before = blocks_before.get(&cidr).copied();
            let block_now = blocks_now.get(&cidr).copied();
            // A block that cannot be decoded has not lost its addresses.
            let is_undecodable = block_before == Some(None) || block_now == Some(None);
            if is_undecodable {
                continue;
            }
            let every_address = |_: &AttributeRef<'_>| true;
            let (assigned, released) =
                assigned_and_released(block_before.flatten(), block_now.flatten(), every_address);
            self.change(cidr, assigned, released);
        }
    }

    /// Completes the spans that have passed in the pools of a snapshot. Begins the trends of new pools, and drops those
    /// of deleted ones.
    fn reach_in_pools(&mut self, snapshot: &Snapshot) {
        let now = snapshot.taken_at;
        let pools: BTreeSet<IpNet> = snapshot.pools.iter().map(|pool| pool.value.cidr).collect();
        self.0.retain(|cidr, _| pools.contains(cidr));
        for cidr in pools {
            let trend = self.0.entry(cidr).or_insert_with(|| Trend::new(now));
            trend.reach(now);
        }
    }

    /// Begins a new span at `now`, because the changes before it are not completely known.
    pub fn interrupt(&mut self, now: Timestamp) {
        for trend in self.0.values_mut() {
            trend.begin_anew(now);
        }
    }

    /// Creates an empty trend for each pool.
    pub fn of_pools(pools: impl Iterator<Item = IpNet>) -> Self {
        Self(pools.map(|pool| (pool, Trend::new(Timestamp::MIN))).collect())
    }

    /// Adds the sums in `past` that are from the time before each of these trends began.
    pub fn recall(&mut self, mut past: Self) {
        for (pool, trend) in &mut self.0 {
            let Some(Trend { mut sums, .. }) = past.0.remove(pool) else {
                continue;
            };
            sums.retain(|(end, _)| *end <= trend.first());
            sums.append(&mut trend.sums);
            trend.sums = sums;
        }
    }

    /// Returns the trend of a pool.
    pub fn of(&self, pool: IpNet) -> Option<&Trend> {
        self.0.get(&pool)
    }
}

impl Past for Trends {
    const COUNTS_EXPORT_DIFFERENCES: bool = false;

    fn begin(&mut self, at: Timestamp, _: u64) {
        self.interrupt(at);
    }

    fn pass(&mut self, _: Timestamp, until: Timestamp) {
        for trend in self.0.values_mut() {
            trend.reach(until);
        }
    }

    /// Adds a change of a block to the trends of the pools around it.
    fn change(&mut self, block: IpNet, assigned: u64, released: u64) {
        for (pool, trend) in &mut self.0 {
            if pool.contains(&block) {
                trend.add(assigned, released);
            }
        }
    }
}

impl Trend {
    /// Begins a trend at a time.
    fn new(begin: Timestamp) -> Self {
        Self {
            assigned: 0,
            released: 0,
            begin,
            growing: 0,
            sums: VecDeque::new(),
        }
    }

    /// Begins a new span at `now`, and forgets the changes of the incomplete one.
    fn begin_anew(&mut self, now: Timestamp) {
        self.begin = now;
        self.growing = 0;
    }

    /// Returns the beginning of the first known span.
    fn first(&self) -> Timestamp {
        match self.sums.front() {
            Some((end, _)) => end.saturating_sub(SPAN).unwrap_or(*end),
            None => self.begin,
        }
    }

    /// Counts addresses in all, and adds the difference to the incomplete span.
    fn add(&mut self, assigned: u64, released: u64) {
        self.assigned += assigned;
        self.released += released;
        self.growing += assigned as i64 - released as i64;
    }

    /// Completes the spans that have passed, and drops old sums.
    fn reach(&mut self, now: Timestamp) {
        let passed = now.duration_since(self.begin);
        if passed.is_negative() || passed >= KEPT {
            // The clock was set back, too much time has passed, or the trend has not begun yet.
            self.sums.clear();
            return self.begin_anew(now);
        }
        while let Ok(end) = self.begin.checked_add(SPAN)
            && end <= now
        {
            self.sums.push_back((end, std::mem::take(&mut self.growing)));
            self.begin = end;
        }
        self.sums.retain(|(end, _)| now.duration_since(*end) < KEPT);
    }

    /// Forecasts when `free` addresses will be used up, if the pool grows as it did in the kept spans: at the mean
    /// rate, and at both ends of its confidence interval of 95 %. `None` if too few spans are known.
    pub fn forecast(&self, free: u128) -> Option<Forecast> {
        if self.sums.len() < MIN_SUMS {
            return None;
        }

        let number = self.sums.len() as f64;
        let sums = self.sums.iter().map(|(_, sum)| *sum as f64);
        let mean = sums.clone().sum::<f64>() / number;
        let squares = sums.map(|sum| (sum - mean).powi(2)).sum::<f64>();
        let error = (squares / (number - 1.0) / number).sqrt();
        // A sufficient approximation of Student's t-distribution for 5 or more degrees of freedom.
        let margin = (1.96 + 3.05 / (number - 1.0)) * error;

        Some(Forecast {
            earliest: seconds_until_full(free, mean + margin),
            expected: seconds_until_full(free, mean),
            latest: seconds_until_full(free, mean - margin),
        })
    }
}

/// Returns the time in which `free` addresses are used up if a pool grows by `growth` addresses in each span; infinite
/// if it does not grow.
fn seconds_until_full(free: u128, growth: f64) -> f64 {
    if growth > 0.0 {
        free as f64 / growth * SPAN.as_secs_f64()
    } else if free == 0 {
        0.0
    } else {
        f64::INFINITY
    }
}

/// Returns the blocks of a snapshot by key; `None` for those that cannot be decoded.
fn usable_blocks(objects: &Snapshot) -> BTreeMap<IpNet, Option<&Block>> {
    let mut blocks = BTreeMap::new();
    for cidr in objects.hidden_blocks() {
        blocks.insert(cidr, None);
    }
    for block in objects.blocks.iter().map(|stored| &stored.value) {
        if !block.content.is_deleted() {
            blocks.insert(block.key, block.content.usable());
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use calipam_testkit::values;
    use serde_json::json;

    use super::*;
    use crate::past::{Follows, PastReader};

    const POOL: &str = "/calico/resources/v3/projectcalico.org/ippools/p";

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    /// Builds a snapshot with one block. Each entry of `held` is an allocated ordinal and its handle.
    fn snapshot(minutes: i64, held: &[(usize, &str)]) -> Snapshot {
        let mut snapshot = Snapshot {
            taken_at: at(minutes),
            ..Snapshot::default()
        };
        snapshot.add_entry(
            POOL.as_bytes(),
            br#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24"}}"#,
            1,
        );
        let records = held
            .iter()
            .map(|(ordinal, handle)| (*ordinal, json!({"handle_id": handle})));
        let block = values::block("10.0.0.0/29", "host:a", values::sparse(records)).to_string();
        snapshot.add_entry(
            b"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29",
            block.as_bytes(),
            1,
        );
        assert_eq!(snapshot.blocks.len(), 1);
        assert!(snapshot.blocks[0].value.content.sound().is_some(), "{block}");
        snapshot
    }

    #[test]
    fn assignments_and_releases_count_for_their_pool() {
        let mut trends = Trends::default();
        let nothing = Snapshot::default();
        let states = [
            snapshot(0, &[(0, "a")]),
            snapshot(1, &[(0, "b"), (3, "c")]),
            snapshot(2, &[(3, "c")]),
        ];
        let mut counts = |before: &Snapshot, now: &Snapshot, of: &Snapshot| {
            trends.add_changes(before, now, of);
            let trend = trends.of("10.0.0.0/24".parse().unwrap()).unwrap();
            (trend.assigned, trend.released)
        };
        assert_eq!(counts(&nothing, &states[0], &states[0]), (1, 0));
        assert_eq!(counts(&states[0], &states[1], &states[1]), (3, 1));
        assert_eq!(counts(&states[1], &states[2], &states[2]), (3, 2));
        assert_eq!(counts(&states[2], &states[2], &states[2]), (3, 2));
        let mut broken = states[2].clone();
        broken.blocks.clear();
        broken.add_entry(b"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29", b"{", 1);
        assert_eq!(
            counts(&states[2], &broken, &broken),
            (3, 2),
            "what cannot be decoded is not released"
        );
        assert_eq!(
            counts(&states[2], &nothing, &states[2]),
            (3, 3),
            "the block is gone"
        );
    }

    #[test]
    fn a_forecast_needs_an_hour_and_has_an_interval() {
        let forecast = |sums: &[i64], free: u128| {
            let mut trend = Trend::new(at(0));
            for (place, sum) in (1_i64..).zip(sums) {
                let [assigned, released] = [*sum, -*sum].map(|number| number.max(0) as u64);
                trend.add(assigned, released);
                trend.reach(at(10 * place));
            }
            trend.forecast(free)
        };
        assert_eq!(forecast(&[5; 5], 100), None);
        let even = Forecast {
            earliest: 12_000.0,
            expected: 12_000.0,
            latest: 12_000.0,
        };
        assert_eq!(forecast(&[5; 6], 100), Some(even));
        let uneven = forecast(&[8, 2, 8, 2, 8, 2], 100).unwrap();
        assert_eq!(uneven.expected, 12_000.0);
        assert!((6_900.0..7_200.0).contains(&uneven.earliest), "{uneven:?}");
        assert!((36_000.0..40_000.0).contains(&uneven.latest), "{uneven:?}");
        let unsure = forecast(&[90, -80, 90, -80, 90, -80], 100).unwrap();
        assert!(
            unsure.earliest < unsure.expected && unsure.latest == f64::INFINITY,
            "{unsure:?}"
        );
        assert_eq!(forecast(&[-5; 6], 100).unwrap().earliest, f64::INFINITY);
        assert_eq!(forecast(&[0; 6], 0).unwrap().latest, 0.0);
        // Only data from the last day counts.
        let changed = [&[100; 20][..], &[5; 144]].concat();
        assert_eq!(forecast(&changed, 100), Some(even));
    }

    #[test]
    fn a_clock_that_jumps_begins_anew() {
        let mut trend = Trend::new(at(0));
        trend.add(7, 0);
        trend.reach(at(60));
        assert_eq!(trend.sums.len(), 6);
        trend.reach(at(50));
        assert_eq!((trend.sums.len(), trend.assigned), (0, 7));
        trend.reach(at(110));
        trend.reach(at(1_000_000_000));
        assert_eq!(trend.sums.len(), 0);
    }

    #[test]
    fn recorded_sums_come_before_live_ones() {
        let pool: IpNet = "10.0.0.0/24".parse().unwrap();
        let mut reader = PastReader::new(Trends::of_pools([pool].into_iter()));
        let key = b"block";
        reader.add(key, &snapshot(0, &[(0, "a")]));
        reader.begin(at(0), Follows::Nothing);
        for minutes in 1..=35 {
            let held = if minutes % 10 == 5 {
                &[(0, "a"), (1, "b")][..]
            } else {
                &[(0, "a")]
            };
            reader.change(at(minutes), key, Some(&snapshot(minutes, held)));
        }
        reader.add(key, &snapshot(50, &[(0, "a"), (1, "b"), (2, "c")]));
        reader.begin(at(50), Follows::Export);
        reader.reach(at(70));
        let past = reader.finish();
        let sums = |trends: &Trends| {
            let sums = trends.of(pool).unwrap().sums.iter();
            sums.map(|(end, sum)| (end.duration_since(at(0)).as_mins(), *sum))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            sums(&past),
            [(10, 0), (20, 0), (30, 0), (60, 0), (70, 0)],
            "the gap is left out"
        );

        let mut trends = Trends::default();
        let nothing = Snapshot::default();
        trends.add_changes(&nothing, &nothing, &snapshot(65, &[]));
        trends.add_changes(&nothing, &snapshot(66, &[(0, "a")]), &snapshot(66, &[]));
        trends.add_changes(&nothing, &nothing, &snapshot(76, &[]));
        trends.recall(past);
        assert_eq!(
            sums(&trends),
            [(10, 0), (20, 0), (30, 0), (60, 0), (75, 1)],
            "no time counts twice"
        );
        trends.add_changes(&nothing, &nothing, &snapshot(24 * 60 + 15, &[]));
        assert_eq!(sums(&trends)[..2], [(20, 0), (30, 0)], "a day is kept");
        trends.interrupt(at(24 * 60 + 16));
        assert_eq!(sums(&trends)[..2], [(20, 0), (30, 0)], "what is known stays");
    }
}
