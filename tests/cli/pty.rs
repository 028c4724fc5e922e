//! Runs the program on a terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::program::{Words, prepare};

/// The controlling end of a terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    outside: OwnedFd,
    inside: File,
}

/// The output on a terminal, and the exit code of its program.
#[derive(Debug)]
pub(super) struct Shown {
    pub text: String,
    pub code: Option<i32>,
}

impl Shown {
    /// Asserts the exit code.
    #[track_caller]
    pub(super) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Asserts that `text` was shown.
    #[track_caller]
    pub(super) fn shows(self, text: &str) -> Self {
        assert!(self.text.contains(text), "{text:?} is not shown: {self:?}");
        self
    }

    /// Asserts that `text` was shown, even if the terminal has wrapped it.
    #[track_caller]
    pub(super) fn shows_wrapped(self, text: &str) -> Self {
        assert!(
            self.text.replace("\r\n", " ").contains(text),
            "{text:?} is not shown: {self:?}"
        );
        self
    }
}

/// Sends the signal of ctrl-c.
pub(super) fn interrupt(program: &Child) {
    kill_process(Pid::from_child(program), Signal::INT).unwrap();
}

impl Terminal {
    /// Opens a terminal with a number of columns.
    pub(super) fn new(columns: u16) -> Self {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&outside)
            .and_then(|()| unlockpt(&outside))
            .expect("a terminal of one's own");
        let name = ptsname(&outside, Vec::new()).expect("the terminal has a name");
        let name = name.to_str().expect("its name is text").to_owned();
        let inside = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name)
            .expect("the terminal opens");
        let size = Winsize {
            ws_row: 50,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&inside, size).expect("the terminal has a size");
        Self { outside, inside }
    }

    /// Returns the program's end of the terminal, for use as stdin, stdout or stderr.
    pub(super) fn side(&self) -> Stdio {
        self.inside
            .try_clone()
            .expect("the terminal can be shared")
            .into()
    }

    /// Starts a program with stdout and stderr on the terminal.
    fn start(&self, command: &mut Command, stdin: Stdio) -> Child {
        let child = command
            .stdin(stdin)
            .stdout(self.side())
            .stderr(self.side())
            .spawn();
        // The command also holds this end of the terminal, which must be closed. Otherwise, the reader would never end.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        child.expect("the program starts")
    }

    /// Runs a program with stdout and stderr on the terminal.
    pub(super) fn run(self, command: &mut Command) -> Shown {
        let child = self.start(command, Stdio::null());
        self.watch(child)
    }

    /// Runs a program with only stdout on the terminal.
    pub(super) fn run_without_stderr(self, command: &mut Command) -> Shown {
        let child = command
            .stdin(Stdio::null())
            .stdout(self.side())
            .stderr(Stdio::null())
            .spawn();
        command.stdout(Stdio::null());
        self.watch(child.expect("the program starts"))
    }

    /// Runs a program that also reads from the terminal. The answers are typed in advance.
    pub(super) fn answer(self, command: &mut Command, typed: &str) -> Shown {
        let mut outside = File::from(self.outside.try_clone().expect("the terminal can be shared"));
        outside
            .write_all(typed.as_bytes())
            .expect("the terminal takes what is typed");
        let child = self.start(command, self.side());
        self.watch(child)
    }

    /// Runs a program that also reads from the terminal. Once the program has printed `prompt`, calls `then` with the
    /// controlling end, for typing, and with the process.
    pub(super) fn converse(
        self,
        command: &mut Command,
        prompt: &str,
        then: impl FnOnce(&mut File, &Child),
    ) -> Shown {
        let child = self.start(command, self.side());
        drop(self.inside);
        let mut outside = File::from(self.outside);
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let shown = String::from_utf8_lossy(&bytes);
            if shown.contains(prompt) {
                break;
            }
            let length = outside
                .read(&mut part)
                .unwrap_or_else(|_| panic!("it ended without {prompt:?}: {shown}"));
            bytes.extend_from_slice(&part[..length]);
        }
        then(&mut outside, &child);
        watch_on(outside, child, bytes)
    }

    /// Reads the output of a program until it ends.
    pub(super) fn watch(self, child: Child) -> Shown {
        drop(self.inside);
        watch_on(File::from(self.outside), child, Vec::new())
    }
}

/// Reads to the end of the output. Reading fails once no process has the terminal open.
fn watch_on(mut outside: File, mut child: Child, mut bytes: Vec<u8>) -> Shown {
    let _ = outside.read_to_end(&mut bytes);
    let status = child.wait().expect("the program ends");
    Shown {
        text: String::from_utf8(bytes).expect("output is UTF-8"),
        code: status.code(),
    }
}

/// A program on a terminal that exchanges input and output with a test, such as a shell.
#[derive(Debug)]
pub(super) struct Session {
    outside: File,
    read: Receiver<Vec<u8>>,
    /// The output since the last call of [`Self::shown`].
    shown: Vec<u8>,
    child: Child,
}

/// The time limit for each wait of a session.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time without output after which a session counts as idle.
const QUIET: Duration = Duration::from_millis(400);

impl Session {
    /// Starts a program on a terminal.
    pub(super) fn start(command: &mut Command) -> Self {
        let terminal = Terminal::new(100);
        let child = terminal.start(command, terminal.side());
        let outside = File::from(terminal.outside);
        let (tell, read) = mpsc::channel();
        let mut reader = outside.try_clone().expect("the terminal can be shared");
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut part) {
                if tell.send(part[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            outside,
            read,
            shown: Vec::new(),
            child,
        }
    }

    /// Types `text`.
    pub(super) fn send(&mut self, text: &str) {
        self.outside
            .write_all(text.as_bytes())
            .expect("the terminal takes what is typed");
    }

    /// Waits for `text`, and returns the output since the previous call.
    pub(super) fn wait_for(&mut self, text: &str) -> String {
        let begun = Instant::now();
        while !self.text().contains(text) {
            match self.read.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
                Ok(part) => self.shown.extend(part),
                Err(_) => panic!("the terminal never showed {text:?}:\n{}", self.text()),
            }
        }
        self.shown()
    }

    /// Waits until the session is idle.
    pub(super) fn settle(&mut self) {
        while let Ok(part) = self.read.recv_timeout(QUIET) {
            self.shown.extend(part);
        }
    }

    /// Returns the output since the last call.
    pub(super) fn shown(&mut self) -> String {
        let shown = self.text();
        self.shown.clear();
        shown
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the exit code and the standard output of a command on a terminal. Discards stderr.
pub(super) fn on_terminal(columns: u16, arguments: &(impl Words + ?Sized)) -> String {
    let shown = Terminal::new(columns).run_without_stderr(prepare(arguments).env("TERM", "xterm-256color"));
    let text = shown.text.replace('\u{1b}', "ESC").replace("\r\n", "\n");
    format!("exit code: {}\n{text}", shown.code.unwrap())
}

/// Removes escape sequences.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        if c == '\u{1b}' {
            let _ = characters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            shown.push(c);
        }
    }
    shown
}
