//! Documents: the output of commands in every format.

use std::io::{self, Write};

use calipam_check::API_VERSION;
use serde::Serialize;
use serde_json::Value;

use super::lines::Lines;
use super::output::Text;
use super::page::Page;
use super::yaml;
use crate::format::Format;

/// True for a number that a document leaves out.
pub(crate) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

/// The output of a command: as text, as content for YAML and JSON (by `Serialize`) and, for some commands, in other
/// formats.
pub(crate) trait Document: Serialize {
    /// The `kind` in YAML and JSON.
    const KIND: &'static str;

    fn kind(&self) -> &'static str {
        Self::KIND
    }

    /// Writes the document as text.
    fn text(&self, out: &mut Text);

    /// Writes a format that is not in [`Format::COMMON`]. Commands without such a format ([`Format::of_command`])
    /// refuse it before they read anything.
    fn report(&self, format: Format, _: &mut dyn Write) -> io::Result<()> {
        Err(unsupported(self.kind(), format))
    }
}

/// Creates the error for a format that a document does not have.
pub(crate) fn unsupported(kind: &str, format: Format) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("a {kind} has no format {format:?}"),
    )
}

/// Writes a document in any format.
pub(crate) fn write(
    document: &impl Document,
    format: Format,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table | Format::Wide => {
            let page = Page {
                wide: format == Format::Wide,
                ..page
            };
            out.write_all(text(document, page)?.as_bytes())
        }
        Format::Yaml => yaml::write(&versioned(document), out),
        Format::Json => {
            // Escapes what could harm a terminal.
            let mut out = Lines::json(out);
            serde_json::to_writer_pretty(&mut out, &versioned(document))?;
            writeln!(out)?;
            out.flush()
        }
        other => document.report(other, out),
    }
}

/// Returns a document as text.
///
/// # Errors
/// If a table is to be sorted by a column that it does not have.
pub(crate) fn text(document: &impl Document, page: Page) -> io::Result<String> {
    let mut text = Text::new(page);
    document.text(&mut text);
    text.into_string()
}

/// The output for one of several clusters, kept until all clusters are read. It is serialized only for YAML and JSON,
/// where it is always a `Value`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Printed {
    #[serde(skip)]
    Text(Text),
    Value(Value),
    /// The lines of `-o name`.
    #[serde(skip)]
    Names(String),
}

impl Printed {
    /// Renders a document in a format, to be written later among others. Fails if the document does not have that
    /// format.
    pub(crate) fn of(document: &impl Document, format: Format, page: Page) -> io::Result<Self> {
        match format {
            Format::Table | Format::Wide => {
                let mut text = Text::new(Page {
                    wide: format == Format::Wide,
                    ..page
                });
                document.text(&mut text);
                Ok(Self::Text(text))
            }
            Format::Yaml | Format::Json => Ok(Self::Value(value(document)?)),
            // The only other format for several clusters is that of names.
            other => {
                let mut names = Vec::new();
                document.report(other, &mut names)?;
                Ok(Self::Names(String::from_utf8_lossy(&names).into_owned()))
            }
        }
    }
}

/// Returns the document for YAML and JSON, as a value.
pub(crate) fn value(document: &impl Document) -> serde_json::Result<Value> {
    serde_json::to_value(versioned(document))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versioned<T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    content: T,
}

/// Adds the version and the kind of the schema to the content of a document.
fn versioned(content: &impl Document) -> impl Serialize {
    Versioned {
        api_version: API_VERSION,
        kind: content.kind(),
        content,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct List {
        a: u8,
    }

    impl Document for List {
        const KIND: &'static str = "List";

        fn text(&self, out: &mut Text) {
            out.line("a  1");
        }
    }

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(32))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_broken_pipe_stays_one() {
        for format in [Format::Table, Format::Wide, Format::Yaml, Format::Json] {
            let error = write(&List { a: 1 }, format, Page::default(), &mut Gone).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{format:?}");
        }
    }
}
