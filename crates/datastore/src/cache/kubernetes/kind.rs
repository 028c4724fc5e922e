//! What has changed of a kind since its cache was made.

use std::collections::BTreeMap;
use std::time::Duration;

use calipam_files::objects::Encoding;
use jiff::Timestamp;
use tokio::time::timeout;

use super::load::Changes;
use super::{State, entries, sum_of};
use crate::cache::newest::Newest;
use crate::cache::{WhyWhole, has_much_changed};
use crate::client::kubernetes::KubeClient;
use crate::client::kubernetes::kinds::Kind;
use crate::client::kubernetes::watch::{Change, Watch, WatchEvent, newest};
use crate::error::Failure;
use crate::read::whole::kubernetes::list::Begun;

/// How long the API server may take to report all changes before all objects are read instead.
const PATIENCE: Duration = Duration::from_secs(10);
/// Watches of a kind, one after the other.
const ATTEMPTS: usize = 3;

/// What has changed since.
pub(super) struct Since {
    changes: BTreeMap<String, Change>,
    /// What the cache comes to with it.
    pub state: State,
    /// The server's clock when it was asked.
    pub date: Option<Timestamp>,
}

impl Since {
    /// The changes as a cache holds them.
    pub(super) fn values(&self, kind: &Kind) -> Result<Changes, WhyWhole> {
        let mut scratch = Default::default();
        let changes = self.changes.iter().map(|(name, change)| {
            if change.is_deleted {
                return Ok((name.clone(), None));
            }
            let value = entries::add(&mut scratch, kind, &change.object, Encoding::Json);
            let value = value.map_err(|reason| WhyWhole::Unusable(format!("{name}: {reason}")))?;
            Ok((name.clone(), Some(value)))
        });
        changes.collect()
    }
}

/// Reads what has changed. Tells as soon as it is fixed which version that is up to.
pub(super) async fn changes(
    client: &KubeClient,
    kind: &Kind,
    state: &State,
    begun: &mut Option<Begun>,
) -> Result<Since, WhyWhole> {
    let reported = timeout(PATIENCE, all_changes(client, kind, state, begun)).await;
    reported.unwrap_or_else(|_| Err(not_all()))
}

fn not_all() -> WhyWhole {
    WhyWhole::CannotWatch("the API server does not confirm that these are all changes".to_owned())
}

async fn all_changes(
    client: &KubeClient,
    kind: &Kind,
    state: &State,
    begun: &mut Option<Begun>,
) -> Result<Since, WhyWhole> {
    // From the last write on, so that it is reported again. It is reported at once, or else that it is no longer known.
    let begin = async {
        let after = state.newest.last.cast_unsigned().saturating_sub(1);
        let mut watch = Watch::open(client, kind, after).await.map_err(why)?;
        let first = watch.next().await.map_err(why)?;
        Ok((watch, first))
    };
    let fixed = async {
        let now = newest(client, kind).await.map_err(why)?;
        Ok((Received::new(state, now.version)?, now.date))
    };
    let ((mut watch, mut reported), (mut received, date)) = tokio::try_join!(begin, fixed)?;
    if let Some(begun) = begun.take() {
        // The receiver is gone where another list has failed.
        let _ = begun.send(());
    }

    let mut attempts = ATTEMPTS;
    loop {
        let next = reported.ok_or_else(not_all)?;
        if received.take(next)? {
            break;
        }
        // There is one bookmark in a watch of this length, and this was too early. If several servers answer, another one
        // may have reported the newest version: the question has this one ask its etcd as well.
        if std::mem::take(&mut received.has_bookmark) {
            attempts -= 1;
            if attempts == 0 {
                return Err(not_all());
            }
            let after = received.reached;
            (watch, _) =
                tokio::try_join!(Watch::open(client, kind, after), newest(client, kind)).map_err(why)?;
        }
        reported = watch.next().await.map_err(why)?;
    }
    Ok(Since { state: received.state(), changes: received.changes, date })
}

fn why(failure: Failure) -> WhyWhole {
    match failure {
        Failure::Compacted => WhyWhole::Compacted,
        other => WhyWhole::CannotWatch(other.to_string()),
    }
}

/// What was reported so far.
struct Received<'s> {
    before: &'s State,
    /// All changes up to this version are wanted, and none after it: later ones are for the next check.
    until: u64,
    /// Everything up to this version was reported.
    reached: u64,
    /// A bookmark came, of an earlier version than the one that is waited for.
    has_bookmark: bool,
    /// The sums of what was reported of the last write that the cache knows.
    again: Vec<u32>,
    changes: BTreeMap<String, Change>,
    newest: Newest,
}

impl<'s> Received<'s> {
    fn new(before: &'s State, until: u64) -> Result<Self, WhyWhole> {
        if until < before.version {
            let reason = format!("its version was {}, and is {until}", before.version);
            return Err(WhyWhole::AnotherHistory(reason));
        }
        let reached = before.newest.last.cast_unsigned().saturating_sub(1);
        let (again, newest) = (Vec::new(), before.newest.clone());
        Ok(Self { before, until, reached, has_bookmark: false, again, changes: BTreeMap::new(), newest })
    }

    /// Takes what is reported next; true if that was all.
    fn take(&mut self, event: WatchEvent) -> Result<bool, WhyWhole> {
        let known = self.before.newest.last.cast_unsigned();
        let change = match event {
            WatchEvent::Reached(version) => {
                self.reached = self.reached.max(version);
                self.has_bookmark = version < self.until;
                return match self.has_bookmark {
                    true => Ok(false),
                    false => self.require_same_history().map(|()| true),
                };
            }
            WatchEvent::Change(change) => change,
        };
        self.reached = self.reached.max(change.version);
        let sum = || sum_of(&change.name, &change.uid, change.is_deleted);
        if change.version <= known {
            self.again.extend((change.version == known).then(sum));
            // Nothing at all was written since.
            return Ok(self.until == self.before.version && self.before.newest.is_among(&self.again));
        }

        self.require_same_history()?;
        if change.version > self.until {
            return Ok(true);
        }
        self.newest.note(change.version.cast_signed(), sum);
        // An API server writes one object in each version.
        let is_last = change.version == self.until;
        if change.version > self.before.version {
            self.changes.insert(change.name.clone(), change);
        }
        if has_much_changed(self.changes.len() as u64, self.before.objects) {
            return Err(WhyWhole::ManyChanges);
        }
        Ok(is_last)
    }

    /// What was written last must have been reported once more.
    fn require_same_history(&self) -> Result<(), WhyWhole> {
        if self.before.newest.is_among(&self.again) {
            return Ok(());
        }
        let reason = format!("as version {} something else was written", self.before.newest.last);
        Err(WhyWhole::AnotherHistory(reason))
    }

    /// What the cache comes to with all of it.
    fn state(&self) -> State {
        State {
            version: self.until,
            newest: self.newest.clone(),
            changes: self.before.changes + self.changes.len() as u64,
            ..self.before.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(version: u64, name: &str) -> WatchEvent {
        let (name, uid) = (name.to_owned(), format!("uid of {name}"));
        WatchEvent::Change(Change { version, name, uid, is_deleted: false, object: Vec::new() })
    }

    /// At version 20 the last write was that of `a` as 12.
    fn state() -> State {
        let mut newest = Newest::default();
        newest.note(12, || sum_of("a", "uid of a", false));
        State { version: 20, newest, objects: 9, bytes: 0, changes: 3 }
    }

    fn take(until: u64, reported: Vec<WatchEvent>) -> Result<(bool, Vec<String>, State), WhyWhole> {
        let state = state();
        let mut received = Received::new(&state, until)?;
        let mut is_all = false;
        for reported in reported {
            assert!(!is_all, "more is asked for than is needed");
            is_all = received.take(reported)?;
        }
        Ok((is_all, received.changes.keys().cloned().collect(), received.state()))
    }

    #[test]
    fn all_is_told_when_a_version_is_reached() {
        let all = |until, reported| {
            let (is_all, names, state) = take(until, reported).unwrap();
            assert_eq!((state.version, state.changes), (until, 3 + names.len() as u64));
            (is_all, names.join(" "), state.newest.last)
        };
        let yes = |names: &str, last| (true, names.to_owned(), last);
        assert_eq!(all(30, vec![change(12, "a"), change(25, "b"), WatchEvent::Reached(30)]), yes("b", 25));
        assert_eq!(all(30, vec![change(12, "a"), change(25, "b"), change(31, "c")]), yes("b", 25));
        assert_eq!(all(30, vec![change(12, "a"), change(30, "b")]), yes("b", 30));
        // What the list had found already is not a change, but known to have been written.
        assert_eq!(all(30, vec![change(12, "a"), change(19, "b"), WatchEvent::Reached(31)]), yes("", 19));
        assert_eq!(all(20, vec![change(12, "a")]), yes("", 12));
        let no = |names: &str, last| (false, names.to_owned(), last);
        assert_eq!(all(30, vec![change(12, "a")]), no("", 12));
        assert_eq!(all(30, vec![change(12, "a"), change(25, "b"), WatchEvent::Reached(29)]), no("b", 25));
    }

    #[test]
    fn another_history_is_seen() {
        let is_other = |until, reported| matches!(take(until, reported), Err(WhyWhole::AnotherHistory(_)));
        assert!(is_other(19, vec![]));
        assert!(is_other(30, vec![change(12, "b"), change(25, "b")]));
        assert!(is_other(30, vec![change(13, "a")]));
        assert!(is_other(30, vec![WatchEvent::Reached(30)]));
        assert!(is_other(20, vec![change(12, "b"), WatchEvent::Reached(20)]));
        assert!(!is_other(30, vec![change(12, "b"), change(12, "a"), WatchEvent::Reached(30)]));
    }

    #[test]
    fn many_changes_are_not_waited_for() {
        let mut reported = vec![change(12, "a")];
        reported.extend((0..1_100).map(|n| change(21 + n, &format!("pod-{n}"))));
        assert_eq!(take(5_000, reported), Err(WhyWhole::ManyChanges));
    }
}
