//! A headless Chromium for tests of pages, controlled with the DevTools protocol over pipes: JSON messages in both
//! directions, each terminated by a zero byte. It listens on no port and ends with the test that started it.

mod page;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use self::page::Page;
use crate::servers::{Tool, folder, left_out};

const ARGUMENTS: [&str; 16] = [
    "--headless=new",
    "--remote-debugging-pipe",
    // Root cannot use the sandbox, and a container has no user namespaces for it.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    // Render alike on every machine.
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--hide-scrollbars",
];

/// A shell script that starts the browser. The protocol uses descriptors 3 and 4, and without unsafe code only 0 to 2
/// can be passed on.
const HAND_OVER: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

/// Time limit for the browser to end by itself before it is killed.
const END: Duration = Duration::from_secs(5);

/// Time limit for an answer. On a busy machine, starting takes many seconds.
const ANSWER: Duration = Duration::from_secs(180);

/// A running browser with its own profile. Dropping it ends the browser.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// Events that no call has waited for yet.
    events: Vec<Value>,
    /// The number of the last request.
    last: u64,
    /// The file with the browser's own messages.
    log: PathBuf,
    /// Removed when the browser has ended.
    _home: TempDir,
}

impl Browser {
    /// Starts a browser. Without Chromium, the calling test is [left out](left_out).
    ///
    /// # Panics
    ///
    /// If the browser does not start, or Chromium is missing but the test must not be left out.
    pub fn unless_left_out() -> Option<Self> {
        if left_out(&[Tool::Chromium]) {
            return None;
        }
        Some(Self::start().expect("Chromium starts"))
    }

    pub fn start() -> Result<Self> {
        let program = program()?;
        let home = folder("calipam-browser-")?;
        let log = home.path().join("browser.log");
        let errors = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = Command::new("sh")
            .args(["-c", HAND_OVER])
            .arg(&program)
            .args(ARGUMENTS)
            .arg(format!(
                "--user-data-dir={}",
                home.path().join("profile").display()
            ))
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        // The thread ends with the pipe, which ends with the browser.
        thread::spawn(move || {
            let parts = output.split(0).map_while(Result::ok);
            let sent = |message| sender.send(message).is_ok();
            parts
                .filter_map(|part| serde_json::from_slice(&part).ok())
                .all(sent)
        });
        Ok(Self {
            child,
            input,
            messages,
            events: Vec::new(),
            last: 0,
            log,
            _home: home,
        })
    }

    /// Opens an empty page of 1280 by 900 pixels.
    pub fn page(&mut self) -> Result<Page<'_>> {
        Page::new(self)
    }

    /// Sends a request to the browser itself or to the page of a session, and returns its number.
    fn send(&mut self, method: &str, parameters: &Value, session: Option<&str>) -> io::Result<u64> {
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
    fn call(&mut self, method: &str, parameters: &Value, session: Option<&str>) -> Result<Value> {
        let number = self
            .send(method, parameters, session)
            .with_context(|| method.to_owned())?;
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
    fn wait_for(&mut self, event: &str, session: &str) -> Result<()> {
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
    fn events<'p>(&'p self, names: &'p [&'p str], session: &'p str) -> impl Iterator<Item = &'p Value> + 'p {
        let wanted = move |message: &&Value| {
            message["sessionId"] == session && names.iter().any(|name| message["method"] == *name)
        };
        self.events
            .iter()
            .filter(wanted)
            .map(|message| &message["params"])
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

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends its processes in order, so that none still writes to the folder that is removed.
        self.send("Browser.close", &json!({}), None).ok();
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < END {
            thread::sleep(Duration::from_millis(10));
        }
        // Both calls fail only if the browser has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The browser of this machine, if it has one.
pub fn program() -> Result<PathBuf> {
    let missing = || {
        format!(
            "{}; CALIPAM_TEST_CHROMIUM names another one",
            Tool::Chromium.missing()
        )
    };
    Tool::Chromium
        .find_installed()
        .map_err(Error::msg)
        .with_context(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::left_out;

    #[test]
    fn a_page_is_seen_as_a_person_sees_it() {
        if left_out(&[Tool::Chromium]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.html");
        let text = "<!DOCTYPE html><title>one</title><button onclick=\"document.title='two'\">press</button>\
            <script>console.error('it complains'); fetch('http://127.0.0.1:9/').catch(() => {})</script>";
        std::fs::write(&file, text).unwrap();
        let mut browser = Browser::start().unwrap();
        let mut page = browser.page().unwrap();
        page.open(&file).unwrap();
        assert_eq!(page.evaluate("document.title").unwrap(), "one");
        page.click("document.querySelector('button')").unwrap();
        assert_eq!(page.evaluate("document.title").unwrap(), "two");
        assert!(page.evaluate("no.such.thing").is_err());

        let complaints = page.complaints().unwrap();
        assert!(
            complaints
                .iter()
                .any(|complaint| complaint.contains("it complains")),
            "{complaints:?}"
        );
        assert_eq!(
            page.requests().unwrap().last().map(String::as_str),
            Some("http://127.0.0.1:9/")
        );
        assert!(
            page.screenshot_of([0.0, 0.0, 64.0, 64.0])
                .unwrap()
                .starts_with(b"\x89PNG")
        );
        assert!(page.pdf().unwrap().starts_with(b"%PDF-"));

        page.scripts(false).unwrap();
        page.open(&file).unwrap();
        page.click("document.querySelector('button')").unwrap();
        assert_eq!(page.evaluate("document.title").unwrap(), "one");
    }
}
