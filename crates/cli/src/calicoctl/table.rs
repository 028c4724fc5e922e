//! Tables in the style of calicoctl 3.33 and later.

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Draws a table in a box. Titles are left-aligned, and cells are aligned by column.
pub(super) fn draw(columns: &[(&str, Side)], rows: &[Vec<String>]) -> String {
    let width = |(index, (title, _)): (usize, &(&str, Side))| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count());
        cells.chain([title.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(width).collect();
    let rule: String =
        widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect::<String>() + "+\n";
    let line = |cells: Vec<(&str, Side)>| {
        let cells = cells.into_iter().zip(&widths).map(|((text, side), width)| match side {
            Side::Left => format!("| {text:<width$} "),
            Side::Right => format!("| {text:>width$} "),
        });
        cells.collect::<String>() + "|\n"
    };

    let mut text = rule.clone();
    text.push_str(&line(columns.iter().map(|(title, _)| (*title, Side::Left)).collect()));
    text.push_str(&rule);
    for row in rows {
        let cells = row.iter().zip(columns).map(|(cell, (_, side))| (cell.as_str(), *side));
        text.push_str(&line(cells.collect()));
    }
    text + &rule
}

/// Formats a number like Go's `%.5g`: at most five digits, else an exponent.
pub(super) fn five_digits(number: u128) -> String {
    if number < 100_000 {
        return number.to_string();
    }
    let text = format!("{:.4e}", number as f64);
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e+{exponent:0>2}")
}

/// Formats `<n> (<p>%)` with an integer percentage. Like Go, rounds half to even.
pub(super) fn share(number: u128, of: u128) -> String {
    let percent = 100.0 * number as f64 / of as f64;
    format!("{} ({:.0}%)", five_digits(number), percent.round_ties_even())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_go_writes_them() {
        let numbers = [0, 64, 65_536, 99_999, 100_000, 131_072, 1 << 20, 1 << 40];
        let texts = ["0", "64", "65536", "99999", "1e+05", "1.3107e+05", "1.0486e+06", "1.0995e+12"];
        assert_eq!(numbers.map(five_digits), texts);
        assert_eq!(share(1, 8), "1 (12%)");
        assert_eq!(share(3, 8), "3 (38%)");
        assert_eq!(share(64, 64), "64 (100%)");
    }

    #[test]
    fn a_table_stands_in_a_box() {
        let rows = [vec!["IP Pool".to_owned(), "8".to_owned()], vec!["Block".to_owned(), "1024".to_owned()]];
        let text = draw(&[("GROUPING", Side::Left), ("FREE", Side::Right)], &rows);
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
