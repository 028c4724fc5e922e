//! Bars that show shares, such as the used part of a pool.

use calipam_check::views::Count;

use super::page::Page;

/// The width of a bar in characters.
const WIDTH: usize = 10;
/// The block characters that fill one to seven eighths of a cell.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Draws a bar for `part` of `whole`. A part greater than zero is always visible, and only the whole fills the bar.
pub(super) fn bar(part: Count, whole: Count, page: Page) -> String {
    if whole.0 == 0 {
        return "-".to_owned();
    }
    if !page.unicode {
        let filled = filled_steps(part.0, whole.0, WIDTH);
        return "#".repeat(filled) + &".".repeat(WIDTH - filled);
    }

    // With Unicode, a character can be filled by eighths.
    let filled = filled_steps(part.0, whole.0, WIDTH * 8);
    let full = filled / 8;
    let eighths = filled % 8;
    let mut text = "█".repeat(full);
    if eighths == 0 {
        text.push_str(&"░".repeat(WIDTH - full));
    } else {
        text.push(EIGHTHS[eighths - 1]);
        text.push_str(&"░".repeat(WIDTH - full - 1));
    }
    text
}

/// Returns the number of `steps` that stand for `part` of `whole`: all of them only for the whole, and none only for 0.
fn filled_steps(part: u128, whole: u128, steps: usize) -> usize {
    if part == 0 {
        return 0;
    }
    if part >= whole {
        return steps;
    }
    let rounded_down = match part.checked_mul(steps as u128) {
        Some(product) => product / whole,
        // In a large IPv6 pool, the product does not fit.
        None => part / (whole / steps as u128),
    };
    (rounded_down as usize).clamp(1, steps - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zero_is_empty_and_only_the_total_is_full() {
        let of = |part, whole, unicode| {
            bar(
                Count(part),
                Count(whole),
                Page {
                    unicode,
                    ..Page::default()
                },
            )
        };
        assert_eq!(of(0, 100, false), "..........");
        assert_eq!(of(1, 1_000_000, false), "#.........");
        assert_eq!(of(50, 100, false), "#####.....");
        assert_eq!(of(999_999, 1_000_000, false), "#########.");
        assert_eq!(of(100, 100, false), "##########");
        assert_eq!(of(45, 100, true), "████▌░░░░░");
        assert_eq!(of(1, 1_000_000, true), "▏░░░░░░░░░");
        assert_eq!(of(999_999, 1_000_000, true), "█████████▉");
        assert_eq!(of(u128::MAX / 2, u128::MAX, false), "#####.....");
        assert_eq!(of(0, 0, true), "-");
    }
}
