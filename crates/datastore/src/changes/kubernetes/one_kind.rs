//! All changes of one kind, by one watch after the other.

use std::sync::Arc;
use std::time::Duration;

use calipam_files::recording::{Position, sum};
use tokio::sync::mpsc::Sender;
use tokio::sync::watch as state;
use tokio::time::{Instant, sleep_until};

use super::recorded;
use super::watches::Message;
use crate::changes::{Broken, WhyWhole};
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::Kind;
use crate::client::kubernetes::watch::{Watch, WatchEvent, newest};
use crate::error::Failure;

/// After how many seconds the API server ends a watch: shortly before, it says how far it has come.
const SECONDS: u32 = 30;
/// A watch that has not ended by then lies still.
const LONGEST: Duration = Duration::from_secs(SECONDS as u64 + 5);
/// Time between the beginnings of two watches: a proxy in between may end each at once.
const PAUSE: Duration = Duration::from_millis(500);
/// Short watches, one after the other, by which the server may say that it has reported everything.
const ATTEMPTS: usize = 3;

pub(super) struct OneKind {
    client: Arc<KubeClient>,
    kind: Kind,
    sender: Sender<Message>,
    /// The number of the last question whether everything was reported.
    asked: state::Receiver<u64>,
    /// Up to which version everything was reported.
    known: i64,
    /// What was written last, by [`sum`]. It is reported again at first: only the same history has it.
    last: Option<(i64, u32)>,
}

impl OneKind {
    /// Ends where it cannot go on, or the receiver is gone.
    pub(super) fn follow(
        client: &Arc<KubeClient>,
        kind: &Kind,
        from: Option<Position>,
        sender: Sender<Message>,
        asked: state::Receiver<u64>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (client, kind) = (Arc::clone(client), kind.clone());
        let Position { revision: known, last } = from.unwrap_or_default();
        let mut one = Self { client, kind, sender, asked, known, last };
        async move {
            let broken = match from {
                // Nothing is known of it: it was installed since.
                None => Broken::Lost(WhyWhole::New),
                Some(_) => one.run().await.err().unwrap_or_else(is_gone),
            };
            let _ = one.sender.send(Message::Broken(broken)).await;
        }
    }

    async fn run(&mut self) -> Result<(), Broken> {
        let newest = newest(&self.client, &self.kind).await.map_err(|failure| self.failed(failure))?;
        if newest.cast_signed() < self.known {
            let reason = format!("its version was {}, and is {}", self.known, newest);
            return Err(Broken::Lost(WhyWhole::AnotherHistory(reason)));
        }
        loop {
            let begin = Instant::now();
            self.watch(begin + LONGEST).await?;
            sleep_until(begin + PAUSE).await;
        }
    }

    /// Reports what one watch does, until it has ended.
    async fn watch(&mut self, end: Instant) -> Result<(), Broken> {
        let opened = Watch::open_for(&self.client, &self.kind, self.after(), SECONDS).await;
        let mut watch = opened.map_err(|failure| self.failed(failure))?;
        loop {
            let reported = tokio::select! {
                reported = watch.next() => reported,
                asked = self.asked.changed() => match asked {
                    Ok(()) => {
                        self.prove().await?;
                        continue;
                    }
                    Err(_) => return Err(is_gone()),
                },
                () = sleep_until(end) => return Ok(()),
            };
            match reported {
                Ok(Some(event)) => self.report(event).await?,
                Ok(None) => return Ok(()),
                // Whether the server is there shows when the next watch is opened.
                Err(failure @ (Failure::Connection(_) | Failure::Incomplete(_))) => {
                    tracing::info!("{}: the watch has ended: {failure}", self.kind.known.plural);
                    return Ok(());
                }
                Err(failure) => return Err(self.failed(failure)),
            }
        }
    }

    /// Reports everything that has happened by now. A watch does not tell that nothing has: the server is asked for its newest
    /// version, and then says in a short watch that it has come as far.
    async fn prove(&mut self) -> Result<(), Broken> {
        let asked = *self.asked.borrow_and_update();
        let until = newest(&self.client, &self.kind).await.map_err(|failure| self.failed(failure))?;
        let until = until.cast_signed();
        let is_all = |one: &Self| one.known >= until && one.last.is_none();
        for _ in 0..ATTEMPTS {
            if is_all(self) {
                break;
            }
            let opened = Watch::open(&self.client, &self.kind, self.after()).await;
            let mut watch = opened.map_err(|failure| self.failed(failure))?;
            while !is_all(self)
                && let Some(event) = watch.next().await.map_err(|failure| self.failed(failure))?
            {
                self.report(event).await?;
            }
        }
        if is_all(self) {
            return self.send(Message::Current(self.kind.known.plural, asked)).await;
        }
        let reason = "the API server does not say that this is all".to_owned();
        Err(Broken::Lost(WhyWhole::CannotWatch(reason)))
    }

    /// The version after which a watch begins.
    fn after(&self) -> u64 {
        self.last.map_or(self.known, |(revision, _)| revision - 1).cast_unsigned()
    }

    async fn report(&mut self, event: WatchEvent) -> Result<(), Broken> {
        let message = match event {
            WatchEvent::Change(change) => {
                let version = change.version.cast_signed();
                if let Some((revision, known)) = self.last.take() {
                    let again = recorded(self.kind.known, &change);
                    if (version, sum(&again.key, again.value.is_none())) != (revision, known) {
                        let reason = format!("as version {revision} something else was written");
                        return Err(Broken::Lost(WhyWhole::AnotherHistory(reason)));
                    }
                }
                // Two watches may overlap.
                if version <= self.known {
                    return Ok(());
                }
                self.known = version;
                Message::Change(self.kind.known, change)
            }
            WatchEvent::Reached(version) if self.last.is_none() && version.cast_signed() > self.known => {
                self.known = version.cast_signed();
                Message::Reached(self.kind.known.plural, self.known)
            }
            WatchEvent::Reached(_) => return Ok(()),
        };
        self.send(message).await
    }

    async fn send(&self, message: Message) -> Result<(), Broken> {
        self.sender.send(message).await.map_err(|_| is_gone())
    }

    fn failed(&self, failure: Failure) -> Broken {
        match failure {
            Failure::Compacted => Broken::Lost(WhyWhole::Compacted),
            // The kind may be gone, or the right to watch it.
            Failure::NotFound | Failure::PermissionDenied(_) => {
                let error = self.client.error(self.kind.known.plural, failure);
                Broken::Lost(WhyWhole::CannotWatch(error.to_string()))
            }
            failure => Broken::Failed(self.client.error(self.kind.known.plural, failure)),
        }
    }
}

fn is_gone() -> Broken {
    Broken::Lost(WhyWhole::CannotWatch("the receiver is gone".to_owned()))
}
