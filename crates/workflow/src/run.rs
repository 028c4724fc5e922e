//! A command that plans and may write: its datastore, operator and limits.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;

use calipam_datastore::clock;
use calipam_datastore::write::{Consent, ProposedChange, Question};
use calipam_files::regular;
use calipam_model::hint::{Call, Hint};
use calipam_model::snapshot::Snapshot;
use calipam_plan::{Refused, doubt};
use calipam_repair::journal::{Disk, Journal, default_path};

use crate::failure::{Failure, Result};
use crate::operator::Access;

/// The intent to plan only or to write, and the maximum number of changes.
#[derive(Clone, Debug, Default)]
pub struct Intent {
    /// `None` to plan only.
    pub writing: Option<Writing>,
    /// The maximum number of changes; a plan with more changes is not written.
    pub max_changes: Option<usize>,
    /// The folder of all journals, if the environment names one.
    pub journals: Option<PathBuf>,
}

/// The settings for writing.
#[derive(Clone, Debug)]
pub struct Writing {
    /// The command for the journal, such as `release --leaked`.
    pub command: String,
    /// True to lock the datastore during the run.
    pub lock: bool,
    /// The journal; `None` for a new file in the folder of all journals.
    pub journal: Option<PathBuf>,
    /// The disk on which tests write the journal.
    pub disk: Option<Arc<dyn Disk>>,
}

impl Intent {
    /// Returns the path of the journal of a run with these settings.
    pub(crate) fn journal_of(&self, writing: &Writing, cluster: &str) -> Result<PathBuf> {
        match (&writing.journal, &self.journals) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(folder)) => Ok(default_path(folder, cluster, clock::now())),
            (None, None) => Err(Failure::no_journal_directory()),
        }
    }

    /// The folders with journals of other runs.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        folders.extend(self.journals.clone());
        if let Some(writing) = &self.writing
            && let Some(journal) = &writing.journal
        {
            folders.push(regular::folder_of(journal).to_owned());
        }
        folders.dedup();
        folders
    }
}

/// A run of a command that plans and may write.
pub(crate) struct Run<'a> {
    pub access: Access<'a>,
    pub intent: &'a Intent,
    /// The journal of earlier writes in this run; `None` if it has written nothing.
    pub journal_so_far: Option<Arc<Journal>>,
    /// True to leave the journal open after the next writes, because more will follow.
    pub keep_journal_open: bool,
    /// The reason why a run that writes would be refused, if this run only plans.
    pub refusal: Option<Refused>,
    /// True once the run has removed a lock that another run left behind.
    pub has_unlocked: Cell<bool>,
    /// A journal that was read, and whose run has left no lock.
    pub without_lock: Option<PathBuf>,
}

impl<'a> Run<'a> {
    /// Begins a run that has written nothing yet.
    pub(crate) fn new(access: Access<'a>, intent: &'a Intent) -> Self {
        Self {
            access,
            intent,
            journal_so_far: None,
            keep_journal_open: false,
            refusal: None,
            has_unlocked: Cell::new(false),
            without_lock: None,
        }
    }

    /// Creates a run that needs a live Calico 3 datastore even if it only plans. `purpose` names the command in the
    /// errors for Calico 2 and for a file, such as `split a pool` and `a split`.
    pub(crate) fn on_live(
        access: Access<'a>,
        intent: &'a Intent,
        purpose: [&'static str; 2],
    ) -> Result<Self> {
        let [verb, noun] = purpose;
        access.datastore.require_calico_3(verb)?;
        if !access.datastore.is_live() {
            return Err(Failure::not_live(noun));
        }
        Ok(Self::new(access, intent))
    }

    /// The settings for writing; `None` if the run only plans, or the datastore is a file.
    pub(crate) fn writing(&self) -> Option<&'a Writing> {
        if self.access.datastore.is_live() {
            self.intent.writing.as_ref()
        } else {
            None
        }
    }

    /// Refuses a run that writes. A run that only plans goes on, and its result names the refusal. A plan on a file is
    /// never carried out.
    pub(crate) fn refuse(&mut self, refused: Refused) -> Result<()> {
        if self.writing().is_some() {
            return Err(refused.into());
        }
        if self.access.datastore.is_live() {
            self.refusal.get_or_insert(refused);
        }
        Ok(())
    }

    /// Asks the operator whether to change a cluster.
    ///
    /// # Errors
    /// If the operator does not agree. The error says what the run has already changed.
    pub(crate) async fn ask(&self, cluster: &str, change: ProposedChange) -> Result<Consent> {
        let question = Question {
            cluster: cluster.to_owned(),
            location: self.access.datastore.location(),
            change,
        };
        match self.access.operator.ask(question).await? {
            Some(consent) => Ok(consent),
            None => Err(self.declined()),
        }
    }

    /// The error when the operator does not agree, which says what this run has already changed.
    fn declined(&self) -> Failure {
        if let Some(journal) = &self.journal_so_far {
            let undo = Call::to(["undo", &journal.path().to_string_lossy()]);
            return Failure::refused("aborted; what was written before this question stays")
                .hint(Hint::new("to restore what was there: {}", [undo]));
        }
        if self.has_unlocked.get() {
            return Failure::refused("aborted; only the lock was removed");
        }
        Failure::declined()
    }

    /// Refuses to write if etcd and Kubernetes may belong to different clusters, unless the operator named the context.
    pub(crate) fn refuse_doubtful(&mut self, snapshot: &Snapshot) -> Result<()> {
        match doubt(snapshot) {
            Some(doubt) if !self.access.datastore.names_kubernetes() => {
                let message =
                    format!("the kubeconfig's cluster might not be the one that uses this etcd: {doubt}");
                self.refuse(Refused::new(message).hint(Hint::new(
                    "name the context of the cluster that uses this etcd, even if it is the current one: {}. Or read etcd \
                     alone, without a kubeconfig",
                    [Call::connected(["--kubeconfig", "FILE", "--context", "NAME"])],
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the maximum number of changes if `changes` exceeds it.
    pub(crate) fn exceeds(&self, changes: usize) -> Option<usize> {
        self.intent.max_changes.filter(|limit| changes > *limit)
    }

    /// Refuses a plan with more changes than the limit.
    pub(crate) fn check_limit(&self, changes: usize) -> Result<()> {
        let Some(limit) = self.exceeds(changes) else {
            return Ok(());
        };
        let message =
            format!("the plan makes {changes} changes, more than the limit of {limit}; nothing was changed");
        let raised = Call::again_with(["--max-changes", &changes.to_string()]).without(&["max_changes"]);
        let hint = Hint::new(
            "review the plan with {}, then allow it with {}",
            [Call::DryRun, raised],
        );
        Err(Failure::refused(message).hint(hint))
    }
}
