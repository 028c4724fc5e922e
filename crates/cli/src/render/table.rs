//! Tables without lines: columns two spaces apart.

use std::io::{self, Write};

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Row, Table, Width,
};

use super::text::escape;
use crate::output::Console;

/// How the cells of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table that is being filled.
#[derive(Debug)]
pub struct Grid {
    table: Table,
    color: bool,
    columns: Vec<Align>,
}

/// The narrowest that a last column is made on a terminal.
const NARROWEST: u16 = 24;

impl Grid {
    /// A table with these columns.
    pub fn new(console: &Console, columns: &[(&str, Align)]) -> Self {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        if console.color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let bold = |name: &str| {
            let cell = Cell::new(name);
            if console.color { cell.add_attribute(Attribute::Bold) } else { cell }
        };
        table.set_header(columns.iter().map(|(name, _)| bold(name)));
        match console.width.and_then(|width| u16::try_from(width).ok()) {
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        let columns: Vec<Align> = columns.iter().map(|(_, align)| *align).collect();
        for (column, align) in table.column_iter_mut().zip(&columns) {
            column.set_padding((0, 2));
            if *align == Align::Right {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self { table, color: console.color, columns }
    }

    /// Adds a row. Cells are escaped here: no text of the datastore reaches a terminal otherwise.
    pub fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.colored_row(None, cells);
    }

    /// Adds a row whose first cell has a colour, where colours are wanted.
    pub fn colored_row<T: AsRef<str>>(&mut self, color: Option<Color>, cells: impl IntoIterator<Item = T>) {
        let mut row = Row::new();
        for (place, text) in cells.into_iter().enumerate() {
            let cell = Cell::new(escape(text.as_ref()));
            row.add_cell(match color.filter(|_| self.color && place == 0) {
                Some(color) => cell.fg(color),
                None => cell,
            });
        }
        self.table.add_row(row);
    }

    /// Writes the table. Only the last column is broken where the terminal is too narrow.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(mut self, out: &mut dyn Write) -> io::Result<()> {
        let last = self.columns.len().saturating_sub(1);
        let needed = self.table.column_max_content_widths();
        for (place, column) in self.table.column_iter_mut().enumerate() {
            if place == last {
                let least = needed.get(place).map_or(NARROWEST, |width| NARROWEST.min(*width));
                column.set_padding((0, 0));
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
            } else {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        for line in self.table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(width: Option<usize>, color: bool) -> Console {
        Console {
            format: crate::args::Format::Table,
            quiet: false,
            verbose: 0,
            color,
            progress: false,
            width,
        }
    }

    fn text(grid: Grid) -> String {
        let mut out = Vec::new();
        grid.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_stand_two_spaces_apart() {
        let mut grid = Grid::new(
            &console(None, false),
            &[("A", Align::Left), ("COUNT", Align::Right), ("B", Align::Left)],
        );
        grid.row(["long text", "1", "x\ty"]);
        grid.row(["s", "1,000", ""]);
        assert_eq!(text(grid), "A          COUNT  B\nlong text      1  x\\ty\ns          1,000\n");
    }

    #[test]
    fn a_narrow_terminal_breaks_the_last_column() {
        let mut grid = Grid::new(&console(Some(40), false), &[("A", Align::Left), ("B", Align::Left)]);
        grid.row(["10.244.1.7", "used by default/web-0 and default/web-1 at once"]);
        let shown = text(grid);
        assert!(shown.lines().count() > 2 && shown.lines().all(|line| line.chars().count() <= 40), "{shown}");
    }

    #[test]
    fn colours_appear_only_where_they_are_wanted() {
        for color in [false, true] {
            let mut grid = Grid::new(&console(None, color), &[("A", Align::Left)]);
            grid.colored_row(Some(Color::Red), ["x"]);
            assert_eq!(text(grid).contains('\u{1b}'), color);
        }
    }
}
