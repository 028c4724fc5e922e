//! `calico-ipam install` and `uninstall`: replacing Calico's plugin with this program, and restoring it.

mod folders;
mod options;
pub mod place;
mod problem;
mod ready;
mod serve;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use calipam_datastore::KubeClient;
use calipam_datastore::settings::KubernetesSettings;
use calipam_model::words::escape;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync;
use tokio::time::{sleep, timeout};

use self::options::Options;
use self::place::{Installed, Place, Program};
use self::problem::{Problem, Result, cannot};
use self::serve::State;
use self::watch::Changes;
use crate::config::Log;
use crate::log;
use crate::process::{self, FAILURE, SUCCESS, USAGE};

pub use self::folders::{Folders, KNOWN as KNOWN_FOLDERS};

/// The longest time between a failure and the next attempt.
const RETRY: Duration = Duration::from_secs(10);
/// The time after which the folder is read even without an event.
const POLL: Duration = Duration::from_mins(1);
/// The time limit for removing the annotation after Calico's plugin is back.
const FAREWELL: Duration = Duration::from_secs(5);

/// This program is the node's plugin.
const IN_PLACE: bool = true;
/// Calico's own program is the node's plugin.
const NOT_IN_PLACE: bool = false;

/// Runs `install` or `uninstall` with its arguments, and returns the exit code.
pub(crate) fn run(action: &str, words: &[String], variables: &BTreeMap<String, String>) -> u8 {
    let options = match Options::read(&process::called_as(), action, words) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::HELP);
            return SUCCESS;
        }
        Err(problem) => {
            print_error(&problem);
            return USAGE;
        }
    };
    match carry_out(&options, variables) {
        Ok(()) => SUCCESS,
        Err(problem) => {
            print_error(&problem);
            FAILURE
        }
    }
}

/// Prints an error with its hint on a line of its own. Names from outside cannot break lines.
fn print_error(problem: &Problem) {
    eprintln!("error: {}", escape(&problem.what));
    if let Some(hint) = &problem.hint {
        eprintln!("hint: {}", escape(hint));
    }
}

/// Carries out what the options ask for: restores Calico's plugin, previews, installs once, or installs and keeps
/// watching. The folder is locked until this function returns.
fn carry_out(options: &Options, variables: &BTreeMap<String, String>) -> Result<()> {
    let (plugins, configuration) = options.folders()?;
    let own_path = std::env::current_exe().map_err(cannot("find", &PathBuf::from("this program")))?;
    let place = Place::new(&plugins, &own_path);
    let _lock = place.lock()?;
    let installer = Installer {
        place,
        configuration,
        options,
        variables,
    };
    let runtime = process::runtime().map_err(Problem::new)?;
    if !options.is_install {
        restore(&installer.place)?;
        return runtime.block_on(installer.annotate(NOT_IN_PLACE));
    }
    if options.dry_run {
        return runtime.block_on(installer.preview());
    }
    if !options.watch {
        return runtime.block_on(installer.once());
    }

    // With `--watch`, this process is a service with a log.
    log::start(&Log::default());
    let ended = runtime.block_on(installer.stay());
    // A look-up of a name that hangs on its thread must not keep the process alive.
    runtime.shutdown_background();
    ended
}

/// Puts Calico's plugin back, and says whether there was something to do.
fn restore(place: &Place) -> Result<()> {
    let folder = place.folder().display();
    if place.restore()? {
        eprintln!("Calico's calico-ipam is back in {folder}")
    } else if place.plugin()? == Program::Missing {
        eprintln!("there is no calico-ipam in {folder}; nothing was changed")
    } else {
        eprintln!("the calico-ipam in {folder} is not this program; nothing was changed")
    }
    Ok(())
}

struct Installer<'a> {
    place: Place,
    /// The folder of the CNI configuration.
    configuration: PathBuf,
    options: &'a Options,
    variables: &'a BTreeMap<String, String>,
}

impl Installer<'_> {
    /// Checks the configuration, installs the plugin, and annotates the node.
    async fn once(&self) -> Result<()> {
        self.check().await?;
        let folder = self.place.folder().display();
        let outcome = match self.place.install()? {
            Installed::Already => "was already in place",
            Installed::Updated => "replaced another version of itself",
            Installed::Replaced => "replaced Calico's, which is kept as calico-ipam.calico",
            other => return Err(Problem::new(reason(other).to_owned())),
        };
        eprintln!("calipam {} in {folder}: {outcome}", env!("CARGO_PKG_VERSION"));
        self.annotate(IN_PLACE).await
    }

    /// Checks the configuration, and prints what an installation would do. Changes nothing.
    async fn preview(&self) -> Result<()> {
        self.check().await?;
        let forecast = match self.place.would_install()? {
            Installed::Already => "is already in place",
            Installed::Updated => "would replace another version of itself",
            Installed::Replaced => "would replace Calico's, which would be kept as calico-ipam.calico",
            other => return Err(Problem::new(reason(other).to_owned())),
        };
        let folder = self.place.folder().display();
        eprintln!(
            "calipam {} in {folder}: {forecast}; nothing was changed",
            env!("CARGO_PKG_VERSION")
        );
        Ok(())
    }

    /// Runs the checks of [`ready`]. Skips them with `--no-check`, and if a version of this program is already in
    /// place: replacing that one is safe even if the datastore does not answer.
    async fn check(&self) -> Result<()> {
        if !self.options.check || matches!(self.place.plugin()?, Program::This | Program::Ours) {
            return Ok(());
        }
        let anyway = self.options.without_checks();
        ready::check(&self.configuration, self.variables, &anyway).await
    }

    /// Keeps this program in place until a signal arrives. Then restores Calico's plugin, unless `--keep` was given.
    /// Fails without restoring it if the folder cannot be watched.
    async fn stay(&self) -> Result<()> {
        let folder = self.place.folder();
        let mut changes = Changes::watch(folder).map_err(cannot("watch", folder))?;
        let (sender, receiver) = sync::watch::channel(State::default());
        if let Some(address) = &self.options.listen {
            let listener = TcpListener::bind(address).await;
            let listener = listener.map_err(|e| Problem::new(format!("cannot listen at {address}: {e}")))?;
            let address = listener.local_addr().unwrap_or(*address);
            tracing::info!("serving /metrics and /healthz at {address}");
            tokio::spawn(serve::serve(listener, receiver));
        }
        let termination = termination()?;
        tokio::pin!(termination);

        let mut state = State::default();
        // The state that the node's annotation shows.
        let mut annotated = None;
        loop {
            let attempt = async {
                let installed = self.round(&mut state).await;
                let noted = self.note(state.in_place, &mut annotated).await;
                installed.and(noted)
            };
            // A server that does not answer must not delay the end.
            let attempted = tokio::select! {
                () = &mut termination => break,
                attempted = attempt => attempted,
            };
            let pause = match attempted {
                Ok(()) => POLL,
                Err(problem) => {
                    state.failed += 1;
                    tracing::error!("{problem}");
                    if !state.in_place {
                        state.reason = problem.to_string();
                    }
                    RETRY
                }
            };
            sender.send_replace(state.clone());
            tokio::select! {
                () = &mut termination => break,
                changed = changes.wait() => changed.map_err(cannot("watch", folder))?,
                () = sleep(pause) => {}
            }
        }
        if self.options.keep {
            return Ok(());
        }
        restore(&self.place)?;
        match timeout(FAREWELL, self.annotate(NOT_IN_PLACE)).await {
            Ok(annotated) => annotated,
            Err(_) => Err(Problem::new(format!(
                "the annotation stays: no answer within {} s",
                FAREWELL.as_secs()
            ))),
        }
    }

    /// Reads the folder, and puts this program in place if another one is there. Repeats the checks before each
    /// replacement, because it is an update of Calico that brings Calico's plugin back.
    async fn round(&self, state: &mut State) -> Result<()> {
        // Set before the steps that can fail, so that `/healthz` is right even after an error.
        state.in_place = self.place.plugin()? == Program::This;
        self.check().await?;
        let installed = self.place.install()?;
        match installed {
            Installed::Already => {}
            Installed::Updated => tracing::info!("replaced another version of itself"),
            Installed::Replaced => {
                state.replaced += 1;
                tracing::info!("replaced Calico's plugin, which is kept");
            }
            Installed::NoCalico | Installed::Unfinished => tracing::info!("waiting: {}", reason(installed)),
        }
        state.in_place = matches!(
            installed,
            Installed::Already | Installed::Updated | Installed::Replaced
        );
        state.reason = reason(installed).to_owned();
        Ok(())
    }

    /// Updates the node's annotation, unless it was last written for the same state.
    async fn note(&self, in_place: bool, annotated: &mut Option<bool>) -> Result<()> {
        if *annotated != Some(in_place) {
            self.annotate(in_place).await?;
            *annotated = Some(in_place);
        }
        Ok(())
    }

    /// Annotates the node with this program's version, or removes the annotation if this program is not in place. Does
    /// nothing if the options name no node.
    async fn annotate(&self, in_place: bool) -> Result<()> {
        let Some(node) = &self.options.node else {
            return Ok(());
        };
        let version = in_place.then(process::version);
        // Without a kubeconfig, the installer's pod connects with its service account.
        let kubeconfig = self.variables.get("KUBECONFIG").cloned().unwrap_or_default();
        let settings = KubernetesSettings {
            kubeconfig,
            ..KubernetesSettings::default()
        };
        let noted = async {
            KubeClient::connect_without_discovery(&settings)
                .await?
                .note_plugin(node, version.as_deref())
                .await
        };
        noted
            .await
            .map_err(|error| Problem::new(format!("cannot annotate node {node}: {error}")))
    }
}

/// The reason that this program is not in place; empty if it is.
fn reason(installed: Installed) -> &'static str {
    match installed {
        Installed::NoCalico => "there is no calico-ipam to replace: Calico is not installed here yet",
        Installed::Unfinished => {
            "calico-ipam is being written, or is broken and was not kept as calico-ipam.calico"
        }
        Installed::Already | Installed::Updated | Installed::Replaced => "",
    }
}

/// Listens for signals that ask the process to end. The future that is returned ends with the first one.
fn termination() -> Result<impl Future<Output = ()>> {
    let listen =
        |kind| signal(kind).map_err(|error| Problem::new(format!("cannot wait for signals: {error}")));
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
