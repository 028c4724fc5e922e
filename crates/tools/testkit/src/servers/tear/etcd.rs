//! Splits HTTP/2 into requests, using its frames and streams.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use calipam_model::parallel::lock;

use super::{Shared, Tear};

/// Length of the client's preface, which begins with `PRI * HTTP/2.0`.
const PREFACE: usize = 24;
/// Length of a frame's head: length, type, flags, stream.
const HEAD: usize = 9;
/// Type of the frame that begins a request.
const HEADERS: u8 = 1;
/// Flags of frames: the last frame of the stream, and the last frame of headers.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Time limit for a refused client to close its end of the connection.
const LINGER: Duration = Duration::from_secs(1);

/// Streams whose answers are swallowed.
type Swallowed = Mutex<BTreeSet<u32>>;

pub(super) fn relay(client: TcpStream, target: u16, shared: &Shared) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    shared.keep(&client)?;
    shared.keep(&server)?;
    let swallowed = Arc::new(Swallowed::default());
    let (from, to, own) = (server.try_clone()?, client.try_clone()?, Arc::clone(&swallowed));
    let answers = std::thread::spawn(move || answers(from, to, &own).ok());
    requests(&client, &server, &swallowed, shared).ok();
    client.shutdown(Shutdown::Both).ok();
    server.shutdown(Shutdown::Both).ok();
    answers.join().ok();
    Ok(())
}

/// Forwards requests until one is torn.
fn requests(
    mut client: &TcpStream,
    mut server: &TcpStream,
    swallowed: &Swallowed,
    shared: &Shared,
) -> io::Result<()> {
    let mut preface = [0; PREFACE];
    client.read_exact(&mut preface)?;
    server.write_all(&preface)?;
    loop {
        let frame = Frame::read(client)?;
        if frame.kind() == HEADERS {
            match shared.next("", "") {
                Tear::Pass => {}
                Tear::Delay(pause) => std::thread::sleep(pause),
                Tear::Drop => return Ok(()),
                Tear::Status(code) => return refuse(&frame, client, code),
                Tear::Swallow => {
                    lock(swallowed).insert(frame.stream());
                }
            }
        }
        server.write_all(&frame.0)?;
    }
}

/// Replies to a request with an etcd error and ends the connection. The server has not seen the headers of this
/// request, so it could not decode those of the next one.
fn refuse(headers: &Frame, mut client: &TcpStream, code: u16) -> io::Result<()> {
    let mut frame = Frame(headers.0.clone());
    while frame.stream() != headers.stream() || frame.flags() & END_STREAM == 0 {
        frame = Frame::read(client)?;
    }
    client.write_all(&refusal(headers.stream(), code).0)?;
    // The rest of the client's data must be read. Otherwise, the connection could be reset before the client has the
    // reply.
    client.shutdown(Shutdown::Write)?;
    client.set_read_timeout(Some(LINGER))?;
    while Frame::read(client).is_ok() {}
    Ok(())
}

/// A response without a body, with the error in its trailers.
fn refusal(stream: u32, code: u16) -> Frame {
    let (status, message) = match code {
        422 => ("3", "etcdserver: request is too large"),
        429 => ("8", "etcdserver: too many requests"),
        _ => ("14", "etcdserver: leader changed"),
    };
    // `:status: 200` and the name `content-type` are in HPACK's static table. The other fields are literals without
    // indexing.
    let mut fields = vec![0x88, 0x0f, 0x10];
    text(&mut fields, "application/grpc");
    for (name, value) in [("grpc-status", status), ("grpc-message", message)] {
        fields.push(0);
        text(&mut fields, name);
        text(&mut fields, value);
    }
    let mut frame = (fields.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([HEADERS, END_STREAM | END_HEADERS]);
    frame.extend(stream.to_be_bytes());
    frame.extend(fields);
    Frame(frame)
}

fn text(fields: &mut Vec<u8>, text: &str) {
    fields.push(text.len() as u8);
    fields.extend_from_slice(text.as_bytes());
}

/// Forwards answers until one is swallowed.
fn answers(server: TcpStream, mut client: TcpStream, swallowed: &Swallowed) -> io::Result<()> {
    loop {
        let frame = Frame::read(&server);
        let swallow = |frame: &Frame| frame.kind() <= HEADERS && lock(swallowed).contains(&frame.stream());
        match frame {
            Ok(frame) if !swallow(&frame) => client.write_all(&frame.0)?,
            _ => return client.shutdown(Shutdown::Both).and(server.shutdown(Shutdown::Both)),
        }
    }
}

struct Frame(Vec<u8>);

impl Frame {
    fn read(mut from: impl Read) -> io::Result<Self> {
        let mut bytes = vec![0; HEAD];
        from.read_exact(&mut bytes)?;
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        bytes.resize(HEAD + length, 0);
        from.read_exact(&mut bytes[HEAD..])?;
        Ok(Self(bytes))
    }

    fn flags(&self) -> u8 {
        self.0[4]
    }

    fn kind(&self) -> u8 {
        self.0[3]
    }

    fn stream(&self) -> u32 {
        u32::from_be_bytes([self.0[5] & 0x7f, self.0[6], self.0[7], self.0[8]])
    }
}
