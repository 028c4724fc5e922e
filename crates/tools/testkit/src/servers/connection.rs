//! A connection to a test's API server that stays open, because many small requests would otherwise spend most of their
//! time on handshakes.

use std::io::{BufReader, Write};

use super::http::{Answer, Response};
use super::kube_apiserver::{Stream, Upstream};
use super::{KubeApiserver, ServerError};

/// A connection that sends one request after another.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Stream>,
    url: String,
    token: String,
}

impl Connection {
    /// Connects as the administrator.
    pub fn open(server: &KubeApiserver) -> Result<Self, ServerError> {
        Self::to(&server.upstream(), server.token())
    }

    pub(super) fn to(upstream: &Upstream, token: &str) -> Result<Self, ServerError> {
        let url = upstream.url();
        let stream = upstream.connect().map_err(ServerError::io(format!("cannot connect to {url}")))?;
        Ok(Self { stream: BufReader::new(stream), url, token: token.to_owned() })
    }

    /// Sends a request and reads its response. `body` is JSON or empty; for PATCH, it is a merge patch. Any status is a
    /// response, not an error.
    pub fn request(&mut self, method: &str, path: &str, body: &str) -> Result<Response, ServerError> {
        let kind = if method == "PATCH" { "merge-patch+json" } else { "json" };
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nAccept: application/json\r\n\
             Content-Type: application/{kind}\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let stream = self.stream.get_mut();
        let sent = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
        let answer = sent.and_then(|()| Answer::read(&mut self.stream)?.response());
        answer.map_err(ServerError::io(format!("{method} {}{path}", self.url)))
    }
}
