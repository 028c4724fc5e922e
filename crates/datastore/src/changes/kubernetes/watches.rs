//! The watches of some kinds, side by side, and what they report.

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

/// Changes that wait to be taken. A server that has more waits.
const MOST: usize = 10_000;
/// After how many seconds watches end. Not all at once: a server that is stopped breaks one of them off.
const SECONDS: [u32; 4] = [15, 16, 17, 18];

/// What a watch reports of a kind.
pub(crate) enum Message {
    Change(&'static KnownKind, Change),
    /// Nothing else was changed up to this version.
    Reached(&'static str, i64),
    /// Everything was reported that had happened when the question of this number was asked.
    Current(&'static str, u64),
    Broken(Broken),
}

/// The changes of each kind are reported in their order; those of two kinds in any.
pub(crate) struct Watches {
    messages: Receiver<Message>,
    asked: state::Sender<u64>,
    _watches: JoinSet<()>,
}

impl Watches {
    /// Watches kinds, each from its position on.
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

    /// What is reported next.
    pub(crate) async fn next(&mut self) -> Message {
        let ended = || WhyWhole::CannotWatch("the watches have ended".to_owned());
        self.messages.recv().await.unwrap_or_else(|| Message::Broken(Broken::Lost(ended())))
    }

    /// What was reported and not taken yet.
    pub(crate) fn reported(&mut self) -> impl Iterator<Item = Message> {
        std::iter::from_fn(|| self.messages.try_recv().ok())
    }

    /// Asks for a [`Message::Current`] of each kind; gives the number of the question.
    pub(crate) fn ask(&self) -> u64 {
        self.asked.send_modify(|asked| *asked += 1);
        *self.asked.borrow()
    }
}
