//! Changes on Kubernetes, with a watch for each kind that a check reads.

mod one_kind;

use std::sync::Arc;

use async_trait::async_trait;
use calipam_files::Extent;
use calipam_files::objects::{Encoding, KnownKind};
use calipam_files::recording::{Change, Position, Positions};
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch as state;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use self::one_kind::OneKind;
use crate::error::Result;
use crate::feed::{Broken, Changes, GROUPING_INTERVAL, IDLE_INTERVAL, Reported, WholeReadReason};
use crate::kubernetes::client::kinds::Kind;
use crate::kubernetes::client::{KubeClient, permission, watch};
use crate::kubernetes::whole::list::Listed;
use crate::kubernetes::whole::plan;

/// Maximum number of messages that wait to be received. Beyond that, the watches stop reading.
const MAX_WAITING: usize = 10_000;
/// Seconds until a watch ends. The lengths differ on purpose: if a server stops just when one watch is due to end, it
/// cuts off the other watches early, which shows that changes may be missing.
const SECONDS: [u32; 4] = [15, 16, 17, 18];

/// A report from a watch.
pub(crate) enum Message {
    Change(&'static KnownKind, watch::Change),
    /// All changes of the kind up to this version were reported.
    Reached(&'static str, i64),
    /// The answer to the request with this number: all changes of the kind before the request were reported.
    Current(&'static str, u64),
    Broken(Broken),
}

/// Running watches. They report the changes of one kind in order, but changes of different kinds in any order.
pub(crate) struct Watches {
    messages: Receiver<Message>,
    /// The number of the last request to confirm that everything was reported.
    last_request: state::Sender<u64>,
    _watches: JoinSet<()>,
}

impl Watches {
    /// Starts to watch kinds, each from its position on.
    pub(crate) fn begin(client: &Arc<KubeClient>, kinds: &[Kind], from: &Positions) -> Self {
        let (sender, messages) = mpsc::channel(MAX_WAITING);
        let (last_request, requests) = state::channel(0);
        let mut watches = JoinSet::new();
        let mut lengths = SECONDS.into_iter().cycle();
        for kind in kinds {
            let seconds = lengths.next().unwrap_or(SECONDS[0]);
            let position = from.get(kind.known.plural).copied();
            watches.spawn(OneKind::follow(
                client,
                kind,
                seconds,
                position,
                sender.clone(),
                requests.clone(),
            ));
        }
        Self {
            messages,
            last_request,
            _watches: watches,
        }
    }

    pub(crate) async fn next(&mut self) -> Message {
        match self.messages.recv().await {
            Some(message) => message,
            None => {
                let reason = WholeReadReason::CannotWatch("the watches have ended".to_owned());
                Message::Broken(Broken::Lost(reason))
            }
        }
    }

    /// The reports that wait to be received.
    pub(crate) fn waiting(&mut self) -> impl Iterator<Item = Message> {
        std::iter::from_fn(|| self.messages.try_recv().ok())
    }

    /// Requests a [`Message::Current`] for each kind, and returns the number of the request.
    pub(crate) fn ask(&self) -> u64 {
        self.last_request.send_modify(|number| *number += 1);
        *self.last_request.borrow()
    }
}

#[async_trait]
impl Changes for Watches {
    /// Collects the changes that arrive for some time; a shorter time after the first change.
    async fn reported(&mut self) -> Result<Reported, Broken> {
        let mut reported = Reported::default();
        let mut deadline = Instant::now() + IDLE_INTERVAL;
        while let Ok(message) = timeout_at(deadline, self.next()).await {
            match message {
                Message::Change(known, change) => {
                    if reported.changes.is_empty() {
                        deadline = Instant::now() + GROUPING_INTERVAL;
                    }
                    reported.changes.push(recorded(known, &change));
                }
                Message::Reached(kind, version) => {
                    reported.reached.insert(kind.to_owned(), version);
                }
                Message::Current(..) => {}
                Message::Broken(broken) => return Err(broken),
            }
        }
        Ok(reported)
    }
}

/// Follows the changes of every kind that a check reads.
pub(super) async fn begin(client: &Arc<KubeClient>, from: Positions) -> Result<Box<dyn Changes>> {
    let plan = plan(client, &Extent::Whole).await?;
    require_watch(client, &plan.kinds).await?;
    Ok(Box::new(Watches::begin(client, &plan.kinds, &from)))
}

/// Returns an error if the user lacks the permission to watch one of the kinds.
pub(crate) async fn require_watch(client: &Arc<KubeClient>, kinds: &[Kind]) -> Result<()> {
    let permissions = kinds.iter().map(|kind| kind.permission("watch")).collect();
    permission::require(client, permissions).await
}

/// Converts a change to the form that exports use. An object that a check does not need counts as deleted.
pub(crate) fn recorded(known: &KnownKind, change: &watch::Change) -> Change {
    let exported = if change.is_deleted {
        None
    } else {
        known.export(&change.object, Encoding::Json)
    };
    let (key, value) = match exported {
        Some(entry) => (entry.key, Some(entry.value)),
        None => (format!("{}/{}", known.plural, change.name).into_bytes(), None),
    };
    Change {
        key,
        revision: change.version.cast_signed(),
        value,
    }
}

/// The positions from which to follow changes after some lists were read: the version of each list, by the plural of
/// its kind.
pub(crate) fn positions<T>(kinds: &[Kind], lists: &[Listed<T>]) -> Positions {
    let mut positions = Positions::new();
    for (kind, listed) in kinds.iter().zip(lists) {
        if let Ok(version) = watch::number(&listed.resource_version) {
            let position = Position::at(version.cast_signed());
            positions.insert(kind.known.plural.to_owned(), position);
        }
    }
    positions
}
