//! Where output goes: data to stdout, everything else to stderr.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};

use crate::args::{Format, Global};
use crate::exit::Failure;
use crate::render::document::{self, Document};
use crate::render::table::Page;
use crate::render::text::escape;

/// The process's output, and what the user wants to see there.
#[derive(Clone, Debug)]
pub struct Console {
    /// The format of data.
    pub format: Format,
    /// No progress and no hints.
    pub quiet: bool,
    /// How much to say about what is done.
    pub verbose: u8,
    /// Progress on stderr.
    pub progress: bool,
    /// What tables on stdout look like.
    pub page: Page,
}

impl Console {
    /// What the options and the environment ask for.
    pub fn new(global: &Global) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let stdout = io::stdout().is_terminal();
        Self {
            format: global.output,
            quiet: global.quiet,
            verbose: global.verbose,
            progress: io::stderr().is_terminal() && !dumb && !global.quiet,
            page: Page {
                color: stdout && !no_color && !dumb && !global.no_color,
                width: stdout.then(terminal_width).flatten(),
            },
        }
    }

    /// Prints a document on stdout, in the format that was asked for.
    pub fn print(&self, document: &impl Document) -> Result<(), Failure> {
        self.data(|out| document::write(document, self.format, self.page, out))
    }

    /// Writes data to stdout, as [`Self::write_data`].
    pub fn data(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        self.write_data(write).map_err(|error| Failure::Io { doing: "write the output".into(), error })
    }

    /// Writes data to stdout. That a reader goes away is not an error.
    pub fn write_data(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let result = write(&mut out).and_then(|()| out.flush());
        if result.is_err() {
            // What is buffered would fail again when it is dropped.
            drop(out.into_parts());
        }
        result.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
    }

    /// Prints a line on stderr, for people. Nothing is done where that fails: there is no other place to say so.
    pub fn say(&self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", escape(line));
    }

    /// Says what to do next.
    pub fn hint(&self, text: &str) {
        if !self.quiet {
            self.say(&format!("hint: {text}"));
        }
    }

    /// Says what was or was not done, where that is not an error.
    pub fn tell(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// Says how what is printed has to be read.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.say(&format!("note: {text}"));
        }
    }

    /// Says what the user should know although the work goes on.
    pub fn warn(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    /// Says what is done, where the user asked for it by `-v`.
    pub fn verbose(&self, text: &str) {
        if self.verbose > 0 {
            self.say(text);
        }
    }

    /// Says why the command failed.
    pub fn failure(&self, failure: &Failure) {
        if let Some(message) = failure.message() {
            self.say(&format!("error: {message}"));
        }
        if let Some(hint) = failure.hint() {
            // A hint can hold lines to be copied, such as rules of a role. No text of the datastore is in it.
            let mut lines = hint.lines();
            self.say(&format!("hint: {}", lines.next().unwrap_or_default()));
            lines.for_each(|line| self.say(line));
        }
    }
}

fn terminal_width() -> Option<u16> {
    comfy_table::Table::new().width().filter(|width| *width >= 40)
}
