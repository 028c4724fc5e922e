//! What requests cost.

use calipam_model::snapshot::DatastoreKind;
use serde::{Deserialize, Serialize};

use crate::time::Micros;

/// What requests to a datastore cost. Times are those of a request that finds the server idle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Costs {
    /// From the call of the plugin until it connects.
    pub start: Micros,
    /// Connecting to the datastore, TLS included.
    pub connect: Micros,
    /// Reading single objects, or a few together on etcd.
    pub read: Micros,
    /// Writing one object.
    pub write: Micros,
    /// What each object of a list costs the server, in nanoseconds.
    pub object_nanos: u64,
    /// What each KiB of a list costs the server and the network, in nanoseconds.
    pub kib_nanos: u64,
    /// What each KiB of a list costs the client that decodes it, in nanoseconds.
    pub decode_nanos: u64,
    /// Requests that the server works on at the same time; a long list keeps one of them busy.
    pub threads: u64,
    /// Reads that the server can do in a second.
    pub reads_per_second: u64,
    /// Writes that the server can do in a second.
    pub writes_per_second: u64,
    /// Kubernetes: how often at most the server asks etcd how far its cache of a kind is, for which lists wait; zero where it
    /// answers lists otherwise (before 1.31).
    pub refresh: Micros,
    /// How far latency varies, in thousandths of it, up and down.
    pub jitter_permille: u64,
    /// Requests per second of one client; 0 for no limit. Limits count on Kubernetes alone.
    pub client_qps: u64,
    /// Requests that a client may send before its limit counts.
    pub client_burst: u64,
    /// Requests per second of kube-controllers; 0 for no limit.
    pub controllers_qps: u64,
    /// Requests that kube-controllers may send before its limit counts.
    pub controllers_burst: u64,
}

impl Costs {
    /// What to assume where nothing was measured: a datastore on servers of their own with solid-state disks.
    pub fn assumed(kind: DatastoreKind) -> Self {
        match kind {
            DatastoreKind::Etcd | DatastoreKind::EtcdV2 => Self {
                start: Micros::from_millis(5),
                connect: Micros::from_millis(3),
                read: Micros::from_millis(1),
                write: Micros::from_millis(4),
                object_nanos: 1_000,
                kib_nanos: 4_000,
                decode_nanos: 6_000,
                threads: 8,
                reads_per_second: 20_000,
                writes_per_second: 8_000,
                refresh: Micros::ZERO,
                jitter_permille: 250,
                client_qps: 0,
                client_burst: 0,
                controllers_qps: 0,
                controllers_burst: 0,
            },
            DatastoreKind::Kubernetes => Self {
                start: Micros::from_millis(5),
                connect: Micros::from_millis(8),
                read: Micros::from_millis(3),
                write: Micros::from_millis(8),
                object_nanos: 10_000,
                kib_nanos: 8_000,
                decode_nanos: 6_000,
                threads: 8,
                reads_per_second: 3_000,
                writes_per_second: 1_000,
                refresh: Micros::from_millis(100),
                jitter_permille: 250,
                client_qps: 0,
                client_burst: 0,
                // Calico's client where nothing else is configured (facts 2.9).
                controllers_qps: 5,
                controllers_burst: 100,
            },
        }
    }

    /// Sets costs from a text such as `read=2ms,write=5ms,writes-per-second=2000`.
    pub fn set(&mut self, text: &str) -> Result<(), CostsError> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| CostsError::NoValue(part.to_owned()))?;
            self.set_one(name.trim(), value.trim())?;
        }
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: &str) -> Result<(), CostsError> {
        let refused = || CostsError::Value { name: name.to_owned(), value: value.to_owned() };
        if let Some(time) = self.time(name) {
            *time = value.parse().map_err(|_| refused())?;
            return Ok(());
        }
        let Some(number) = self.number(name) else { return Err(CostsError::Name(name.to_owned())) };
        // Costs per object and KiB may be given as times, too.
        let nanos = || value.parse::<Micros>().ok().map(|time| time.0.saturating_mul(1_000));
        let is_cost = matches!(name, "object" | "kib" | "decode");
        *number = match value.strip_suffix("ns").unwrap_or(value).parse() {
            Ok(found) => found,
            Err(_) if is_cost => nanos().ok_or_else(refused)?,
            Err(_) => return Err(refused()),
        };
        Ok(())
    }

    fn time(&mut self, name: &str) -> Option<&mut Micros> {
        Some(match name {
            "start" => &mut self.start,
            "connect" => &mut self.connect,
            "read" => &mut self.read,
            "write" => &mut self.write,
            "refresh" => &mut self.refresh,
            _ => return None,
        })
    }

    fn number(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "object" => &mut self.object_nanos,
            "kib" => &mut self.kib_nanos,
            "decode" => &mut self.decode_nanos,
            "threads" => &mut self.threads,
            "reads-per-second" => &mut self.reads_per_second,
            "writes-per-second" => &mut self.writes_per_second,
            "jitter" => &mut self.jitter_permille,
            "qps" => &mut self.client_qps,
            "burst" => &mut self.client_burst,
            "controllers-qps" => &mut self.controllers_qps,
            "controllers-burst" => &mut self.controllers_burst,
            _ => return None,
        })
    }

    /// The names that [`Self::set`] knows.
    pub const NAMES: [&'static str; 16] = [
        "start",
        "connect",
        "read",
        "write",
        "refresh",
        "object",
        "kib",
        "decode",
        "threads",
        "reads-per-second",
        "writes-per-second",
        "jitter",
        "qps",
        "burst",
        "controllers-qps",
        "controllers-burst",
    ];

    /// The same costs as a text that [`Self::set`] reads.
    pub fn text(&self) -> String {
        let time = |time: Micros| if time.is_zero() { "0".to_owned() } else { format!("{}us", time.0) };
        let Self { start, connect, read, write, refresh, .. } = *self;
        let mut parts = vec![
            format!("start={}", time(start)),
            format!("connect={}", time(connect)),
            format!("read={}", time(read)),
            format!("write={}", time(write)),
            format!("refresh={}", time(refresh)),
        ];
        let mut copy = self.clone();
        for name in &Self::NAMES[5..] {
            let number = copy.number(name).map_or(0, |number| *number);
            let unit = if matches!(*name, "object" | "kib" | "decode") { "ns" } else { "" };
            parts.push(format!("{name}={number}{unit}"));
        }
        parts.join(",")
    }
}

/// Costs that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostsError {
    #[error("{0:?} has no value: expected NAME=VALUE")]
    NoValue(String),
    #[error("{0:?} is not a cost; the costs are {names}", names = Costs::NAMES.join(", "))]
    Name(String),
    #[error("{value:?} is not a value of {name}")]
    Value { name: String, value: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_sets_what_it_names_and_nothing_else() {
        let mut costs = Costs::assumed(DatastoreKind::Etcd);
        costs.set("read=2ms, write=5ms,object=3us,kib=700,reads-per-second=10,decode=5ns").unwrap();
        let expected = Costs {
            read: Micros::from_millis(2),
            write: Micros::from_millis(5),
            object_nanos: 3_000,
            kib_nanos: 700,
            decode_nanos: 5,
            reads_per_second: 10,
            ..Costs::assumed(DatastoreKind::Etcd)
        };
        assert_eq!(costs, expected);
        let mut copy = Costs::assumed(DatastoreKind::Kubernetes);
        copy.set(&costs.text()).unwrap();
        assert_eq!(copy, costs);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let mut costs = Costs::assumed(DatastoreKind::Etcd);
        for bad in ["read", "speed=3", "read=-1ms", "qps=many", "reads-per-second=-5", "jitter=1ms"] {
            assert!(costs.set(bad).is_err(), "{bad}");
        }
        assert_eq!(costs, Costs::assumed(DatastoreKind::Etcd));
    }
}
