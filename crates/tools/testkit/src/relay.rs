//! Counts the traffic between programs and servers, or makes it hang.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A relay that forwards connections to a server, and counts connections and bytes.
#[derive(Debug)]
pub struct Relay {
    /// The port on 127.0.0.1 at which the relay listens.
    pub port: u16,
    connections: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
    /// The number of calls of [`Self::hang`]. Connections from before the last call forward nothing.
    hangs: Arc<AtomicUsize>,
}

impl Relay {
    /// Starts a relay to a port on this machine. Its threads end with the process.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a port").port();
        let [connections, bytes, hangs] = [0; 3].map(|_| Arc::new(AtomicUsize::new(0)));
        let [count, read, hung] = [&connections, &bytes, &hangs].map(Arc::clone);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else {
                    continue;
                };
                let (Ok(from), Ok(to)) = (server.try_clone(), client.try_clone()) else {
                    continue;
                };
                client.set_nodelay(true).and(server.set_nodelay(true)).ok();
                let read = Arc::clone(&read);
                let before = hung.load(Ordering::SeqCst);
                let [sends, answers] = [&hung; 2].map(Arc::clone);
                let works = move |hangs: &AtomicUsize| hangs.load(Ordering::SeqCst) == before;
                thread::spawn(move || forward(client, server, &AtomicUsize::new(0), || works(&sends)));
                thread::spawn(move || forward(from, to, &read, || works(&answers)));
            }
        });
        Self {
            port,
            connections,
            bytes,
            hangs,
        }
    }

    /// Makes the open connections hang: nothing arrives, and neither end notices that. New connections work.
    pub fn hang(&self) {
        self.hangs.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of connections since the last call.
    pub fn take(&self) -> usize {
        self.connections.swap(0, Ordering::SeqCst)
    }

    /// Returns the number of bytes that the server has sent since the last call.
    pub fn take_bytes(&self) -> usize {
        self.bytes.swap(0, Ordering::SeqCst)
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, count: &AtomicUsize, works: impl Fn() -> bool) {
    let mut buffer = [0; 64 << 10];
    while let Ok(read) = from.read(&mut buffer)
        && read > 0
    {
        // Bytes are counted before they are forwarded, so that the count is complete when a client has its answer.
        count.fetch_add(read, Ordering::SeqCst);
        if works() && to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Write).ok();
}
