//! A connection to a test's API server that stays open: many small requests would spend most of their time on
//! handshakes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

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
    ///
    /// # Errors
    /// Where the server does not answer.
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
    ///
    /// # Errors
    /// Where the server does not answer in time, or not in HTTP.
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
        let answer = sent.and_then(|()| read_response(&mut self.stream));
        answer.map_err(ServerError::io(format!("{method} {}{path}", self.url)))
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP response: {what:.100}"))
}

/// One line without its end.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// How a body ends.
enum Length {
    Known(usize),
    Chunked,
}

fn read_response(stream: &mut impl BufRead) -> io::Result<Response> {
    let first = line(stream)?;
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    let status = status.ok_or_else(|| invalid(&first))?;
    let mut length = Length::Known(0);
    loop {
        let header = line(stream)?;
        let Some((name, value)) = header.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = Length::Known(value.trim().parse().map_err(|_| invalid(&header))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            length = Length::Chunked;
        }
    }
    let mut body = Vec::new();
    match length {
        Length::Known(length) => piece(stream, length, &mut body)?,
        Length::Chunked => loop {
            let size = line(stream)?;
            let size = usize::from_str_radix(&size, 16).map_err(|_| invalid(&size))?;
            piece(stream, size, &mut body)?;
            line(stream)?;
            if size == 0 {
                break;
            }
        },
    }
    Ok(Response { status, body: String::from_utf8_lossy(&body).into_owned() })
}

fn piece(stream: &mut impl Read, length: usize, body: &mut Vec<u8>) -> io::Result<()> {
    let begin = body.len();
    body.resize(begin + length, 0);
    stream.read_exact(&mut body[begin..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut text: &str) -> io::Result<(u16, String)> {
        let mut bytes = text.as_bytes();
        let response = read_response(&mut bytes)?;
        text = std::str::from_utf8(bytes).unwrap();
        assert_eq!(text, "next", "the next response is not touched");
        Ok((response.status, response.body))
    }

    #[test]
    fn bodies_end_where_they_say() {
        let plain = read("HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhellonext").unwrap();
        assert_eq!(plain, (201, "hello".to_owned()));
        let chunked =
            read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\nnext");
        assert_eq!(chunked.unwrap(), (200, "hello".to_owned()));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\nnext").unwrap(), (204, String::new()));
    }

    #[test]
    fn what_is_cut_or_not_http_is_an_error() {
        for text in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
