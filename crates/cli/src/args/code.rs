//! Names of rules on the command line.

use std::ffi::OsStr;

use calipam_check::{Code, UnknownCode};
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};

use crate::console::HINT;
use crate::hints;

/// A parser for rule names. Completion suggests all names, but an error suggests only a similar one.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodeParser;

impl TypedValueParser for CodeParser {
    type Value = Code;

    /// Parses a code in any case. The error suggests the nearest code.
    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Code, clap::Error> {
        let name = value.to_string_lossy();
        let lowercase = name.to_lowercase();
        if let Ok(code) = lowercase.parse() {
            return Ok(code);
        }

        let unknown = UnknownCode(name.into_owned());
        let option = match arg.and_then(Arg::get_long) {
            Some(long) => format!("--{long}: "),
            None => String::new(),
        };
        let hint = hint(&lowercase);
        let message = format!("{option}{unknown}\n{HINT}hint:{HINT:#} {hint}\n");
        Err(clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Code::ALL
                .iter()
                .map(|code| PossibleValue::new(code.name()).help(code.summary())),
        ))
    }
}

/// Formats the hint for an unknown rule: a similar one, if there is any, and the list of all.
fn hint(unknown: &str) -> String {
    let list = format!("{} lists all of them", hints::command_elsewhere(&["explain"]));
    match nearest(unknown) {
        Some(code) => format!("did you mean `{code}`? {list}"),
        None => list,
    }
}

/// Returns the rule with the most similar name, if any name is similar.
fn nearest(text: &str) -> Option<Code> {
    calipam_workflow::nearest(text, Code::ALL.iter().map(|code| code.name()))?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_code_is_recognised() {
        assert_eq!(nearest("leaked"), Some(Code::LeakedAddress));
        assert_eq!(nearest("orphan-handel"), Some(Code::OrphanHandle));
        assert_eq!(nearest("weather"), None);
    }
}
