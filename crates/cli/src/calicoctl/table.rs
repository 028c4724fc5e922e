//! Tables in the style of calicoctl 3.33 and later.

use comfy_table::presets::ASCII_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, LineStyle, Table};

/// The first number that Go's `%.5g` prints with an exponent.
const FIRST_WITH_SIX_DIGITS: u128 = 100_000;

/// Draws a table in a box. Titles are left-aligned, and cells are aligned by column.
pub(super) fn draw(columns: &[(&str, CellAlignment)], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_FULL_CONDENSED.header_separator(LineStyle::new('+', '-', '+', '+')));
    table.set_header(
        columns
            .iter()
            .map(|(title, _)| Cell::new(title).set_alignment(CellAlignment::Left)),
    );
    table.add_rows(rows);
    for (column, (_, side)) in table.column_iter_mut().zip(columns) {
        column.set_cell_alignment(*side);
    }
    table.to_string() + "\n"
}

/// Formats a number like Go's `%.5g`: at most five digits, otherwise with an exponent, such as `6.5536e+04`.
pub(super) fn five_digits(number: u128) -> String {
    if number < FIRST_WITH_SIX_DIGITS {
        return number.to_string();
    }
    let text = format!("{:.4e}", number as f64);
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e+{exponent:0>2}")
}

/// Formats `<n> (<p>%)` with an integer percentage. Like Go, rounds half to even.
pub(super) fn share(number: u128, total: u128) -> String {
    let percent = 100.0 * number as f64 / total as f64;
    format!("{} ({:.0}%)", five_digits(number), percent.round_ties_even())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_go_writes_them() {
        let numbers = [0, 64, 65_536, 99_999, 100_000, 131_072, 1 << 20, 1 << 40];
        let texts = [
            "0",
            "64",
            "65536",
            "99999",
            "1e+05",
            "1.3107e+05",
            "1.0486e+06",
            "1.0995e+12",
        ];
        assert_eq!(numbers.map(five_digits), texts);
        assert_eq!(share(1, 8), "1 (12%)");
        assert_eq!(share(3, 8), "3 (38%)");
        assert_eq!(share(64, 64), "64 (100%)");
    }

    #[test]
    fn a_table_has_a_box() {
        let rows = [
            vec!["IP Pool".to_owned(), "8".to_owned()],
            vec!["Block".to_owned(), "1024".to_owned()],
        ];
        let text = draw(
            &[("GROUPING", CellAlignment::Left), ("FREE", CellAlignment::Right)],
            rows,
        );
        let expected = "\
+----------+------+
| GROUPING | FREE |
+----------+------+
| IP Pool  |    8 |
| Block    | 1024 |
+----------+------+
";
        assert_eq!(text, expected);
    }
}
