//! Transactions that write: every one of them compares before it changes anything.

use bytes::Bytes;

use super::EtcdClient;
use super::message::header_revision;
use crate::error::Result;
use crate::protobuf::{Fields, put_bytes, put_message, put_number, put_varint};

/// `Compare.target`: the revision of the last change of a key. A key that does not exist has 0.
const TARGET_MOD: u64 = 2;

/// A request that puts and deletes keys if all comparisons hold, and else does nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transaction {
    message: Vec<u8>,
    compares: usize,
    operations: usize,
}

/// What a [`Transaction`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swapped {
    /// Everything was written, at this revision.
    At(i64),
    /// A comparison did not hold; nothing was written.
    Lost,
}

impl Transaction {
    /// Wants `key` to have been changed last at `revision`; 0 wants it not to exist.
    pub fn compare(&mut self, key: &str, revision: i64) {
        let mut compare = Vec::with_capacity(key.len() + 24);
        put_number(&mut compare, 2, TARGET_MOD);
        put_bytes(&mut compare, 3, key.as_bytes());
        // Written also where it is 0: it is one of several fields of which one has to be there.
        put_varint(&mut compare, 6 << 3);
        put_varint(&mut compare, revision as u64);
        put_message(&mut self.message, 1, &compare);
        self.compares += 1;
    }

    /// Puts a value, without a lease.
    pub fn put(&mut self, key: &str, value: &[u8]) {
        let mut put = Vec::with_capacity(key.len() + value.len() + 16);
        put_bytes(&mut put, 1, key.as_bytes());
        put_bytes(&mut put, 2, value);
        self.operation(2, &put);
    }

    /// Deletes one key.
    pub fn delete(&mut self, key: &str) {
        let mut delete = Vec::with_capacity(key.len() + 8);
        put_bytes(&mut delete, 1, key.as_bytes());
        self.operation(3, &delete);
    }

    fn operation(&mut self, kind: u32, request: &[u8]) {
        let mut operation = Vec::with_capacity(request.len() + 8);
        put_message(&mut operation, kind, request);
        put_message(&mut self.message, 2, &operation);
        self.operations += 1;
    }

    /// Size of the request in bytes.
    pub fn size(&self) -> usize {
        self.message.len()
    }

    /// What etcd's limit of operations applies to: comparisons and changes, each for itself.
    pub fn operations(&self) -> usize {
        self.compares.max(self.operations)
    }
}

impl EtcdClient {
    /// Sends a transaction once. An error leaves open whether it took place: the connection may have
    /// broken behind it. `what` names it in errors.
    pub(crate) async fn swap(&self, transaction: Transaction, what: &str) -> Result<Swapped> {
        let error = |failure| self.write_error(what, failure);
        let message = self.call("/etcdserverpb.KV/Txn", transaction.message.into()).await.map_err(error)?;
        decode(&message).ok_or_else(|| error(super::malformed()))
    }
}

/// Reads the message `TxnResponse` of a transaction that writes.
fn decode(message: &Bytes) -> Option<Swapped> {
    let (mut revision, mut succeeded) = (0, false);
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => revision = header_revision(value.bytes())?,
            2 => succeeded = value.number() != 0,
            _ => {}
        }
    }
    Some(if succeeded { Swapped::At(revision) } else { Swapped::Lost })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let mut header = Vec::new();
        put_number(&mut header, 3, 77);
        let mut message = Vec::new();
        put_message(&mut message, 1, &header);
        assert_eq!(decode(&message.clone().into()), Some(Swapped::Lost));
        put_number(&mut message, 2, 1);
        assert_eq!(decode(&message.into()), Some(Swapped::At(77)));
        assert_eq!(decode(&Bytes::from_static(&[0x0B])), None);
    }

    #[test]
    fn a_comparison_with_nothing_is_spelled_out() {
        let mut transaction = Transaction::default();
        transaction.compare("k", 0);
        assert_eq!(transaction.message, [0x0A, 7, 0x10, 2, 0x1A, 1, b'k', 0x30, 0]);
        assert_eq!((transaction.operations(), transaction.size()), (1, 9));
    }
}
