//! Requests for ranges of keys, and their answers.

use bytes::Bytes;

use crate::protobuf::{Fields, put_bytes, put_message, put_number, read_key_value};
use crate::raw::{RawEntry, prefix_end};

/// A request for keys from `start` up to, but without, `end`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first key.
    pub start: Vec<u8>,
    /// The key behind the last one; empty for the single key `start`.
    pub end: Vec<u8>,
    /// Most keys to give; 0 for all.
    pub limit: i64,
    /// The revision to read at; 0 for the newest.
    pub revision: i64,
    /// Any member may answer from what it has. Sound where the same member has answered at this
    /// revision before.
    pub serializable: bool,
    /// Values are left out.
    pub keys_only: bool,
}

impl Range {
    /// One key.
    pub fn key(key: impl Into<Vec<u8>>) -> Self {
        Self { start: key.into(), ..Self::default() }
    }

    /// All keys that start with `prefix`.
    pub fn prefix(prefix: &str) -> Self {
        Self { start: prefix.into(), end: prefix_end(prefix.as_bytes()), ..Self::default() }
    }

    /// All keys from `start` up to, but without, `end`.
    pub fn between(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self { start: start.into(), end: end.into(), ..Self::default() }
    }

    /// At most `limit` keys.
    pub fn with_limit(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }

    /// At a revision at which the member has answered before.
    pub fn at(mut self, revision: i64) -> Self {
        self.revision = revision;
        self.serializable = true;
        self
    }

    /// Without values.
    pub fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// The message `RangeRequest`.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.start.len() + self.end.len() + 32);
        put_bytes(&mut out, 1, &self.start);
        put_bytes(&mut out, 2, &self.end);
        put_number(&mut out, 3, self.limit as u64);
        put_number(&mut out, 4, self.revision as u64);
        put_number(&mut out, 7, u64::from(self.serializable));
        put_number(&mut out, 8, u64::from(self.keys_only));
        out
    }
}

/// The message `TxnRequest` that reads several ranges at one revision.
pub(crate) fn encode_transaction(ranges: &[Range]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut operation = Vec::new();
    for range in ranges {
        operation.clear();
        put_message(&mut operation, 1, &range.encode());
        put_message(&mut out, 2, &operation);
    }
    out
}

/// The answer to a [`Range`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    message: Bytes,
    /// The revision of the store when it answered.
    pub revision: i64,
    /// Entries in this answer.
    pub len: usize,
    /// The range holds more keys than the limit let through.
    pub more: bool,
    /// Keys in the whole range.
    pub count: i64,
}

impl Reply {
    /// Reads the message `RangeResponse`; `None` where it is malformed.
    pub fn decode(message: Bytes) -> Option<Self> {
        let mut reply = Self::default();
        let mut fields = Fields::new(&message);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => reply.revision = header_revision(value.bytes())?,
                2 => reply.len += 1,
                3 => reply.more = value.number() != 0,
                4 => reply.count = value.number() as i64,
                _ => {}
            }
        }
        reply.message = message;
        Some(reply)
    }

    /// Size of the message in bytes.
    pub fn size(&self) -> usize {
        self.message.len()
    }

    /// Gives each entry to `take`; `None` where one is malformed.
    pub fn for_each<'a>(&'a self, mut take: impl FnMut(RawEntry<'a>)) -> Option<()> {
        let mut fields = Fields::new(&self.message);
        while let Some((field, value)) = fields.next()? {
            if field == 2 {
                take(read_key_value(value.bytes())?);
            }
        }
        Some(())
    }

    /// A part of the answer that one of its entries borrows, without copying it.
    pub fn part(&self, part: &[u8]) -> Bytes {
        self.message.slice_ref(part)
    }
}

/// Reads the message `TxnResponse` of a transaction of ranges; `None` where it is malformed.
pub(crate) fn decode_transaction(message: &Bytes) -> Option<Vec<Reply>> {
    let mut replies = Vec::new();
    let mut revision = 0;
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => revision = header_revision(value.bytes())?,
            3 => {
                let Some((1, range)) = Fields::new(value.bytes()).next()? else { return None };
                replies.push(Reply::decode(message.slice_ref(range.bytes()))?);
            }
            _ => {}
        }
    }
    replies.iter_mut().for_each(|reply| reply.revision = revision);
    Some(replies)
}

/// The revision of a `ResponseHeader`.
pub(super) fn header_revision(header: &[u8]) -> Option<i64> {
    let mut revision = 0;
    let mut fields = Fields::new(header);
    while let Some((field, value)) = fields.next()? {
        if field == 3 {
            revision = value.number() as i64;
        }
    }
    Some(revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::put_key_value;

    fn response(keys: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut header = Vec::new();
        put_number(&mut header, 1, u64::MAX);
        put_number(&mut header, 3, 42);
        put_message(&mut out, 1, &header);
        for key in keys {
            let mut entry = Vec::new();
            let raw = RawEntry { key: key.as_bytes(), value: b"{}", mod_revision: 7, ..RawEntry::default() };
            put_key_value(&mut entry, &raw);
            put_message(&mut out, 2, &entry);
        }
        put_number(&mut out, 3, 1);
        put_number(&mut out, 4, 99);
        out
    }

    #[test]
    fn answers_are_read_in_place() {
        let reply = Reply::decode(response(&["a", "b"]).into()).unwrap();
        assert_eq!((reply.revision, reply.len, reply.more, reply.count), (42, 2, true, 99));
        let mut keys = Vec::new();
        reply.for_each(|entry| keys.push((entry.key.to_vec(), entry.mod_revision))).unwrap();
        assert_eq!(keys, [(b"a".to_vec(), 7), (b"b".to_vec(), 7)]);
    }

    #[test]
    fn answers_of_transactions() {
        let mut out = Vec::new();
        let mut header = Vec::new();
        put_number(&mut header, 3, 50);
        put_message(&mut out, 1, &header);
        put_number(&mut out, 2, 1);
        for keys in [&["a"][..], &[]] {
            let mut operation = Vec::new();
            put_message(&mut operation, 1, &response(keys));
            put_message(&mut out, 3, &operation);
        }
        let message = Bytes::from(out);
        let replies = decode_transaction(&message).unwrap();
        assert_eq!(replies.iter().map(|r| (r.len, r.revision)).collect::<Vec<_>>(), [(1, 50), (0, 50)]);
        for len in 0..message.len() {
            // A cut message is refused or gives fewer answers; it never panics.
            assert!(decode_transaction(&message.slice(..len)).is_none_or(|r| r.len() <= 2));
        }
    }
}
