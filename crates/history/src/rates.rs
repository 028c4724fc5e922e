//! How often pods get addresses and how long they keep them, by what an archive or a recording holds of blocks.

use std::collections::HashMap;

use calipam_model::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};

use crate::held::Held;

/// Pods that came and left in the time that was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Addresses of pods that were assigned, and released.
    pub arrived: u64,
    pub left: u64,
    /// For how long.
    pub observed: SignedDuration,
    /// Addresses that pods held, summed up over that time: addresses times seconds.
    pub held: f64,
    /// Some of the time lies between two exports: what came and left there is not known.
    pub is_least: bool,
}

impl Rates {
    /// Addresses that pods held on average.
    pub fn average(&self) -> f64 {
        self.held / self.observed.as_secs_f64()
    }

    /// How many arrived in an hour.
    pub fn arrived_per_hour(&self) -> f64 {
        self.arrived as f64 / self.observed.as_secs_f64() * 3_600.0
    }

    /// How long one is held on average; `None` where none was released. By Little's law, so that those that are held for longer than
    /// was observed count as well.
    pub fn lifetime(&self) -> Option<SignedDuration> {
        let seconds = (self.left > 0).then(|| self.held / self.left as f64)?;
        SignedDuration::try_from_secs_f64(seconds).ok()
    }
}

/// How a state follows what was told before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// It is what the changes had come to.
    Changes,
    /// It is another export: what lies between is not known, but what differs.
    Export,
    /// Nothing is known of the time between.
    Nothing,
}

/// Takes blocks in the order of time.
#[derive(Debug, Default)]
pub struct RateReader {
    rates: Rates,
    /// By the key that the block has in exports.
    blocks: HashMap<Vec<u8>, Held>,
    /// The blocks of the next state.
    next: HashMap<Vec<u8>, Held>,
    pods: u64,
    at: Option<Timestamp>,
}

impl RateReader {
    /// Takes a block of the next state.
    pub fn add(&mut self, key: &[u8], entry: &Snapshot) {
        if !entry.blocks.is_empty() {
            self.next.insert(key.to_vec(), held(entry));
        }
    }

    /// The next state is complete.
    pub fn begin(&mut self, at: Timestamp, follows: Follows) {
        let next = std::mem::take(&mut self.next);
        match follows {
            Follows::Changes => {}
            Follows::Export => {
                self.reach(at);
                self.rates.is_least = true;
                let mut before = std::mem::take(&mut self.blocks);
                for (key, now) in &next {
                    self.count(&before.remove(key).unwrap_or_default(), now);
                }
                before.values().for_each(|before| self.count(before, &Held::default()));
                self.blocks = next;
            }
            Follows::Nothing => {
                self.pods = next.values().map(|held| held.len() as u64).sum();
                (self.blocks, self.at) = (next, Some(at));
            }
        }
    }

    /// A block is another one from this time on, or is gone. What was told before is passed over: two recorders tell it.
    pub fn change(&mut self, at: Timestamp, key: &[u8], entry: Option<&Snapshot>) {
        if self.at.is_some_and(|known| at < known) {
            return;
        }
        self.reach(at);
        let now = entry.map(held).unwrap_or_default();
        let before = self.blocks.remove(key).unwrap_or_default();
        self.count(&before, &now);
        if now.len() > 0 {
            self.blocks.insert(key.to_vec(), now);
        }
    }

    /// Everything is known up to this time.
    pub fn reach(&mut self, at: Timestamp) {
        if let Some(before) = self.at.filter(|before| *before < at) {
            let passed = at.duration_since(before);
            self.rates.observed += passed;
            self.rates.held += self.pods as f64 * passed.as_secs_f64();
            self.at = Some(at);
        }
    }

    pub fn finish(self) -> Rates {
        self.rates
    }

    fn count(&mut self, before: &Held, now: &Held) {
        let (arrived, left) = before.assigned_and_released(now);
        self.rates.arrived += arrived;
        self.rates.left += left;
        self.pods = (self.pods + arrived).saturating_sub(left);
    }
}

/// The addresses of pods in a block.
fn held(entry: &Snapshot) -> Held {
    let mut contents =
        entry.blocks.iter().map(|block| &block.value.content).filter(|content| !content.is_deleted());
    let block = contents.next().and_then(|content| content.usable());
    block.map(|block| Held::of(block, |held| held.attribute.get("pod").is_some())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use calipam_model::snapshot::Snapshot;

    use super::*;

    const KEY: &[u8] = b"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29";

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    /// A block with these pods, and the address of a tunnel.
    fn block(pods: &[&str]) -> Snapshot {
        let attributes =
            pods.iter().map(|pod| format!(r#",{{"handle_id":"net.{pod}","secondary":{{"pod":"{pod}"}}}}"#));
        let place = |place: usize| if place <= pods.len() { place.to_string() } else { "null".to_owned() };
        let free = (pods.len() + 1..8).map(|place| place.to_string()).collect::<Vec<_>>().join(",");
        let value = format!(
            r#"{{"cidr":"10.0.0.0/29","affinity":"host:a","allocations":[{}],"unallocated":[{free}],"attributes":[{{"handle_id":"ipip"}}{}]}}"#,
            (0..8).map(place).collect::<Vec<_>>().join(","),
            attributes.collect::<String>(),
        );
        let mut snapshot = Snapshot::default();
        snapshot.add_entry(KEY, value.as_bytes(), 1);
        assert!(snapshot.blocks[0].value.content.sound().is_some(), "{value}");
        snapshot
    }

    #[test]
    fn pods_count_that_come_and_leave_while_it_is_known() {
        let mut reader = RateReader::default();
        reader.add(KEY, &block(&["a", "b"]));
        reader.begin(at(0), Follows::Nothing);
        reader.change(at(50), KEY, Some(&block(&["a", "c"])));
        reader.change(at(50), KEY, Some(&block(&["a"])));
        reader.change(at(40), KEY, Some(&block(&["a", "x"])));
        reader.reach(at(100));
        let rates = reader.rates;
        assert_eq!((rates.arrived, rates.left, rates.observed), (1, 2, SignedDuration::from_secs(100)));
        assert_eq!((rates.held, rates.average(), rates.arrived_per_hour()), (150.0, 1.5, 36.0));
        assert_eq!(rates.lifetime(), Some(SignedDuration::from_secs(75)));
        assert!(!rates.is_least);

        // A recorder that goes on, and a gap: neither is a change of what is held.
        reader.add(KEY, &block(&["y"]));
        reader.begin(at(100), Follows::Changes);
        reader.add(KEY, &block(&["d", "e", "f"]));
        reader.begin(at(500), Follows::Nothing);
        reader.reach(at(600));
        assert_eq!((reader.rates.arrived, reader.rates.left), (1, 2));
        assert_eq!((reader.rates.observed, reader.rates.held), (SignedDuration::from_secs(200), 450.0));

        // Between two exports only what differs is known.
        reader.begin(at(700), Follows::Export);
        assert_eq!((reader.rates.arrived, reader.rates.left), (1, 5));
        assert!(reader.rates.is_least);
        assert_eq!(RateReader::default().finish().lifetime(), None);
    }
}
