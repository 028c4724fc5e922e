//! Telling others of findings, at a pace that does not flood them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::served::{Good, Served};
use crate::console::Console;

/// Time between two rounds.
const PAUSE: Duration = Duration::from_secs(5);
/// After how long there is a round although nothing was checked.
const AGAIN: Duration = Duration::from_mins(1);
/// Findings that are told, the most severe ones first.
pub(super) const MOST: usize = 500;

/// How much was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    All,
    /// The next round tells more.
    Some,
}

/// One who is told.
pub(super) trait Tell: Send + 'static {
    /// Who it is, without what is secret.
    fn whom(&self) -> String;

    /// Tells what has come and gone since the last time.
    ///
    /// # Errors
    /// The reason why it cannot be told, which has nothing secret in it either.
    fn tell(&mut self, good: &Good) -> impl Future<Output = Result<Told, String>> + Send;
}

/// Tells what each check has found, for as long as there are checks.
pub(super) async fn run(mut tell: impl Tell, mut served: watch::Receiver<Arc<Served>>, console: Console) {
    let mut is_failing = false;
    let mut again = Instant::now();
    loop {
        if let Ok(Err(_)) = timeout_at(again, served.changed()).await {
            return;
        }
        again = Instant::now() + AGAIN;
        let good = served.borrow_and_update().good.clone();
        let told = match &good {
            Some(good) => tell.tell(good).await,
            None => continue,
        };
        match told {
            Ok(Told::All) => is_failing = false,
            Ok(Told::Some) => (is_failing, again) = (false, Instant::now()),
            Err(reason) => {
                if !is_failing {
                    let whom = tell.whom();
                    console.warn(&format!("cannot send findings to {whom}: {reason}; trying again"));
                }
                (is_failing, again) = (true, Instant::now());
            }
        }
        sleep(PAUSE).await;
    }
}
