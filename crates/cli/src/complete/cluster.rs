//! Suggestions of names from the cluster that a command line names.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use calipam_datastore::read::NameKind;
use calipam_datastore::settings::{KubernetesSettings, LocalFiles, Overrides, Settings};
use calipam_datastore::{Datastore, KubeconfigNames};
use clap::{Args, Command, FromArgMatches};
use jiff::SignedDuration;
use tokio::runtime::Builder;

use super::request::Request;
use crate::applet::Applet;
use crate::args::{self, Global};
use crate::connect;
use crate::render::text::escape;

/// The time limit for suggestions, since the user waits for them.
const TIME_LIMIT: Duration = Duration::from_millis(900);

/// The variable that sets another time limit, such as `5s`, for clusters that answer slowly.
const TIME_LIMIT_VARIABLE: &str = "CALIPAM_COMPLETION_TIMEOUT";

/// The requested names: a list in the kubeconfig, or the objects of a kind in the cluster.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    OfKubeconfig(fn(KubeconfigNames) -> Vec<String>),
    OfObjects(NameKind),
}

/// The cluster that the connection options on a command line name.
#[derive(Debug)]
pub(super) struct Cluster {
    /// `None` if the options are invalid. No suggestion is better than a suggestion from the wrong cluster.
    connection: Option<Global>,
    begin: Instant,
    time_limit: Duration,
}

impl Cluster {
    pub(super) fn of(applet: Applet, request: &Request) -> Self {
        Self {
            connection: connection(applet, request),
            begin: Instant::now(),
            time_limit: time_limit(),
        }
    }

    /// Returns the names that begin with `typed`; none after an error or a timeout. Reads on a thread, which ends with
    /// the process if it is still reading then.
    pub(super) fn names(&self, wanted: Wanted, typed: &str) -> Vec<String> {
        let Some(global) = &self.connection else {
            return Vec::new();
        };
        // Standard input is the terminal on which the user is typing.
        if global.datastore.as_deref() == Some("-") {
            return Vec::new();
        }
        let overrides = Overrides {
            connect_timeout: Some(self.time_limit),
            unattended: true,
            ..global.overrides()
        };
        let typed = typed.to_owned();
        let found = self.in_time(move || read(&overrides, wanted, &typed));
        let mut names = found.unwrap_or_default();
        // Names with control characters are not written to a terminal.
        names.retain(|name| !name.is_empty() && escape(name) == *name);
        names
    }

    /// Runs `read` on a thread. Returns `None` after an error, or at the time limit.
    fn in_time(&self, read: impl FnOnce() -> Option<Vec<String>> + Send + 'static) -> Option<Vec<String>> {
        let (sender, receiver) = mpsc::channel();
        let send = move || {
            // After the time limit, the result is not needed.
            let _ = sender.send(read());
        };
        std::thread::Builder::new().spawn(send).ok()?;
        let time_left = self.time_limit.saturating_sub(self.begin.elapsed());
        receiver.recv_timeout(time_left).ok()?
    }
}

/// Returns the time limit from the environment. A value that cannot be read has no effect, since a message would
/// garble the line on which the user is typing.
fn time_limit() -> Duration {
    let set = std::env::var(TIME_LIMIT_VARIABLE).ok();
    let limit = set.and_then(|text| args::duration::parse(&text).ok());
    limit.map_or(TIME_LIMIT, SignedDuration::unsigned_abs)
}

/// Reads the connection options before the cursor; `None` if they are not valid. The line as a whole cannot be parsed,
/// since it is not finished.
fn connection(applet: Applet, request: &Request) -> Option<Global> {
    let reader = Global::augment_args(Command::new("connection").no_binary_name(true));
    let is_connection = |id: &clap::Id| {
        let mut options = reader.get_arguments();
        options.any(|option| option.get_help_heading() == Some(args::CONNECTION) && option.get_id() == id)
    };

    // Options of the command itself are left out, since the reader does not know them.
    let mut words = Vec::new();
    let definition = args::tidy(applet.command());
    request.walk(&definition, |option, value| {
        if !is_connection(option.get_id()) {
            return;
        }
        let Some(long) = option.get_long() else {
            return;
        };
        let mut word = std::ffi::OsString::from(format!("--{long}"));
        if option.get_action().takes_values() {
            word.push("=");
            word.push(request.expanded(value));
        }
        words.push(word);
    });

    let matches = reader.try_get_matches_from(words).ok()?;
    Global::from_arg_matches(&matches).ok()
}

/// Reads the names that begin with `typed`. Returns `None` after any error, instead of a message that would garble the
/// line on which the user is typing.
fn read(overrides: &Overrides, wanted: Wanted, typed: &str) -> Option<Vec<String>> {
    match wanted {
        Wanted::OfKubeconfig(select) => {
            let mut names = select(read_kubeconfig(overrides)?);
            names.retain(|name| name.starts_with(typed));
            Some(names)
        }
        Wanted::OfObjects(kind) => read_objects(overrides, kind, typed),
    }
}

/// Reads the lists in the kubeconfig.
fn read_kubeconfig(overrides: &Overrides) -> Option<KubeconfigNames> {
    let settings = KubernetesSettings::resolve(overrides, &connect::environment(), &LocalFiles).ok()?;
    KubeconfigNames::read(&settings).ok()
}

/// Reads the names of the objects of a kind that begin with `typed`, from the cluster.
fn read_objects(overrides: &Overrides, kind: NameKind, typed: &str) -> Option<Vec<String>> {
    let settings = Settings::resolve(overrides, &connect::environment(), &LocalFiles).ok()?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .ok()?;
    let names = runtime
        .block_on(async { Datastore::open(&settings).await?.names(kind, typed).await })
        .ok();
    // A credential plugin that hangs would keep the runtime from ending.
    runtime.shutdown_background();
    Some(names?.into_iter().collect())
}
