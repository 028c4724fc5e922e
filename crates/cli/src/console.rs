//! Where output goes: data to stdout, everything else to stderr.

use std::ffi::OsString;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::{AnsiColor, Style};
use indicatif::MultiProgress;
use terminal_size::Width;

use crate::args::Global;
use crate::exit::{Failure, Shown};
use crate::format::Format;
use crate::hints;
use crate::render::document::{self, Document, Printed};
use crate::render::failure::FailureDocument;
use crate::render::page::Page;
use crate::render::text::escape;
use crate::watch::Watch;

// The colours in which clap prints errors and tips.
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Also of hints that clap prints with its errors.
pub(crate) const HINT: Style = AnsiColor::Green.on_default();
const NOTE: Style = Style::new().bold();

/// A terminal that is narrower is not written for.
const NARROWEST: u16 = 40;

/// True once something was printed on stdout.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints why a command failed as a document, where the call asked for one and none was printed: a program that reads
/// stdout gets exactly one. The command line may be wrong, so it is read word by word.
pub(crate) fn print_failure(failure: &Failure, exit_code: u8, arguments: impl Iterator<Item = OsString>) {
    let Some(format) = Format::in_words(arguments).filter(|format| format.is_document()) else { return };
    if PRINTED.load(Ordering::SeqCst) {
        return;
    }
    let document =
        FailureDocument { exit_code, message: failure.message.clone(), hint: hints::of_failure(failure) };
    // People were told on stderr. If stdout does not take it, there is nothing left to try.
    let _ = document::write(&document, format, Page::default(), &mut io::stdout().lock());
}

/// The process's output, and what the user wants to see there.
#[derive(Clone, Debug)]
pub(crate) struct Console {
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
    /// With `--watch`: what was printed last.
    pub watch: Option<Arc<Watch>>,
    /// Where the work is on one cluster of several: which it is, and the lines of progress of all.
    pub fleet: Option<OfFleet>,
}

/// One cluster of several that are read at the same time.
#[derive(Clone, Debug)]
pub(crate) struct OfFleet {
    pub name: Arc<str>,
    pub lines: MultiProgress,
    /// The document of the cluster: all are printed together.
    pub printed: Arc<Mutex<Option<Printed>>>,
}

impl OfFleet {
    /// What was printed, if anything was.
    pub(crate) fn take_printed(&self) -> Option<Printed> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Console {
    /// What the options and the environment ask for.
    pub(crate) fn new(global: &Global) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let stdout = io::stdout().is_terminal();
        Self {
            format: global.output,
            quiet: global.quiet,
            verbose: global.verbose,
            progress: io::stderr().is_terminal() && !dumb && !global.quiet,
            page: Page {
                color: AutoStream::choice(&io::stdout()) != ColorChoice::Never,
                unicode: locale_has_unicode(),
                width: stdout.then(terminal_width).flatten(),
                ..Page::default()
            },
            watch: None,
            fleet: None,
        }
    }

    /// True if what is printed is wanted although nothing was found and nothing done: `--quiet` does not want that
    /// from people's formats.
    pub(crate) fn prints_nothing_new(&self) -> bool {
        !self.quiet || !self.format.is_for_people() || self.watch.is_some()
    }

    /// Leaves what was read to the end of the process, which is near, except if it is read again and again: giving back the
    /// memory of a million objects one by one would take longer.
    pub(crate) fn done_with<T>(&self, data: T) {
        match &self.watch {
            Some(_) => drop(data),
            None => std::mem::forget(data),
        }
    }

    /// Prints a document on stdout, in the format that was asked for; of one cluster of several, keeps it.
    pub(crate) fn print(&self, document: &impl Document) -> Result<(), Failure> {
        if let Some(of) = &self.fleet {
            let printed =
                Printed::of(document, self.format, self.page).map_err(Failure::io("write the output"))?;
            *of.printed.lock().unwrap_or_else(PoisonError::into_inner) = Some(printed);
            return Ok(());
        }
        let separator = match &self.watch {
            Some(watch) => watch.separator(document, self.format),
            None => Some(""),
        };
        let Some(separator) = separator else { return Ok(()) };
        self.data(|out| {
            out.write_all(separator.as_bytes())?;
            document::write(document, self.format, self.page, out)
        })
    }

    /// Writes data to stdout, as [`Self::write_data`].
    pub(crate) fn data(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        self.write_data(write).map_err(|error| match error.kind() {
            // A column that the table does not have.
            ErrorKind::InvalidInput => Failure::usage(error.to_string()),
            _ => Failure::io("write the output")(error),
        })
    }

    /// Writes data to stdout. That a reader goes away is not an error.
    pub(crate) fn write_data(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        PRINTED.store(true, Ordering::SeqCst);
        let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let result = write(&mut out).and_then(|()| out.flush());
        if result.is_err() {
            // What is buffered would fail again when it is dropped.
            drop(out.into_parts());
        }
        result.or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe => {
                self.watch.iter().for_each(|watch| watch.reader_is_gone());
                Ok(())
            }
            _ => Err(error),
        })
    }

    /// Prints a line on stderr, for people. Nothing is done where that fails: there is no other place to say so.
    pub(crate) fn say(&self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", escape(line));
    }

    /// Prints a line with a label in its colour, where stderr has colours.
    fn labelled(&self, label: &str, style: Style, text: &str) {
        let cluster = self.fleet.as_ref().map(|of| format!("{}: ", escape(&of.name))).unwrap_or_default();
        let line =
            || writeln!(anstream::stderr().lock(), "{style}{label}:{style:#} {cluster}{}", escape(text));
        let _ = match &self.fleet {
            // Lines of progress are below what is said.
            Some(of) => of.lines.suspend(line),
            None => line(),
        };
    }

    /// Says what to do next.
    pub(crate) fn hint(&self, text: &str) {
        if !self.quiet {
            self.labelled("hint", HINT, text);
        }
    }

    /// Says what was or was not done, if that is not an error.
    pub(crate) fn info(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// Says how what is printed has to be read.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.labelled("note", NOTE, text);
        }
    }

    /// Says what the user should know although the work goes on.
    pub(crate) fn warn(&self, text: &str) {
        self.labelled("warning", WARNING, text);
    }

    /// Says what is done, where the user asked for it by `-v`.
    pub(crate) fn verbose(&self, text: &str) {
        if self.verbose > 0 {
            self.say(text);
        }
    }

    /// Says why the command failed.
    pub(crate) fn failure(&self, failure: &Failure) {
        match failure.shown {
            Shown::Labelled => self.labelled("error", ERROR, &failure.message),
            Shown::Plain => failure.message.lines().for_each(|line| self.say(line)),
            Shown::Already => return,
        }
        if let Some(hint) = hints::of_failure(failure) {
            // A hint can hold lines to be copied, such as rules of a role. No text of the datastore is in it.
            let mut lines = hint.lines();
            self.labelled("hint", HINT, lines.next().unwrap_or_default());
            lines.for_each(|line| self.say(line));
        }
    }
}

/// True if the locale is one of UTF-8, as the C library finds it.
fn locale_has_unicode() -> bool {
    let mut locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
    let locale = locale.find(|value| !value.is_empty()).unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Columns of the terminal that stdout is.
fn terminal_width() -> Option<u16> {
    let (Width(width), _) = terminal_size::terminal_size_of(io::stdout())?;
    (width >= NARROWEST).then_some(width)
}
