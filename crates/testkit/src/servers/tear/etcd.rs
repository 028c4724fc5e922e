//! HTTP/2 as far as it takes to tell requests apart: frames, and the streams that they belong to.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Shared, Tear};

/// What a client sends before its first frame: `PRI * HTTP/2.0` and so on.
const PREFACE: usize = 24;
/// Length of a frame's head: length, type, flags, stream.
const HEAD: usize = 9;
/// The type of the frame that begins a request.
const HEADERS: u8 = 1;

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

/// Hands requests on, until one is torn.
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
                Tear::Drop | Tear::Status(_) => return Ok(()),
                Tear::Swallow => {
                    swallowed.lock().unwrap_or_else(PoisonError::into_inner).insert(frame.stream());
                }
            }
        }
        server.write_all(&frame.0)?;
    }
}

/// Hands answers on, until one is swallowed.
fn answers(server: TcpStream, mut client: TcpStream, swallowed: &Swallowed) -> io::Result<()> {
    loop {
        let frame = Frame::read(&server);
        let swallow = |frame: &Frame| {
            let swallowed = swallowed.lock().unwrap_or_else(PoisonError::into_inner);
            frame.kind() <= HEADERS && swallowed.contains(&frame.stream())
        };
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

    fn kind(&self) -> u8 {
        self.0[3]
    }

    fn stream(&self) -> u32 {
        u32::from_be_bytes([self.0[5] & 0x7f, self.0[6], self.0[7], self.0[8]])
    }
}
