//! Lists as tables without borders. Columns are separated by two spaces, and fitted to the terminal.

mod fit;
mod sort;

use std::borrow::Cow;
use std::collections::BTreeMap;

use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{CellAlignment, ColumnConstraint, ContentLineStyle, LineStyle, Table, TableStyle, Width};

use self::fit::Fit;
use super::column::{Column, Form, left, right};
use super::page::Page;
use super::text::{escape, join, thousands};
use super::wrap::{cut, cut_words, on_page};

/// A list with the cells of all rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    columns: Vec<Cells>,
    rows: usize,
}

/// A column with its cells.
#[derive(Clone, Debug)]
struct Cells {
    title: &'static str,
    is_right: bool,
    hidden: u8,
    if_any: bool,
    cells: Vec<(String, Style)>,
}

/// The number of spaces between columns.
const GAP: usize = 2;
const HEADER: Style = Style::new().bold();
/// The separators that comfy-table draws between cells, and as a line between rows. They cannot occur in the text of a
/// cell, since [`escape`] replaces such characters.
const CELL_END: char = '\u{1f}';
const ROW_END: char = '\u{1e}';
const SEPARATED: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction(CELL_END))
    .header_separator(LineStyle::none().fill(ROW_END))
    .content_lines(ContentLineStyle::none().junction(CELL_END))
    .row_separator(LineStyle::none().fill(ROW_END));

/// The maximum number of rows that are shown one by one; more are summarized by kind.
pub(crate) const FEW: usize = 25;
/// The limit in place of [`FEW`] for a list whose rows are always summarized by kind.
pub(crate) const NONE_SINGLY: usize = 0;

impl Grid {
    /// Creates a list with a row for each element. Columns for wide tables are left out of others.
    pub(crate) fn new<R: Copy>(
        wide: bool,
        rows: impl IntoIterator<Item = R>,
        columns: Vec<Column<'_, R>>,
    ) -> Self {
        let rows: Vec<R> = rows.into_iter().collect();
        let mut shown = Vec::new();
        for column in columns {
            if wide || !column.wide || column.if_any {
                shown.push(Cells::new(column, &rows, wide));
            }
        }
        Self {
            columns: shown,
            rows: rows.len(),
        }
    }

    /// Creates a list with a row for each element and the same columns in every table, wide or not.
    pub(crate) fn fixed<R: Copy>(rows: impl IntoIterator<Item = R>, columns: Vec<Column<'_, R>>) -> Self {
        let wide = false;
        Self::new(wide, rows, columns)
    }

    /// Creates the short form of a list. If the list has more than `few` rows and is not `wide`, rows of the same kind
    /// are merged into one, with their number, and the first of them as an example. The kinds are sorted.
    pub(crate) fn short<R: Copy, K: Ord, T: ToString>(
        wide: bool,
        few: usize,
        rows: impl IntoIterator<Item = R>,
        columns: Vec<Column<'_, R>>,
        kind: impl Fn(R) -> K,
        example: impl Fn(R) -> T,
    ) -> Self {
        let rows: Vec<R> = rows.into_iter().collect();
        if wide || rows.len() <= few {
            let mut columns = columns;
            columns.retain(|column| column.form != Form::Kinds);
            return Self::new(wide, rows, columns);
        }

        // Each kind is a row: the first of its rows, and their number.
        let mut kinds = Vec::new();
        for of_kind in by_kind(rows, kind) {
            kinds.push((of_kind[0], of_kind.len()));
        }
        let mut columns = columns_of_kinds(columns);
        columns.push(left("FOR EXAMPLE", |(row, _)| example(row)));
        Self::new(wide, kinds, columns)
    }

    /// Appends the rows of another list of the same kind. A column that only one list has, at its position in that
    /// list, contains dashes in the rows of the other.
    pub(crate) fn extend(&mut self, other: Self) {
        let rows_before = self.rows;
        self.rows += other.rows;
        for (position, mut column) in other.columns.into_iter().enumerate() {
            let mut columns = self.columns.iter_mut();
            if let Some(same) = columns.find(|existing| existing.title == column.title) {
                same.cells.append(&mut column.cells);
            } else {
                column.cells.splice(..0, vec![no_cell(); rows_before]);
                self.columns.insert(position.min(self.columns.len()), column);
            }
        }
        // The columns that only this list has end before the new rows.
        for column in &mut self.columns {
            column.cells.resize(self.rows, no_cell());
        }
    }

    /// Joins the lists of several clusters, each with its cluster's name, into one with the cluster in the first
    /// column.
    pub(crate) fn of_clusters<'a>(lists: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let mut lists = lists.into_iter();
        let Some((first_name, mut combined)) = lists.next() else {
            return Self::default();
        };
        // The name of the cluster in each row.
        let mut names: Vec<&str> = vec![first_name; combined.rows];
        for (name, list) in lists {
            names.resize(names.len() + list.rows, name);
            combined.extend(list);
        }
        let clusters = Self::fixed(names, vec![left("CLUSTER", |name| name)]);
        combined.columns.splice(..0, clusters.columns);
        combined
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// True if the first columns of both lists have the same title.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.heads().next() == other.heads().next()
    }

    /// Returns the title of each column, and whether the column contains numbers.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.columns.iter().map(|column| (column.title, column.is_right))
    }

    /// Returns each row as the texts of its cells, in the order of the columns.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        (0..self.rows).map(|row| {
            self.columns
                .iter()
                .map(|column| column.cells[row].0.clone())
                .collect()
        })
    }

    /// Removes columns that are shown only if a row has a value, but for which no row has one.
    pub(crate) fn drop_empty(&mut self) {
        self.columns.retain(|column| !column.if_any || column.has_any());
    }

    /// Draws the table. If the terminal is too narrow, cells are wrapped between words. A short table also cuts handle
    /// IDs and long words, and hides columns. If the table is still too wide, the terminal breaks its lines.
    ///
    /// # Errors
    /// If the list does not have the column to sort by.
    pub(crate) fn draw(mut self, page: Page) -> Result<String, String> {
        self.drop_empty();
        if let Some(wanted) = page.sort_by {
            self.sort(wanted)?;
        }
        let Fit { widths, hidden } = self.fit(page);
        let mut text = self.styled(&self.table(widths.as_deref(), page).to_string(), page);
        if !page.rows_only && !hidden.is_empty() {
            let indent = 0;
            text.push_str(&on_page(&note_of_hidden(&hidden), indent, page));
            text.push('\n');
        }
        Ok(text)
    }

    /// Builds the table without styles. Separators mark the ends of cells and rows, where [`Self::styled`] puts the
    /// styles after the layout. `widths` are those of the columns; without them, each column is as wide as its widest
    /// cell.
    fn table(&self, widths: Option<&[usize]>, page: Page) -> Table {
        let mut table = Table::new();
        table.load_style(SEPARATED);
        if !page.rows_only {
            table.set_header(self.columns.iter().map(|column| column.title));
        }
        for row in 0..self.rows {
            table.add_row(self.texts_of_row(row, widths));
        }
        for (position, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, GAP as u16));
            if self.columns[position].is_right {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if let Some(widths) = widths {
                let width = Width::Fixed((widths[position] + GAP) as u16);
                column.set_constraint(ColumnConstraint::Absolute(width));
            }
        }
        table
    }

    /// Returns the texts of the cells of a row. With `widths` of the columns, words that are longer are cut.
    fn texts_of_row<'g>(
        &'g self,
        row: usize,
        widths: Option<&'g [usize]>,
    ) -> impl Iterator<Item = Cow<'g, str>> {
        let columns = self.columns.iter().enumerate();
        columns.map(move |(position, column)| {
            let (text, _) = &column.cells[row];
            match widths {
                Some(widths) => cut_words(text, widths[position]),
                None => Cow::Borrowed(text.as_str()),
            }
        })
    }

    /// Replaces the separators in a drawn table by the styles of the cells. Styles would count as text in the layout.
    fn styled(&self, drawn: &str, page: Page) -> String {
        let in_color = |style: Style| if page.color { style } else { Style::new() };
        // A row can have several lines, if its cells are wrapped. The first group of lines is the header.
        let lines: Vec<&str> = drawn.lines().collect();
        let mut rows = lines.split(|line| line.starts_with(ROW_END));

        let mut text = String::with_capacity(drawn.len());
        if !page.rows_only {
            let header = rows.next().unwrap_or_default();
            push_lines(&mut text, header, |_| in_color(HEADER));
        }
        for (row, lines) in rows.enumerate() {
            push_lines(&mut text, lines, |position| {
                let (_, style) = self.columns[position].cells[row];
                in_color(style)
            });
        }
        text
    }
}

/// Formats the note about the columns that the terminal is too narrow for.
fn note_of_hidden(titles: &[&str]) -> String {
    if let [title] = titles {
        return format!("({title} is hidden in a narrow terminal; `-o wide` shows it)");
    }
    let titles = join(titles);
    format!("({titles} are hidden in a narrow terminal; `-o wide` shows them)")
}

/// Returns the columns for rows that each stand for a kind. Those of both forms come first, then the number of rows of
/// the kind, and those of the short form alone.
fn columns_of_kinds<'a, R: 'a>(columns: Vec<Column<'a, R>>) -> Vec<Column<'a, (R, usize)>> {
    let mut of_both_forms = Vec::new();
    let mut of_short_form = Vec::new();
    for column in columns {
        match column.form {
            Form::Both => of_both_forms.push(column.by_kind()),
            Form::Kinds => of_short_form.push(column.by_kind()),
            Form::Rows => {}
        }
    }
    let mut columns = of_both_forms;
    columns.push(right("COUNT", |(_, number)| thousands(number)));
    columns.extend(of_short_form);
    columns
}

/// Groups rows by kind. Returns the rows of each kind, of which there is at least one, in the order of the kinds.
pub(crate) fn by_kind<R: Copy, K: Ord>(
    rows: impl IntoIterator<Item = R>,
    kind: impl Fn(R) -> K,
) -> Vec<Vec<R>> {
    let mut kinds: BTreeMap<K, Vec<R>> = BTreeMap::new();
    for row in rows {
        kinds.entry(kind(row)).or_default().push(row);
    }
    kinds.into_values().collect()
}

impl Cells {
    /// Formats the cell of a column in each row.
    fn new<R: Copy>(column: Column<'_, R>, rows: &[R], wide: bool) -> Self {
        let mut cells = Vec::with_capacity(rows.len());
        for row in rows {
            let text = (column.cell)(*row);
            let color = column.color.as_ref().and_then(|color| color(*row));
            let style = color.map(AnsiColor::on_default).unwrap_or_default();
            cells.push((cut(escape(&text)), style));
        }
        Self {
            title: column.title,
            is_right: column.is_right,
            hidden: column.hidden,
            // A column for wide tables is shown there even if it is empty.
            if_any: column.if_any && !(column.wide && wide),
            cells,
        }
    }

    /// Returns true if a row has a value.
    fn has_any(&self) -> bool {
        self.cells
            .iter()
            .any(|(cell, _)| !matches!(cell.as_str(), "" | "-" | "0"))
    }
}

fn no_cell() -> (String, Style) {
    ("-".to_owned(), Style::new())
}

/// Appends lines of a drawn table. Each cell has the style of its column.
fn push_lines(text: &mut String, lines: &[&str], style_of_column: impl Fn(usize) -> Style) {
    for line in lines {
        let mut styled = String::new();
        for (position, cell) in line.split(CELL_END).enumerate() {
            if cell.trim_matches(' ').is_empty() {
                styled.push_str(cell);
            } else {
                push_cell(&mut styled, cell, style_of_column(position));
            }
        }
        text.push_str(styled.trim_end());
        text.push('\n');
    }
}

/// Appends a cell in a style, which the spaces around its content do not get.
fn push_cell(text: &mut String, cell: &str, style: Style) {
    let content = cell.trim_matches(' ');
    let start = cell.len() - cell.trim_start_matches(' ').len();
    let before = &cell[..start];
    let after = &cell[start + content.len()..];
    text.push_str(&format!("{before}{style}{content}{style:#}{after}"));
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
