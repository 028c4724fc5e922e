//! The response of an API server: its headers, and its body, in pieces or as a whole.

use std::time::Duration;

use bytes::Bytes;
use calipam_files::objects::Encoding;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use kube::client::Body;

use super::classify::transport_failure;
use crate::error::{Attempt, Failure};
use crate::pace::Pace;

/// Maximum bytes of a response that is read as a whole.
pub(super) const MAX_WHOLE: usize = 64 << 20;
/// Maximum bytes of an error response.
pub(super) const MAX_ERROR_BODY: usize = 64 << 10;

/// A response whose body has not been read yet.
pub(crate) struct Answer {
    body: Body,
    pub encoding: Encoding,
    /// The time by the server's clock.
    pub date: Option<Timestamp>,
    pace: Pace,
    attempt: Attempt,
}

impl Answer {
    /// Begins to read an answer by its headers.
    pub(super) fn new(body: Body, headers: &HeaderMap, pace: Pace, attempt: Attempt) -> Self {
        Self {
            body,
            encoding: encoding(headers),
            date: date(headers),
            pace,
            attempt,
        }
    }

    /// Marks this as the response to a watch, which the server ends after `time`.
    pub(super) fn with_duration(self, time: Duration) -> Self {
        Self {
            pace: self.pace.with_duration(time),
            ..self
        }
    }

    /// The next piece of the body; `None` at its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(frame) = self.pace.wait(self.body.frame()).await? {
            let frame = frame.map_err(|error| transport_failure(&error, self.attempt))?;
            // Other frames are trailers, which are not needed.
            if let Ok(piece) = frame.into_data() {
                self.pace.count(piece.len());
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Reads the whole body as JSON.
    pub(crate) async fn json(self) -> Result<serde_json::Value, Failure> {
        let whole = self.whole(MAX_WHOLE).await?;
        serde_json::from_slice(&whole).map_err(|error| Failure::Incomplete(error.to_string()))
    }

    /// Reads the whole body; fails if it is longer than `limit`.
    pub(crate) async fn whole(mut self, limit: usize) -> Result<Bytes, Failure> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            body.extend_from_slice(&piece);
            if body.len() > limit {
                return Err(Failure::NotKubernetes(format!(
                    "its answer is longer than {limit} bytes"
                )));
            }
        }
        Ok(body.into())
    }
}

/// The encoding of an answer by its content type; JSON if it does not say.
fn encoding(headers: &HeaderMap) -> Encoding {
    if let Some(content_type) = headers.get(header::CONTENT_TYPE)
        && let Ok(content_type) = content_type.to_str()
        && content_type.starts_with("application/vnd.kubernetes.protobuf")
    {
        return Encoding::Protobuf;
    }
    Encoding::Json
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(header::DATE)?.to_str().ok()?;
    DateTimeParser::new().parse_timestamp(text).ok()
}
