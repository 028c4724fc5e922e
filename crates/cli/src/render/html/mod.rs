//! HTML pages: their frame, style and tables. A page loads no other files, and shows its tables even without scripts.

mod tables;

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use calipam_model::digest::sha256;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::document::Document;
use super::output::{Part, Text};
use super::page::Page;
use super::text::escape;

pub(super) use self::tables::{evidence, facts, grid, head};

const STYLE: &str = include_str!("page.css");
/// The script of pages with lists, which filters and sorts the lists.
pub(super) const COMMON_SCRIPT: &str = include_str!("common.js");

/// The part of the content security policy about the server, for a page in a file, which has no server.
pub(super) const NO_SERVER: &str = "form-action 'none'";

/// The parts of a page around its content.
pub(super) struct Frame<'a> {
    pub title: &'a str,
    pub scripts: &'a [&'a str],
    /// The part of the content security policy about the page's server.
    pub server: &'a str,
    /// The version of a `serve` page, for its script.
    pub version: Option<&'a str>,
}

impl Frame<'_> {
    pub(super) fn write(&self, body: &Markup, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.page(body).into_string().as_bytes())
    }

    /// Creates the page around a body.
    fn page(&self, body: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta http-equiv="Content-Security-Policy" content=(self.policy());
                    title { "calipam: " (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body data-version=[self.version] {
                    (body)
                    @for script in self.scripts { script { (PreEscaped(script)) } }
                }
            }
        }
    }

    /// Returns the content security policy: the page runs only its own scripts, and connects only to its server, if at
    /// all. With this policy, even an unescaped name from the cluster could do no harm.
    fn policy(&self) -> String {
        let mut policy = "default-src 'none'; style-src 'unsafe-inline'; ".to_owned();
        if !self.scripts.is_empty() {
            policy.push_str("script-src");
            for script in self.scripts {
                let hash = STANDARD.encode(sha256(script));
                policy.push_str(&format!(" 'sha256-{hash}'"));
            }
            policy.push_str("; ");
        }
        policy.push_str(&format!("base-uri 'none'; {}", self.server));
        policy
    }
}

/// Creates the page for an answer of `serve`, with a link back to the report, and a form for the next question.
pub(crate) fn answer(title: &str, content: &Markup) -> String {
    let title = escape(title);
    let body = html! {
        header {
            h1 { (title) }
            nav { a href="/" { "Back to the report" } }
        }
        (ask())
        main { (content) }
    };
    Frame {
        title: &title,
        scripts: &[],
        server: "form-action 'self'",
        version: None,
    }
    .page(&body)
    .into_string()
}

/// Converts the text of a document to HTML, for [`answer`]: paragraphs and tables.
pub(crate) fn text_of(document: &impl Document) -> Markup {
    let mut text = Text::new(Page {
        wide: true,
        ..Page::default()
    });
    document.text(&mut text);
    html! {
        @for part in text.parts {
            @match part {
                Part::Line(line) | Part::About(line) => { @if line != "\n" { p { (line) } } }
                Part::Facts(pairs) => (table_of_facts(&pairs)),
                Part::Grid(list, _) => (grid(list)),
            }
        }
    }
}

/// Converts the facts of a text to a table with a name and a value in each row.
fn table_of_facts(pairs: &[(&'static str, String)]) -> Markup {
    let mut rows = Vec::new();
    for (name, value) in pairs {
        rows.push((name, vec![html! { (escape(value)) }]));
    }
    let titles = &[];
    facts(titles, rows)
}

/// Adds the command that prints an answer in a terminal.
pub(crate) fn with_command(answer: &Markup, command: &str) -> Markup {
    html! {
        (answer)
        p.dim { "In a terminal: " code { (escape(command.trim_matches('`'))) } }
    }
}

/// Creates the form for a question to `serve`.
pub(super) fn ask() -> Markup {
    html! {
        form.ask.controls action="/ask" {
            label { "Ask about an address, a pod, a node, a CIDR, a pool or a handle " input name="q" required placeholder="10.244.1.7, default/web-0"; }
            button { "Show" }
        }
    }
}

/// Creates a highlighted paragraph.
pub(crate) fn notice(text: impl AsRef<str>) -> Markup {
    html! { p.notice { (escape(text.as_ref())) } }
}

/// Creates a highlighted paragraph that screen readers announce at once.
pub(super) fn alert(text: &str) -> Markup {
    html! { p.notice role="alert" { (escape(text)) } }
}

/// Adds an alert about a failed check above the content of a page that was formatted before. The page's script finds
/// the alert by its ID.
pub(crate) fn with_failure(page: &[u8], text: &str) -> Vec<u8> {
    let main_tag = b"<main>";
    let content_start = match page.windows(main_tag.len()).position(|part| part == main_tag) {
        Some(tag_start) => tag_start + main_tag.len(),
        None => 0,
    };
    let (before, content) = page.split_at(content_start);
    let alert = html! { div #failed { (alert(text)) } }.into_string();
    [before, alert.as_bytes(), content].concat()
}

/// Removes the end tags of cells and rows. HTML does not require them, and they are a fifth of a long table. Strings
/// from the cluster cannot contain such tags, since `<` is escaped in them.
pub(super) fn compact(table: Markup) -> Markup {
    let mut text = table.into_string();
    for end_tag in ["</td>", "</th>", "</tr>"] {
        text = text.replace(end_tag, "");
    }
    PreEscaped(text)
}

/// The length of the longest IPv6 CIDR.
const CIDR_LENGTH: usize = 43;

/// Returns the class for a name that is too long for a column. Names without this class are never broken across lines,
/// and CIDRs must not be.
pub(super) fn long(name: &str) -> Option<&'static str> {
    if name.chars().count() > CIDR_LENGTH {
        Some("long")
    } else {
        None
    }
}
