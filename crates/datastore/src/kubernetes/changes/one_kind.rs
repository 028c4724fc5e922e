//! Follows all changes of one kind with successive watches.

use std::sync::Arc;
use std::time::Duration;

use calipam_files::recording::{Position, checksum};
use tokio::sync::mpsc::Sender;
use tokio::sync::watch as state;
use tokio::time::{Instant, sleep_until};

use super::{Message, recorded};
use crate::error::Failure;
use crate::feed::{Broken, WholeReadReason};
use crate::kubernetes::client::KubeClient;
use crate::kubernetes::client::kinds::Kind;
use crate::kubernetes::client::watch::{SHORT, Watch, WatchEvent, newest};

/// Extra time for the server to end a watch. After that, the watch counts as hanging.
const LATE: Duration = Duration::from_secs(5);
/// Minimum time between the starts of two watches, in case a proxy ends each watch immediately.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of short watches in which the server may confirm that it has reported everything.
const ATTEMPTS: usize = 3;

pub(super) struct OneKind {
    client: Arc<KubeClient>,
    kind: Kind,
    sender: Sender<Message>,
    /// The number of the last request to confirm that everything was reported.
    asked: state::Receiver<u64>,
    /// Seconds after which the API server ends a watch; shortly before, it reports its position.
    seconds: u32,
    /// The version up to which everything was reported.
    known: i64,
}

impl OneKind {
    /// Follows the changes of a kind until a fatal error, or until the receiver is dropped.
    pub(super) fn follow(
        client: &Arc<KubeClient>,
        kind: &Kind,
        seconds: u32,
        from: Option<Position>,
        sender: Sender<Message>,
        asked: state::Receiver<u64>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let Position { revision, last } = from.unwrap_or_default();
        let mut one = Self {
            client: Arc::clone(client),
            kind: kind.clone(),
            sender,
            asked,
            seconds,
            known: revision,
        };
        async move {
            let broken = match from {
                // The kind was installed after the last read, so none of its objects are known.
                None => Broken::Lost(WholeReadReason::New),
                Some(_) => one.run(last).await.err().unwrap_or_else(receiver_gone),
            };
            let _ = one.sender.send(Message::Broken(broken)).await;
        }
    }

    /// Runs one watch after another, until an error. `last` has the version and the checksum of the last known change.
    async fn run(&mut self, last: Option<(i64, u32)>) -> Result<(), Broken> {
        self.newest().await?;
        if let Some((version, checksum)) = last {
            self.recognize(version, checksum).await?;
        }
        loop {
            let begin = Instant::now();
            let ended = self.watch(begin).await;
            sleep_until(begin + PAUSE).await;
            ended?;
        }
    }

    /// Asks for the newest version. Returns an error if it is lower than the known one, since the server's history is
    /// then different.
    async fn newest(&self) -> Result<i64, Broken> {
        let newest = newest(&self.client, &self.kind)
            .await
            .map_err(|failure| self.failed(failure))?;
        if newest.cast_signed() < self.known {
            return Err(is_another(format!(
                "its version was {}, but is now {newest}",
                self.known
            )));
        }
        Ok(newest.cast_signed())
    }

    /// Requires that a watch first reports the last known change again, as proof that the server's history is the same.
    async fn recognize(&mut self, version: i64, last_checksum: u32) -> Result<(), Broken> {
        let opened = Watch::open(&self.client, &self.kind, (version - 1).cast_unsigned(), SHORT).await;
        let mut watch = opened.map_err(|failure| self.failed(failure))?;
        loop {
            match watch.next().await.map_err(|failure| self.failed(failure))? {
                Some(WatchEvent::Reached(reached)) if reached.cast_signed() < version => {}
                Some(WatchEvent::Change(change))
                    if change.version.cast_signed() == version
                        && checksum(&recorded(self.kind.known, &change)) == last_checksum =>
                {
                    self.known = version;
                    return Ok(());
                }
                Some(_) => {
                    return Err(is_another(format!(
                        "version {version} has other content than before"
                    )));
                }
                None => return Err(unconfirmed()),
            }
        }
    }

    /// Reports the changes of one watch until the server ends it on time. Any other end is an error, since the server
    /// may have restarted with an earlier state, which lacks some changes.
    async fn watch(&mut self, begin: Instant) -> Result<(), Broken> {
        let opened = Watch::open(&self.client, &self.kind, self.known.cast_unsigned(), self.seconds).await;
        let mut watch = opened.map_err(|failure| self.failed(failure))?;
        let length = Duration::from_secs(self.seconds.into());
        let interrupted = Err(Broken::Lost(WholeReadReason::Interrupted));
        // The number of a confirmed request. It is sent to the receiver once the watch has nothing more to report,
        // unless the watch has broken off.
        let mut confirmed = None;
        loop {
            let reported = tokio::select! {
                biased;
                reported = watch.next() => reported,
                () = std::future::ready(()), if confirmed.is_some() => {
                    if let Some(asked) = confirmed.take() {
                        self.send(Message::Current(self.kind.known.plural, asked)).await?;
                    }
                    continue;
                }
                asked = self.asked.changed() => match asked {
                    Ok(()) => {
                        confirmed = Some(self.confirm_current().await?);
                        continue;
                    }
                    Err(_) => return Err(receiver_gone()),
                },
                () = sleep_until(begin + length + LATE) => return interrupted,
            };
            match reported {
                Ok(Some(event)) => self.report(event).await?,
                Ok(None) if begin.elapsed() >= length => return Ok(()),
                Ok(None) => return interrupted,
                Err(failure @ (Failure::Connection(_) | Failure::Incomplete(_))) => {
                    tracing::info!("{}: the watch has ended: {failure}", self.kind.known.plural);
                    return interrupted;
                }
                Err(failure) => return Err(self.failed(failure)),
            }
        }
    }

    /// Reports everything up to now, and returns the number of the last request to do so. A silent watch does not prove
    /// that nothing happened, so this asks the server for its newest version, which a short watch must then reach.
    async fn confirm_current(&mut self) -> Result<u64, Broken> {
        let asked = *self.asked.borrow_and_update();
        let until = self.newest().await?;
        for _ in 0..ATTEMPTS {
            if self.known >= until {
                break;
            }
            let opened = Watch::open(&self.client, &self.kind, self.known.cast_unsigned(), SHORT).await;
            let mut watch = opened.map_err(|failure| self.failed(failure))?;
            while self.known < until
                && let Some(event) = watch.next().await.map_err(|failure| self.failed(failure))?
            {
                self.report(event).await?;
            }
        }
        if self.known >= until {
            Ok(asked)
        } else {
            Err(unconfirmed())
        }
    }

    /// Passes an event on, unless it was reported before.
    async fn report(&mut self, event: WatchEvent) -> Result<(), Broken> {
        let message = match event {
            WatchEvent::Change(change) => {
                let version = change.version.cast_signed();
                // Two watches may report the same change.
                if version <= self.known {
                    return Ok(());
                }
                self.known = version;
                Message::Change(self.kind.known, change)
            }
            WatchEvent::Reached(version) if version.cast_signed() > self.known => {
                self.known = version.cast_signed();
                Message::Reached(self.kind.known.plural, self.known)
            }
            WatchEvent::Reached(_) => return Ok(()),
        };
        self.send(message).await
    }

    async fn send(&self, message: Message) -> Result<(), Broken> {
        self.sender.send(message).await.map_err(|_| receiver_gone())
    }

    /// Converts a failure of the watch. Some failures mean that changes are lost, others only that the watch is broken.
    fn failed(&self, failure: Failure) -> Broken {
        match failure {
            Failure::Compacted => Broken::Lost(WholeReadReason::Compacted),
            // The kind, or the permission to watch it, may have been removed.
            Failure::NotFound | Failure::PermissionDenied(_) => {
                let error = self.client.error(self.kind.known.plural, failure);
                Broken::Lost(WholeReadReason::CannotWatch(error.to_string()))
            }
            failure => Broken::Failed(self.client.error(self.kind.known.plural, failure)),
        }
    }
}

fn is_another(reason: String) -> Broken {
    Broken::Lost(WholeReadReason::AnotherHistory(reason))
}

fn unconfirmed() -> Broken {
    Broken::Lost(WholeReadReason::CannotWatch(
        "the API server does not confirm that these are all changes".to_owned(),
    ))
}

fn receiver_gone() -> Broken {
    Broken::Lost(WholeReadReason::CannotWatch("the receiver is gone".to_owned()))
}
