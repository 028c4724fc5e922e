//! Bars that show shares, such as the used part of a pool.

use calipam_check::views::Count;

use super::page::Page;

/// The width of a bar in characters.
const WIDTH: u128 = 10;
/// The block characters that fill one to seven eighths of a cell.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// Draws a bar for `part` of `whole`. A part greater than zero is always visible, and only the whole fills the bar.
pub(super) fn bar(part: Count, whole: Count, page: Page) -> String {
    if whole.0 == 0 {
        return "-".to_owned();
    }
    // With Unicode, a character can be filled by eighths.
    let steps = if page.unicode { WIDTH * 8 } else { WIDTH };
    let filled = filled_steps(part.0, whole.0, steps);

    let mut text = String::new();
    let (full, empty) = if page.unicode { ('█', '░') } else { ('#', '.') };
    let steps_per_character = steps / WIDTH;
    for position in 0..WIDTH {
        match filled.saturating_sub(position * steps_per_character) {
            0 => text.push(empty),
            remaining if remaining >= steps_per_character => text.push(full),
            eighths => text.push(EIGHTHS[eighths as usize - 1]),
        }
    }
    text
}

/// Returns the number of `steps` that stand for `part` of `whole`: all of them only for the whole, and none only for 0.
fn filled_steps(part: u128, whole: u128, steps: u128) -> u128 {
    if part == 0 {
        return 0;
    }
    if part >= whole {
        return steps;
    }
    let rounded_down = match part.checked_mul(steps) {
        Some(product) => product / whole,
        // In a large IPv6 pool, the product does not fit.
        None => part / (whole / steps),
    };
    rounded_down.clamp(1, steps - 1)
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
