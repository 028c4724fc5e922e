//! Unpacking a cache, on all cores.

use std::ops::ControlFlow;

use calipam_files::parallel;

/// Makes something of each number below `count`; `None` where that fails for one of them.
pub(super) fn on_all_cores<T: Send>(
    count: usize,
    make: impl Fn(usize) -> Option<T> + Sync,
) -> Option<Vec<T>> {
    let mut all = Vec::with_capacity(count);
    in_order(count, make, |one| all.push(one))?;
    Some(all)
}

/// Makes something of each number below `count`, and hands it over in the order of the numbers while others are still being made;
/// `None` where that fails for one of them.
pub(super) fn in_order<T: Send>(
    count: usize,
    make: impl Fn(usize) -> Option<T> + Sync,
    mut take: impl FnMut(T) + Send,
) -> Option<()> {
    let mut taken = 0;
    let take_one = |one: Option<T>| match one {
        Some(one) => {
            take(one);
            taken += 1;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    };
    parallel::in_order(|give| (0..count).take_while(|index| give(*index)).count(), make, take_one);
    (taken == count).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_comes_in_order_or_not_at_all() {
        for count in [0, 1, 7, 1_000] {
            assert_eq!(on_all_cores(count, Some), Some((0..count).collect()));
            for failing in (0..count).step_by(331) {
                assert_eq!(on_all_cores(count, |index| (index != failing).then_some(index)), None);
            }
        }
    }
}
