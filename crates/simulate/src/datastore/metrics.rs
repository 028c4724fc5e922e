//! Latency as servers measure it themselves: the histograms that `/metrics` of etcd and of the API server prints.

use std::collections::BTreeMap;

use calipam_model::snapshot::DatastoreKind;

use super::costs::Costs;
use super::latency::Latency;
use crate::time::Micros;

/// The last of the five times of a latency is that of 999 in 1,000: a histogram counts millions of requests, of which the
/// longest says nothing of the others, and between two times all are drawn as often.
const RANKS: [u64; 5] = [0, 500, 900, 990, 999];

/// What etcd waits for with every write.
const FSYNC: &str = "etcd_disk_wal_fsync_duration_seconds_bucket";
/// What the API server takes for a request. How long it travels is not in it.
const REQUEST: &str = "apiserver_request_duration_seconds_bucket";
/// Requests about Calico's objects are counted alone where there are some.
const CALICO: &str = "projectcalico.org";
const WRITES: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

/// Metrics in which there is nothing of the datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no histogram {0} in these metrics, or nothing is counted in it")]
pub struct NoHistogram(&'static str);

impl Costs {
    /// The costs that metrics of a server tell, as [`Self::set`] takes them. Of etcd these are writes: as long as a read
    /// (assumed, until `set` says something else) and the time until its disk has the entry of its log. Of an API server
    /// they are reads and writes.
    ///
    /// # Errors
    /// If the metrics are of another server.
    pub fn of_metrics(kind: DatastoreKind, metrics: &str) -> Result<String, NoHistogram> {
        if kind != DatastoreKind::Kubernetes {
            let fsync = Histogram::of(metrics, FSYNC, |_| true).ok_or(NoHistogram(FSYNC))?;
            let read = Self::assumed(kind).read.median();
            return Ok(format!("write={}", fsync.latency(read).text()));
        }
        let of_verbs = |verbs: &[&str]| {
            let has_verb =
                |labels: &str| verbs.iter().any(|verb| labels.contains(&format!("verb=\"{verb}\"")));
            let of_object = |labels: &str| has_verb(labels) && labels.contains("scope=\"resource\"");
            Histogram::of(metrics, REQUEST, |labels| of_object(labels) && labels.contains(CALICO))
                .or_else(|| Histogram::of(metrics, REQUEST, of_object))
                .ok_or(NoHistogram(REQUEST))
        };
        let (read, write) = (of_verbs(&["GET"])?, of_verbs(&WRITES)?);
        Ok(format!("read={},write={}", read.latency(Micros::ZERO).text(), write.latency(Micros::ZERO).text()))
    }
}

/// How many took at most so long, in microseconds; without end at last.
struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// The sum of the series of a histogram with some labels; `None` if nothing is counted.
    fn of(metrics: &str, name: &str, is_wanted: impl Fn(&str) -> bool) -> Option<Self> {
        let mut counts = BTreeMap::new();
        for line in metrics.lines() {
            let Some((labels, count)) = line.strip_prefix(name).and_then(|rest| rest.rsplit_once(' ')) else {
                continue;
            };
            let bound =
                labels.split_once("le=\"").and_then(|(_, rest)| rest.split_once('"')).map(|(bound, _)| bound);
            let (Some(bound), Ok(count)) = (bound.and_then(micros), count.parse::<f64>()) else { continue };
            if is_wanted(labels) {
                *counts.entry(bound).or_insert(0) += count as u64;
            }
        }
        counts.values().any(|count| *count > 0).then_some(Self(counts))
    }

    fn latency(&self, more: Micros) -> Latency {
        Latency::Measured(RANKS.map(|rank| self.rank(rank) + more))
    }

    /// How long so many thousandths took at most: evenly between two bounds, and the last bound if there is no end.
    fn rank(&self, permille: u64) -> Micros {
        let all = self.0.values().max().copied().unwrap_or(0);
        let wanted = u128::from(all) * u128::from(permille) / 1_000;
        let (mut from, mut before) = (0, 0);
        for (bound, count) in &self.0 {
            if *count > 0 && u128::from(*count) >= wanted && *bound < u64::MAX {
                let (part, of) = (wanted.saturating_sub(before), u128::from(*count) - before);
                let within = u128::from(bound - from) * part / of.max(1);
                return Micros(from + u64::try_from(within).unwrap_or(0));
            }
            if *bound < u64::MAX {
                (from, before) = (*bound, u128::from(*count));
            }
        }
        Micros(from)
    }
}

/// A bound in seconds.
fn micros(text: &str) -> Option<u64> {
    let seconds: f64 = text.parse().ok()?;
    (seconds >= 0.0).then(|| (seconds * 1e6).min(u64::MAX as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd(buckets: &[(&str, u64)]) -> String {
        let line = |(bound, count): &(&str, u64)| format!("{FSYNC}{{le=\"{bound}\"}} {count}\n");
        buckets.iter().map(line).collect()
    }

    #[test]
    fn writes_of_etcd_wait_for_its_disk() {
        let buckets = [("0.001", 0), ("0.002", 500), ("0.004", 900), ("0.008", 1e3 as u64), ("+Inf", 1_000)];
        let metrics = etcd(&buckets);
        // A read of a millisecond, and 1 to 2 ms for the first half.
        assert_eq!(
            Costs::of_metrics(DatastoreKind::Etcd, &metrics).unwrap(),
            "write=2000us/3000us/5000us/8600us/8960us"
        );
        let none = Costs::of_metrics(DatastoreKind::Etcd, &etcd(&[("0.001", 0), ("+Inf", 0)]));
        assert_eq!(none, Err(NoHistogram(FSYNC)));
        // More than the last bound is not known: the bound counts.
        let late =
            Costs::of_metrics(DatastoreKind::Etcd, &etcd(&[("0.001", 0), ("8.192", 1), ("+Inf", 1_000)]));
        assert_eq!(late.unwrap(), "write=2000us/8193000us/8193000us/8193000us/8193000us");
    }

    #[test]
    fn an_api_server_counts_requests_by_verb_and_group() {
        let line = |verb: &str, group: &str, scope: &str, bound: &str, count: u64| {
            let labels =
                format!("group=\"{group}\",resource=\"ipamblocks\",scope=\"{scope}\",verb=\"{verb}\"");
            format!("{REQUEST}{{{labels},le=\"{bound}\"}} {count}\n")
        };
        let mut metrics = String::from("# TYPE apiserver_request_duration_seconds histogram\n");
        for (verb, bound) in [("GET", "0.002"), ("PUT", "0.01"), ("POST", "0.01")] {
            metrics += &line(verb, "crd.projectcalico.org", "resource", bound, 100);
            metrics += &line(verb, "crd.projectcalico.org", "cluster", "9", 100);
            metrics += &line(verb, "apps", "resource", "5", 100);
        }
        assert_eq!(
            Costs::of_metrics(DatastoreKind::Kubernetes, &metrics).unwrap(),
            "read=0/1000us/1800us/1980us/1980us,write=0/5000us/9000us/9900us/9950us"
        );
        assert!(Costs::of_metrics(DatastoreKind::Kubernetes, &etcd(&[("1", 1)])).is_err());
    }
}
