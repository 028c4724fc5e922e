//! Forwards HTTP/1.1 requests to an API server, one at a time.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpStream};

use super::{Shared, Tear};
use crate::servers::http::{Answer, Request};
use crate::servers::kube_apiserver::{Stream, Upstream};

pub(super) fn relay(mut client: TcpStream, upstream: &Upstream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    shared.keep(&client)?;
    let mut reader = BufReader::new(client.try_clone()?);
    let mut server = Server { upstream, stream: None };
    let end = (|| {
        while let Some(request) = Request::read(&mut reader)? {
            let answer = match shared.next(&request.method, &request.path) {
                Tear::Drop => return Ok(()),
                Tear::Swallow => return server.answer(&request).map(drop),
                Tear::Status(code) => refusal(code),
                Tear::Pass => server.answer(&request)?,
                Tear::Delay(pause) => {
                    std::thread::sleep(pause);
                    server.answer(&request)?
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

/// The API server. Requests share a connection for as long as it lasts, since a handshake takes most of the time of a
/// short request.
struct Server<'u> {
    upstream: &'u Upstream,
    stream: Option<BufReader<Stream>>,
}

impl Server<'_> {
    /// Sends a request and returns the response with an explicit length.
    fn answer(&mut self, request: &Request) -> io::Result<Vec<u8>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(self.upstream.connect()?),
        };
        let mut head = format!(
            "{} {} HTTP/1.1\r\nContent-Length: {}\r\n",
            request.method,
            request.path,
            request.body.len()
        );
        request.headers.iter().for_each(|header| head.extend([header.as_str(), "\r\n"]));
        head.push_str("\r\n");
        let server = stream.get_mut();
        server.write_all(head.as_bytes())?;
        server.write_all(&request.body)?;
        server.flush()?;

        let answer = Answer::read(&mut stream)?;
        let own = ["content-length", "connection", "transfer-encoding"];
        let mut whole = format!("{}\r\n", answer.first);
        for (name, value) in answer.headers.iter().filter_map(|header| header.split_once(':')) {
            let name = name.to_ascii_lowercase();
            if !own.contains(&name.as_str()) {
                whole.push_str(&format!("{name}:{value}\r\n"));
            }
        }
        whole.push_str(&format!("Content-Length: {}\r\n\r\n", answer.body.len()));
        if !answer.is_last() {
            self.stream = Some(stream);
        }
        let mut whole = whole.into_bytes();
        whole.extend_from_slice(&answer.body);
        Ok(whole)
    }
}

/// A refusal from an API server.
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
