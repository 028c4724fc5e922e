//! `serve --lease`: of several replicas the one that holds the lease checks, and the others stand by.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use calipam_datastore::settings::{LocalFiles, Settings};
use calipam_datastore::{HeldUntil, Lease};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::args::Global;
use crate::connect;
use crate::console::Console;
use crate::exit::Failure;

/// How long the lease may take to be given back.
const GOODBYE: Duration = Duration::from_secs(3);

/// Whether this replica holds the lease.
#[derive(Clone)]
pub(super) struct Turn(watch::Receiver<HeldUntil>);

impl Turn {
    pub(super) fn is_held(&self) -> bool {
        self.0.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Ends once it is not held any more.
    pub(super) async fn lost(&mut self) {
        loop {
            let until = *self.0.borrow_and_update();
            let Some(until) = until else { return };
            if !matches!(timeout_at(until, self.0.changed()).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    pub(super) async fn wait(&mut self) {
        while !self.is_held() && self.0.changed().await.is_ok() {}
    }
}

/// The work of holding the lease.
pub(super) struct Holding {
    stop: oneshot::Sender<()>,
    work: JoinHandle<()>,
}

impl Holding {
    /// Begins to hold a lease, `NAMESPACE/NAME`, as soon as it can be held.
    pub(super) fn begin(text: &str, global: &Global, console: &Console) -> Result<(Self, Turn), Failure> {
        let (namespace, name) = (text.split_once('/'))
            .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains('/'))
            .ok_or_else(|| Failure::usage("--lease: expected NAMESPACE/NAME".to_owned()))?;
        let settings = Settings::resolve(&global.overrides(), &connect::environment(), &LocalFiles)
            .map_err(calipam_datastore::Error::from)?;
        let lease = Lease::new(namespace, name, holder());
        let (held, turn) = watch::channel(None);
        let (stop, stopped) = oneshot::channel::<()>();
        let console = console.clone();
        let work = tokio::spawn(async move {
            let said = Mutex::new(String::new());
            let failed = |error: &calipam_datastore::Error| {
                let text = error.to_string();
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                if *said != text {
                    console.warn(&format!("cannot take or renew the lease: {text}"));
                    *said = text;
                }
            };
            let stopped = async { drop(stopped.await) };
            lease.hold(&settings.kubernetes, held, failed, stopped).await;
        });
        Ok((Self { stop, work }, Turn(turn)))
    }

    /// Gives the lease back, so that another replica need not wait until it has run out.
    pub(super) async fn end(self) {
        drop(self.stop);
        let _ = timeout(GOODBYE, self.work).await;
    }
}

/// The name of the pod, or of the machine, and what no other process has.
pub(super) fn holder() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "calipam".to_owned());
    let nanoseconds = jiff::Timestamp::now().as_nanosecond().unsigned_abs();
    format!("{host}_{}_{:x}", std::process::id(), nanoseconds)
}
