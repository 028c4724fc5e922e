//! `check`.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use calipam_check::{Code, Filter, Options};
use calipam_model::snapshot::Snapshot;
use calipam_workflow::{Judging, Look, look_twice, nodes, pool};

use crate::args::{CheckArgs, Format, Global};
use crate::exit::{self, Failure, Outcome};
use crate::operator::Person;
use crate::output::Console;
use crate::output_file::OutputFile;
use crate::render::document;
use crate::render::report::{Checked, write_failed_run};
use crate::render::table::Page;
use crate::{connect, render};

pub fn run(args: &CheckArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let begin = Instant::now();
    if args.list_rules {
        render::codes::list(console)?;
        return Ok(Outcome::Clean);
    }
    let Look { report, snapshot, .. } = match look(args, global, console) {
        Ok(look) => look,
        Err(failure) => {
            let failed = Err(failure);
            // Where this cannot be told either, the reason for the failure is what the operator needs.
            if let Err(second) = tell_of_failure(begin.elapsed(), exit::code(&failed), args, console) {
                console.failure(&second);
            }
            return failed;
        }
    };
    let outcome = if args.fail_on.fails(report.worst()) { Outcome::Findings } else { Outcome::Clean };

    let exit_code = exit::code(&Ok(outcome));
    let checked = Checked { report: &report, snapshot: &snapshot, took: begin.elapsed(), exit_code };
    print(&checked, args, console)?;
    // The process ends soon: giving back the memory of a million objects one by one would take longer.
    std::mem::forget((report, snapshot));
    Ok(outcome)
}

/// Reads and judges, and keeps what was asked for.
fn look(args: &CheckArgs, global: &Global, console: &Console) -> Result<Look, Failure> {
    let ignored = args.ignore.as_deref().map(read_ignored).transpose()?.unwrap_or_default();
    let judging = Judging {
        options: Options { grace: args.grace, pool_threshold: args.pool_threshold },
        settle: args.settling.settle,
    };
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let mut look = look_twice(&datastore, &judging, args.confirm, &Person::watching(console)).await?;
        look.report.filter(&filter(args, ignored, &look.snapshot)?);
        Ok(look)
    })
}

/// Prints the report and writes its files. Where one file cannot be written the others are, and the first failure is
/// the command's.
fn print(checked: &Checked<'_>, args: &CheckArgs, console: &Console) -> Result<(), Failure> {
    let write =
        |file: &OutputFile| file.write(|out| document::write(checked, file.format, Page::default(), out));
    let files = args.output_files.iter().map(write).fold(Ok(()), Result::and);
    console.print(checked)?;
    if let Some(detail) = console.format.detail() {
        render::check::hints(checked.report, detail, console);
    }
    files
}

/// What watches the check by its metrics learns that it failed. Reports of earlier runs stay as they are.
fn tell_of_failure(
    took: Duration,
    exit_code: u8,
    args: &CheckArgs,
    console: &Console,
) -> Result<(), Failure> {
    let metrics = |out: &mut dyn Write| write_failed_run(took, exit_code, out);
    let files = args.output_files.iter().filter(|file| file.format == Format::Prometheus);
    let files = files.map(|file| file.write(metrics)).fold(Ok(()), Result::and);
    if console.format == Format::Prometheus {
        console.data(metrics)?;
    }
    files
}

fn filter(args: &CheckArgs, ignore: Vec<(Code, String)>, snapshot: &Snapshot) -> Result<Filter, Failure> {
    let nodes = nodes(snapshot, &args.nodes)?.into_iter().collect();
    let pools = args.pools.iter().map(|name| pool(snapshot, name)).collect::<Result<_, _>>()?;
    Ok(Filter {
        rules: args.rules.clone(),
        skip: args.skip_rules.clone(),
        nodes,
        namespace: args.namespace.clone(),
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
