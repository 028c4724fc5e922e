//! Published etcd latencies, for users who cannot measure their own.

/// The name of a profile, and its costs as `--latency` accepts them. A write takes as long as a read plus a disk sync
/// (fdatasync). `docs/simulate.md` names the publications with percentiles of the disk sync.
type Profile = (&'static str, &'static str);

pub(super) const PROFILES: [Profile; 3] = [
    ("local-nvme", "read=400us,write=460us"),
    ("cloud-disk", "read=1ms,write=1534us/1783us/3180us/3376us/16766us"),
    ("loaded", "read=1ms,write=3ms/5657us/8530us/15925us/247ms"),
];

fn profile(part: &str) -> Option<Profile> {
    PROFILES.into_iter().find(|(name, _)| *name == part)
}

/// The costs in a string for [`Costs::set`](super::Costs::set), with profiles replaced by their costs.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(|part| {
        let costs = match profile(part) {
            Some((_, costs_of_profile)) => costs_of_profile,
            None => part,
        };
        costs.split(',')
    })
}

/// The first profile that a string names.
pub(super) fn named(text: &str) -> Option<&'static str> {
    text.split(',')
        .find_map(|part| profile(part.trim()))
        .map(|(name, _)| name)
}
