//! Files for `--ignore`: findings that are known and accepted.

use std::path::Path;

use calipam_check::Code;

use crate::exit::Failure;

/// Reads such a file: lines of a code and a subject.
///
/// # Errors
/// Where the file cannot be read or a line makes no sense: a mistake here could hide a finding, or show
/// one that is accepted.
pub fn read(path: &Path) -> Result<Vec<(Code, String)>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Failure::usage(format!("cannot read the file for `--ignore`, {}: {e}", path.display()))
    })?;
    parse(&text).map_err(|(line, reason)| Failure::Usage {
        message: format!("{}:{line}: {reason}", path.display()),
        hint: Some("a line holds a code and a subject, such as `leaked-address 10.244.1.7`".into()),
    })
}

/// The lines' content, or the number of the first bad line and what is wrong with it.
fn parse(text: &str) -> Result<Vec<(Code, String)>, (usize, String)> {
    let mut ignored = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split_once(" #").map_or(line, |(content, _)| content).trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fail = |reason: String| (index + 1, reason);
        let (code, subject) =
            line.split_once(char::is_whitespace).ok_or_else(|| fail(format!("{line:?} names no subject")))?;
        let code = code.parse().map_err(|e: calipam_check::UnknownCode| fail(e.to_string()))?;
        ignored.push((code, subject.trim().to_owned()));
    }
    Ok(ignored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_subjects_and_comments() {
        let text = "# known\n\nleaked-address 10.244.1.7  # a test pod\r\norphan-handle\ta b\n";
        let expected =
            [(Code::LeakedAddress, "10.244.1.7".to_owned()), (Code::OrphanHandle, "a b".to_owned())];
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        assert_eq!(parse("\nleaked-address").unwrap_err().0, 2);
        let (line, reason) = parse("leaked 10.0.0.1").unwrap_err();
        assert_eq!((line, reason.as_str()), (1, "there is no finding called \"leaked\""));
    }
}
