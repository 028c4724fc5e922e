//! Free TCP ports for the servers of several simultaneous tests.

use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Error, Result};

/// Number of attempts to start a server, each on another port.
const ATTEMPTS: usize = 5;

/// Starts a server on a free port. Tries another port if a process has taken the port in the meantime.
pub(super) fn on_free_port<T>(mut start: impl FnMut(u16) -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match start(reserve()?) {
            Err(error) if is_taken(&error) => {}
            other => return other,
        }
    }
    start(reserve()?)
}

/// True if a server ended because another process has its port.
pub(super) fn is_taken(error: &Error) -> bool {
    error.to_string().contains("address already in use")
}

/// Reserves a free port on 127.0.0.1 for about a minute.
///
/// A port that was free a moment ago may be given to another test before the server binds it. To prevent this, the
/// function connects to the port and closes the connection from the listening side. For the next minute (TIME_WAIT),
/// the kernel gives the port to no outgoing connection, and to no process that requests any free port. A server that
/// requests exactly this port gets it.
fn reserve() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let mut client = TcpStream::connect(address)?;
    let (server_side, _) = listener.accept()?;
    drop(server_side);
    // The end of the stream has arrived, so the listening side closed first and its port is in TIME_WAIT.
    client.read_to_end(&mut Vec::new())?;
    Ok(address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread;

    #[test]
    fn ports_that_are_reserved_at_the_same_time_differ_and_can_be_bound() {
        let tasks: Vec<_> = (0..8)
            .map(|_| thread::spawn(|| (0..25).map(|_| reserve().expect("a port")).collect::<Vec<_>>()))
            .collect();
        let ports: Vec<u16> = tasks
            .into_iter()
            .flat_map(|task| task.join().expect("no panic"))
            .collect();
        let distinct: HashSet<u16> = ports.iter().copied().collect();
        assert_eq!(distinct.len(), 200);
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is ours to bind");
        }
    }
}
