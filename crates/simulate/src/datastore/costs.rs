//! The costs of requests: the time that each takes by itself. `server.rs` adds the waiting time.

use std::collections::HashSet;

use calipam_model::snapshot::DatastoreKind;
use serde::Serialize;

use super::caches::Kind;
use super::data::Listing;
use super::latency::Latency;
use super::profiles::{self, PROFILES};
use crate::error::{Result, ScenarioError};
use crate::time::{Micros, NANOS_PER_SECOND};

/// The costs of requests to a datastore. Times are for an idle server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Costs {
    /// The time from calling the plugin until it connects.
    pub start: Latency,
    /// The time to connect to the datastore, including TLS.
    pub connect: Latency,
    /// The time to read one object or, on etcd, a few objects together.
    pub read: Latency,
    /// The time to write an object.
    pub write: Latency,
    /// The server's time for each object in a list, in nanoseconds.
    pub object_nanos: u64,
    /// The time that the server and the network need for each KiB of a list, in nanoseconds.
    pub kib_nanos: u64,
    /// The client's time to decode each KiB of a list, in nanoseconds.
    pub decode_nanos: u64,
    /// The number of processors of the server, which all requests share.
    pub threads: u64,
    /// The number of reads that the server can perform per second.
    pub reads_per_second: u64,
    /// The number of writes that the server can perform per second.
    pub writes_per_second: u64,
    /// On Kubernetes, the shortest interval at which the server asks etcd for the progress of its caches. List requests
    /// wait for the answer. Zero if the server does not ask (before 1.31).
    pub refresh: Micros,
    /// The variation of latencies up and down, in thousandths.
    pub jitter_permille: u64,
    /// The rate limit of kube-controllers on Kubernetes, in requests per second; 0 for no limit.
    pub controllers_qps: u64,
    /// The number of requests that kube-controllers may send before the limit takes effect.
    pub controllers_burst: u64,
}

/// The work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A read of a single object, or on etcd of several.
    Read,
    /// A list of one kind of object on Kubernetes.
    List(Kind),
    Write(Kind),
}

impl Work {
    pub(super) fn is_write(self) -> bool {
        matches!(self, Self::Write(_))
    }
}

/// The parts of a request's time: the way to the server, the server's work, and the way back.
pub(super) struct Parts {
    pub way_there: Micros,
    pub busy: Micros,
    pub way_back: Micros,
    /// The work that the server finishes after its answer.
    pub after: Micros,
}

impl Costs {
    /// The costs to assume if nothing else is known. The times of the plugin and of single requests are those that
    /// `cargo xtask bench simulate` and `simulate-kubernetes` measured with single calls, on two processors with a
    /// local solid-state disk, on 28 and 30 November 2026. The servers' capacities, and their times for lists, are
    /// assumptions.
    pub fn assumed(kind: DatastoreKind) -> Self {
        let around = |micros| Latency::Around(Micros(micros));
        match kind {
            DatastoreKind::Etcd | DatastoreKind::EtcdV2 => Self {
                start: around(1_380),
                connect: Latency::Measured([1_036, 1_969, 2_360, 3_308, 3_308].map(Micros)),
                read: around(342),
                write: around(400),
                object_nanos: 1_000,
                kib_nanos: 4_000,
                decode_nanos: 6_000,
                threads: 8,
                reads_per_second: 20_000,
                writes_per_second: 8_000,
                refresh: Micros::ZERO,
                jitter_permille: 250,
                controllers_qps: 0,
                controllers_burst: 0,
            },
            DatastoreKind::Kubernetes => Self {
                start: around(1_812),
                connect: Latency::Measured([2_055, 5_682, 9_575, 17_646, 17_646].map(Micros)),
                read: around(1_708),
                write: around(3_276),
                object_nanos: 10_000,
                kib_nanos: 8_000,
                reads_per_second: 3_000,
                writes_per_second: 1_000,
                refresh: Micros::from_millis(100),
                // The defaults of Calico's client (facts 2.9).
                controllers_qps: 5,
                controllers_burst: 100,
                ..Self::assumed(DatastoreKind::Etcd)
            },
        }
    }

    /// Splits the time of a request that does not wait: the ways, and the server's work before and after the answer.
    /// `draw` returns the measured latency, which includes the server's usual work. If that work takes longer, the rest
    /// is done after the answer. The time for the objects of a list is added.
    pub(super) fn split_request(
        &self,
        work: Work,
        listing: Listing,
        draw: impl FnOnce(Latency) -> Micros,
    ) -> Parts {
        let latency = draw(if work.is_write() { self.write } else { self.read });
        let usual_work = Micros(self.busy_nanos(work).div_ceil(1_000));
        let list_nanos = listing.objects * self.object_nanos + listing.bytes * self.kib_nanos / 1_024;
        let list_work = Micros(list_nanos.div_ceil(1_000));

        // A difference of times that would be negative is zero.
        let both_ways = latency - usual_work;
        let way_there = Micros(both_ways.0 / 2);
        Parts {
            way_there,
            busy: usual_work.min(latency) + list_work,
            way_back: both_ways - way_there,
            after: usual_work - latency,
        }
    }

    /// Returns the time that a read or write keeps one of the server's processors busy, in nanoseconds: 0 if the number
    /// of requests per second has no limit.
    fn busy_nanos(&self, work: Work) -> u64 {
        let per_second = if work.is_write() {
            self.writes_per_second
        } else {
            self.reads_per_second
        };
        (NANOS_PER_SECOND * self.threads())
            .checked_div(per_second)
            .unwrap_or(0)
    }

    /// The time that a client takes to decode a list.
    pub(super) fn decoding(&self, listing: Listing) -> Micros {
        Micros(listing.bytes * self.decode_nanos / 1_024 / 1_000)
    }

    pub(super) fn threads(&self) -> u64 {
        self.threads.clamp(1, 256)
    }

    /// Returns a datastore's assumed costs, changed by `text` as in [`Self::set`].
    ///
    /// # Errors
    /// If [`Self::set`] fails, or if `text` begins with a profile for another datastore.
    pub(crate) fn from_text(kind: DatastoreKind, text: &str) -> Result<Self> {
        if let Some(name) = profiles::named(text)
            && kind == DatastoreKind::Kubernetes
        {
            let message = format!("the profile {name} is for etcd, not for an API server");
            return Err(ScenarioError::of_costs(message));
        }
        let mut costs = Self::assumed(kind);
        costs.set(text)?;
        Ok(costs)
    }

    /// Sets costs from a string such as `read=2ms,write=5ms,writes-per-second=2000`, which can contain names of
    /// profiles. Of several values for one cost, the last one counts.
    pub fn set(&mut self, text: &str) -> Result<()> {
        for part in profiles::parts(text) {
            let Some((name, value)) = part.split_once('=') else {
                let profiles = PROFILES.map(|(name, _)| name).join(", ");
                let message = format!("{part:?} is neither NAME=VALUE nor a profile ({profiles})");
                return Err(ScenarioError::of_costs(message));
            };
            self.set_one(name.trim(), value.trim())?;
        }
        Ok(())
    }

    /// Sets one cost. A number of nanoseconds needs no unit.
    fn set_one(&mut self, name: &str, value: &str) -> Result<()> {
        let mut costs = self.by_name().into_iter();
        let Some((_, cost)) = costs.find(|(cost_name, _)| *cost_name == name) else {
            let names = Self::names_not_in("").join(", ");
            return Err(ScenarioError::of_costs(format!(
                "{name:?} is not a cost; the costs are {names}"
            )));
        };

        let refused = || ScenarioError::of_costs(format!("{value:?} is not a value of {name}"));
        // Only some costs need a number, so a text that is none is not an error yet.
        let number = value.strip_suffix("ns").unwrap_or(value).parse();
        match cost {
            Cost::Latency(latency) => *latency = value.parse().map_err(|_| refused())?,
            Cost::Time(time) => *time = value.parse().map_err(|_| refused())?,
            Cost::Number(target) => *target = number.map_err(|_| refused())?,
            Cost::Nanos(target) => {
                *target = match number {
                    Ok(nanos) => nanos,
                    Err(_) => {
                        let time: Micros = value.parse().map_err(|_| refused())?;
                        time.0.saturating_mul(1_000)
                    }
                };
            }
        }
        Ok(())
    }

    /// The costs, each with the name that [`Self::set`] accepts.
    fn by_name(&mut self) -> [(&'static str, Cost<'_>); 14] {
        [
            ("start", Cost::Latency(&mut self.start)),
            ("connect", Cost::Latency(&mut self.connect)),
            ("read", Cost::Latency(&mut self.read)),
            ("write", Cost::Latency(&mut self.write)),
            ("refresh", Cost::Time(&mut self.refresh)),
            ("object", Cost::Nanos(&mut self.object_nanos)),
            ("kib", Cost::Nanos(&mut self.kib_nanos)),
            ("decode", Cost::Nanos(&mut self.decode_nanos)),
            ("threads", Cost::Number(&mut self.threads)),
            ("reads-per-second", Cost::Number(&mut self.reads_per_second)),
            ("writes-per-second", Cost::Number(&mut self.writes_per_second)),
            ("jitter", Cost::Number(&mut self.jitter_permille)),
            ("controllers-qps", Cost::Number(&mut self.controllers_qps)),
            ("controllers-burst", Cost::Number(&mut self.controllers_burst)),
        ]
    }

    /// The name of each cost, with its value as [`Self::set`] accepts it.
    pub fn by_text(&self) -> [(&'static str, String); 14] {
        self.clone().by_name().map(|(name, cost)| {
            let text = match cost {
                Cost::Latency(latency) => latency.text(),
                Cost::Time(time) => Latency::Around(*time).text(),
                Cost::Nanos(nanos) => format!("{nanos}ns"),
                Cost::Number(number) => number.to_string(),
            };
            (name, text)
        })
    }

    /// The names of the costs that a string for [`Self::set`] does not set.
    pub fn names_not_in(text: &str) -> Vec<&'static str> {
        // The text is as a user gave it, and need not be valid.
        let mut set_names = HashSet::new();
        for part in profiles::parts(text) {
            let name = part.split('=').next().unwrap_or_default();
            set_names.insert(name.trim());
        }
        let all_names = Self::assumed(DatastoreKind::Etcd).by_text().map(|(name, _)| name);
        all_names
            .into_iter()
            .filter(|name| !set_names.contains(name))
            .collect()
    }
}

/// A field of [`Costs`]; the variants differ in the form of the value.
enum Cost<'c> {
    Latency(&'c mut Latency),
    Time(&'c mut Micros),
    /// A number of nanoseconds for each object or KiB, which can also be given as a time.
    Nanos(&'c mut u64),
    Number(&'c mut u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_specification_sets_only_the_costs_that_it_names() {
        let mut costs = Costs::assumed(DatastoreKind::Etcd);
        costs
            .set("read=2ms, write=2ms/5ms/9ms/20ms/50ms,object=3us,kib=700,reads-per-second=10,decode=5ns")
            .unwrap();
        let expected = Costs {
            read: Latency::Around(Micros::from_millis(2)),
            write: "2ms/5ms/9ms/20ms/50ms".parse().unwrap(),
            object_nanos: 3_000,
            kib_nanos: 700,
            decode_nanos: 5,
            reads_per_second: 10,
            ..Costs::assumed(DatastoreKind::Etcd)
        };
        assert_eq!(costs, expected);
        let mut copy = Costs::assumed(DatastoreKind::Kubernetes);
        copy.set(
            &costs
                .by_text()
                .map(|(name, text)| format!("{name}={text}"))
                .join(","),
        )
        .unwrap();
        assert_eq!(copy, costs);
    }

    #[test]
    fn a_profile_stands_for_its_costs_and_others_override_it() {
        for (name, _) in PROFILES {
            let costs = Costs::from_text(DatastoreKind::Etcd, name).unwrap();
            assert_ne!(costs.write, Costs::assumed(DatastoreKind::Etcd).write, "{name}");
            assert!(Costs::from_text(DatastoreKind::Kubernetes, name).is_err());
        }
        let costs = Costs::from_text(DatastoreKind::Etcd, "cloud-disk, read=7ms").unwrap();
        assert_eq!(
            (costs.read.median(), costs.write.median()),
            (Micros(7_000), Micros(1_783))
        );
        assert_eq!(Costs::names_not_in("cloud-disk,start=1ms").len(), 11);
    }

    #[test]
    fn invalid_costs_are_refused() {
        let mut costs = Costs::assumed(DatastoreKind::Etcd);
        let words = "read speed=3 read=-1ms read=2ms/1ms threads=many reads-per-second=-5 jitter=1ms";
        for bad in words.split(' ') {
            assert!(costs.set(bad).is_err(), "{bad}");
        }
        assert_eq!(costs, Costs::assumed(DatastoreKind::Etcd));
    }
}
