//! Counts connections: what it accepts goes on to a server unread.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

pub(crate) struct Relay {
    pub port: u16,
    connections: Arc<AtomicUsize>,
}

impl Relay {
    /// A relay to a port of this machine. Its threads end with the process.
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || forward(client, server));
                thread::spawn(move || forward(back.0, back.1));
            }
        });
        Self { port, connections }
    }

    /// Connections since the last call.
    pub(crate) fn take(&self) -> usize {
        self.connections.swap(0, Ordering::SeqCst)
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    io::copy(&mut from, &mut to).ok();
    to.shutdown(Shutdown::Write).ok();
}
