//! Markdown for terminals: wrapped paragraphs and lists, with styles for bold text and code.

use clap::builder::styling::{AnsiColor, Style};
use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::output::Text;
use super::page::Page;
use super::wrap::{TOGETHER, on_page};

/// The maximum width of running text.
const WIDEST: u16 = 100;
/// The length up to which a command stays on one line.
const TOGETHER_UP_TO: usize = 60;

const STRONG: Style = Style::new().bold();
const CODE: Style = AnsiColor::Cyan.on_default();

/// Writes Markdown as text. In a file or pipe, lines are wrapped as on a wide terminal.
pub(crate) fn write(markdown: &str, text: &mut Text) {
    let width = Some(text.page.width.map_or(WIDEST, |width| width.min(WIDEST)));
    let page = Page { width, ..text.page };
    let mut writer = Writer {
        page,
        line: String::new(),
        style: Style::new(),
        items: 0,
        is_first: true,
        text,
    };
    for event in Parser::new(markdown) {
        writer.add(event);
    }
}

struct Writer<'t> {
    page: Page,
    /// The text of the current paragraph or list item.
    line: String,
    style: Style,
    /// The nesting depth of lists.
    items: usize,
    is_first: bool,
    text: &'t mut Text,
}

impl Writer<'_> {
    /// Adds a part of the document: collects the words of a paragraph or item, and writes them at its end.
    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.begin(&tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.words(&text),
            Event::Code(code) => self.code(&code),
            Event::SoftBreak | Event::HardBreak => self.line.push(' '),
            // The documentation has no other parts, such as HTML or footnotes.
            _ => {}
        }
    }

    /// Sets the style or nesting depth for what follows. Tags without an effect on the text are ignored.
    fn begin(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Strong | Tag::Heading { .. } => self.style = STRONG,
            Tag::List(_) => {
                self.flush();
                self.blank_line();
            }
            Tag::Item => {
                self.flush();
                self.items += 1;
            }
            // The paragraphs of a list's items follow each other without blank lines.
            Tag::Paragraph if self.items == 0 => self.blank_line(),
            _ => {}
        }
    }

    /// Writes the collected line if the tag ends one, and resets the style or nesting depth.
    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Strong => self.style = Style::new(),
            TagEnd::Heading(_) => {
                self.style = Style::new();
                self.flush();
            }
            TagEnd::Item => {
                self.flush();
                self.items -= 1;
            }
            TagEnd::Paragraph => self.flush(),
            _ => {}
        }
    }

    /// Styles each word separately, so that a line can break between any two words.
    fn words(&mut self, text: &str) {
        for (number, word) in text.split(' ').enumerate() {
            if number > 0 {
                self.line.push(' ');
            }
            let word = if self.style == Style::new() {
                word.to_owned()
            } else {
                self.page.styled(self.style, word)
            };
            self.line.push_str(&word);
        }
    }

    /// Adds code to the line. Short code stays together on one line.
    fn code(&mut self, code: &str) {
        if code.len() <= TOGETHER_UP_TO {
            let together = code.replace(' ', &TOGETHER.to_string());
            self.line.push_str(&self.page.styled(CODE, &together));
        } else {
            let style = std::mem::replace(&mut self.style, CODE);
            self.words(code);
            self.style = style;
        }
    }

    fn blank_line(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.text.blank();
        }
    }

    /// Writes the collected line, indented below the item of a list that it belongs to.
    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return;
        }

        let depth = self.items;
        let marked = if depth == 0 {
            line
        } else {
            format!("{}- {line}", "  ".repeat(depth - 1))
        };
        // Further lines of an item begin below its text, two columns for each level.
        let wrapped = on_page(&marked, 2 * depth, self.page);
        self.text.drawn(&wrapped.replace(TOGETHER, " "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, color: bool, width: Option<u16>) -> String {
        let mut out = Text::new(Page {
            color,
            width,
            ..Page::default()
        });
        write(text, &mut out);
        out.into_string().unwrap()
    }

    const TEXT: &str = "One `a b` and\nmore.\n\n- item `x`: of\n  two lines\n- second\n\n**What to do.** Run `calipam show --ip ADDRESS`.\n";

    #[test]
    fn signs_become_styles() {
        let plain = "One a b and more.\n\n- item x: of two lines\n- second\n\nWhat to do. Run calipam show --ip ADDRESS.\n";
        assert_eq!(written(TEXT, false, None), plain);
        let colored = written(TEXT, true, None);
        assert!(
            colored.contains("\u{1b}[1mWhat\u{1b}[0m \u{1b}[1mto\u{1b}[0m"),
            "{colored:?}"
        );
        assert!(
            colored.contains("\u{1b}[36mcalipam show --ip ADDRESS\u{1b}[0m."),
            "{colored:?}"
        );
    }

    #[test]
    fn lines_fit_and_commands_stay_on_one() {
        for color in [false, true] {
            let text = written(TEXT, color, Some(40));
            assert!(
                text.lines()
                    .any(|line| line.contains("calipam show --ip ADDRESS")),
                "{text}"
            );
            assert!(
                text.lines().all(|line| textwrap::core::display_width(line) <= 40),
                "{text}"
            );
        }
    }
}
