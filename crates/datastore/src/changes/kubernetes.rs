//! The changes of the kinds that a check reads on Kubernetes, each by a watch of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use calipam_files::Extent;
use calipam_files::objects::Encoding;
use calipam_files::recording::{Change, Position, Positions, sum};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Broken, QUIET, Reported, TOGETHER};
use crate::cache::WhyWhole;
use crate::client::kubernetes::kinds::Kind;
use crate::client::kubernetes::watch::{self, Watch, WatchEvent, newest};
use crate::client::kubernetes::{KubeClient, permission};
use crate::error::{Cause, Failure, Result};
use crate::read::whole::kubernetes::plan;

/// After how many seconds the API server ends a watch: shortly before, it says how far it has come.
const SECONDS: u32 = 30;
/// A proxy in between may end every watch at once.
const PAUSE: Duration = Duration::from_millis(500);
/// Changes that wait to be taken. A server that has more waits.
const MOST: usize = 10_000;

enum Message {
    Change(Change),
    /// Nothing else was changed up to this version.
    Reached(&'static str, i64),
    Broken(Broken),
}

pub(super) struct KubeChanges {
    messages: Receiver<Message>,
    _watches: JoinSet<()>,
}

impl KubeChanges {
    pub(super) async fn begin(client: &Arc<KubeClient>, from: Positions) -> Result<Self> {
        let plan = plan(client, &Extent::Whole).await?;
        let kinds: Vec<Kind> = plan.first.into_iter().chain(plan.second).collect();
        permission::require(client, kinds.iter().map(|kind| kind.permission("watch")).collect()).await?;
        let (sender, messages) = mpsc::channel(MOST);
        let mut watches = JoinSet::new();
        for kind in kinds {
            let position = from.get(kind.known.plural).copied();
            let follow = OneKind { client: Arc::clone(client), kind, sender: sender.clone() };
            watches.spawn(follow.run(position));
        }
        Ok(Self { messages, _watches: watches })
    }

    pub(super) async fn next(&mut self) -> std::result::Result<Reported, Broken> {
        let mut reported = Reported::default();
        let mut until = Instant::now() + QUIET;
        while let Ok(message) = timeout_at(until, self.messages.recv()).await {
            match message {
                Some(Message::Change(change)) => {
                    if reported.changes.is_empty() {
                        until = Instant::now() + TOGETHER;
                    }
                    reported.changes.push(change);
                }
                Some(Message::Reached(kind, version)) => {
                    reported.reached.insert(kind.to_owned(), version);
                }
                Some(Message::Broken(broken)) => return Err(broken),
                None => {
                    let reason = "the watches have ended".to_owned();
                    return Err(Broken::Lost(WhyWhole::CannotWatch(reason)));
                }
            }
        }
        Ok(reported)
    }
}

struct OneKind {
    client: Arc<KubeClient>,
    kind: Kind,
    sender: Sender<Message>,
}

impl OneKind {
    async fn run(self, from: Option<Position>) {
        let broken = match from {
            // Nothing is known of it: it was installed since.
            None => Broken::Lost(WhyWhole::NoCacheYet),
            Some(from) => self.follow(from).await,
        };
        let _ = self.sender.send(Message::Broken(broken)).await;
    }

    /// Ends where it cannot go on, or the receiver is gone.
    async fn follow(&self, from: Position) -> Broken {
        let Position { revision: mut known, mut last } = from;
        match newest(&self.client, &self.kind).await {
            Ok(newest) if newest.version.cast_signed() < known => {
                let reason = format!("its version was {known}, and is {}", newest.version);
                return Broken::Lost(WhyWhole::AnotherHistory(reason));
            }
            Ok(_) => {}
            Err(failure) => return self.failed(failure),
        }
        loop {
            // What was written last is reported again at first: only the same history has it.
            let after = last.map_or(known, |(revision, _)| revision - 1);
            let opened = Watch::open_for(&self.client, &self.kind, after.cast_unsigned(), SECONDS).await;
            let mut watch = match opened {
                Ok(watch) => watch,
                Err(failure) => return self.failed(failure),
            };
            loop {
                let event = match watch.next().await {
                    Ok(Some(event)) => event,
                    Ok(None) | Err(Failure::Connection(Cause::TimedOut(_))) => break,
                    Err(failure) => return self.failed(failure),
                };
                let message = match event {
                    WatchEvent::Change(change) => {
                        let version = change.version.cast_signed();
                        let change = self.change(&change);
                        if let Some((revision, known)) = last.take()
                            && (version, sum(&change.key, change.value.is_none())) != (revision, known)
                        {
                            let reason = format!("as version {revision} something else was written");
                            return Broken::Lost(WhyWhole::AnotherHistory(reason));
                        }
                        if version <= known {
                            continue;
                        }
                        known = version;
                        Message::Change(change)
                    }
                    WatchEvent::Reached(version) if last.is_none() && version.cast_signed() > known => {
                        known = version.cast_signed();
                        Message::Reached(self.kind.known.plural, known)
                    }
                    WatchEvent::Reached(_) => continue,
                };
                if self.sender.send(message).await.is_err() {
                    return Broken::Lost(WhyWhole::CannotWatch("the receiver is gone".to_owned()));
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// The object as an export has it. One that is of no interest any more is as if it were deleted.
    fn change(&self, change: &watch::Change) -> Change {
        let exported = match change.is_deleted {
            true => None,
            false => self.kind.known.export(&change.object, Encoding::Json),
        };
        let (key, value) = match exported {
            Some(entry) => (entry.key, Some(entry.value)),
            None => (format!("{}/{}", self.kind.known.plural, change.name).into_bytes(), None),
        };
        Change { key, revision: change.version.cast_signed(), value }
    }

    fn failed(&self, failure: Failure) -> Broken {
        match failure {
            Failure::Compacted => Broken::Lost(WhyWhole::Compacted),
            failure => Broken::Failed(self.client.error(self.kind.known.plural, failure)),
        }
    }
}

/// Where the changes after some lists begin, by the plurals of their kinds and the versions at which they were read.
pub(crate) fn positions<'k>(lists: impl Iterator<Item = (&'k Kind, &'k str)>) -> Positions {
    let known = lists.filter_map(|(kind, version)| {
        let revision = watch::number(version).ok()?.cast_signed();
        Some((kind.known.plural.to_owned(), Position::at(revision)))
    });
    known.collect::<BTreeMap<_, _>>()
}
