//! HTTP/1.1 to the client, one request at a time, and a connection to the API server for each.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::{Shared, Tear};
use crate::servers::kube_apiserver::Upstream;

pub(super) fn relay(mut client: TcpStream, upstream: &Upstream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    shared.keep(&client)?;
    let mut reader = BufReader::new(client.try_clone()?);
    let end = (|| {
        while let Some(request) = Request::read(&mut reader)? {
            let answer = match shared.next(&request.method, &request.path) {
                Tear::Drop => return Ok(()),
                Tear::Swallow => return request.forward(upstream).map(drop),
                Tear::Status(code) => refusal(code),
                Tear::Pass => request.forward(upstream)?,
                Tear::Delay(pause) => {
                    std::thread::sleep(pause);
                    request.forward(upstream)?
                }
            };
            client.write_all(&answer)?;
            if request.is_last {
                return Ok(());
            }
        }
        Ok(())
    })();
    client.shutdown(Shutdown::Both).ok();
    end
}

struct Request {
    method: String,
    path: String,
    /// Whole lines without their ends, but for those about the connection.
    headers: Vec<String>,
    body: Vec<u8>,
    /// The client wants the connection to end with the answer.
    is_last: bool,
}

impl Request {
    /// The next request; `None` where the client has closed the connection.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
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

    /// The server's answer, with a length that the client sees.
    fn forward(&self, upstream: &Upstream) -> io::Result<Vec<u8>> {
        let mut stream = upstream.connect()?;
        // HTTP/1.0, so that the body is not cut into chunks and ends with the connection.
        let mut head =
            format!("{} {} HTTP/1.0\r\nContent-Length: {}\r\n", self.method, self.path, self.body.len());
        self.headers.iter().for_each(|header| head.extend([header.as_str(), "\r\n"]));
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        stream.flush()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let cut = answer.windows(4).position(|part| part == b"\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
        let head = String::from_utf8_lossy(&answer[..cut]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap_or_default().replacen("HTTP/1.0", "HTTP/1.1", 1);
        let own = ["content-length", "connection", "transfer-encoding"];
        let is_own = |line: &&str| {
            line.split_once(':').is_some_and(|(name, _)| own.contains(&name.to_ascii_lowercase().as_str()))
        };
        let kept: String = lines.filter(|line| !is_own(line)).map(|line| format!("{line}\r\n")).collect();
        let body = &answer[cut + 4..];
        let mut whole = format!("{status}\r\n{kept}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        whole.extend_from_slice(body);
        Ok(whole)
    }
}

/// An API server's answer that refuses.
fn refusal(code: u16) -> Vec<u8> {
    let reason = match code {
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"torn","reason":"{reason}","code":{code}}}"#
    );
    format!(
        "HTTP/1.1 {code} Torn\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
