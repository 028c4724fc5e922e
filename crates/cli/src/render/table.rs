//! Tables without lines: columns two spaces apart.

use std::borrow::Cow;
use std::io::{self, Write};

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width,
};

use super::text::escape;

/// How the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// What tables are written on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub color: bool,
    /// Columns of the terminal; `None` for a file or pipe.
    pub width: Option<u16>,
}

/// A table that is being filled.
#[derive(Debug)]
pub struct Grid {
    columns: Vec<(String, Align)>,
    rows: Vec<(Option<Color>, Vec<String>)>,
    page: Page,
}

/// The narrowest that a last column is made on a terminal.
const NARROWEST: u16 = 24;
/// Spaces between columns.
const GAP: u16 = 2;
/// Longest text of a cell, in characters; YAML and JSON have all of it.
const LONGEST: usize = 300;
/// Rows that are laid out at once: a table of a million rows takes the memory of its texts.
const CHUNK: usize = 1000;

impl Grid {
    /// A table with these columns.
    pub fn new(page: Page, columns: &[(&str, Align)]) -> Self {
        Self {
            columns: columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect(),
            rows: Vec::new(),
            page,
        }
    }

    /// Adds a row. Cells are escaped here: no text of the datastore reaches a terminal otherwise.
    pub fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.colored_row(None, cells);
    }

    /// Adds a row whose first cell has a colour, where colours are wanted.
    pub fn colored_row<T: AsRef<str>>(&mut self, color: Option<Color>, cells: impl IntoIterator<Item = T>) {
        self.rows.push((color, cells.into_iter().map(|text| cut(escape(text.as_ref()))).collect()));
    }

    /// Writes the table. Only the last column is broken where the terminal is too narrow; where that is not
    /// enough, lines are left to the terminal.
    pub fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut needed = vec![0; self.columns.len()];
        let mut chunks = self.rows.chunks(CHUNK);
        let first = chunks.next().unwrap_or_default();
        for chunk in std::iter::once(first).chain(chunks) {
            // Widths count what the header takes, too.
            for (width, wanted) in needed.iter_mut().zip(self.table(chunk).column_max_content_widths()) {
                *width = wanted.max(*width);
            }
        }
        let (last, others) = needed.split_last().map_or((0, 0), |(last, others)| {
            (*last, others.iter().map(|width| u32::from(*width) + u32::from(GAP)).sum())
        });
        self.page.width =
            self.page.width.filter(|width| others + u32::from(last.min(NARROWEST)) <= u32::from(*width));
        let mut chunks = self.rows.chunks(CHUNK);
        let first = chunks.next().unwrap_or_default();
        for (place, chunk) in std::iter::once(first).chain(chunks).enumerate() {
            let mut table = self.table(chunk);
            self.fix_widths(&mut table, &needed);
            for line in table.lines().skip(usize::from(place > 0)) {
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }

    /// A part of the rows, below the header.
    fn table(&self, rows: &[(Option<Color>, Vec<String>)]) -> Table {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        if self.page.color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        match self.page.width {
            Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        let bold = |name: &String| {
            let cell = Cell::new(name);
            if self.page.color { cell.add_attribute(Attribute::Bold) } else { cell }
        };
        table.set_header(self.columns.iter().map(|(name, _)| bold(name)));
        for (color, cells) in rows {
            let cell = |(place, text): (usize, &String)| match color.filter(|_| self.page.color && place == 0)
            {
                Some(color) => Cell::new(text).fg(color),
                None => Cell::new(text),
            };
            table.add_row(cells.iter().enumerate().map(cell).collect::<Vec<_>>());
        }
        table
    }

    /// Gives the columns the widths that all rows need.
    fn fix_widths(&self, table: &mut Table, needed: &[u16]) {
        let last = self.columns.len().saturating_sub(1);
        for ((place, column), (_, align)) in table.column_iter_mut().enumerate().zip(&self.columns) {
            if *align == Align::Right {
                column.set_cell_alignment(CellAlignment::Right);
            }
            let padding = if place == last { 0 } else { GAP };
            column.set_padding((0, padding));
            let width = needed.get(place).copied().unwrap_or_default();
            column.set_constraint(if place == last && self.page.width.is_some() {
                ColumnConstraint::LowerBoundary(Width::Fixed(width.min(NARROWEST)))
            } else {
                ColumnConstraint::Absolute(Width::Fixed(width.saturating_add(padding)))
            });
        }
    }
}

/// A text that is not too long for a cell.
fn cut(text: Cow<'_, str>) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Page = Page { color: false, width: Some(40) };

    fn text(grid: Grid) -> String {
        let mut out = Vec::new();
        grid.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_stand_two_spaces_apart() {
        let mut grid =
            Grid::new(Page::default(), &[("A", Align::Left), ("COUNT", Align::Right), ("B", Align::Left)]);
        grid.row(["long text", "1", "x\ty"]);
        grid.row(["s", "1,000", ""]);
        assert_eq!(text(grid), "A          COUNT  B\nlong text      1  x\\ty\ns          1,000\n");
    }

    #[test]
    fn a_narrow_terminal_breaks_the_last_column() {
        let mut grid = Grid::new(NARROW, &[("A", Align::Left), ("B", Align::Left)]);
        grid.row(["10.244.1.7", "used by default/web-0 and default/web-1 at once"]);
        let shown = text(grid);
        assert!(shown.lines().count() > 2 && shown.lines().all(|line| line.chars().count() <= 40), "{shown}");
    }

    #[test]
    fn rows_far_down_stand_below_those_at_the_top() {
        let columns = [("A", Align::Left), ("N", Align::Right), ("B", Align::Left)];
        let mut grid = Grid::new(Page::default(), &columns);
        for number in 0..=2 * CHUNK {
            grid.row(["x".repeat(1 + number / CHUNK * 5), number.to_string(), "end".to_owned()]);
        }
        let shown = text(grid);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 2 * CHUNK + 2, "one header only");
        assert_eq!(lines[0], "A               N  B");
        assert_eq!(lines[1], "x               0  end");
        assert_eq!(lines[2 * CHUNK + 1], "xxxxxxxxxxx  2000  end");
    }

    #[test]
    fn texts_without_end_are_cut() {
        let mut grid = Grid::new(Page::default(), &[("A", Align::Left)]);
        grid.row(["é".repeat(1_000_000)]);
        assert_eq!(text(grid).lines().nth(1).unwrap().chars().count(), LONGEST + 1);
    }

    #[test]
    fn a_terminal_that_is_far_too_narrow_breaks_lines_by_itself() {
        let columns = [("A", Align::Left), ("B", Align::Left)];
        let mut grid = Grid::new(NARROW, &columns);
        let (a, b) = ("x".repeat(30), "two words and more of them");
        grid.row([a.as_str(), b]);
        assert_eq!(text(grid).lines().nth(1), Some(format!("{a}  {b}").as_str()));
    }

    #[test]
    fn colours_appear_only_where_they_are_wanted() {
        for color in [false, true] {
            let mut grid = Grid::new(Page { color, width: None }, &[("A", Align::Left)]);
            grid.colored_row(Some(Color::Red), ["x"]);
            assert_eq!(text(grid).contains('\u{1b}'), color);
        }
    }
}
