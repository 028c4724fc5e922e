//! Columns of lists: titles, cells, and when a table shows them.

use clap::builder::styling::AnsiColor;

use super::text::thousands;

/// A column of a list.
pub(crate) struct Column<'a, R> {
    pub title: &'static str,
    pub(super) is_right: bool,
    /// The order in which columns are hidden if the terminal is too narrow for a short table, from 1; 0 for never.
    pub(super) hidden: u8,
    pub(super) wide: bool,
    pub(super) if_any: bool,
    pub(super) cell: Box<dyn Fn(R) -> String + 'a>,
    pub(super) color: Option<Box<dyn Fn(R) -> Option<AnsiColor> + 'a>>,
}

/// A column with left-aligned cells.
pub(crate) fn left<'a, R, T: ToString>(title: &'static str, cell: impl Fn(R) -> T + 'a) -> Column<'a, R> {
    let cell = Box::new(move |row| cell(row).to_string());
    Column { title, is_right: false, hidden: 0, wide: false, if_any: false, cell, color: None }
}

/// A column with right-aligned cells, such as numbers.
pub(crate) fn right<'a, R, T: ToString>(title: &'static str, cell: impl Fn(R) -> T + 'a) -> Column<'a, R> {
    Column { is_right: true, ..left(title, cell) }
}

impl<'a, R> Column<'a, R> {
    /// Allows a short table to hide the column if the terminal is too narrow, the lowest number first.
    pub(crate) fn hidden(self, hidden: u8) -> Self {
        Self { hidden, ..self }
    }

    /// Shows the column only in wide tables or, with [`Self::if_any`], if any row has a value.
    pub(crate) fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    /// Shows the column only if a row has a value that is not 0.
    pub(crate) fn if_any(self) -> Self {
        Self { if_any: true, ..self }
    }

    /// Colours the cells, if colours are wanted.
    pub(crate) fn colored(self, color: impl Fn(R) -> Option<AnsiColor> + 'a) -> Self {
        Self { color: Some(Box::new(color)), ..self }
    }
}

/// Rows of a list that are summarized as one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind<R> {
    pub example: R,
    pub number: usize,
}

/// A column with the number of rows of each kind.
pub(crate) fn number_of_kind<'a, R>() -> Column<'a, Kind<R>> {
    right("COUNT", |kind: Kind<R>| thousands(kind.number))
}

/// A column with an example of each kind.
pub(crate) fn example<'a, R, T: ToString>(cell: impl Fn(R) -> T + 'a) -> Column<'a, Kind<R>> {
    left("FOR EXAMPLE", move |kind: Kind<R>| cell(kind.example))
}
