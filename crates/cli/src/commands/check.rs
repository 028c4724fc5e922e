//! `check`.

use std::path::Path;

use calipam_check::{Code, Filter, Options};
use calipam_model::snapshot::Snapshot;
use calipam_workflow::{Judging, known_node, look_twice, pool};

use crate::args::{CheckArgs, Global};
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::output::Console;
use crate::{connect, render};

pub fn run(args: &CheckArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    if args.list_rules {
        render::codes::list(console)?;
        return Ok(Outcome::Clean);
    }
    let ignored = args.ignore.as_deref().map(read_ignored).transpose()?.unwrap_or_default();
    let judging = Judging {
        options: Options { grace: args.grace, pool_threshold: args.pool_threshold },
        settle: args.settling.settle,
    };
    let report = connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let look = look_twice(&datastore, &judging, args.confirm, &Person::watching(console)).await?;
        let mut report = look.report;
        report.filter(&filter(args, ignored, &look.snapshot)?);
        // The process ends soon: giving back the memory of a million objects one by one would take longer.
        std::mem::forget(look.snapshot);
        Ok(report)
    })?;

    render::check::print(&report, console)?;
    let outcome = if args.fail_on.fails(report.worst()) { Outcome::Findings } else { Outcome::Clean };
    std::mem::forget(report);
    Ok(outcome)
}

fn filter(args: &CheckArgs, ignore: Vec<(Code, String)>, snapshot: &Snapshot) -> Result<Filter, Failure> {
    args.nodes.iter().try_for_each(|node| known_node(snapshot, node))?;
    let pools = args.pools.iter().map(|name| pool(snapshot, name)).collect::<Result<_, _>>()?;
    Ok(Filter {
        rules: args.rules.clone(),
        skip: args.skip_rules.clone(),
        nodes: args.nodes.clone(),
        pools,
        ignore,
    })
}

/// Reads a file for `--ignore`: findings that are known and accepted.
///
/// # Errors
/// Where a line cannot be decoded: passing over it could hide a finding, or show one that is accepted.
fn read_ignored(path: &Path) -> Result<Vec<(Code, String)>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        Failure::usage(format!("cannot read the file for `--ignore`, {}: {e}", path.display()))
    })?;
    parse_ignored(&text).map_err(|(line, reason)| Failure::Usage {
        message: format!("{}:{line}: {reason}", path.display()),
        hint: Some("a line holds a rule and a subject, such as `leaked-address 10.244.1.7`".into()),
    })
}

/// The lines' content, or the number of the first bad line and what is wrong with it.
fn parse_ignored(text: &str) -> Result<Vec<(Code, String)>, (usize, String)> {
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
        assert_eq!(parse_ignored(text).unwrap(), expected);
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        assert_eq!(parse_ignored("\nleaked-address").unwrap_err().0, 2);
        let (line, reason) = parse_ignored("leaked 10.0.0.1").unwrap_err();
        assert_eq!((line, reason.as_str()), (1, "unknown rule \"leaked\""));
    }
}
