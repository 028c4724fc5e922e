//! The process that lends API servers to all test programs, so that these start few of them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{env, fs, process};

use crate::failure::Failure;
use crate::servers::{GO, Variables};
use crate::{tool, workspace};

/// The program, which is built with the tests.
const PROGRAM: &str = "lend-api-servers";

/// A running lender. Dropping it ends all of its servers.
pub(crate) struct Lender {
    process: Child,
    socket: PathBuf,
}

impl Lender {
    /// Starts the program, and waits until it lends.
    pub(crate) fn start(variables: &Variables) -> Result<Self, Failure> {
        // The path of a socket must be short, so it is not in the build folder.
        let socket = env::temp_dir().join(format!("calipam-lender-{}.sock", process::id()));
        fs::remove_file(&socket).ok();
        let mut command = Command::new(workspace::built(PROGRAM)?);
        command
            .arg(&socket)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .envs(GO)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command
            .spawn()
            .map_err(|error| Failure::new(format!("cannot run {PROGRAM}: {error}")))?;

        let mut said = String::new();
        let output = process.stdout.take().expect("it is piped");
        let read = BufReader::new(output).read_line(&mut said);
        let lender = Self { process, socket };
        match read {
            Ok(length) if length > 0 => Ok(lender),
            _ => Err(Failure::new(format!("{PROGRAM} has ended before it lends"))),
        }
    }

    /// The variable by which tests find the lender.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (tool::LENDER, self.socket.clone())
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        // The servers end with the process that has started them.
        self.process.kill().ok();
        self.process.wait().ok();
        fs::remove_file(&self.socket).ok();
    }
}
