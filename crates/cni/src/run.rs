//! Runs the program: reads the environment and stdin, writes to stdout, and returns the exit code.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use calipam_assign::plugin::OPERATION;
use serde_json::json;
use tokio::time::timeout;

use crate::call::Call;
use crate::command::{add, check, del, gc, status};
use crate::config::{Configuration, Document};
use crate::failure;
use crate::install;
use crate::log;
use crate::netns;
use crate::process::{FAILURE, SUCCESS, USAGE, runtime, version};
use crate::protocol::environment::{self, invalid};
use crate::protocol::{CniError, Code, Command, Environment, Version, result, to_json};
use crate::upgrade;

/// Runs the plugin with the arguments, environment and streams of its process.
pub fn main() -> ExitCode {
    let text = |raw: OsString| raw.to_string_lossy().into_owned();
    let arguments: Vec<String> = std::env::args_os().skip(1).map(text).collect();
    let variables = std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    ExitCode::from(run(
        &arguments,
        &variables,
        &mut std::io::stdin().lock(),
        &mut std::io::stdout().lock(),
    ))
}

/// Runs the plugin, and returns the exit code.
pub fn run(
    arguments: &[String],
    variables: &BTreeMap<String, String>,
    stdin: &mut dyn Read,
    stdout: &mut dyn Write,
) -> u8 {
    // Runtimes pass no arguments; people and the DaemonSet do.
    let first = arguments.first().map(String::as_str);
    if let Some(action @ ("install" | "uninstall")) = first {
        return install::run(action, &arguments[1..], variables);
    }
    match first.map(|argument| argument.trim_start_matches('-')) {
        None => {}
        Some("v") => {
            writeln!(stdout, "{}", version()).ok();
            return SUCCESS;
        }
        Some("upgrade") => return upgrade::run(variables),
        Some("h" | "help") => {
            eprintln!("Usage of calico-ipam:\n{USAGE_TEXT}");
            return SUCCESS;
        }
        Some(_) => {
            eprintln!(
                "unknown argument {}\nUsage of calico-ipam:\n{USAGE_TEXT}",
                arguments[0]
            );
            return USAGE;
        }
    }
    // A panic becomes an error like any other, since runtimes do not read stack traces.
    let result = match catch_unwind(AssertUnwindSafe(|| call(variables, stdin))) {
        Ok(result) => result,
        Err(_) => Err(CniError::internal(
            "the plugin failed unexpectedly; stderr has the details",
        )),
    };

    let (text, code) = match result {
        Ok(text) => (text, SUCCESS),
        Err(error) => {
            tracing::error!("{error}");
            (to_json(&error), FAILURE)
        }
    };
    match stdout.write_all(&text).and_then(|()| stdout.flush()) {
        Ok(()) => code,
        Err(error) => {
            tracing::error!("cannot write the result: {error}");
            FAILURE
        }
    }
}

const USAGE_TEXT: &str = "  -upgrade\n    \tUpgrade from host-local\n  -v\tDisplay version\n  \
    install, uninstall\n    \tReplace Calico's plugin, or restore it; `install -h` has the options";

/// Handles one call from a runtime, and returns the text for stdout. The checks come in the order of Calico's plugin,
/// so that a call with several faults reports the same one.
fn call(variables: &BTreeMap<String, String>, stdin: &mut dyn Read) -> Result<Vec<u8>, CniError> {
    let Some(command_name) = environment::command_name(variables) else {
        // A person runs the plugin.
        let versions = Version::ALL.map(Version::text).join(", ");
        eprintln!(
            "Calico CNI IPAM {}\nCNI protocol versions supported: {versions}",
            version()
        );
        return Ok(Vec::new());
    };

    let command = Command::from_name(command_name);
    if command == Some(Command::Version) {
        return Ok(supported_versions());
    }
    let environment = match command {
        Some(command) => Environment::read(command, variables)?,
        None => Environment::default(),
    };

    let mut text = Vec::new();
    stdin
        .read_to_end(&mut text)
        .map_err(|error| CniError::new(Code::Io, format!("error reading from stdin: {error}")))?;
    let document = Document::read(&text, command)?;
    // An unknown command is reported only after the configuration was read.
    let Some(command) = command else {
        return Err(invalid(format!("unknown CNI_COMMAND: {command_name}")));
    };

    let configuration = document.configuration()?;
    log::start(&configuration.log);
    tracing::debug!(
        container = environment.container,
        interface = environment.interface,
        "{}",
        command.text()
    );
    perform(command, configuration, environment, variables)
}

/// Carries out a command within its time limit, logs its end, and returns the text for stdout. Nothing that the call
/// has started outlives it.
fn perform(
    command: Command,
    configuration: Configuration,
    environment: Environment,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<u8>, CniError> {
    let runtime = runtime().map_err(CniError::internal)?;
    // On a node for which STATUS fails, no ADD can succeed.
    let with_code = |error| match command {
        Command::Status => CniError {
            code: Code::NotAvailable,
            ..error
        },
        _ => error,
    };
    let call = Call::new(configuration, environment, variables, command).map_err(with_code)?;
    let limit = limit(command);
    let outcome = match runtime.block_on(async { timeout(limit, answer(&call)).await }) {
        Ok(outcome) => outcome,
        Err(_) => Err(with_code(failure::too_slow(limit))),
    };
    call.log_end(outcome.is_ok());
    // Closes the connections, which ends the credential plugins that they have started.
    drop(call);
    // A wait for the lock or for a name must not keep the process alive.
    runtime.shutdown_background();
    outcome
}

/// The time limit of a call, whatever it waits for: the datastore, the node's lock, or a process. GC reads all blocks
/// of the cluster.
fn limit(command: Command) -> Duration {
    if command == Command::Gc {
        OPERATION * 3
    } else {
        OPERATION
    }
}

/// Performs the command of a call, and returns the text for stdout. The commands are boxed: on the stack, where they
/// are moved several times, the largest one would cost each call a dozen page faults.
async fn answer(call: &Call) -> Result<Vec<u8>, CniError> {
    match call.command {
        Command::Add => {
            netns::check(&call.environment)?;
            let added = Box::pin(add::add(call)).await?;
            // Only ADD has a result.
            return result::print(&added, call.configuration.version);
        }
        Command::Check => Box::pin(check::check(call)).await?,
        Command::Del => Box::pin(del::del(call)).await?,
        Command::Gc => Box::pin(gc::gc(call)).await?,
        Command::Status => drop(Box::pin(status::status(call)).await?),
        Command::Version => {}
    }
    Ok(Vec::new())
}

/// The text that VERSION prints.
fn supported_versions() -> Vec<u8> {
    let versions = Version::ALL.map(Version::text);
    let mut text = json!({"cniVersion": Version::NEWEST.text(), "supportedVersions": versions}).to_string();
    text.push('\n');
    text.into_bytes()
}
