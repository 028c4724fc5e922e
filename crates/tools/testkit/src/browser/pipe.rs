//! The protocol: JSON messages in both directions, each terminated by a zero byte.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

/// Time limit for an answer. On a busy machine, starting takes many seconds.
const ANSWER: Duration = Duration::from_secs(180);

pub(super) struct Pipe {
    input: ChildStdin,
    messages: Receiver<Value>,
    /// Events from the browser that nobody has waited for yet.
    events: Vec<Value>,
    /// The number of the last request.
    last: u64,
    log: PathBuf,
}

impl Pipe {
    /// Uses the pipes of a child that was just started. `log` is the file that contains its messages.
    pub(super) fn new(child: &mut Child, log: PathBuf) -> Self {
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        // The thread ends with the pipe, which ends with the browser.
        thread::spawn(move || {
            let parts = output.split(0).map_while(Result::ok);
            for message in parts.filter_map(|part| serde_json::from_slice(&part).ok()) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { input, messages, events: Vec::new(), last: 0, log }
    }

    /// Sends a request to the browser itself or to the page of a session, and returns its number.
    pub(super) fn send(
        &mut self,
        method: &str,
        parameters: &Value,
        session: Option<&str>,
    ) -> io::Result<u64> {
        self.last += 1;
        let mut request = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes)?;
        self.input.flush()?;
        Ok(self.last)
    }

    /// Sends a request and returns its answer.
    pub(super) fn call(&mut self, method: &str, parameters: &Value, session: Option<&str>) -> Result<Value> {
        let number = self.send(method, parameters, session).with_context(|| method.to_owned())?;
        loop {
            let mut message = self.receive(method)?;
            if message["id"] == number {
                return match message.get("error") {
                    None => Ok(message["result"].take()),
                    Some(error) => bail!("{method}: {error}"),
                };
            }
            self.events.push(message);
        }
    }

    /// Waits for an event of a page. Each event ends only one wait.
    pub(super) fn wait_for(&mut self, event: &str, session: &str) -> Result<()> {
        let is_it = |message: &Value| message["method"] == event && message["sessionId"] == session;
        if let Some(place) = self.events.iter().position(is_it) {
            self.events.remove(place);
            return Ok(());
        }
        loop {
            let message = self.receive(event)?;
            if is_it(&message) {
                return Ok(());
            }
            self.events.push(message);
        }
    }

    /// The parameters of all events with these names so far, oldest first. Does not remove the events.
    pub(super) fn events<'p>(
        &'p self,
        names: &'p [&'p str],
        session: &'p str,
    ) -> impl Iterator<Item = &'p Value> + 'p {
        let wanted = move |message: &&Value| {
            message["sessionId"] == session && names.iter().any(|name| message["method"] == *name)
        };
        self.events.iter().filter(wanted).map(|message| &message["params"])
    }

    fn receive(&mut self, what: &str) -> Result<Value> {
        self.messages.recv_timeout(ANSWER).map_err(|error| {
            let reason = match error {
                RecvTimeoutError::Timeout => "the browser does not answer",
                RecvTimeoutError::Disconnected => "the browser has ended",
            };
            let log = fs::read(&self.log).unwrap_or_default();
            let text = format!("{reason}; its log:\n{}", String::from_utf8_lossy(&log));
            anyhow!("{what}: {text}")
        })
    }
}
