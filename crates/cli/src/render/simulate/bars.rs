//! Charts for terminals: bars, and curves that fit on one line.

use textwrap::core::display_width;

use crate::render::output::Text;
use crate::render::page::Page;
use crate::render::text::thousands;

/// The maximum width of a bar, and the width of a curve if the width of the page is unknown.
const WIDE: usize = 50;
/// The characters for the last column of a bar, by eighths.
const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
/// The characters for the heights of a curve.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The number of spaces around and between the name of a bar, the bar and its label.
const SPACES: usize = 6;
/// The smallest width of the longest bar.
const NARROW: usize = 8;

/// The number of columns that the name and the highest value of a curve need beside it.
const BESIDE_CURVE: usize = 30;
/// A shorter curve would show too few points, and a longer one is hard to take in.
const SHORTEST_CURVE: usize = 16;
const LONGEST_CURVE: usize = 80;

/// A bar with its name and its label.
pub(super) struct Bar {
    pub name: String,
    pub length: u64,
    pub label: String,
}

/// Draws bars for numbers of things below a title, each labelled with its number.
pub(super) fn counts(title: &str, rows: impl Iterator<Item = (String, u64)>, text: &mut Text) {
    let rows = rows.map(|(name, number)| Bar {
        name,
        length: number,
        label: thousands(number),
    });
    bars(title, rows, text);
}

/// Draws bars below a title, each with its name and its label. The longest bar fills the page.
pub(super) fn bars(title: &str, bars: impl Iterator<Item = Bar>, text: &mut Text) {
    let bars: Vec<Bar> = bars.collect();
    let mut name_width = 0;
    let mut label_width = 0;
    let mut longest = 1;
    for bar in &bars {
        name_width = name_width.max(display_width(&bar.name));
        label_width = label_width.max(display_width(&bar.label));
        longest = longest.max(bar.length);
    }
    // The bars get the room that the names and labels leave, but are never too short to compare.
    let room = match text.page.width {
        Some(page_width) => usize::from(page_width).saturating_sub(name_width + label_width + SPACES),
        None => WIDE,
    };
    let bar_width = room.clamp(NARROW, WIDE);

    text.blank();
    text.line(format!("{title}:"));
    for Bar { name, length, label } in bars {
        let drawn = bar(length, longest, bar_width);
        text.drawn(&format!("  {name:>name_width$}  {drawn} {label}"));
    }
}

/// Draws a bar. A bar with the length `longest` fills `width` columns.
fn bar(length: u64, longest: u64, width: usize) -> String {
    let eighths = (u128::from(length) * width as u128 * 8 / u128::from(longest)) as usize;
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

/// Draws a curve on one line with at most `width` columns, in which `highest` has the full height. Each column shows
/// the highest of its values.
pub(super) fn curve(values: &[u64], highest: u64, width: usize) -> String {
    let number = values.len();
    let width = width.clamp(1, number.max(1));
    let mut curve = String::new();
    for column in 0..width {
        let begin = column * number / width;
        // Rounded up, so that each column has at least one value.
        let end = ((column + 1) * number).div_ceil(width).min(number);
        let value = values[begin..end].iter().copied().max().unwrap_or(0);
        if value == 0 {
            curve.push(' ');
        } else {
            let eighths = u128::from(value) * 8 / u128::from(highest.max(1));
            curve.push(HEIGHTS[eighths.clamp(1, 8) as usize - 1]);
        }
    }
    curve
}

/// Returns the number of columns for a curve.
pub(super) fn room(page: Page) -> usize {
    let columns = match page.width {
        Some(width) => usize::from(width).saturating_sub(BESIDE_CURVE),
        None => WIDE,
    };
    columns.clamp(SHORTEST_CURVE, LONGEST_CURVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(4, 4, 3), "███");
        assert_eq!(bar(1, 8, 4), "▌");
        assert_eq!(bar(0, 8, 4), "");
        assert_eq!(bar(u64::MAX, u64::MAX, 2), "██");
    }

    #[test]
    fn a_curve_shows_the_highest_of_each_part() {
        assert_eq!(curve(&[0, 1, 4, 8], 8, 4), " ▁▄█");
        assert_eq!(curve(&[0, 8, 0, 0], 8, 2), "█ ");
        assert_eq!(curve(&[], 8, 10), " ");
    }
}
