//! The large ranges of a whole read, whose answers are decoded in place.
//!
//! etcd-client copies every key and value into a vector. A whole read of a large cluster has millions of keys, so these
//! ranges are encoded and decoded here. All other requests use etcd-client.

use bytes::{Buf, BufMut, Bytes};
use calipam_files::protobuf::{Fields, put_bytes, put_number, read_key_value};
use calipam_files::raw::RawEntry;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status};

use super::AuthorizedChannel;
use super::range::Range;

/// Requests one range. The answer may have any size. `None` if it cannot be decoded.
pub(crate) async fn read(channel: AuthorizedChannel, range: &Range) -> Result<Option<Reply>, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready()
        .await
        .map_err(|error| Status::from_error(Box::new(error)))?;

    let path = PathAndQuery::from_static("/etcdserverpb.KV/Range");
    let answer = grpc.unary(Request::new(encode(range)), path, RawCodec).await?;
    Ok(Reply::decode(answer.into_inner()))
}

/// Encodes a range as the message `RangeRequest`.
fn encode(range: &Range) -> Bytes {
    let mut out = Vec::with_capacity(range.start.len() + range.end.len() + 32);
    put_bytes(&mut out, 1, &range.start);
    put_bytes(&mut out, 2, &range.end);
    put_number(&mut out, 3, range.limit as u64);
    put_number(&mut out, 4, range.revision as u64);
    put_number(&mut out, 7, u64::from(range.serializable));
    put_number(&mut out, 8, u64::from(range.keys_only));
    out.into()
}

/// The answer to a range, as an undecoded message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    message: Bytes,
    /// Number of entries in this answer.
    pub len: usize,
    /// True if the range has more keys than the limit allowed.
    pub more: bool,
}

impl Reply {
    /// Reads the message `RangeResponse`; `None` if it is malformed.
    fn decode(message: Bytes) -> Option<Self> {
        let mut reply = Self::default();
        let mut fields = Fields::new(&message);
        while let Some((field, value)) = fields.next_field()? {
            match field {
                2 => reply.len += 1,
                3 => reply.more = value.number() != 0,
                _ => {}
            }
        }
        reply.message = message;
        Some(reply)
    }

    pub(crate) fn size(&self) -> usize {
        self.message.len()
    }

    /// Passes each entry to `take`; `None` if one is malformed.
    pub(crate) fn for_each<'a>(&'a self, mut take: impl FnMut(RawEntry<'a>)) -> Option<()> {
        let mut fields = Fields::new(&self.message);
        while let Some((field, value)) = fields.next_field()? {
            if field == 2 {
                take(read_key_value(value.bytes())?);
            }
        }
        Some(())
    }
}

/// A codec that leaves messages undecoded.
#[derive(Clone, Copy, Debug, Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calipam_files::protobuf::{put_key_value, put_message};

    fn response(keys: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut header = Vec::new();
        put_number(&mut header, 1, u64::MAX);
        put_number(&mut header, 3, 42);
        put_message(&mut out, 1, &header);
        for key in keys {
            let mut entry = Vec::new();
            let raw = RawEntry {
                key: key.as_bytes(),
                value: b"{}",
                mod_revision: 7,
                ..RawEntry::default()
            };
            put_key_value(&mut entry, &raw);
            put_message(&mut out, 2, &entry);
        }
        put_number(&mut out, 3, 1);
        put_number(&mut out, 4, 99);
        out
    }

    #[test]
    fn answers_are_read_in_place() {
        let message = Bytes::from(response(&["a", "b"]));
        let reply = Reply::decode(message.clone()).unwrap();
        assert_eq!((reply.len, reply.more), (2, true));
        let mut keys = Vec::new();
        reply
            .for_each(|entry| keys.push((entry.key.to_vec(), entry.mod_revision)))
            .unwrap();
        assert_eq!(keys, [(b"a".to_vec(), 7), (b"b".to_vec(), 7)]);

        for len in 0..message.len() {
            // A truncated message is rejected or has fewer entries; it never panics.
            assert!(Reply::decode(message.slice(..len)).is_none_or(|reply| reply.len <= 2));
        }
    }
}
