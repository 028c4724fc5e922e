//! Fits text to the page: breaks it between words, or shortens it.

use std::borrow::Cow;

use textwrap::core::display_width;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

use super::page::Page;
use super::text::joined;

/// The character between words that stay on one line, such as those of a command.
pub(crate) const TOGETHER: char = '\u{a0}';
/// The maximum length of a cell's text in characters. YAML and JSON contain the complete text.
pub(super) const LONGEST: usize = 300;
/// The number of hexadecimal digits of a handle ID that are shown, which is enough to distinguish handles.
const DIGITS_SHOWN: usize = 8;
/// The minimum number of consecutive hexadecimal digits in a hash.
const HASH: usize = 32;
/// The maximum length of a number that is written in full if there is little room: 13 digits with commas.
const LONGEST_NUMBER: usize = 17;

/// Wraps text for a page, and indents the lines after the first. If the page has no width, the text is not wrapped.
pub(crate) fn on_page(text: &str, indent: usize, page: Page) -> String {
    let Some(width) = page.width else {
        return text.to_owned();
    };
    let indent = " ".repeat(indent);
    let options = Options::new(width.into())
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .subsequent_indent(&indent);
    textwrap::fill(text, options)
}

/// Returns the width of the longest word.
pub(crate) fn longest_word(text: &str) -> usize {
    text.split(' ').map(display_width).max().unwrap_or_default()
}

/// Cuts words that are longer than `longest`.
pub(crate) fn cut_words(text: &str, longest: usize) -> Cow<'_, str> {
    if longest_word(text) <= longest {
        return Cow::Borrowed(text);
    }
    Cow::Owned(joined(text.split(' ').map(|word| cut_word(word, longest)), " "))
}

/// Shortens a word to the width `longest`, with `…` in place of its end, but keeps the characters that close it.
fn cut_word(word: &str, longest: usize) -> Cow<'_, str> {
    if display_width(word) <= longest {
        return Cow::Borrowed(word);
    }
    // Characters that close a parenthesis, a command or a clause are kept at the end.
    let closing = word.len() - word.trim_end_matches(['`', ')', ',', ';']).len();
    let (word, closing) = word.split_at(word.len() - closing.min(longest / 2));
    let mut shown = String::new();
    for c in word.chars() {
        let width = display_width(&shown) + display_width(c.encode_utf8(&mut [0; 4]));
        // One column is for the `…`.
        if width + 1 + closing.len() > longest {
            break;
        }
        shown.push(c);
    }
    Cow::Owned(shown + "…" + closing)
}

/// Cuts text to [`LONGEST`] characters.
pub(super) fn cut(text: Cow<'_, str>) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

/// Shortens the container IDs in handle IDs, as in `k8s-pod-network.1efa87f4…`. Returns `None` if the text contains no
/// container ID.
pub(super) fn shorten_handles(text: &str) -> Option<String> {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(dot) = rest.find('.') {
        let (before, after) = rest.split_at(dot + 1);
        // So many hexadecimal digits after a dot are a container ID.
        let digits = after.bytes().take_while(u8::is_ascii_hexdigit).count();
        shown.push_str(before);
        if digits >= HASH {
            shown.extend([&after[..DIGITS_SHOWN], "…"]);
        } else {
            shown.push_str(&after[..digits]);
        }
        rest = &after[digits..];
    }
    shown.push_str(rest);
    // Nothing was cut: with a container ID, the text would be shorter.
    if shown.len() == text.len() {
        return None;
    }
    Some(shown)
}

/// Shortens a long number with commas to the form `1.20e24`; `None` for shorter numbers and other text.
pub(super) fn round(text: &str) -> Option<String> {
    if text.len() <= LONGEST_NUMBER {
        return None;
    }
    let digits: String = text.split(',').collect();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(format!("{}.{}e{}", &digits[..1], &digits[1..3], digits.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_unless_they_are_cut() {
        let on = |width, text| {
            on_page(
                text,
                0,
                Page {
                    width: Some(width),
                    ..Page::default()
                },
            )
        };
        assert_eq!(on(9, "two or three words"), "two or\nthree\nwords");
        assert_eq!(on(5, "a-word-that-is-long x"), "a-word-that-is-long\nx");
        assert_eq!(cut_words("a-word-that-is-long x", 5), "a-wo… x");
        assert_eq!(cut_words("日本日本 x", 5), "日本… x");
        assert_eq!(cut_words("(`a word-that-is-long`),", 8), "(`a word…`),");
        assert_eq!((longest_word("a bc d"), longest_word("")), (2, 0));
    }

    #[test]
    fn a_pipe_breaks_nothing() {
        let text = "some words and more of them";
        assert_eq!(on_page(text, 2, Page::default()), text);
        let page = Page {
            width: Some(12),
            ..Page::default()
        };
        assert_eq!(on_page(text, 2, page), "some words\n  and more\n  of them");
    }
}
