//! The output formats of `-o`. `render/document.rs` writes a document in the common formats. A document that has
//! further formats writes them itself, as `render/report` does for check reports.

use clap::ValueEnum;

use crate::exit::{Failure, Result};
use crate::render::text::joined;

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table
    #[default]
    Table,
    /// A table with everything
    Wide,
    /// YAML, schema calipam/v1
    Yaml,
    /// JSON, schema calipam/v1
    Json,
    /// Names, one per line, such as `pool/NAME`
    Name,
    /// Metrics in the Prometheus text format
    Prometheus,
    /// JUnit XML, one test case per rule
    Junit,
    /// An HTML page
    Html,
    /// Lines for an --ignore file
    Ignore,
}

impl Format {
    /// The formats of every command that prints a document.
    pub(crate) const COMMON: [Self; 4] = [Self::Table, Self::Wide, Self::Yaml, Self::Json];

    /// Returns the formats of a command; none if it prints no document.
    pub(crate) fn of_command(name: &str) -> &'static [Self] {
        match name {
            "check" => Self::value_variants(),
            "show" => &[Self::Table, Self::Wide, Self::Yaml, Self::Json, Self::Name],
            "simulate" => &[Self::Table, Self::Wide, Self::Yaml, Self::Json, Self::Html],
            "serve" | "record" | "export" | "completion" | "install-links" => &[],
            _ => &Self::COMMON,
        }
    }

    /// Refuses a format that is not in `formats`, those of the command of this name.
    pub(crate) fn require_one_of(self, formats: &[Self], command: &str) -> Result<()> {
        // A command without documents ignores the option, since a shell alias can add it to every command.
        if formats.is_empty() || formats.contains(&self) {
            return Ok(());
        }
        let name = |format: &Self| {
            format
                .to_possible_value()
                .map(|value| value.get_name().to_owned())
        };
        let names = joined(formats.iter().filter_map(name), ", ");
        let format = name(&self).unwrap_or_default();
        Err(Failure::usage(format!(
            "`{command}` has no format `{format}`; it has {names}"
        )))
    }

    /// True for the formats that people read on a terminal: tables.
    pub(crate) fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}
