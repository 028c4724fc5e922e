//! The rates at which addresses are assigned to pods and released, from the blocks of an archive or a recording.

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use jiff::{SignedDuration, Timestamp};

use crate::past::Past;

/// The numbers of addresses that were assigned to pods and released during an observed time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Addresses that were assigned to pods.
    pub assigned: u64,
    /// Addresses that pods released.
    pub released: u64,
    /// The observed time.
    pub observed: SignedDuration,
    /// The time for which pods held addresses, in seconds, summed over all addresses.
    pub pod_seconds: f64,
    /// True if differences between two exports are included. The actual numbers of changes may then be higher.
    pub is_lower_bound: bool,
    /// Addresses that pods hold now.
    held_now: u64,
}

impl Rates {
    /// Returns the average number of addresses that pods held.
    pub fn average(&self) -> f64 {
        self.pod_seconds / self.observed.as_secs_f64()
    }

    /// Returns the number of addresses that were assigned to pods per hour.
    pub fn assigned_per_hour(&self) -> f64 {
        self.assigned as f64 / self.observed.as_secs_f64() * 3_600.0
    }

    /// Returns the average time until an address is released. It is estimated with Little's law, which takes addresses
    /// that are still held into account. `None` if no address was released.
    pub fn lifetime(&self) -> Option<SignedDuration> {
        if self.released == 0 {
            return None;
        }
        let seconds = self.pod_seconds / self.released as f64;
        SignedDuration::try_from_secs_f64(seconds).ok()
    }
}

impl Past for Rates {
    const COUNTS_EXPORT_DIFFERENCES: bool = true;

    fn counts(record: &AttributeRef<'_>) -> bool {
        record.get("pod").is_some()
    }

    fn begin(&mut self, _: Timestamp, held: u64) {
        self.held_now = held;
    }

    fn pass(&mut self, from: Timestamp, until: Timestamp) {
        let passed = until.duration_since(from);
        self.observed += passed;
        self.pod_seconds += self.held_now as f64 * passed.as_secs_f64();
    }

    fn change(&mut self, _: IpNet, assigned: u64, released: u64) {
        self.assigned += assigned;
        self.released += released;
        self.held_now = (self.held_now + assigned).saturating_sub(released);
    }

    fn begin_differences(&mut self) {
        self.is_lower_bound = true;
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::snapshot::Snapshot;
    use calipam_testkit::values;
    use serde_json::json;

    use super::*;
    use crate::past::{Follows, PastReader};

    const KEY: &[u8] = b"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn decoded(value: &str) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.add_entry(KEY, value.as_bytes(), 1);
        snapshot
    }

    /// Builds a block with these pods and a tunnel address.
    fn block(pods: &[&str]) -> Snapshot {
        let of_pod = |pod: &&str| json!({"handle_id": format!("net.{pod}"), "secondary": {"pod": pod}});
        let records = std::iter::once(json!({"handle_id": "ipip"})).chain(pods.iter().map(of_pod));
        let value = values::block("10.0.0.0/29", "host:a", records).to_string();
        let snapshot = decoded(&value);
        assert!(snapshot.blocks[0].value.content.sound().is_some(), "{value}");
        snapshot
    }

    #[test]
    fn arrivals_and_departures_are_counted_in_observed_time() {
        let mut reader = PastReader::<Rates>::default();
        reader.add(KEY, &block(&["a", "b"]));
        reader.begin(at(0), Follows::Nothing);
        reader.change(at(50), KEY, Some(&block(&["a", "c"])));
        reader.change(at(50), KEY, Some(&block(&["a"])));
        reader.change(at(60), KEY, Some(&decoded("broken")));
        reader.reach(at(100));
        let rates = reader.past;
        assert_eq!(
            (rates.assigned, rates.released, rates.observed),
            (1, 2, SignedDuration::from_secs(100))
        );
        assert_eq!(
            (rates.pod_seconds, rates.average(), rates.assigned_per_hour()),
            (150.0, 1.5, 36.0)
        );
        assert_eq!(rates.lifetime(), Some(SignedDuration::from_secs(75)));
        assert!(!rates.is_lower_bound);

        // Differences at the start of a recording are neither assignments nor releases, whether the recording continues
        // another one or follows a gap.
        reader.add(KEY, &block(&["y"]));
        reader.begin(at(100), Follows::Changes);
        reader.add(KEY, &block(&["d", "e", "f"]));
        reader.begin(at(500), Follows::Nothing);
        reader.reach(at(600));
        assert_eq!((reader.past.assigned, reader.past.released), (1, 2));
        assert_eq!(
            (reader.past.observed, reader.past.pod_seconds),
            (SignedDuration::from_secs(200), 450.0)
        );

        // Between two exports, only the differences between them are known.
        reader.begin(at(700), Follows::Export);
        assert_eq!((reader.past.assigned, reader.past.released), (1, 5));
        assert!(reader.past.is_lower_bound);
        assert_eq!(Rates::default().lifetime(), None);
    }
}
