//! Ranks of numbers: medians, and the range of each number over several runs.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::views::Count;

use super::{Adds, BlockUse, Range, Requests, Run, Times};
use crate::time::Micros;

/// Ranks, in thousandths of the sorted values.
const LOWEST: usize = 0;
pub(super) const MEDIAN: usize = 500;
pub(super) const HIGHEST: usize = 1_000;

/// Returns the smallest value such that at least `permille` thousandths of all values are no larger.
pub(super) fn rank<T: Copy>(sorted: &[T], permille: usize) -> Option<T> {
    let index = (sorted.len() * permille).div_ceil(1_000).saturating_sub(1);
    sorted.get(index).copied()
}

pub(super) fn median(mut times: Vec<Micros>) -> Option<Micros> {
    times.sort_unstable();
    rank(&times, 500)
}

/// Returns the median of each number, and the range if there are several results.
pub(super) fn median_and_range<T: AtRank>(results: &[T]) -> (T, Option<Box<Range<T>>>) {
    let all: Vec<&T> = results.iter().collect();
    let median = T::at_rank(&all, MEDIAN);
    if all.len() <= 1 {
        return (median, None);
    }

    let range = Range {
        runs: all.len() as u64,
        lowest: T::at_rank(&all, LOWEST),
        highest: T::at_rank(&all, HIGHEST),
    };
    (median, Some(Box::new(range)))
}

/// Results whose numbers can be ranked among those of other runs.
pub(super) trait AtRank: Sized {
    /// Returns a result in which each number is the one at this rank; see [`rank`].
    fn at_rank(all: &[&Self], permille: usize) -> Self;
}

macro_rules! of_numbers {
    ($($number:ty),*) => {
        $(impl AtRank for $number {
            fn at_rank(all: &[&Self], permille: usize) -> Self {
                let mut sorted: Vec<Self> = all.iter().map(|number| **number).collect();
                sorted.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
                rank(&sorted, permille).unwrap_or_default()
            }
        })*
    };
}

of_numbers!(u32, u64, f64, Count, Micros);

/// Ranks each field. Fields after the semicolon are copied from the first run.
macro_rules! of_fields {
    ($($name:ident { $($field:ident),* $(; $($first:ident),*)? })*) => {
        $(impl AtRank for $name {
            fn at_rank(all: &[&Self], permille: usize) -> Self {
                Self {
                    $($field: AtRank::at_rank(&all.iter().map(|one| &one.$field).collect::<Vec<_>>(), permille),)*
                    $($($first: all.first().map(|one| one.$first.clone()).unwrap_or_default(),)*)?
                }
            }
        })*
    };
}

of_fields! {
    Times { count, mean, median, p90, p99, worst }
    Requests { mean, median, most }
    Adds {
        started, failed, too_long, reasons, time, time_in_own_block, time_with_list, waited, requests, requests_in_own_block,
        requests_with_list, conflicts
    }
    BlockUse {
        blocks, pool_addresses, addresses, allocated, wasted, wasted_percent, routes, borrowed, borrowed_percent,
        max_blocks_of_node, stranded_nodes
    }
    Run {
        nodes, pods, waiting_pods, time_to_address, simulated, adds, deleted, datastore_requests, blocks, clashes;
        seed, range
    }
}

/// Ranks `None` after all times.
impl AtRank for Option<Micros> {
    fn at_rank(all: &[&Self], permille: usize) -> Self {
        let mut sorted: Vec<Self> = all.iter().map(|time| **time).collect();
        sorted.sort_unstable_by_key(|time| (time.is_none(), *time));
        rank(&sorted, permille).flatten()
    }
}

/// Counts a missing name as 0.
impl AtRank for BTreeMap<String, u64> {
    /// The counts of several runs at a rank, name by name. A run without a name counts 0 for it.
    fn at_rank(all: &[&Self], permille: usize) -> Self {
        let names: BTreeSet<&String> = all.iter().flat_map(|counts| counts.keys()).collect();
        let mut ranked = Self::new();
        for name in names {
            let mut values: Vec<u64> = Vec::new();
            for counts in all {
                values.push(counts.get(name).copied().unwrap_or(0));
            }
            let references: Vec<&u64> = values.iter().collect();
            ranked.insert(name.clone(), u64::at_rank(&references, permille));
        }
        ranked
    }
}

pub(super) use of_fields;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_the_sorted_times() {
        assert_eq!(median(vec![Micros(3), Micros(1), Micros(2)]), Some(Micros(2)));
        assert_eq!(median(Vec::new()), None);
    }
}
