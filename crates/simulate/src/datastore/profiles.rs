//! Latency of etcd as others have published it, for those who cannot measure theirs.

/// What requests to an etcd cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    /// As `--latency` takes it.
    pub latency: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

/// A write is a read and the time until the disk has it (fdatasync): of that others have published percentiles.
pub const PROFILES: [Profile; 3] = [
    Profile {
        name: "local-nvme",
        latency: "read=400us,write=460us",
        source: "reads: etcd.io/docs, benchmarks of etcd 3, one client; disk: 12 to 58us for SSDs that survive a loss of power, \
                 smalldatum.blogspot.com, January 2026 (averages: no tail is published)",
    },
    Profile {
        name: "cloud-disk",
        latency: "read=1ms,write=1534us/1783us/3180us/3376us/16766us",
        source: "disk: fio of IBM Cloud, 'Using Fio to Tell Whether Your Storage is Fast Enough for etcd', 2019",
    },
    Profile {
        name: "loaded",
        latency: "read=1ms,write=3ms/5657us/8530us/15925us/247ms",
        source: "disk: 56 million fsyncs of an etcd in production, github.com/etcd-io/etcd/issues/9407 (longest: 99.9 %)",
    },
];

/// The costs that a text for [`Costs::set`](super::Costs::set) names: profiles as what they stand for.
pub(super) fn parts(text: &str) -> impl Iterator<Item = &str> {
    let profile = |part: &str| PROFILES.iter().find(|profile| profile.name == part);
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(move |part| profile(part).map_or(part, |profile| profile.latency).split(','))
}

/// The first profile that a text names.
pub(super) fn named(text: &str) -> Option<&'static str> {
    let mut names = text.split(',').map(str::trim);
    names.find_map(|part| PROFILES.iter().find(|profile| profile.name == part)).map(|profile| profile.name)
}
