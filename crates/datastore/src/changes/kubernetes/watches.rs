//! Parallel watches of several kinds.

use std::sync::Arc;

use calipam_files::objects::KnownKind;
use calipam_files::recording::Positions;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch as state;
use tokio::task::JoinSet;

use super::one_kind::OneKind;
use crate::changes::{Broken, WhyWhole};
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::Kind;
use crate::client::kubernetes::watch::Change;

/// Maximum changes waiting to be received. With more, the server waits.
const MOST: usize = 10_000;
/// Seconds until watches end. They differ, so that one of them breaks off if a server is stopped.
const SECONDS: [u32; 4] = [15, 16, 17, 18];

/// A report of a watch.
pub(crate) enum Message {
    Change(&'static KnownKind, Change),
    /// All changes of the kind up to this version were reported.
    Reached(&'static str, i64),
    /// Everything up to the request with this number was reported.
    Current(&'static str, u64),
    Broken(Broken),
}

/// Running watches. They report changes of one kind in order, those of different kinds in any order.
pub(crate) struct Watches {
    messages: Receiver<Message>,
    asked: state::Sender<u64>,
    _watches: JoinSet<()>,
}

impl Watches {
    /// Starts to watch kinds, each from its position on.
    pub(crate) fn begin(client: &Arc<KubeClient>, kinds: &[Kind], from: &Positions) -> Self {
        let (sender, messages) = mpsc::channel(MOST);
        let (asked, question) = state::channel(0);
        let mut watches = JoinSet::new();
        for (kind, seconds) in kinds.iter().zip(SECONDS.into_iter().cycle()) {
            let position = from.get(kind.known.plural).copied();
            watches.spawn(OneKind::follow(client, kind, seconds, position, sender.clone(), question.clone()));
        }
        Self { messages, asked, _watches: watches }
    }

    /// The next report.
    pub(crate) async fn next(&mut self) -> Message {
        let ended = || WhyWhole::CannotWatch("the watches have ended".to_owned());
        self.messages.recv().await.unwrap_or_else(|| Message::Broken(Broken::Lost(ended())))
    }

    /// The reports that were not received yet.
    pub(crate) fn reported(&mut self) -> impl Iterator<Item = Message> {
        std::iter::from_fn(|| self.messages.try_recv().ok())
    }

    /// Requests a [`Message::Current`] of each kind; returns the number of the request.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.send_modify(|asked| *asked += 1);
        *self.asked.borrow()
    }
}
