//! How long an eviction takes, by how long the same pods took when they were last started.

use jiff::SignedDuration;

/// An estimate. Budgets that let no pod go, and images that a node does not have yet, come on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Pods that can be evicted.
    pub pods: usize,
    /// Those that go at the same time.
    pub batch: usize,
    /// From the creation of a batch of pods until all of them are ready.
    pub each: SignedDuration,
    pub total: SignedDuration,
}

impl Estimate {
    /// `None` if none of the pods says how long it took. `ready_after`: of each that does, the time from its creation until it was
    /// ready. A batch takes as long as its slowest pod, which is that of the quantile n/(n+1) where there are n.
    pub(super) fn of(
        pods: usize,
        mut ready_after: Vec<SignedDuration>,
        batch: usize,
        pause: SignedDuration,
    ) -> Option<Self> {
        let batch = batch.max(1);
        ready_after.sort_unstable();
        let slowest = ready_after.len().saturating_mul(batch) / batch.saturating_add(1);
        let each = *ready_after.get(slowest).or(ready_after.last())?;
        let batches = i32::try_from(pods.div_ceil(batch)).unwrap_or(i32::MAX);
        let total = each.saturating_add(pause).saturating_mul(batches);
        Some(Self { pods, batch, each, total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_take_as_long_as_their_slowest_pod() {
        let seconds = SignedDuration::from_secs;
        let times = || [40, 10, 30, 20].map(seconds).to_vec();
        let of = |pods, batch, pause| Estimate::of(pods, times(), batch, seconds(pause)).unwrap();
        let one = of(10, 1, 5);
        assert_eq!((one.each, one.total), (seconds(30), seconds(350)));
        let three = of(10, 3, 0);
        assert_eq!((three.each, three.total), (seconds(40), seconds(160)));
        assert_eq!(of(0, 1, 5).total, seconds(0));
        assert_eq!(Estimate::of(10, Vec::new(), 1, seconds(0)), None);
        assert_eq!(
            Estimate::of(usize::MAX, times(), 0, SignedDuration::MAX).unwrap().total,
            SignedDuration::MAX
        );
    }
}
