//! The terminal, file or pipe to which output is written.

use clap::builder::styling::Style;

/// The properties of the terminal, file or pipe to which output is written, and the form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub color: bool,
    /// True if bars and maps may contain characters beyond ASCII.
    pub unicode: bool,
    /// The width of the terminal in columns, to which lines are fitted; `None` for a file, a pipe or a very narrow
    /// terminal.
    pub width: Option<u16>,
    /// True if everything is printed (`-o wide`), even if it does not fit on a screen.
    pub wide: bool,
    /// True if only the rows of tables are printed, without headers and other lines.
    pub rows_only: bool,
    /// The column to sort tables by, as the user typed it; descending with a `-` in front.
    pub sort_by: Option<&'static str>,
}

impl Page {
    /// Applies a style to text, if the output has colors.
    pub(crate) fn styled(self, style: Style, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}
