//! Lines and tables for people, as the terminal takes them.

use std::io;

use clap::builder::styling::Style;

use super::table::{Column, Grid};
use super::text::escape;
use super::wrap::on_page;

/// The terminal, file or pipe that a text is written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub color: bool,
    /// Characters beyond ASCII may be drawn with: bars and maps.
    pub unicode: bool,
    /// Columns of the terminal; `None` for a file or pipe, if nothing is cut or broken.
    pub width: Option<u16>,
    /// Everything is wanted (`-o wide`), not only what fits on a screen.
    pub wide: bool,
    /// Tables have no header, and nothing is around them.
    pub rows_only: bool,
    /// The column by whose cells the rows of tables are sorted, as it was typed; after `-` descending.
    pub sort_by: Option<&'static str>,
}

impl Page {
    /// A text in a style, if colours are wanted.
    pub(crate) fn styled(self, style: Style, text: &str) -> String {
        if self.color && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// A text that is being written on a page. Text of the datastore is escaped here: it reaches no terminal otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    pub page: Page,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
enum Part {
    /// As it is printed.
    Line(String),
    /// With the column that it is sorted by.
    Grid(Grid, Option<&'static str>),
}

impl Text {
    pub(crate) fn new(page: Page) -> Self {
        Self { page, ..Self::default() }
    }

    /// Adds a line, which is broken between words where the page is too narrow.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.hanging(0, line);
    }

    /// Adds a line whose continuations are below `indent` spaces.
    pub(crate) fn hanging(&mut self, indent: usize, line: impl AsRef<str>) {
        self.drawn(&on_page(&escape(line.as_ref()), indent, self.page));
    }

    pub(crate) fn lines<T: AsRef<str>>(&mut self, lines: impl IntoIterator<Item = T>) {
        lines.into_iter().for_each(|line| self.line(line));
    }

    /// Adds an empty line and these lines, if there are any.
    pub(crate) fn notes(&mut self, notes: &[String]) {
        if !notes.is_empty() {
            self.blank();
            self.lines(notes);
        }
    }

    pub(crate) fn blank(&mut self) {
        self.drawn("");
    }

    /// Adds a line in a style.
    pub(crate) fn styled(&mut self, style: Style, line: &str) {
        self.drawn(&self.page.styled(style, &escape(line)));
    }

    /// Adds a line as it is, styles included.
    pub(crate) fn drawn(&mut self, line: &str) {
        if !self.page.rows_only {
            self.parts.push(Part::Line(format!("{line}\n")));
        }
    }

    /// Adds a table.
    pub(crate) fn table<R: Copy>(&mut self, rows: impl IntoIterator<Item = R>, columns: Vec<Column<'_, R>>) {
        self.grid(Grid::new(self.page.wide, rows, columns));
    }

    /// Adds a table.
    pub(crate) fn grid(&mut self, grid: Grid) {
        self.parts.push(Part::Grid(grid, self.page.sort_by));
    }

    /// Adds a table and an empty line, if the table has rows.
    pub(crate) fn section(&mut self, grid: Grid) {
        if !grid.is_empty() {
            self.grid(grid);
            self.blank();
        }
    }

    /// Adds the same beside the table that the command is about: it is not sorted, and left out where only rows are wanted.
    pub(crate) fn aside(&mut self, grid: Grid) {
        if !self.page.rows_only {
            let sort_by = self.page.sort_by.take();
            self.section(grid);
            self.page.sort_by = sort_by;
        }
    }

    /// Adds the texts of several clusters: their tables as one, with the cluster in the first column, and what follows each table.
    /// Those without a table are added one below the other.
    pub(crate) fn clusters(&mut self, texts: Vec<(&str, Self)>) {
        let (mut grids, mut after) = (Vec::new(), Vec::new());
        for (name, text) in texts {
            let place = text.parts.iter().position(|part| matches!(part, Part::Grid(..)));
            let mut parts = text.parts.into_iter().skip(place.unwrap_or_default()).peekable();
            match parts.next_if(|part| matches!(part, Part::Grid(..))) {
                Some(Part::Grid(grid, _)) => grids.push((name, grid)),
                _ => self.styled(Style::new().bold(), name),
            }
            // Notes of a table say which cluster they are of.
            let of = if place.is_some() { format!("{}: ", escape(name)) } else { String::new() };
            let lines = parts.filter_map(|part| match part {
                Part::Line(line) if place.is_none() || line != "\n" => {
                    Some(Part::Line(format!("{of}{line}")))
                }
                _ => None,
            });
            if place.is_some() {
                after.extend(lines);
            } else {
                self.parts.extend(lines);
                self.blank();
            }
        }
        if !grids.is_empty() {
            self.grid(Grid::of_clusters(grids));
            if !after.is_empty() {
                self.blank();
            }
            self.parts.extend(after);
        }
    }

    /// The text.
    ///
    /// # Errors
    /// If its tables are to be sorted by a column that one of them does not have.
    pub(crate) fn finish(self) -> io::Result<String> {
        let mut written = String::new();
        for part in self.parts {
            match part {
                Part::Line(line) => written.push_str(&line),
                Part::Grid(grid, sort_by) => {
                    let table = grid.draw(Page { sort_by, ..self.page });
                    let table =
                        table.map_err(|failure| io::Error::new(io::ErrorKind::InvalidInput, failure))?;
                    written.push_str(&table);
                }
            }
        }
        Ok(written)
    }
}
