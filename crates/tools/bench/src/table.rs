//! The tables that the parts of the benchmark print.

use std::error::Error;
use std::str::FromStr;

use crate::Failed;

/// A table in Markdown.
pub(crate) struct Table {
    titles: String,
    rows: Vec<String>,
}

impl Table {
    /// Creates an empty table. `titles` separates columns with `|`. Columns contain numbers, except those whose titles
    /// begin with `<`, which contain text.
    pub(crate) fn new(titles: impl Into<String>) -> Self {
        Self { titles: titles.into(), rows: Vec::new() }
    }

    /// Adds a row, with `|` between the cells.
    pub(crate) fn row(&mut self, cells: String) {
        assert_eq!(cells.matches('|').count(), self.titles.matches('|').count(), "{cells}");
        self.rows.push(cells);
    }

    pub(crate) fn print(&self) {
        let alignment = |title: &str| if title.trim().starts_with('<') { "---|" } else { "---:|" };
        println!("| {} |", self.titles.replace('<', ""));
        println!("|{}", self.titles.split('|').map(alignment).collect::<String>());
        self.rows.iter().for_each(|row| println!("| {row} |"));
    }
}

/// Calls `measure` for each size, so that it adds rows to tables with these titles. Then prints the tables.
pub(crate) fn of_sizes<S: FromStr<Err: Error + Send + Sync + 'static>, const N: usize>(
    sizes: &[String],
    titles: [&str; N],
    mut measure: impl FnMut(S, &mut [Table; N]) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut tables = titles.map(Table::new);
    sizes.iter().try_for_each(|size| measure(size.parse()?, &mut tables))?;
    for (place, table) in tables.iter().enumerate() {
        if place > 0 {
            println!();
        }
        table.print();
    }
    Ok(())
}

/// Prints a table with one row for each size.
pub(crate) fn rows<S: FromStr<Err: Error + Send + Sync + 'static>>(
    sizes: &[String],
    titles: &str,
    row: impl Fn(S) -> Result<String, Failed>,
) -> Result<(), Failed> {
    of_sizes(sizes, [titles], |size, [table]| {
        table.row(row(size)?);
        Ok(())
    })
}
