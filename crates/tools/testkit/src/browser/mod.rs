//! A headless Chromium for tests of pages, controlled with the DevTools protocol over pipes. It listens on no port and
//! ends with the test that started it.

mod page;
mod pipe;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

use self::pipe::Pipe;
use crate::servers::{Tool, folder, left_out};

pub use self::page::Page;

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

/// A running browser with its own profile. Dropping it ends the browser.
pub struct Browser {
    pipe: Pipe,
    child: Child,
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
            .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let pipe = Pipe::new(&mut child, log);
        Ok(Self { pipe, child, _home: home })
    }

    /// Opens an empty page of 1280 by 900 pixels.
    pub fn page(&mut self) -> Result<Page<'_>> {
        Page::new(&mut self.pipe)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends its processes in order, so that none still writes to the folder that is removed.
        self.pipe.send("Browser.close", &json!({}), None).ok();
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < END {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Both calls fail only if the browser has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The browser of this machine, if it has one.
pub fn program() -> Result<PathBuf> {
    // A browser is never below `target`, so any path will do.
    let missing = || format!("{}; CALIPAM_TEST_CHROMIUM names another one", Tool::Chromium.missing());
    Tool::Chromium.find("".as_ref()).with_context(missing)
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
        assert!(complaints.iter().any(|complaint| complaint.contains("it complains")), "{complaints:?}");
        assert_eq!(page.requests().unwrap().last().map(String::as_str), Some("http://127.0.0.1:9/"));
        assert!(page.screenshot().unwrap().starts_with(b"\x89PNG"));
        assert!(page.pdf().unwrap().starts_with(b"%PDF-"));

        page.scripts(false).unwrap();
        page.open(&file).unwrap();
        page.click("document.querySelector('button')").unwrap();
        assert_eq!(page.evaluate("document.title").unwrap(), "one");
    }
}
