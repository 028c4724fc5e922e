//! A minimal HTTP client for servers on this machine.

use std::io::{self, BufRead, Read, Write};

/// Size of the buffer for a response that is discarded.
const PIECE: usize = 1 << 18;

/// A response: its status code and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code, such as 200.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

/// Sends one request and reads the response to its end.
///
/// Uses HTTP/1.0, so that the server sends no chunks and closes the connection after the body. `headers` are whole
/// lines without line ends. A response that is not HTTP is an error of kind `InvalidData`.
pub(crate) fn request(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    headers: &[String],
    body: &str,
) -> io::Result<Response> {
    send(&mut stream, method, path, headers, body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    parse(&String::from_utf8_lossy(&answer))
}

/// Sends a GET request, discards the response as it arrives, and returns the number of bytes. A response without status
/// 200 is an error.
pub(crate) fn pull(mut stream: impl Read + Write, path: &str, headers: &[String]) -> io::Result<u64> {
    send(&mut stream, "GET", path, headers, "")?;
    let mut buffer = vec![0; PIECE];
    let mut bytes = stream.read(&mut buffer)?;
    let head = String::from_utf8_lossy(&buffer[..bytes]);
    if head.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other(format!("{path}: {head:.200}")));
    }
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(bytes as u64),
            more => bytes += more,
        }
    }
}

fn send(
    stream: &mut (impl Read + Write),
    method: &str,
    path: &str,
    headers: &[String],
    body: &str,
) -> io::Result<()> {
    let mut text =
        format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.push_str(body);
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

fn parse(answer: &str) -> io::Result<Response> {
    let invalid = || invalid(answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(invalid)?;
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).ok_or_else(invalid)?;
    Ok(Response { status: status.parse().map_err(|_| invalid())?, body: body.to_owned() })
}

/// A request that a proxy or a fake server receives.
pub(crate) struct Request {
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Whole lines without line ends, except those about the connection.
    pub headers: Vec<String>,
    pub body: Vec<u8>,
    /// True if the client wants the connection closed after the response.
    pub is_last: bool,
}

impl Request {
    /// Reads the next request; `None` if the client has closed the connection.
    pub(crate) fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut is_last = line.trim_end().ends_with("HTTP/1.0");
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (mut headers, mut length) = (Vec::new(), 0);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let header = header.trim_end();
            let Some((name, value)) = header.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                "connection" => is_last |= value.trim().eq_ignore_ascii_case("close"),
                "accept-encoding" => {}
                _ => headers.push(header.to_owned()),
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(Some(Self { method, path, headers, body, is_last }))
    }
}

/// A response from a server that keeps the connection open.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The first line: `HTTP/1.1 200 OK`.
    pub first: String,
    /// Whole lines without line ends.
    pub headers: Vec<String>,
    /// The body, without the sizes of chunks.
    pub body: Vec<u8>,
}

impl Answer {
    /// Reads one response and nothing after it.
    pub(crate) fn read(stream: &mut impl BufRead) -> io::Result<Self> {
        let mut answer = Self { first: line(stream)?, headers: Vec::new(), body: Vec::new() };
        answer.status()?;
        loop {
            let header = line(stream)?;
            if header.is_empty() {
                break;
            }
            answer.headers.push(header);
        }

        if answer.header("transfer-encoding").is_none() {
            let length = answer.header("content-length").unwrap_or("0");
            let length = length.parse().map_err(|_| invalid(length))?;
            piece(stream, length, &mut answer.body)?;
            return Ok(answer);
        }
        loop {
            let size = line(stream)?;
            let size = usize::from_str_radix(&size, 16).map_err(|_| invalid(&size))?;
            piece(stream, size, &mut answer.body)?;
            line(stream)?;
            if size == 0 {
                return Ok(answer);
            }
        }
    }

    /// True if the server closes the connection after this response.
    pub(crate) fn is_last(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    pub(crate) fn response(&self) -> io::Result<Response> {
        Ok(Response { status: self.status()?, body: String::from_utf8_lossy(&self.body).into_owned() })
    }

    fn status(&self) -> io::Result<u16> {
        let rest = self.first.strip_prefix("HTTP/1.1 ");
        let status = rest.and_then(|rest| rest.split(' ').next()?.parse().ok());
        status.ok_or_else(|| invalid(&self.first))
    }

    fn header(&self, wanted: &str) -> Option<&str> {
        let fields = self.headers.iter().filter_map(|header| header.split_once(':'));
        let mut found = fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.next().map(|(_, value)| value.trim())
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP response: {what:.100}"))
}

/// Reads one line, and removes the line end.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

fn piece(stream: &mut impl Read, length: usize, body: &mut Vec<u8>) -> io::Result<()> {
    let begin = body.len();
    body.resize(begin + length, 0);
    stream.read_exact(&mut body[begin..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that records requests and sends a fixed response.
    struct Canned {
        sent: Vec<u8>,
        answer: io::Cursor<&'static str>,
    }

    impl Read for Canned {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.answer.read(buffer)
        }
    }

    impl Write for Canned {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ask(answer: &'static str) -> (String, io::Result<Response>) {
        let mut stream = Canned { sent: Vec::new(), answer: io::Cursor::new(answer) };
        let response = request(&mut stream, "POST", "/v1", &["X-Test: 1".to_owned()], "{}");
        (String::from_utf8(stream.sent).expect("text"), response)
    }

    #[test]
    fn a_request_is_sent_and_its_response_is_read() {
        let (sent, response) = ask("HTTP/1.0 201 Created\r\nA: b\r\n\r\nfirst\r\n\r\nsecond");
        assert_eq!(sent, "POST /v1 HTTP/1.0\r\nHost: localhost\r\nContent-Length: 2\r\nX-Test: 1\r\n\r\n{}");
        let response = response.expect("a response");
        assert_eq!(response, Response { status: 201, body: "first\r\n\r\nsecond".to_owned() });
    }

    #[test]
    fn responses_that_are_not_http_are_errors() {
        for answer in ["", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.0 200 OK\r\n"] {
            let (_, response) = ask(answer);
            assert_eq!(response.expect_err(answer).kind(), io::ErrorKind::InvalidData);
        }
    }

    fn read(text: &str) -> io::Result<(u16, String)> {
        let mut bytes = text.as_bytes();
        let response = Answer::read(&mut bytes)?.response()?;
        assert_eq!(bytes, b"next", "the next response is not touched");
        Ok((response.status, response.body))
    }

    #[test]
    fn bodies_have_the_announced_length() {
        let plain = read("HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhellonext").unwrap();
        assert_eq!(plain, (201, "hello".to_owned()));
        let chunked =
            read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\nnext");
        assert_eq!(chunked.unwrap(), (200, "hello".to_owned()));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\nnext").unwrap(), (204, String::new()));
    }

    #[test]
    fn truncated_or_non_http_responses_are_errors() {
        for text in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut"] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
