//! Opens the datastore, and ends the program cleanly after ctrl-c or SIGTERM.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{LazyLock, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use calipam_datastore::settings::{LocalFiles, Settings};
use calipam_datastore::{Datastore, credential_plugin};
use calipam_workflow::Access;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::args::Global;
use crate::console::Console;
use crate::exit::{self, Failure, Kind, Result};
use crate::operator::Person;

/// The time that the program has to end by itself after a signal.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The longest delay between the arrival of ctrl-c in a child process and in this process.
const SIGNAL_DELAY: Duration = Duration::from_millis(20);

/// The time after which a message names the credential plugin that the program waits for.
const NAMED_AFTER: Duration = Duration::from_secs(30);

/// Runs a future that uses a datastore. A signal drops the future unless a run is writing. Dropping the future removes
/// incomplete files.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    run(Box::pin(work), &exit::interrupted)
}

/// Like [`block_on`]. If a signal drops the future, the failure says what the command of `person` has changed.
pub(crate) fn block_on_of<T>(person: &Person<'_>, work: impl Future<Output = Result<T>>) -> Result<T> {
    run(Box::pin(work), &|| person.interrupted())
}

/// Runs a future on the process's runtime until it ends or a signal arrives. `after_signal` creates the failure for a
/// signal. The future is boxed, so that this function is compiled once for each `T` and not for each future.
fn run<T>(
    work: Pin<Box<dyn Future<Output = Result<T>> + '_>>,
    after_signal: &dyn Fn() -> Failure,
) -> Result<T> {
    runtime()?.block_on(async {
        tokio::select! {
            result = work => prefer_signal(result, after_signal).await,
            () = interrupted() => Err(after_signal()),
        }
    })
}

/// Replaces a failure of work if it is the effect of a signal. Ctrl-c on a terminal also ends a credential plugin, and
/// the plugin's failure can arrive before the signal.
async fn prefer_signal<T>(result: Result<T>, after_signal: &dyn Fn() -> Failure) -> Result<T> {
    let Err(failure) = &result else {
        return result;
    };
    // The work has noticed the signal itself, and says what it has done.
    if failure.kind == Kind::Interrupted {
        return result;
    }
    let has_signal = tokio::time::timeout(SIGNAL_DELAY, interrupted()).await.is_ok();
    if has_signal { Err(after_signal()) } else { result }
}

/// A flag that is set after a signal. The current reads then end, and no further clusters of a fleet are read. Printing
/// continues.
static INTERRUPT: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Waits until a signal has set [`INTERRUPT`].
async fn interrupted() {
    // The sender is never dropped.
    let _ = INTERRUPT
        .subscribe()
        .wait_for(|is_interrupted| *is_interrupted)
        .await;
}

pub(crate) fn is_interrupted() -> bool {
    *INTERRUPT.borrow()
}

/// Creates a runtime with several threads.
pub(crate) fn threads() -> Result<Runtime> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::io("start threads"))
}

/// Runs a future on its own thread and runtime.
pub(crate) fn on_thread<T: Send + 'static, F: Future<Output = T>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<T>> {
    let runtime = threads()?;
    let thread = thread::Builder::new().name(name.into());
    thread
        .spawn(move || runtime.block_on(work()))
        .map_err(Failure::io("start threads"))
}

/// Returns the runtime of the process. One of its tasks waits for signals until the process ends.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let runtime = threads()?;
    runtime.spawn(async {
        while let Ok(arrival) = signal() {
            arrival.await;
            // The workflow notices the signal itself, and ends between two writes.
            if calipam_workflow::is_writing() {
                continue;
            }
            INTERRUPT.send_replace(true);
            // Work that does not notice the interrupt is ended.
            tokio::time::sleep(SHUTDOWN_GRACE).await;
            std::process::exit(Kind::Interrupted as i32);
        }
    });
    Ok(RUNTIME.get_or_init(|| runtime))
}

/// Waits for SIGTERM or ctrl-c, which no longer end the process by themselves.
#[cfg(unix)]
pub(crate) fn signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Waits for ctrl-c.
#[cfg(not(unix))]
pub(crate) fn signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

/// Returns the environment variables whose names and values are UTF-8.
pub(crate) fn environment() -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        if let (Ok(name), Ok(value)) = (name.into_string(), value.into_string()) {
            variables.insert(name, value);
        }
    }
    variables
}

/// Runs `work`, which asks no questions, with the datastore that the options name; see [`block_on`].
pub(crate) fn with<T>(
    global: &Global,
    console: &Console,
    work: impl AsyncFnOnce(Access<'_>) -> Result<T>,
) -> Result<T> {
    with_person(global, &Person::never_asked(console), work)
}

/// Like [`with`], but `person` answers the questions of `work`.
pub(crate) fn with_person<T>(
    global: &Global,
    person: &Person<'_>,
    work: impl AsyncFnOnce(Access<'_>) -> Result<T>,
) -> Result<T> {
    block_on_of(person, async {
        work(Access::new(&open(global, person.console).await?, person)).await
    })
}

/// Opens the datastore that the options name.
pub(crate) async fn open(global: &Global, console: &Console) -> Result<Datastore> {
    open_by(&settings(global)?, console).await
}

/// Resolves the settings of the datastore from the command line, the environment and files.
pub(crate) fn settings(global: &Global) -> Result<Settings> {
    let settings = Settings::resolve(&global.overrides(), &environment(), &LocalFiles);
    Ok(settings.map_err(calipam_datastore::Error::from)?)
}

/// Opens the datastore that settings name. If that takes long, names the credential plugin that may be waiting for the
/// user.
pub(crate) async fn open_by(settings: &Settings, console: &Console) -> Result<Datastore> {
    let mut opening = pin!(Datastore::open(settings));
    let datastore = match tokio::time::timeout(NAMED_AFTER, &mut opening).await {
        Ok(opened) => opened?,
        Err(_) => {
            if let Some(plugin) = credential_plugin(&settings.kubernetes).await {
                console.warn(&format!(
                    "waiting for the kubeconfig's credential plugin {plugin}"
                ));
            }
            opening.await?
        }
    };
    console.verbose(&format!("reading {}", datastore.location()));
    Ok(datastore)
}
