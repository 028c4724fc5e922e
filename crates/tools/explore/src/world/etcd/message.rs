//! The messages of etcd that calipam sends.

use std::fmt;
use std::sync::Arc;

use calipam_files::protobuf::{Fields, Value, put_bytes, put_key_value, put_message, put_number};
use calipam_files::raw::RawEntry;
use calipam_testkit::memory::MemoryStore;

use crate::world::client::short;
use crate::world::{Footprint, Values};

/// A transaction: comparisons, and the reads and writes that follow if all of them hold.
#[derive(Default)]
pub(super) struct Transaction {
    pub expected: Vec<Expected>,
    pub reads: Vec<Range>,
    /// The new values of keys; `None` for deletions.
    pub writes: Vec<(String, Option<Vec<u8>>)>,
}

/// A comparison. calipam sends these two kinds.
pub(super) enum Expected {
    /// The key has this revision; 0 for a key that must not exist.
    At(String, i64),
    /// No key in the range was created after this revision. The values are those that an earlier read returned at this
    /// revision.
    NoneSince(Range, i64, Arc<Values>),
}

/// A range of keys. The end is exclusive.
#[derive(Clone, Default)]
pub(super) struct Range {
    start: String,
    /// Empty for a single key.
    end: Vec<u8>,
    limit: usize,
    pub revision: i64,
    keys_only: bool,
}

/// The result of a range.
#[derive(Default)]
pub(super) struct Found {
    pub kvs: Values,
    count: usize,
}

pub(super) struct Answer {
    pub revision: i64,
    pub has_succeeded: bool,
    /// The results of the reads among the operations.
    pub found: Vec<Found>,
}

/// The fields of a message; `None` if it is malformed.
fn fields(message: &[u8]) -> Option<Vec<(u32, Value<'_>)>> {
    let (mut fields, mut found) = (Fields::new(message), Vec::new());
    while let Some(field) = fields.next_field()? {
        found.push(field);
    }
    Some(found)
}

fn text(value: Value<'_>) -> Option<String> {
    String::from_utf8(value.bytes().to_vec()).ok()
}

impl Transaction {
    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let mut transaction = Self::default();
        for (field, value) in fields(message)? {
            match field {
                1 => transaction.expected.push(Expected::decode(value.bytes())?),
                2 => transaction.add(value.bytes())?,
                _ => return None,
            }
        }
        Some(transaction)
    }

    /// Adds the operation in a message.
    fn add(&mut self, message: &[u8]) -> Option<()> {
        for (kind, operation) in fields(message)? {
            match kind {
                1 => self.reads.push(Range::decode(operation.bytes())?),
                2 => {
                    let (mut key, mut content) = (None, Vec::new());
                    for (field, value) in fields(operation.bytes())? {
                        match field {
                            1 => key = text(value),
                            2 => content = value.bytes().to_vec(),
                            _ => {}
                        }
                    }
                    self.writes.push((key?, Some(content)));
                }
                3 => {
                    let range = Range::decode(operation.bytes()).filter(|range| range.end.is_empty())?;
                    self.writes.push((range.start, None));
                }
                _ => return None,
            }
        }
        Some(())
    }

    pub(super) fn footprint(&self) -> Footprint {
        let all = self.expected.iter().fold(Footprint::default(), |all, expected| match expected {
            Expected::At(key, _) => all.read(key.clone()),
            Expected::NoneSince(range, ..) => Range::footprint(all, range),
        });
        let all = self.reads.iter().fold(all, Range::footprint);
        self.writes.iter().fold(all, |all, (key, _)| all.write(key.clone()))
    }

    /// Executes the writes atomically and returns the answer.
    pub(super) fn apply(&self, store: &MemoryStore) -> Answer {
        let has_succeeded = self.expected.iter().all(|expected| expected.holds(store));
        let writes = if has_succeeded { &*self.writes } else { &[] };
        Answer { revision: store.change_together(writes), has_succeeded, found: Vec::new() }
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |value: &Option<_>| if value.is_some() { "put" } else { "delete" };
        let writes = self.writes.iter().map(|(key, value)| format!("{} {}", verb(value), short(key)));
        f.write_str(&writes.collect::<Vec<_>>().join(", "))
    }
}

impl Expected {
    fn decode(message: &[u8]) -> Option<Self> {
        const EQUAL: (u64, u64) = (0, 2);
        const CREATED_BEFORE: (u64, u64) = (2, 1);
        let (mut operator, mut target, mut range, mut revision) = (0, 0, Range::default(), 0);
        for (field, value) in fields(message)? {
            match field {
                1 => operator = value.number(),
                2 => target = value.number(),
                3 => range.start = text(value)?,
                5 | 6 => revision = value.number() as i64,
                64 => range.end = value.bytes().to_vec(),
                _ => {}
            }
        }
        match (operator, target) {
            EQUAL if range.end.is_empty() => Some(Self::At(range.start, revision)),
            CREATED_BEFORE => Some(Self::NoneSince(range, revision - 1, Arc::default())),
            _ => None,
        }
    }

    fn holds(&self, store: &MemoryStore) -> bool {
        match self {
            Self::At(key, revision) => store.value_at(key).map_or(0, |(_, revision)| revision) == *revision,
            Self::NoneSince(range, _, known) => {
                let found = range.find(&store.values(super::ALL)).kvs;
                found.iter().all(|(path, ..)| known.iter().any(|(other, ..)| other == path))
            }
        }
    }
}

impl Range {
    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let mut range = Self::default();
        for (field, value) in fields(message)? {
            match field {
                1 => range.start = text(value)?,
                2 => range.end = value.bytes().to_vec(),
                3 => range.limit = value.number() as usize,
                4 => range.revision = value.number() as i64,
                8 => range.keys_only = value.number() != 0,
                _ => {}
            }
        }
        Some(range)
    }

    fn has(&self, path: &str) -> bool {
        if self.end.is_empty() {
            return path == self.start;
        }
        path >= self.start.as_str() && path.as_bytes() < &*self.end
    }

    pub(super) fn find(&self, values: &Values) -> Found {
        let mut kvs: Values = values.iter().filter(|(path, ..)| self.has(path)).cloned().collect();
        let count = kvs.len();
        if self.limit > 0 {
            kvs.truncate(self.limit);
        }
        if self.keys_only {
            kvs.iter_mut().for_each(|(_, value, _)| value.clear());
        }
        Found { kvs, count }
    }

    /// Adds the range to a footprint.
    pub(super) fn footprint(all: Footprint, Self { start, end, .. }: &Self) -> Footprint {
        if end.is_empty() {
            return all.read(start.clone());
        }
        // The common prefix of both ends covers everything between them.
        let common = start.bytes().zip(end).take_while(|(a, b)| a == *b).count();
        all.read_range(&start[..common])
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.end.is_empty() { "" } else { "…" };
        write!(f, "{}{more}", short(&self.start))
    }
}

impl Answer {
    fn header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        put_number(&mut header, 3, self.revision as u64);
        header
    }

    /// Encodes a `TxnResponse`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_message(&mut out, 1, &self.header());
        put_number(&mut out, 2, u64::from(self.has_succeeded));
        for found in &self.found {
            let mut answer = Vec::new();
            put_message(&mut answer, 1, &found.encode());
            put_message(&mut out, 3, &answer);
        }
        out
    }

    /// Encodes a `RangeResponse`.
    pub(super) fn encode_range(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_message(&mut out, 1, &self.header());
        self.found.iter().for_each(|found| out.extend(found.encode()));
        out
    }
}

impl Found {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, value, revision) in &self.kvs {
            let mut entry = Vec::new();
            let (key, mod_revision) = (path.as_bytes(), *revision);
            put_key_value(&mut entry, &RawEntry { key, value, mod_revision, ..RawEntry::default() });
            put_bytes(&mut out, 2, &entry);
        }
        put_number(&mut out, 3, u64::from(self.kvs.len() < self.count));
        put_number(&mut out, 4, self.count as u64);
        out
    }
}
