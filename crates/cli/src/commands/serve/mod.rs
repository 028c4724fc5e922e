//! `serve`: repeats the check, and serves the last result.
//!
//! Checks run one after the other on a separate thread and runtime, so that a large cluster does not delay answers.
//! Each check provides a report, whose documents are formatted when they are first requested, and a snapshot to answer
//! questions from. No answer reads the datastore.

mod ask;
mod checks;
mod events;
mod host;
mod http;
mod served;

use std::sync::Arc;
use std::time::{Duration, Instant};

use calipam_datastore::settings::Target;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::watch as state;

use self::checks::Checks;
use self::events::FindingEvents;
use self::host::Hosts;
use self::http::{ServerState, Streams};
use self::served::{Served, Success};
use super::check::Checker;
use super::record;
use crate::args::{Global, ServeArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::{self, Failure, Kind, Outcome, Result};
use crate::render::text::{count, utc};

/// The age up to which a report counts as current, in intervals.
const INTERVALS_OF_A_CURRENT_REPORT: u32 = 3;

/// Checks and serves until a signal arrives.
///
/// # Errors
/// If the server cannot start, or the first check finds wrong options or settings.
pub(super) fn run(args: ServeArgs, global: Global, console: &Console) -> Result<Outcome> {
    if global.datastore.as_deref() == Some("-") {
        return Err(Failure::usage("stdin can be read only once: name the file"));
    }
    if args.record.is_some() && matches!(connect::settings(&global)?.target, Target::File(_)) {
        return Err(Failure::not_live("a recording"));
    }
    // Finds wrong options before anything is opened.
    Checker::new(&args.options)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::io("start threads"))?;
    runtime.block_on(serve(args, global, console))
}

/// Listens, starts the thread that checks, and answers requests until a signal arrives or the checks end.
async fn serve(args: ServeArgs, global: Global, console: &Console) -> Result<Outcome> {
    let interval = Duration::try_from(args.interval).unwrap_or(Duration::MAX);
    let listen = args.listen;
    let failed = Failure::io(format!("listen on {listen}"));
    let listener = TcpListener::bind(listen).await.map_err(&failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let signal = connect::signal().map_err(Failure::io("wait for signals"))?;

    console.info(&format!("serving http://{address}/"));
    if !address.ip().is_loopback() {
        console.warn(&format!(
            "anyone who reaches {address} can read the report, with the names of pods and nodes: there is neither TLS nor a \
             password"
        ));
    }

    if let Some(folder) = &args.record {
        record::start(folder, args.keep.as_ref(), &global, console)?;
    }

    let (sender, served) = state::channel(Arc::new(Served::default()));
    let hosts = Hosts::new(&args.hosts);
    if args.events {
        let kubernetes = connect::settings(&global)?.kubernetes;
        tokio::spawn(FindingEvents::new(kubernetes).run(served.clone(), console.clone()));
    }

    let console = console.clone();
    let check = move || check_again_and_again(args, global, console, interval, sender);
    let checking = connect::on_thread("checks", check)?;

    // A report is current for several intervals, so that one slow check does not fail the health probe.
    let stop = until_stopped(signal, served.clone());
    let current = interval.saturating_mul(INTERVALS_OF_A_CURRENT_REPORT);
    let server = ServerState {
        served,
        current,
        hosts,
        streams: Streams::default(),
    };
    if http::serve(listener, server, stop).await {
        // A running check only reads, so it can end with the process.
        return Ok(Outcome::Clean);
    }
    Err(checking.join().unwrap_or_else(|_| exit::panicked()))
}

/// Returns true after a signal, and false after the checks have ended.
async fn until_stopped(signal: impl Future<Output = ()>, mut served: state::Receiver<Arc<Served>>) -> bool {
    let ended = async { while served.changed().await.is_ok() {} };
    tokio::select! {
        () = signal => true,
        () = ended => false,
    }
}

/// Checks repeatedly. Returns only if the first check finds wrong options or settings.
async fn check_again_and_again(
    args: ServeArgs,
    global: Global,
    console: Console,
    interval: Duration,
    sender: state::Sender<Arc<Served>>,
) -> Failure {
    let mut checks = Checks::new(&args, &global, &console);
    let mut results = Results {
        console: console.clone(),
        sender,
        last_printed: String::new(),
    };
    loop {
        let begin = Instant::now();
        match checks.check(begin).await {
            Ok(success) => results.publish(success),
            // Wrong options do not become right. Later, the same kind of failure can be a file that is being changed.
            Err(failure) if results.is_first() && failure.kind == Kind::Usage => return failure,
            Err(failure) => results.publish_failure(&failure, begin.elapsed()),
        }
        checks.rest(begin.elapsed(), interval, &mut results).await;
    }
}

/// Passes the results of checks to the server, and prints a line when the number of findings changes.
struct Results {
    console: Console,
    sender: state::Sender<Arc<Served>>,
    /// The number of findings in the last printed line; empty after a failure.
    last_printed: String,
}

impl Results {
    /// True before the first result.
    fn is_first(&self) -> bool {
        self.sender.borrow().is_empty()
    }

    /// Makes a check the one that is served. Prints the number of its findings if it differs from the last one.
    fn publish(&mut self, success: Success) {
        let findings = count(success.report.findings.len(), "finding", "findings");
        if self.last_printed != findings {
            let time = utc(success.at);
            let seconds = success.took.as_secs_f64();
            self.console
                .info(&format!("{time}: {findings}, in {seconds:.1} s"));
            self.last_printed = findings;
        }
        self.sender.send_replace(Arc::new(Served::succeeded(success)));
    }

    fn publish_failure(&mut self, failure: &Failure, took: Duration) {
        self.console.failure(failure);
        self.last_printed.clear();
        let served = self.sender.borrow().failed(failure, took);
        self.sender.send_replace(Arc::new(served));
    }
}
