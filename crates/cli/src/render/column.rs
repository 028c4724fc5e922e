//! Columns of lists: titles, cells, and when a table shows them.

use clap::builder::styling::AnsiColor;

/// The argument of [`Column::hidden`] for the column that a narrow terminal hides before all others.
pub(crate) const HIDDEN_FIRST: u8 = 1;

/// A column of a list.
pub(crate) struct Column<'a, R> {
    pub title: &'static str,
    pub(super) is_right: bool,
    /// The order in which a short table hides columns on a narrow terminal, from 1; 0 if the column is never hidden.
    pub(super) hidden: u8,
    pub(super) wide: bool,
    pub(super) if_any: bool,
    pub(super) form: Form,
    pub(super) cell: Box<dyn Fn(R) -> String + 'a>,
    pub(super) color: Option<Box<dyn Fn(R) -> Option<AnsiColor> + 'a>>,
}

/// The form of a list (short or complete) in which a column appears; see [`Grid::short`](super::table::Grid::short).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The complete list, with all rows.
    Rows,
    /// The short form, with one row for each kind.
    Kinds,
    Both,
}

/// Creates a column with left-aligned cells, which every table shows. `cell` formats the cell of a row.
pub(crate) fn left<'a, R, T: ToString>(title: &'static str, cell: impl Fn(R) -> T + 'a) -> Column<'a, R> {
    let cell = Box::new(move |row| cell(row).to_string());
    Column {
        title,
        is_right: false,
        hidden: 0,
        wide: false,
        if_any: false,
        form: Form::Rows,
        cell,
        color: None,
    }
}

/// A column with right-aligned cells, such as numbers.
pub(crate) fn right<'a, R, T: ToString>(title: &'static str, cell: impl Fn(R) -> T + 'a) -> Column<'a, R> {
    Column {
        is_right: true,
        ..left(title, cell)
    }
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

    /// Shows the column only if at least one row has a value other than 0.
    pub(crate) fn if_any(self) -> Self {
        Self { if_any: true, ..self }
    }

    /// Shows the column in the complete list and in its short form. All rows of a kind must have the same value.
    pub(crate) fn in_both_forms(self) -> Self {
        Self {
            form: Form::Both,
            ..self
        }
    }

    /// Shows the column only in the short form of a list.
    pub(crate) fn only_in_short_form(self) -> Self {
        Self {
            form: Form::Kinds,
            ..self
        }
    }

    /// Colors the cells, if the output has colors.
    pub(crate) fn colored(self, color: impl Fn(R) -> Option<AnsiColor> + 'a) -> Self {
        Self {
            color: Some(Box::new(color)),
            ..self
        }
    }

    /// Converts the column for the short form of a list. An element of the short form is the first row of a kind, with
    /// the number of rows of that kind.
    pub(super) fn by_kind(self) -> Column<'a, (R, usize)>
    where
        R: 'a,
    {
        let Self {
            title,
            is_right,
            hidden,
            wide,
            if_any,
            form,
            cell,
            color,
        } = self;
        let cell = Box::new(move |(row, _)| cell(row));
        let color = color.map(|color| Box::new(move |(row, _)| color(row)) as Box<dyn Fn(_) -> _ + 'a>);
        Column {
            title,
            is_right,
            hidden,
            wide,
            if_any,
            form,
            cell,
            color,
        }
    }
}
