//! Command lines in hints, as the operator would type them.

use std::sync::OnceLock;

use crate::applet::Applet;
use crate::args::Global;
use crate::render::text::shell_word;

static NAME: OnceLock<&'static str> = OnceLock::new();
static CONNECTION: OnceLock<Vec<String>> = OnceLock::new();

/// Hints repeat the name that the program was called by.
pub fn remember_name(applet: Applet) {
    // A second call can only come from a test.
    let _ = NAME.set(applet.command_prefix());
}

/// Hints repeat the options that say where the data is.
pub fn remember_connection(global: &Global) {
    let _ = CONNECTION.set(global.connection());
}

/// A command line for the same cluster: name, words, and the connection options of this call, each quoted for a
/// shell.
pub fn command(words: &[&str]) -> String {
    line(words, CONNECTION.get().map_or(&[], Vec::as_slice))
}

/// A command line that reads no data, or names other data.
pub fn command_elsewhere(words: &[&str]) -> String {
    line(words, &[])
}

/// A command line in a document, which does not depend on how the program was called.
pub fn command_in_document(words: &[&str]) -> String {
    words.iter().fold(Applet::Calipam.command_prefix().to_owned(), |line, word| format!("{line} {word}"))
}

fn line(words: &[&str], connection: &[String]) -> String {
    let words = words.iter().copied().chain(connection.iter().map(String::as_str));
    let name = NAME.get().copied().unwrap_or(Applet::Calipam.command_prefix());
    words.fold(format!("`{name}"), |line, word| format!("{line} {}", shell_word(word))) + "`"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let connection = ["--datastore".to_owned(), "my export".to_owned()];
        assert_eq!(line(&["release", "--leaked"], &[]), "`calipam release --leaked`");
        assert_eq!(line(&["undo", "it's"], &connection), "`calipam undo 'it'\\''s' --datastore 'my export'`");
    }
}
