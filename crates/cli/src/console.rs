//! The output of the process: data goes to stdout, everything else to stderr.

use std::ffi::OsString;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anstream::{AutoStream, ColorChoice};
use calipam_model::parallel::lock;
use clap::builder::styling::{AnsiColor, Style};
use terminal_size::Width;

use crate::args::{Global, value_in_words};
use crate::exit::{Failure, FailureForm, Result};
use crate::format::Format;
use crate::hints;
use crate::progress::LINES;
use crate::render::document::{self, Document, Printed};
use crate::render::failure::FailureDocument;
use crate::render::page::Page;
use crate::render::text::escape;
use crate::watched::Watched;

// The colors in which clap prints errors and tips.
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// The style of hints, including the hints in clap's errors.
pub(crate) const HINT: Style = AnsiColor::Green.on_default();
const NOTE: Style = Style::new().bold();

/// The minimum terminal width to which tables are fitted.
const NARROWEST: u16 = 40;
/// The size of the buffer for stdout.
const STDOUT_BUFFER: usize = 1 << 16;

/// True after something was printed on stdout.
static PRINTED: AtomicBool = AtomicBool::new(false);
/// True after the reader of stdout has closed the pipe.
pub(crate) static READER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// Prints a failure as a document, if the command line requests YAML or JSON and nothing was printed on stdout. Reads
/// the command line word by word, since it can be invalid.
pub(crate) fn print_failure(failure: &Failure, exit_code: u8, arguments: impl Iterator<Item = OsString>) {
    let Some(format @ (Format::Yaml | Format::Json)) = value_in_words(arguments, "output", Some('o')) else {
        return;
    };
    if PRINTED.load(Ordering::SeqCst) {
        return;
    }
    let document = FailureDocument {
        exit_code,
        message: failure.message.clone(),
        hint: hints::of_failure(failure),
    };
    // The failure is also on stderr, so an error on stdout is ignored.
    let _ = document::write(&document, format, Page::default(), &mut io::stdout().lock());
}

/// The output of the process, and its options.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    /// The format of data.
    pub format: Format,
    /// True with `--quiet`: progress, results of actions, hints and notes are not printed.
    pub quiet: bool,
    /// The number of `-v` options.
    pub verbose: u8,
    /// True if progress is shown on stderr.
    pub progress: bool,
    /// The layout of tables on stdout.
    pub page: Page,
    /// With `--watch`, the last printed document.
    pub watch: Option<Arc<Watched>>,
    /// The cluster of a fleet that this output is about; `None` without a fleet.
    pub fleet: Option<OfFleet>,
}

/// One of several clusters that are read in parallel.
#[derive(Clone, Debug)]
pub(crate) struct OfFleet {
    pub name: Arc<str>,
    /// The cluster's document, to be printed with those of the other clusters.
    pub printed: Arc<Mutex<Option<Printed>>>,
}

impl Console {
    /// Returns the console of one cluster of a fleet: messages begin with the cluster's name.
    pub(crate) fn of_cluster(&self, name: &str) -> Self {
        Self {
            fleet: Some(OfFleet {
                name: Arc::from(name),
                printed: Arc::default(),
            }),
            ..self.clone()
        }
    }

    /// Creates the console from the global options and the environment.
    pub(crate) fn new(global: &Global) -> Self {
        // A dumb terminal cannot draw over a line.
        let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let width = if io::stdout().is_terminal() {
            terminal_width()
        } else {
            None
        };
        Self {
            format: global.output,
            quiet: global.quiet,
            verbose: global.verbose,
            progress: io::stderr().is_terminal() && !is_dumb && !global.quiet,
            page: Page {
                color: AutoStream::choice(&io::stdout()) != ColorChoice::Never,
                unicode: locale_has_unicode(),
                width,
                ..Page::default()
            },
            watch: None,
            fleet: None,
        }
    }

    /// True if a document is printed even if it has no findings or changes. With `--quiet`, a table without findings or
    /// changes is printed only with `--watch`, or for a cluster of a fleet.
    pub(crate) fn prints_empty_results(&self) -> bool {
        !self.quiet || !self.format.is_for_people() || self.watch.is_some() || self.fleet.is_some()
    }

    /// Leaks `data`, since the process ends soon, and freeing a million objects would only delay the end. With
    /// `--watch`, and for a cluster of a fleet, drops the data instead.
    pub(crate) fn done_with<T>(&self, data: T) {
        match (&self.watch, &self.fleet) {
            (None, None) => std::mem::forget(data),
            _ => drop(data),
        }
    }

    /// Prints a document on stdout in the requested format. The document of a fleet's cluster is kept, and printed
    /// later.
    pub(crate) fn print(&self, document: &impl Document) -> Result<()> {
        if let Some(cluster) = &self.fleet {
            let printed =
                Printed::of(document, self.format, self.page).map_err(Failure::io("write the output"))?;
            *lock(&cluster.printed) = Some(printed);
            return Ok(());
        }

        let separator = match &self.watch {
            Some(watch) => watch.separator(document, self.format),
            None => Some(""),
        };
        let Some(separator) = separator else {
            // The document has not changed since it was last printed.
            return Ok(());
        };
        self.data(|out| {
            out.write_all(separator.as_bytes())?;
            document::write(document, self.format, self.page, out)
        })
    }

    /// Writes data to stdout like [`Self::write_data`], and returns errors as failures.
    pub(crate) fn data(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        self.write_data(write).map_err(|error| match error.kind() {
            // `--sort-by` names an unknown column.
            ErrorKind::InvalidInput => Failure::usage(error.to_string()),
            _ => Failure::io("write the output")(error),
        })
    }

    /// Writes data to stdout with `write`, and returns its error or that of stdout. A reader that closes the pipe, such
    /// as `head`, is not an error, but noted for commands that have to know.
    pub(crate) fn write_data(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        // From now on, a failure must not print its own document, which would follow this one.
        PRINTED.store(true, Ordering::SeqCst);
        let mut out = BufWriter::with_capacity(STDOUT_BUFFER, io::stdout().lock());
        let Err(error) = write(&mut out).and_then(|()| out.flush()) else {
            return Ok(());
        };

        // Takes the buffer away: a writer that is dropped with it would try to write it again.
        drop(out.into_parts());
        if error.kind() == ErrorKind::BrokenPipe {
            READER_IS_GONE.store(true, Ordering::SeqCst);
            return Ok(());
        }
        Err(error)
    }

    /// Prints a line on stderr. Ignores errors, since they could not be reported.
    pub(crate) fn say(&self, line: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", escape(line));
    }

    /// Prints a line with a colored label on stderr, in a fleet with the name of the cluster. Ignores errors, since
    /// they could not be reported.
    fn labelled(&self, label: &str, style: Style, text: &str) {
        let cluster = match &self.fleet {
            Some(cluster) => format!("{}: ", escape(&cluster.name)),
            None => String::new(),
        };
        let print = || {
            writeln!(
                anstream::stderr().lock(),
                "{style}{label}:{style:#} {cluster}{}",
                escape(text)
            )
        };
        // Messages are printed above the progress lines.
        let _ = LINES.suspend(print);
    }

    /// Prints a hint about the next step.
    pub(crate) fn hint(&self, text: &str) {
        if !self.quiet {
            self.labelled("hint", HINT, text);
        }
    }

    /// Prints the result of an action.
    pub(crate) fn info(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// Prints a note on the meaning of the output.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.labelled("note", NOTE, text);
        }
    }

    /// Prints a problem that does not stop the command.
    pub(crate) fn warn(&self, text: &str) {
        self.labelled("warning", WARNING, text);
    }

    /// Prints a detail, only with `-v`.
    pub(crate) fn verbose(&self, text: &str) {
        if self.verbose > 0 {
            self.say(text);
        }
    }

    /// Prints a failure with its hint on stderr. Prints nothing if clap has printed the failure already.
    pub(crate) fn failure(&self, failure: &Failure) {
        match failure.form {
            FailureForm::Labelled => self.labelled("error", ERROR, &failure.message),
            FailureForm::Plain => {
                for line in failure.message.lines() {
                    self.say(line);
                }
            }
            FailureForm::Already => return,
        }
        if let Some(hint) = hints::of_failure(failure) {
            self.hint_of_lines(&hint);
        }
    }

    /// Prints a hint that can contain lines to copy, such as the rules of a role. Names from the datastore cannot add
    /// lines, since they are escaped.
    fn hint_of_lines(&self, hint: &str) {
        let mut lines = hint.lines();
        self.labelled("hint", HINT, lines.next().unwrap_or_default());
        for line in lines {
            self.say(line);
        }
    }
}

/// True if the locale uses UTF-8, by the rules of the C library.
fn locale_has_unicode() -> bool {
    for variable in ["LC_ALL", "LC_CTYPE", "LANG"] {
        // The first variable that is set counts.
        let value = std::env::var_os(variable).unwrap_or_default();
        if !value.is_empty() {
            let locale = value.to_string_lossy().to_ascii_lowercase();
            return locale.contains("utf-8") || locale.contains("utf8");
        }
    }
    false
}

/// Returns the width of the terminal on stdout; `None` if stdout is not a terminal, or if the terminal is narrower than
/// [`NARROWEST`].
fn terminal_width() -> Option<u16> {
    let (Width(width), _) = terminal_size::terminal_size_of(io::stdout())?;
    if width < NARROWEST {
        return None;
    }
    Some(width)
}
