//! Just enough of HTTP to ask a server of our own on this machine how it is.

use std::io::{self, Read, Write};

/// Bytes that are read at once of an answer that is thrown away.
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
/// HTTP/1.0 is spoken, so that the server closes the connection after a body that is not cut into chunks. `headers`
/// are whole lines without their line ends. A response that is not HTTP is an error of kind `InvalidData`.
pub fn request(
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

/// As [`request`] with the method GET, but throws the answer away as it arrives and gives the number of its bytes. An
/// answer without the status 200 is an error.
pub fn pull(mut stream: impl Read + Write, path: &str, headers: &[String]) -> io::Result<u64> {
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
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidData, format!("not an HTTP response: {answer:.100}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(invalid)?;
    let status = head.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)).ok_or_else(invalid)?;
    Ok(Response { status: status.parse().map_err(|_| invalid())?, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that remembers what was sent and answers with a fixed text.
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
    fn what_is_not_http_is_an_error() {
        for answer in ["", "SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.0 200 OK\r\n"] {
            let (_, response) = ask(answer);
            assert_eq!(response.expect_err(answer).kind(), io::ErrorKind::InvalidData);
        }
    }
}
