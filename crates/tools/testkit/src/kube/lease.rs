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
        self.give_back(true);
    }

    fn source(&self) -> &Source {
        self.0.as_ref().expect("it is there until it is dropped")
    }

    fn give_back(&mut self, ends: bool) {
        match self.0.take() {
            Some(Source::This(server)) if ends => POOL.end(*server),
            Some(Source::This(server)) => POOL.take_back(*server),
            Some(Source::Lender(loan)) if ends => loan.end(),
            Some(Source::Lender(loan)) => loan.give_back(),
            None => {}
        }
    }
}

impl Deref for Lease {
    type Target = KubeApiserver;

    fn deref(&self) -> &KubeApiserver {
        match self.source() {
            Source::This(server) => &server.server,
            Source::Lender(loan) => &loan.server,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back(thread::panicking());
    }
}
