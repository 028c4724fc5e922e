//! Lines and tables of text output, fitted to the terminal.

use std::io;

use clap::builder::styling::Style;

use super::column::Column;
use super::page::Page;
use super::table::Grid;
use super::text::escape;
use super::wrap::on_page;

/// The lines and tables of a page. Strings from the datastore are escaped here, before they can reach a terminal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    pub page: Page,
    pub parts: Vec<Part>,
}

/// A part of a text.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// A line that is ready to be printed.
    Line(String),
    /// Lines that each have a name and a value.
    Facts(Vec<(&'static str, String)>),
    /// A line above a table. It is kept when the output for several clusters is joined.
    About(String),
    /// A table, with the column to sort it by.
    Grid(Grid, Option<&'static str>),
}

/// The width of the name column: the longest name of a fact, and two spaces.
const NAMES: usize = 11;

impl Text {
    pub(crate) fn new(page: Page) -> Self {
        Self {
            page,
            ..Self::default()
        }
    }

    /// Adds a line, which is broken between words if the page is too narrow.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.hanging(0, line);
    }

    /// Adds a line, and indents its continuations by `indent` spaces.
    pub(crate) fn hanging(&mut self, indent: usize, line: impl AsRef<str>) {
        self.drawn(&on_page(&escape(line.as_ref()), indent, self.page));
    }

    /// Adds a line as [`Self::hanging`] does. The line is kept when the output for several clusters is joined; see
    /// [`Self::clusters`].
    pub(crate) fn about(&mut self, indent: usize, line: impl AsRef<str>) {
        self.add(Part::About, &on_page(&escape(line.as_ref()), indent, self.page));
    }

    /// Adds a line with a name and a value, unless only rows of tables are printed. Consecutive lines are aligned.
    pub(crate) fn fact(&mut self, name: &'static str, value: impl ToString) {
        if self.page.rows_only {
            return;
        }
        let fact = (name, value.to_string());
        if let Some(Part::Facts(facts)) = self.parts.last_mut() {
            facts.push(fact);
        } else {
            self.parts.push(Part::Facts(vec![fact]));
        }
    }

    /// Adds the facts of the text `whole` that the text `before` does not have, or has with another value.
    pub(crate) fn facts_beyond(&mut self, whole: &Self, before: &Self) {
        let facts_before: Vec<_> = before.facts().collect();
        for fact in whole.facts() {
            if !facts_before.contains(&fact) {
                let (name, value) = fact;
                self.fact(name, value);
            }
        }
    }

    fn facts(&self) -> impl Iterator<Item = &(&'static str, String)> {
        let of_parts = self.parts.iter().filter_map(|part| match part {
            Part::Facts(facts) => Some(facts),
            _ => None,
        });
        of_parts.flatten()
    }

    pub(crate) fn lines<T: AsRef<str>>(&mut self, lines: impl IntoIterator<Item = T>) {
        for line in lines {
            self.line(line);
        }
    }

    /// Adds the notes, with an empty line before them if the text has any lines or tables.
    pub(crate) fn notes(&mut self, notes: &[String]) {
        if !notes.is_empty() && !self.parts.is_empty() {
            self.blank();
        }
        self.lines(notes);
    }

    pub(crate) fn blank(&mut self) {
        self.drawn("");
    }

    /// Adds a line in a style.
    pub(crate) fn styled(&mut self, style: Style, line: &str) {
        self.drawn(&self.page.styled(style, &escape(line)));
    }

    /// Adds a line unchanged, including styles, unless only table rows are printed.
    pub(crate) fn drawn(&mut self, line: &str) {
        self.add(Part::Line, line);
    }

    fn add(&mut self, part: fn(String) -> Part, line: &str) {
        if !self.page.rows_only {
            self.parts.push(part(format!("{line}\n")));
        }
    }

    pub(crate) fn table<R: Copy>(&mut self, rows: impl IntoIterator<Item = R>, columns: Vec<Column<'_, R>>) {
        self.grid(Grid::new(self.page.wide, rows, columns));
    }

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

    /// Adds a table that is not the subject of the command. It is never sorted, and it is omitted if only table rows
    /// are printed.
    pub(crate) fn aside(&mut self, grid: Grid) {
        if !self.page.rows_only && !grid.is_empty() {
            let sort_by = None;
            self.parts.push(Part::Grid(grid, sort_by));
            self.blank();
        }
    }

    /// Adds the output for several clusters. Output with neither a table nor a line of [`Self::about`] comes first,
    /// below its cluster's name. Then come the joined tables, and last the lines of [`Self::about`] and below tables.
    pub(crate) fn clusters(&mut self, texts: Vec<(&str, Self)>) {
        let mut joined = JoinedClusters::default();
        for (name, text) in texts {
            if text.has_only_lines() {
                self.styled(Style::new().bold(), name);
                self.parts.extend(text.parts);
                self.blank();
            } else {
                joined.add(name, text);
            }
        }

        let has_tables = !joined.lists.is_empty();
        for (position, tables) in joined.lists.into_iter().enumerate() {
            if position > 0 {
                self.blank();
            }
            self.grid(Grid::of_clusters(tables));
        }
        if has_tables && !joined.lines.is_empty() {
            self.blank();
        }
        self.parts.extend(joined.lines);
    }

    /// True if the text has neither a table nor a line of [`Self::about`].
    fn has_only_lines(&self) -> bool {
        self.parts
            .iter()
            .all(|part| matches!(part, Part::Line(_) | Part::Facts(_)))
    }

    /// Formats all parts for the page.
    ///
    /// # Errors
    /// If a table does not have the column to sort by.
    pub(crate) fn into_string(self) -> io::Result<String> {
        let mut written = String::new();
        for part in self.parts {
            match part {
                Part::Line(line) | Part::About(line) => written.push_str(&line),
                Part::Facts(facts) => {
                    for (name, value) in facts {
                        written.push_str(&fact(name, &value, self.page));
                    }
                }
                Part::Grid(grid, sort_by) => {
                    let drawn = grid.draw(Page { sort_by, ..self.page });
                    let table =
                        drawn.map_err(|failure| io::Error::new(io::ErrorKind::InvalidInput, failure))?;
                    written.push_str(&table);
                }
            }
        }
        Ok(written)
    }
}

/// The tables and lines of several clusters, which are joined.
#[derive(Default)]
struct JoinedClusters<'a> {
    /// The tables of each list, with the names of their clusters. They become one table.
    lists: Vec<Vec<(&'a str, Grid)>>,
    /// The lines that are written below all tables, each with its cluster's name in front.
    lines: Vec<Part>,
}

impl<'a> JoinedClusters<'a> {
    /// Adds the tables of a cluster's text, and the lines that still make sense below them.
    fn add(&mut self, name: &'a str, text: Text) {
        // The lines above the first table are about the cluster, whose name is in the table.
        let is_above = |part: &Part| matches!(part, Part::Line(_));
        for part in text.parts.into_iter().skip_while(is_above) {
            match part {
                Part::Grid(table, _) => self.add_table(name, table),
                Part::Line(line) | Part::About(line) => self.add_line(name, &line),
                // Facts describe a single object, and have no place among lists.
                Part::Facts(_) => {}
            }
        }
    }

    /// Adds a cluster's table to the list that has the same first column, or as the first table of a new list.
    fn add_table(&mut self, name: &'a str, table: Grid) {
        let is_of_list = |list: &&mut Vec<(&str, Grid)>| list[0].1.is_like(&table);
        match self.lists.iter_mut().find(is_of_list) {
            Some(list) => list.push((name, table)),
            None => self.lists.push(vec![(name, table)]),
        }
    }

    /// Adds a line, unless it only separates others.
    fn add_line(&mut self, name: &str, line: &str) {
        if line != "\n" {
            self.lines.push(Part::Line(format!("{}: {line}", escape(name))));
        }
    }
}

/// Formats a fact. The value begins next to its name, even if its first word is too long for the page.
fn fact(name: &str, value: &str, page: Page) -> String {
    let beside = Page {
        width: page.width.map(|width| width.saturating_sub(NAMES as u16)),
        ..page
    };
    let indent = 0;
    let wrapped = on_page(&escape(value), indent, beside);
    let mut lines = wrapped.lines();
    let mut text = format!("{name:NAMES$}{}\n", lines.next().unwrap_or_default());
    for line in lines {
        text.push_str(&format!("{:NAMES$}{line}\n", ""));
    }
    text
}
