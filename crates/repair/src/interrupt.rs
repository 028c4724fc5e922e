//! Being asked to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says whether a run has been asked to stop. What is under way is finished, nothing new is begun, and
/// what was locked is unlocked.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// One that ctrl-c, ctrl-\\ (SIGQUIT), SIGTERM and the end of the terminal (SIGHUP) set. From the first of them on the process
    /// does not end by these signals any more. Has to be called on a tokio runtime.
    #[cfg(unix)]
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let interrupt = Self::default();
        for kind in
            [SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate(), SignalKind::hangup()]
        {
            let (mut signals, interrupt) = (signal(kind)?, interrupt.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    interrupt.set();
                }
            });
        }
        Ok(interrupt)
    }

    /// One that ctrl-c sets. Has to be called on a tokio runtime.
    #[cfg(not(unix))]
    pub fn on_signals() -> std::io::Result<Self> {
        let interrupt = Self::default();
        let set = interrupt.clone();
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                set.set();
            }
        });
        Ok(interrupt)
    }

    /// Asks to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True once it was asked to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
