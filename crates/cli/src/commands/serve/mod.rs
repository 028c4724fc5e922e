//! `serve`: repeats the check, and serves what the last one found.
//!
//! Checks run one after the other on a thread and a runtime of their own, so that checking a large cluster delays no
//! answer. Each leaves finished texts, of which an answer is a copy, and its snapshot for questions: no answer reads the datastore.

mod ask;
mod host;
mod http;
mod impatient;
mod served;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::watch as state;

use self::host::Hosts;
use self::http::Shown;
use self::served::{Good, Served};
use super::check::Checker;
use crate::args::{Global, ServeArgs};
use crate::console::Console;
use crate::exit::{self, Failure, Outcome};
use crate::render::report::Checked;
use crate::render::text::count;
use crate::watch;

/// After a check it rests for so many times as long, so that changes that never end take a tenth of the time.
const REST: u32 = 9;
/// A report counts as current for so many intervals.
const CURRENT: u32 = 3;

/// Checks and serves until a signal ends it.
///
/// # Errors
/// Where it cannot listen, or the first check finds that the call or its settings are wrong.
pub(super) fn run(args: ServeArgs, global: Global, console: &Console) -> Result<Outcome, Failure> {
    if global.datastore.as_deref() == Some("-") {
        return Err(Failure::usage("stdin can be read once only: name the file"));
    }
    // What is wrong with the options is said before anything is opened.
    Checker::new(&args.options)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Io { doing: "start threads".into(), error })?;
    runtime.block_on(serve(args, global, console))
}

async fn serve(args: ServeArgs, global: Global, console: &Console) -> Result<Outcome, Failure> {
    let interval = Duration::try_from(args.interval).unwrap_or(Duration::MAX);
    let listen = args.listen;
    let failed = |doing: String| move |error| Failure::Io { doing, error };
    let listener = TcpListener::bind(listen).await.map_err(failed(format!("listen on {listen}")))?;
    let address = listener.local_addr().map_err(failed(format!("listen on {listen}")))?;
    let signal = signal().map_err(failed("wait for signals".into()))?;

    console.info(&format!("serving http://{address}/"));
    if !address.ip().is_loopback() {
        console.warn(&format!(
            "anyone who reaches {address} can read the report, with the names of pods and nodes: there is neither TLS nor a \
             password"
        ));
    }

    let (sender, served) = state::channel(Arc::new(Served::default()));
    let hosts = Hosts::new(&args.hosts);
    let checks = start_checks(args, global, console.clone(), interval, sender)?;
    let mut news = served.clone();
    let stop = async move {
        let ended = async { while news.changed().await.is_ok() {} };
        tokio::select! {
            () = signal => true,
            () = ended => false,
        }
    };
    let shown = Shown { served, current: interval.saturating_mul(CURRENT), hosts };
    let by_signal = http::serve(listener, shown, stop).await;
    if by_signal {
        // A check that is running only reads: it ends with the process.
        return Ok(Outcome::Clean);
    }
    Err(checks.join().unwrap_or(Failure::Panic))
}

/// Ends with SIGTERM or ctrl-c, which end the process no more.
#[cfg(unix)]
fn signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Ends with ctrl-c.
#[cfg(not(unix))]
fn signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

/// Checks on a thread of its own. It ends only where checking again cannot help.
fn start_checks(
    args: ServeArgs,
    global: Global,
    console: Console,
    interval: Duration,
    sender: state::Sender<Arc<Served>>,
) -> Result<JoinHandle<Failure>, Failure> {
    let failed = |error| Failure::Io { doing: "start threads".into(), error };
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(failed)?;
    let checks = move || runtime.block_on(check_again_and_again(&args, &global, &console, interval, &sender));
    thread::Builder::new().name("checks".into()).spawn(checks).map_err(failed)
}

async fn check_again_and_again(
    args: &ServeArgs,
    global: &Global,
    console: &Console,
    interval: Duration,
    sender: &state::Sender<Arc<Served>>,
) -> Failure {
    let settle = Duration::try_from(args.options.recheck.settle).unwrap_or_default();
    // Entries of a file with accepted findings that match nothing are told once.
    let mut inner = Console { progress: false, ..console.clone() };
    loop {
        let begin = Instant::now();
        let mut revision: Option<i64> = None;
        match check(args, global, &inner, begin).await {
            Ok(good) => {
                // Of a file or an old datastore there is none.
                revision = good.snapshot.revision.parse().ok();
                let at = good.at.strftime("%Y-%m-%d %H:%M:%S UTC");
                console.info(&format!("{at}: {}, in {:.1} s", good.summary, good.took.as_secs_f64()));
                sender.send_replace(Arc::new(Served::good(good)));
            }
            Err(failure) => {
                let failed = Err(failure);
                let exit_code = exit::code(&failed);
                let Err(failure) = failed else { continue };
                if sender.borrow().is_empty() && exit_code == exit::USAGE {
                    return failure;
                }
                console.failure(&failure);
                let served = sender.borrow().failed(&failure.message(), exit_code, begin.elapsed());
                sender.send_replace(Arc::new(served));
            }
        }
        inner.quiet = true;

        // Between its two reads a check waits for `settle`, which costs nothing.
        let took = begin.elapsed();
        let rest = (took.saturating_sub(settle) * REST).min(interval.saturating_sub(took));
        tokio::time::sleep(rest).await;
        watch::wait(interval.saturating_sub(took + rest), revision, global, &inner).await;
    }
}

/// One check, and all that is served of it.
async fn check(
    args: &ServeArgs,
    global: &Global,
    console: &Console,
    begin: Instant,
) -> Result<Good, Failure> {
    let checker = Checker::new(&args.options)?;
    let mut checked = checker.check(args.cache.as_deref(), global, console).await?;
    checker.keep(&mut checked, console)?;
    let outcome =
        if args.options.fail_on.fails(checked.report.worst()) { Outcome::Findings } else { Outcome::Clean };
    let snapshot = Arc::new(checked.snapshot);
    let checked = Checked {
        report: &checked.report,
        snapshot: &snapshot,
        changes: None,
        took: begin.elapsed(),
        exit_code: exit::code(&Ok(outcome)),
    };
    let summary = count(checked.report.findings.len(), "finding", "findings");
    Good::new(&checked, summary, Arc::clone(&snapshot))
        .map_err(|error| Failure::Io { doing: "write the report".into(), error })
}
