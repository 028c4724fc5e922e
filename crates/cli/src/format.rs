//! The output formats, by the names that `-o` takes. `render/document.rs` writes a document in each of them; those that only the
//! report of a check has are written by `render/report`.

use std::ffi::OsString;

use clap::ValueEnum;

use crate::render::document::Detail;

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    #[default]
    Table,
    /// A table with everything
    Wide,
    /// YAML, schema calipam/v2
    Yaml,
    /// JSON, schema calipam/v2
    Json,
    /// Names, one per line: `pool/NAME`; of a check, of the subjects of its findings
    Name,
    /// Of a check: metrics in the Prometheus text format
    Prometheus,
    /// Of a check: JUnit XML, one test case per rule
    Junit,
    /// Of a check: SARIF 2.1.0
    Sarif,
    /// Of a check: an HTML page with a map of the pools
    Html,
    /// Of a check: lines for an --ignore file
    Ignore,
}

impl Format {
    /// True where only the report of a check has the format; names are of `show`, too.
    pub(crate) fn is_for_reports(self) -> bool {
        !matches!(self, Self::Table | Self::Wide) && !self.is_document()
    }

    /// True where programs read a document.
    pub(crate) fn is_document(self) -> bool {
        matches!(self, Self::Yaml | Self::Json)
    }

    /// The format that a command line asks for, which may be wrong elsewhere.
    pub(crate) fn in_words(words: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut words = words.map(|word| word.to_string_lossy().into_owned()).take_while(|word| word != "--");
        let mut found = None;
        while let Some(word) = words.next() {
            let value = match word.strip_prefix("--") {
                Some("output") => words.next(),
                Some(long) => long.strip_prefix("output=").map(str::to_owned),
                // Short options may stand together: `-qo json`, `-vojson`.
                None => match word.strip_prefix('-').and_then(|short| {
                    short.split_once('o').filter(|(flags, _)| flags.chars().all(|flag| "qvy".contains(flag)))
                }) {
                    Some((_, "")) => words.next(),
                    Some((_, value)) => Some(value.trim_start_matches('=').to_owned()),
                    None => None,
                },
            };
            found = value.and_then(|value| Self::from_str(&value, false).ok()).or(found);
        }
        found
    }

    /// How much people want to read; `None` where a program reads.
    pub(crate) fn detail(self) -> Option<Detail> {
        match self {
            Self::Table => Some(Detail::Short),
            Self::Wide => Some(Detail::Full),
            _ => None,
        }
    }
}
