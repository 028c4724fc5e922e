//! How many addresses of a pool are assigned and released, and when it will be exhausted if that goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};

use crate::held::Held;

/// Changes are summed up for so long.
const SPAN: SignedDuration = SignedDuration::from_mins(10);
/// So many sums are kept: those of a day.
const MOST: usize = 144;
/// For a forecast there have to be as many.
const LEAST: usize = 6;

/// What becomes of the pools of a cluster that is followed, by the CIDRs of the pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trends(BTreeMap<IpNet, Trend>);

/// What becomes of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Trend {
    /// Addresses that have been assigned, and released, since the cluster is followed.
    pub assigned: u64,
    pub released: u64,
    /// When the sum that grows has begun.
    begin: Timestamp,
    growing: i64,
    /// By how many more addresses were assigned than released in each span, the oldest first.
    sums: VecDeque<i64>,
}

/// In how many seconds nothing of a pool is free any more; infinite where it does not shrink. It will be between `earliest` and
/// `latest` in 95 of 100 cases where spans do not depend on each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    pub earliest: f64,
    pub expected: f64,
    pub latest: f64,
}

impl Trends {
    /// Takes note of blocks that have become others, and of the time. A block that cannot be decoded, before or now, is passed over.
    pub fn note(&mut self, before: &Snapshot, now: &Snapshot, snapshot: &Snapshot) {
        let pools: BTreeSet<IpNet> = snapshot.pools.iter().map(|pool| pool.value.cidr).collect();
        self.0.retain(|cidr, _| pools.contains(cidr));
        for cidr in pools {
            self.0.entry(cidr).or_insert_with(|| Trend::new(snapshot.taken_at)).reach(snapshot.taken_at);
        }
        let blocks = [before, now].map(usable);
        let keys: BTreeSet<IpNet> = blocks.iter().flat_map(|blocks| blocks.keys().copied()).collect();
        for key in keys {
            let [before, now] = [&blocks[0], &blocks[1]].map(|blocks| blocks.get(&key).copied());
            if before == Some(None) || now == Some(None) {
                continue;
            }
            let [before, now] = [before, now].map(|block| held(block.flatten()));
            let (assigned, released) = before.assigned_and_released(&now);
            for trend in self.0.iter_mut().filter(|(pool, _)| pool.contains(&key)).map(|(_, trend)| trend) {
                trend.add(assigned, released);
            }
        }
    }

    /// What has changed up to this time is not known.
    pub fn interrupt(&mut self, now: Timestamp) {
        self.0.values_mut().for_each(|trend| trend.begin_anew(now));
    }

    /// The trend of the pool of a CIDR.
    pub fn of(&self, pool: IpNet) -> Option<&Trend> {
        self.0.get(&pool)
    }
}

impl Trend {
    fn new(begin: Timestamp) -> Self {
        Self { assigned: 0, released: 0, begin, growing: 0, sums: VecDeque::new() }
    }

    fn begin_anew(&mut self, now: Timestamp) {
        *self = Self { assigned: self.assigned, released: self.released, ..Self::new(now) };
    }

    fn add(&mut self, assigned: u64, released: u64) {
        self.assigned += assigned;
        self.released += released;
        self.growing += assigned as i64 - released as i64;
    }

    /// Ends the sums whose span has passed.
    fn reach(&mut self, now: Timestamp) {
        let passed = now.duration_since(self.begin);
        if passed.is_negative() || passed >= SPAN * MOST as i32 {
            // The clock was set.
            return self.begin_anew(now);
        }
        while let Some(end) = self.begin.checked_add(SPAN).ok().filter(|end| *end <= now) {
            self.sums.push_back(std::mem::take(&mut self.growing));
            self.begin = end;
        }
        self.sums.drain(..self.sums.len().saturating_sub(MOST));
    }

    /// When so many free addresses will be taken; `None` where too little is known.
    pub fn forecast(&self, free: u128) -> Option<Forecast> {
        let number = self.sums.len() as f64;
        if self.sums.len() < LEAST {
            return None;
        }
        let mean = self.sums.iter().map(|sum| *sum as f64).sum::<f64>() / number;
        let squares = self.sums.iter().map(|sum| (*sum as f64 - mean).powi(2)).sum::<f64>();
        let error = (squares / (number - 1.0) / number).sqrt();
        // Near enough to Student's distribution for 5 degrees of freedom and more.
        let beyond = (1.96 + 3.05 / (number - 1.0)) * error;
        let after = |sum: f64| match sum > 0.0 {
            true => free as f64 / sum * SPAN.as_secs_f64(),
            false if free == 0 => 0.0,
            false => f64::INFINITY,
        };
        let [earliest, expected, latest] = [mean + beyond, mean, mean - beyond].map(after);
        Some(Forecast { earliest, expected, latest })
    }
}

/// The blocks by their keys; `None` for those of which nothing is known.
fn usable(objects: &Snapshot) -> BTreeMap<IpNet, Option<&Block>> {
    let hidden = objects.defects.iter().filter_map(|defect| defect.hidden_block()).map(|key| (key, None));
    let blocks = objects.blocks.iter().map(|block| &block.value).filter(|block| !block.content.is_deleted());
    hidden.chain(blocks.map(|block| (block.key, block.content.usable()))).collect()
}

/// The addresses of a block but those that Windows reserves.
fn held(block: Option<&Block>) -> Held {
    block.map(|block| Held::of(block, |held| !held.attribute.is_windows_reserved())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "/calico/resources/v3/projectcalico.org/ippools/p";

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    /// A snapshot with a block in which these ordinals are held under these handles.
    fn snapshot(minutes: i64, held: &[(usize, &str)]) -> Snapshot {
        let mut snapshot = Snapshot { taken_at: at(minutes), ..Snapshot::default() };
        snapshot.add_entry(POOL.as_bytes(), br#"{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/24"}}"#, 1);
        let mut numbers = ["null"; 8].map(str::to_owned);
        for (number, (ordinal, _)) in held.iter().enumerate() {
            numbers[*ordinal] = number.to_string();
        }
        let records: Vec<String> =
            held.iter().map(|(_, handle)| format!(r#"{{"handle_id":"{handle}"}}"#)).collect();
        let free: Vec<String> =
            (0..8).filter(|o| held.iter().all(|(held, _)| held != o)).map(|o| o.to_string()).collect();
        let block = format!(
            r#"{{"cidr":"10.0.0.0/29","affinity":"host:a","allocations":[{}],"unallocated":[{}],"attributes":[{}]}}"#,
            numbers.join(","),
            free.join(","),
            records.join(",")
        );
        snapshot.add_entry(b"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29", block.as_bytes(), 1);
        assert_eq!(snapshot.blocks.len(), 1);
        assert!(snapshot.blocks[0].value.content.sound().is_some(), "{block}");
        snapshot
    }

    #[test]
    fn what_is_assigned_and_released_counts_for_its_pool() {
        let (mut trends, nothing) = (Trends::default(), Snapshot::default());
        let states = [snapshot(0, &[(0, "a")]), snapshot(1, &[(0, "b"), (3, "c")]), snapshot(2, &[(3, "c")])];
        let mut counts = |before: &Snapshot, now: &Snapshot, of: &Snapshot| {
            trends.note(before, now, of);
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
        assert_eq!(counts(&states[2], &broken, &broken), (3, 2), "what cannot be decoded is not released");
        assert_eq!(counts(&states[2], &nothing, &states[2]), (3, 3), "the block is gone");
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
        let even = Forecast { earliest: 12_000.0, expected: 12_000.0, latest: 12_000.0 };
        assert_eq!(forecast(&[5; 6], 100), Some(even));
        let uneven = forecast(&[8, 2, 8, 2, 8, 2], 100).unwrap();
        assert_eq!(uneven.expected, 12_000.0);
        assert!((6_900.0..7_200.0).contains(&uneven.earliest), "{uneven:?}");
        assert!((36_000.0..40_000.0).contains(&uneven.latest), "{uneven:?}");
        let unsure = forecast(&[90, -80, 90, -80, 90, -80], 100).unwrap();
        assert!(unsure.earliest < unsure.expected && unsure.latest == f64::INFINITY, "{unsure:?}");
        assert_eq!(forecast(&[-5; 6], 100).unwrap().earliest, f64::INFINITY);
        assert_eq!(forecast(&[0; 6], 0).unwrap().latest, 0.0);
        // Only the last day counts.
        let changed = [&[100; 20][..], &[5; MOST]].concat();
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
}
