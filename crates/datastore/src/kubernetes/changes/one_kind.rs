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
use crate::kubernetes::client::watch::{Change, SHORT, Watch, WatchEvent, newest};

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
    requests: state::Receiver<u64>,
    /// Seconds after which the API server ends a watch; shortly before, it reports its position.
    seconds: u32,
    /// The version up to which everything was reported.
    reported_until: i64,
}

impl OneKind {
    /// Follows the changes of a kind until a fatal error, or until the receiver is dropped.
    pub(super) fn follow(
        client: &Arc<KubeClient>,
        kind: &Kind,
        seconds: u32,
        from: Option<Position>,
        sender: Sender<Message>,
        requests: state::Receiver<u64>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut one_kind = Self {
            client: Arc::clone(client),
            kind: kind.clone(),
            sender,
            requests,
            seconds,
            reported_until: from.map_or(0, |position| position.revision),
        };
        async move {
            let broken = match from {
                Some(position) => one_kind.run(position.last).await,
                // The kind was installed after the last read, so none of its objects are known.
                None => Broken::Lost(WholeReadReason::New),
            };
            let _ = one_kind.sender.send(Message::Broken(broken)).await;
        }
    }

    /// Runs one watch after another, until an error, which it returns. `last` has the version and the checksum of the
    /// last known change.
    async fn run(&mut self, last: Option<(i64, u32)>) -> Broken {
        if let Err(broken) = self.require_same_history(last).await {
            return broken;
        }
        loop {
            let started = Instant::now();
            let result = self.watch(started).await;
            sleep_until(started + PAUSE).await;
            if let Err(broken) = result {
                return broken;
            }
        }
    }

    /// Checks that the server's history is the one in which the last known change happened.
    async fn require_same_history(&mut self, last: Option<(i64, u32)>) -> Result<(), Broken> {
        self.newest_version().await?;
        if let Some((version, checksum)) = last {
            self.recognize(version, checksum).await?;
        }
        Ok(())
    }

    /// Asks for the newest version. Returns an error if it is lower than the known one, since the server's history is
    /// then different.
    async fn newest_version(&self) -> Result<i64, Broken> {
        let newest = newest(&self.client, &self.kind)
            .await
            .map_err(|failure| self.broken_by(failure))?
            .cast_signed();
        if newest < self.reported_until {
            let reason = format!("its version was {}, but is now {newest}", self.reported_until);
            return Err(another_history(reason));
        }
        Ok(newest)
    }

    /// Requires that a watch first reports the last known change again, as proof that the server's history is the same.
    async fn recognize(&mut self, version: i64, last_checksum: u32) -> Result<(), Broken> {
        let mut watch = self.open_watch(version - 1, SHORT).await?;
        loop {
            let next_event = watch.next().await.map_err(|failure| self.broken_by(failure))?;
            let Some(event) = next_event else {
                return Err(unconfirmed());
            };
            match event {
                // A bookmark before the change proves nothing.
                WatchEvent::Reached(reached) if reached.cast_signed() < version => {}
                WatchEvent::Change(change) if self.is_same_change(&change, version, last_checksum) => {
                    self.reported_until = version;
                    return Ok(());
                }
                WatchEvent::Reached(_) | WatchEvent::Change(_) => {
                    let reason = format!("version {version} has other content than before");
                    return Err(another_history(reason));
                }
            }
        }
    }

    /// True if a change has this version and this checksum.
    fn is_same_change(&self, change: &Change, version: i64, expected_checksum: u32) -> bool {
        change.version.cast_signed() == version
            && checksum(&recorded(self.kind.known, change)) == expected_checksum
    }

    /// Opens a watch of the changes after a version, which the server ends after some seconds.
    async fn open_watch(&self, after: i64, seconds: u32) -> Result<Watch, Broken> {
        Watch::open(&self.client, &self.kind, after.cast_unsigned(), seconds)
            .await
            .map_err(|failure| self.broken_by(failure))
    }

    /// Reports the changes of one watch until the server ends it on time. Any other end is an error, since the server
    /// may have restarted with an earlier state, which lacks some changes.
    async fn watch(&mut self, started: Instant) -> Result<(), Broken> {
        let mut watch = self.open_watch(self.reported_until, self.seconds).await?;
        let length = Duration::from_secs(self.seconds.into());
        let interrupted = Err(Broken::Lost(WholeReadReason::Interrupted));
        // The number of a confirmed request. It is sent to the receiver once the watch has nothing more to report,
        // unless the watch has broken off.
        let mut confirmed = None;
        loop {
            let next_event = tokio::select! {
                biased;
                next_event = watch.next() => next_event,
                () = std::future::ready(()), if confirmed.is_some() => {
                    if let Some(number) = confirmed.take() {
                        self.send(Message::Current(self.kind.known.plural, number)).await?;
                    }
                    continue;
                }
                requested = self.requests.changed() => {
                    requested.map_err(|_| receiver_dropped())?;
                    confirmed = Some(self.confirm_current().await?);
                    continue;
                }
                () = sleep_until(started + length + LATE) => return interrupted,
            };
            match next_event {
                Ok(Some(event)) => self.report(event).await?,
                Ok(None) if started.elapsed() >= length => return Ok(()),
                Ok(None) => return interrupted,
                Err(failure) => return Err(self.ended_by(failure)),
            }
        }
    }

    /// Converts a failure during a watch. If the connection breaks off, the server may have restarted.
    fn ended_by(&self, failure: Failure) -> Broken {
        let is_broken_off = matches!(failure, Failure::Connection(_) | Failure::Incomplete(_));
        if !is_broken_off {
            return self.broken_by(failure);
        }
        tracing::info!("{}: the watch has ended: {failure}", self.kind.known.plural);
        Broken::Lost(WholeReadReason::Interrupted)
    }

    /// Reports everything up to now, and returns the number of the last request to do so. Since a silent watch does not
    /// prove that nothing happened, a short watch must reach the newest version that the server names.
    async fn confirm_current(&mut self) -> Result<u64, Broken> {
        let request_number = *self.requests.borrow_and_update();
        let newest = self.newest_version().await?;
        for _ in 0..ATTEMPTS {
            if self.reported_until >= newest {
                break;
            }
            let mut watch = self.open_watch(self.reported_until, SHORT).await?;
            while self.reported_until < newest
                && let Some(event) = watch.next().await.map_err(|failure| self.broken_by(failure))?
            {
                self.report(event).await?;
            }
        }
        if self.reported_until < newest {
            return Err(unconfirmed());
        }
        Ok(request_number)
    }

    /// Passes an event on, unless it was reported before.
    async fn report(&mut self, event: WatchEvent) -> Result<(), Broken> {
        let version = event.version().cast_signed();
        // Two watches may report the same change.
        if version <= self.reported_until {
            return Ok(());
        }
        self.reported_until = version;
        let message = match event {
            WatchEvent::Change(change) => Message::Change(self.kind.known, change),
            WatchEvent::Reached(_) => Message::Reached(self.kind.known.plural, version),
        };
        self.send(message).await
    }

    async fn send(&self, message: Message) -> Result<(), Broken> {
        self.sender.send(message).await.map_err(|_| receiver_dropped())
    }

    /// Converts a failure of the watch. Some failures mean that changes are lost, others only that the watch is broken.
    fn broken_by(&self, failure: Failure) -> Broken {
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

fn another_history(reason: String) -> Broken {
    Broken::Lost(WholeReadReason::AnotherHistory(reason))
}

fn unconfirmed() -> Broken {
    Broken::Lost(WholeReadReason::CannotWatch(
        "the API server does not confirm that these are all changes".to_owned(),
    ))
}

fn receiver_dropped() -> Broken {
    Broken::Lost(WholeReadReason::CannotWatch("the receiver is gone".to_owned()))
}
