//! `check`.

use std::io::Write;
use std::time::{Duration, Instant};

use calipam_check::{Filter, Options};
use calipam_model::snapshot::Snapshot;
use calipam_workflow::{Judging, Look, have_in_common, look_twice, nodes, pool};

use crate::args::{CheckArgs, Format, Global};
use crate::exit::{self, Failure, Outcome};
use crate::ignore::Ignored;
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
    if let Some(both) = args.rules.iter().find(|rule| args.skip_rules.contains(rule)) {
        return Err(Failure::usage(format!("--rule and --skip-rule both name {both}")));
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
    let ignored = args.ignore.as_deref().map(Ignored::read).transpose()?.unwrap_or_default();
    let judging = Judging {
        options: Options { grace: args.grace, pool_threshold: args.pool_threshold },
        settle: args.settling.settle,
    };
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let mut look = look_twice(&datastore, &judging, args.confirm, &Person::watching(console)).await?;
        let filter = filter(args, &look.snapshot)?;
        for said in ignored.apply(&mut look.report) {
            console.note(&said);
        }
        look.report.filter(&filter);
        Ok(look)
    })
}

/// Prints the report and writes its files. Where one file cannot be written the others are, and the first failure is
/// the command's.
fn print(checked: &Checked<'_>, args: &CheckArgs, console: &Console) -> Result<(), Failure> {
    let write =
        |file: &OutputFile| file.write(|out| document::write(checked, file.format, Page::default(), out));
    let files = args.output_files.iter().map(write).fold(Ok(()), Result::and);
    if !checked.report.findings.is_empty() || console.prints_nothing_new() {
        console.print(checked)?;
    }
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

fn filter(args: &CheckArgs, snapshot: &Snapshot) -> Result<Filter, Failure> {
    let nodes: Vec<String> = nodes(snapshot, &args.nodes)?.into_iter().collect();
    let pools = args.pools.iter().map(|name| pool(snapshot, name)).collect::<Result<Vec<_>, _>>()?;
    have_in_common(snapshot, &nodes, &pools)?;
    Ok(Filter {
        rules: args.rules.clone(),
        skip: args.skip_rules.clone(),
        nodes,
        namespace: args.namespace.clone(),
        pools,
    })
}
