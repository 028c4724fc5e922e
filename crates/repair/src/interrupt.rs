//! Requests to stop a run, for example by a signal.

use std::sync::Arc;

use tokio::sync::watch;

/// A request to stop a run. Steps that have begun are finished, no new ones begin, and the lock is removed.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<watch::Sender<bool>>);

impl Default for Interrupt {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Interrupt {
    /// Returns an interrupt that is set by ctrl-c, ctrl-\\ (SIGQUIT), SIGTERM, or the end of the terminal (SIGHUP).
    /// These signals no longer end the process. Must be called on a tokio runtime.
    #[cfg(unix)]
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let interrupt = Self::default();
        for kind in [
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ] {
            let mut signals = signal(kind)?;
            let interrupt = interrupt.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    interrupt.set();
                }
            });
        }
        Ok(interrupt)
    }

    /// Returns an interrupt that is set by ctrl-c. Must be called on a tokio runtime.
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

    pub fn set(&self) {
        self.0.send_replace(true);
    }

    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the interrupt is set.
    pub async fn wait(&self) {
        // The sender is never dropped meanwhile.
        let _ = self.0.subscribe().wait_for(|is_set| *is_set).await;
    }
}
