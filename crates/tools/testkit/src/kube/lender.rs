//! A process that lends its API servers to the tests of others, so that these start none. The test and the lender exchange
//! lines of JSON over a Unix socket: the [`Kinds`] that the test needs, the server or an error, and then [`Wish`]es, each
//! of which the lender answers. The connection is the loan: if it ends without a wish, the test has died, and the lender
//! ends the server.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use calipam_model::parallel::lock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::pool::{Kinds, Pool};
use crate::servers::{KubeApiserver, Lent};

/// A request of the test that has the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Wish {
    Pause,
    Resume,
    /// End the server, which ends the loan.
    End,
    /// Empty the server for the next test, which ends the loan.
    TakeBack,
}

/// A connection on which lines are exchanged.
#[derive(Debug)]
struct Line(BufReader<UnixStream>);

impl Line {
    fn write(&mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value)? + "\n";
        self.0.get_mut().write_all(text.as_bytes())?;
        Ok(())
    }

    /// Reads a line; `None` at the end.
    fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut text = String::new();
        self.0.read_line(&mut text)?;
        if text.is_empty() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&text)?))
    }
}

/// Lends API servers on a Unix socket until this process ends, which ends them all.
///
/// # Errors
/// Returns an error if it cannot listen on the socket.
pub fn lend(socket: &Path) -> Result<()> {
    static POOL: Pool = Pool::new();
    let listener = UnixListener::bind(socket)?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(|| serve(&POOL, stream));
        }
    });
    Ok(())
}

/// Serves one loan from its beginning to its end.
fn serve(pool: &Pool, stream: io::Result<UnixStream>) -> Result<()> {
    let mut line = Line(BufReader::new(stream?));
    let Some(kinds) = line.read()? else {
        return Ok(());
    };
    let server = match pool.lend(kinds) {
        Ok(server) => server,
        Err(error) => return line.write(&Err::<Lent, _>(format!("{error:#}"))),
    };
    let mut answered = line.write(&Ok::<_, String>(server.server.as_lent()));
    while answered.is_ok() {
        // If the connection ends or fails, the test no longer uses the server.
        let wish = line.read().unwrap_or_default().unwrap_or(Wish::End);
        let done = match wish {
            Wish::Pause => server.server.pause(),
            Wish::Resume => server.server.resume(),
            Wish::TakeBack => {
                pool.take_back(server);
                return Ok(());
            }
            Wish::End => {
                pool.end(server);
                return line.write(&());
            }
        };
        answered = done.and_then(|()| line.write(&()));
    }
    // The end of the connection tells the test that its wish was not fulfilled.
    pool.end(server);
    answered
}

/// A server that the lender has lent to a test of this process.
#[derive(Debug)]
pub(super) struct Loan {
    line: Mutex<Line>,
    pub(super) server: KubeApiserver,
}

impl Loan {
    /// Asks the lender for a server with these kinds.
    pub(super) fn of(socket: &Path, kinds: Kinds) -> Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("no process lends API servers at {}", socket.display()))?;
        let mut line = Line(BufReader::new(stream));
        line.write(&kinds)?;
        let lent: Option<Result<Lent, String>> = line.read()?;
        let lent = lent.context("the process that lends API servers has ended")?;
        let server = KubeApiserver::lent(lent.map_err(|error| anyhow!(error))?)?;
        Ok(Self {
            line: Mutex::new(line),
            server,
        })
    }

    pub(super) fn pause(&self) -> Result<()> {
        self.ask(Wish::Pause)
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.ask(Wish::Resume)
    }

    /// Ends the server. Returns once it has ended.
    pub(super) fn end(self) {
        self.ask(Wish::End).ok();
    }

    /// Gives the server back, which the lender empties.
    pub(super) fn give_back(self) {
        lock(&self.line).write(&Wish::TakeBack).ok();
    }

    fn ask(&self, wish: Wish) -> Result<()> {
        let mut line = lock(&self.line);
        line.write(&wish)?;
        match line.read()? {
            Some(()) => Ok(()),
            None => bail!("the lender did not do it: {wish:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    const NODES: &str = "/api/v1/nodes";

    fn answers(server: &KubeApiserver) -> bool {
        server.request("GET", "/readyz", "").is_ok()
    }

    fn name_node(loan: &Loan, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        let created = loan.server.request("POST", NODES, &node.to_string()).unwrap();
        assert_eq!(created.status, 201, "{created:?}");
    }

    #[test]
    fn a_server_is_lent_to_one_test_after_another_and_ends_with_one_that_dies() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        lend(&socket).unwrap();
        let first = Loan::of(&socket, Kinds::Kubernetes).unwrap();
        name_node(&first, "of-the-first-test");
        let url = first.server.url();

        // A second test at the same time gets another server, which is paused and continues.
        let second = Loan::of(&socket, Kinds::Kubernetes).unwrap();
        assert_ne!(second.server.url(), url);
        second.pause().unwrap();
        second.resume().unwrap();
        assert!(answers(&second.server));
        let ended = KubeApiserver::lent(second.server.as_lent()).unwrap();
        second.end();
        assert!(!answers(&ended));

        // The next test gets the first server, which is empty again.
        first.give_back();
        let begin = Instant::now();
        let next = loop {
            let loan = Loan::of(&socket, Kinds::Kubernetes).unwrap();
            if loan.server.url() == url {
                break loan;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not come back");
            loan.give_back();
        };
        let nodes = next.server.request("GET", NODES, "").unwrap();
        assert!(nodes.body.contains("\"items\":[]"), "{nodes:?}");

        // A test that dies closes its connection and says nothing.
        let ended = KubeApiserver::lent(next.server.as_lent()).unwrap();
        drop(next);
        let begin = Instant::now();
        while answers(&ended) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it goes on");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
