//! Parallel work on all cores.

use std::ops::Range;

use calipam_model::parallel::{cores, map};

/// The smallest number of objects that justifies a thread.
pub(crate) const OBJECTS: usize = 1 << 14;
/// The smallest number of blocks or shards that justifies a thread. Each holds many objects.
pub(crate) const BLOCKS: usize = 16;

/// Splits the numbers below `length` into ranges, at most one per core, and runs `work` on each range. A range has at
/// least `least` numbers, unless `length` is smaller. Returns the results in order.
pub(crate) fn in_parts<T: Send>(
    least: usize,
    length: usize,
    work: impl Fn(Range<usize>) -> T + Sync,
) -> Vec<T> {
    let parts = cores().get().min(length / least).max(1);
    let start = |part: usize| length * part / parts;
    map(cores(), parts, |part| work(start(part)..start(part + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_numbers_in_order() {
        for length in [0, 1, OBJECTS, 5 * OBJECTS + 3] {
            let all: Vec<usize> = in_parts(OBJECTS, length, |range| range.collect::<Vec<_>>()).concat();
            assert_eq!(all, (0..length).collect::<Vec<_>>());
        }
    }
}
