//! API servers that tests share.

use std::ops::Deref;
use std::path::PathBuf;
use std::thread;

use anyhow::Result;

use super::lender::Loan;
use super::pool::{Kinds, Pool, Server};
use crate::servers::KubeApiserver;
use crate::servers::tool::LENDER;

/// The servers of this process, if no [lender](super::lend) has those of all processes.
static POOL: Pool = Pool::new();

/// An API server for one test, which starts empty. Dropping the lease empties the server for the next test. If the test
/// failed or changed the kinds, dropping it ends the server instead. A test that restarts the server needs [its own
/// server](KubeApiserver::start).
#[derive(Debug)]
pub struct Lease(Option<Source>);

/// The process that has started the server.
#[derive(Debug)]
enum Source {
    This(Box<Server>),
    Lender(Box<Loan>),
}

/// Leases an API server with the given kinds and without objects.
///
/// # Errors
/// Returns an error if no server is idle and a new one does not start or does not serve the kinds.
pub fn lease(kinds: Kinds) -> Result<Lease> {
    let source = match std::env::var_os(LENDER) {
        Some(socket) => Source::Lender(Box::new(Loan::of(&PathBuf::from(socket), kinds)?)),
        None => Source::This(Box::new(POOL.lend(kinds)?)),
    };
    Ok(Lease(Some(source)))
}

impl Source {
    fn server(&self) -> &KubeApiserver {
        match self {
            Self::This(server) => &server.server,
            Self::Lender(loan) => &loan.server,
        }
    }

    fn end(self) {
        match self {
            Self::This(server) => POOL.end(*server),
            Self::Lender(loan) => loan.end(),
        }
    }

    fn give_back(self) {
        match self {
            Self::This(server) => POOL.take_back(*server),
            Self::Lender(loan) => loan.give_back(),
        }
    }
}

impl Lease {
    /// Makes the server hang: it accepts connections but answers no requests.
    pub fn pause(&self) -> Result<()> {
        match self.source() {
            Source::This(server) => server.server.pause(),
            Source::Lender(loan) => loan.pause(),
        }
    }

    pub fn resume(&self) -> Result<()> {
        match self.source() {
            Source::This(server) => server.server.resume(),
            Source::Lender(loan) => loan.resume(),
        }
    }

    /// Ends the server.
    pub fn end(mut self) {
        if let Some(source) = self.0.take() {
            source.end();
        }
    }

    fn source(&self) -> &Source {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Deref for Lease {
    type Target = KubeApiserver;

    fn deref(&self) -> &KubeApiserver {
        self.source().server()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.0.take() {
            Some(source) if thread::panicking() => source.end(),
            Some(source) => source.give_back(),
            None => {}
        }
    }
}
