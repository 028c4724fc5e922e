//! A connection to a test's API server that stays open: many small requests would spend most of their time on
//! handshakes.

use std::io::{BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::servers::http::Answer;
use crate::servers::{KubeApiserver, Response, ServerError};

/// How long the server may take to answer one request.
const ANSWER: Duration = Duration::from_secs(60);

/// A connection of the administrator, for one request after the other.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    url: String,
    token: &'static str,
}

impl Connection {
    /// Connects to a server.
    pub fn open(server: &KubeApiserver) -> Result<Self, ServerError> {
        let url = server.url();
        let port: u16 = url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default();
        let failed = || ServerError::io(format!("cannot connect to {url}"));
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed())?;
        stream.set_read_timeout(Some(ANSWER)).map_err(failed())?;
        stream.set_nodelay(true).map_err(failed())?;
        let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        let session = ClientConnection::new(Arc::new(server.tls()?), name)?;
        let stream = BufReader::new(StreamOwned::new(session, stream));
        Ok(Self { stream, url, token: server.token() })
    }

    /// Sends a request and reads its response; `body` is JSON or empty, of PATCH a merge patch. Any status is a
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
