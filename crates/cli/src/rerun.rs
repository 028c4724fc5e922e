//! The current command line with other options, for hints.

use crate::hints;

/// Formats this call with `-o wide` instead of its output format.
pub(crate) fn in_wide_form() -> String {
    replacing("output", &["-o", "wide"])
}

/// Formats this call with the words of an option instead of the option with this ID, if it has it. The ID is the name
/// of the option's field.
pub(crate) fn replacing(id: &str, words: &[&str]) -> String {
    hints::this_call(words, &[id])
}

/// Formats this call with the words of an option after its own.
pub(crate) fn adding(words: &[&str]) -> String {
    hints::this_call(words, &[])
}

/// Formats this call without the option with this ID, the name of the option's field.
pub(crate) fn without(id: &str) -> String {
    hints::this_call(&[], &[id])
}
