//! The `check` command.

mod of_fleet;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use calipam_check::views::{self, CalicoctlView};
use calipam_check::{
    Changes, Code, Context, EarlierReport, Filter, Finding, NoReport, Options, Report, Scope, Severity,
    Subject, read_document,
};
use calipam_files::regular;
use calipam_model::CniConfiguration;
use calipam_model::config::newest_known;
use calipam_model::snapshot::Snapshot;
use calipam_plan::advice::Advice;
use calipam_plan::release::ReportError;
use calipam_workflow::{
    Access, CheckResult, Criteria, Found, Names, check_and_confirm, no_report, note_last_use,
};
use serde_json::Value;

use super::journals;
use crate::args::{CheckArgs, CheckOptions, Global, ReportArgs};
use crate::console::{Console, READER_IS_GONE};
use crate::exit::{self, Failure, Kind, Outcome, Result};
use crate::fleet::Fleet;
use crate::format::Format;
use crate::ignore::Ignored;
use crate::output_file;
use crate::past::Past;
use crate::render::document::{self, Document};
use crate::render::page::Page;
use crate::render::report::{Checked, RunMetrics, write_calicoctl};
use crate::{connect, hints, rerun};

/// Checks a cluster, an earlier state or a fleet. Prints the report, and writes it into files.
pub(super) fn run(args: &CheckArgs, global: &Global, console: &Console) -> Result<Outcome> {
    let begin = Instant::now();
    if args.reports.only_new && console.format == Format::Prometheus {
        return Err(
            Failure::usage("--only-new would make metrics forget the other findings")
                .hint("use --output-file, which always writes all findings"),
        );
    }
    if let Some(fleet) = Fleet::of_call(&args.fleet, global)? {
        return of_fleet::run(args, &fleet, begin, console);
    }

    let past = Past::of_call(args.reports.archive.as_deref(), args.reports.at, global, console)?;
    let global = past.as_ref().map_or(global, |past| &past.global);
    let findings = match check_cluster(args, global, console) {
        Ok(findings) => findings,
        Err(failure) => {
            // This failure is printed first, so that the failure of the check, which matters more, comes last.
            if let Err(second) = write_failure_metrics(begin.elapsed(), failure.kind as u8, args, console) {
                console.failure(&second);
            }
            return Err(failure);
        }
    };
    let Findings {
        checked: CheckResult { report, snapshot, .. },
        advice,
        calicoctl,
        is_whole,
        is_live,
    } = findings;

    let outcome = if args.fail_on.fails(worst(&report, args)) {
        Outcome::Findings
    } else if is_whole {
        Outcome::Clean
    } else {
        Outcome::Refused
    };

    let checked = Checked {
        report: &report,
        advice: &advice,
        snapshot: &snapshot,
        took: begin.elapsed(),
        exit_code: exit::code(&Ok(outcome)),
    };

    let printed = if args.reports.only_new {
        print_new(&checked, args, console)
    } else {
        print_with_hints(&checked, args, console)
    };
    // With --only-new, the report that the next call compares with must not contain findings that were not printed.
    let files = if printed.is_ok() || !args.reports.only_new {
        write_files(&checked, args)
    } else {
        Ok(())
    };
    if is_live && !report.findings.is_empty() {
        let guids = BTreeSet::from([report.cluster.guid.as_str()]);
        for unfinished in journals::unfinished_runs(&guids, console).values() {
            journals::note_unfinished(unfinished, console);
        }
    }
    let written = write_report(args.reports.report.as_deref(), calicoctl.as_ref(), &snapshot);
    console.done_with((report, snapshot, calicoctl));
    printed.and(files).and(written).map(|()| outcome)
}

/// Prints the report of a check with only the findings that are new or worse than in the earlier report, and with the
/// advice for them.
fn print_new(checked: &Checked<'_>, args: &CheckArgs, console: &Console) -> Result<()> {
    let report = checked.report.new_or_worse();
    let mut advice = checked.advice.clone();
    advice.narrow(&report);
    print_with_hints(
        &Checked {
            report: &report,
            advice: &advice,
            ..*checked
        },
        args,
        console,
    )
}

fn print_with_hints(checked: &Checked<'_>, args: &CheckArgs, console: &Console) -> Result<()> {
    print(checked, !checked.report.findings.is_empty(), args, console)?;
    print_advice(checked, console);
    Ok(())
}

/// Returns the severity that determines the exit code.
pub(crate) fn worst(report: &Report, args: &CheckArgs) -> Option<Severity> {
    match &report.changes {
        Some(changes) if args.reports.fail_on_new || args.reports.only_new => {
            changes.worst_new_or_worse(&report.findings)
        }
        _ => report.worst(),
    }
}

/// The results of a check, with calicoctl's view of them if it is requested.
struct Findings {
    checked: CheckResult,
    /// The causes of the findings in the requested part of the report.
    advice: Advice,
    calicoctl: Option<CalicoctlView>,
    /// False if some of the named nodes or pools were not found.
    is_whole: bool,
    /// True if the cluster itself was read, and not a file.
    is_live: bool,
}

/// Checks a cluster, compares the report with an earlier one, and leaves out findings that are not requested.
/// calicoctl's view contains all findings.
fn check_cluster(args: &CheckArgs, global: &Global, console: &Console) -> Result<Findings> {
    let checker = Checker::new(&args.options)?;
    let compared_with = args.reports.compare_with.as_deref();
    let earlier = read_earlier_report(&args.reports, console, EarlierReport::decode)?;
    connect::with(global, console, async |access| {
        let (mut checked, mut advice) = checker.check(access).await?;
        let mut calicoctl = None;
        if args.reports.report.is_some() {
            calicoctl = Some(views::calicoctl(&checked.snapshot, &checked.report));
        }
        if let Some(earlier) = earlier {
            checked.report.changes = Some(changes_since(earlier, &checked, compared_with)?);
        }
        // After the comparison, in which a finding that is not requested would be gone.
        let not_found = checker.keep_requested(&mut checked.report, &checked.snapshot, console)?;
        advice.narrow(&checked.report);
        let is_whole = not_found.is_empty();
        for error in not_found {
            console.failure(&error);
        }
        if let Some(folder) = &args.reports.archive {
            note_last_use(folder, &mut checked.report, access.operator)?;
        }
        Ok(Findings {
            checked,
            advice,
            calicoctl,
            is_whole,
            is_live: access.datastore.is_live(),
        })
    })
}

/// A check with its options, which are validated before the cluster is read.
pub(crate) struct Checker<'a> {
    options: &'a CheckOptions,
    ignored: Ignored,
    cni_configuration: Option<CniConfiguration>,
}

impl<'a> Checker<'a> {
    /// Reads the files that the options name. Refuses a rule that is both asked for and left out.
    pub(crate) fn new(options: &'a CheckOptions) -> Result<Self> {
        // Such a rule would be left out without a word.
        for rule in &options.rules {
            if options.skip_rules.contains(rule) {
                return Err(Failure::usage(format!("--rule and --skip-rule both name {rule}")));
            }
        }
        let ignored = match &options.ignore {
            Some(path) => Ignored::read(path)?,
            None => Ignored::default(),
        };
        Ok(Self {
            options,
            ignored,
            cni_configuration: options.cni_config.read()?,
        })
    }

    /// Reads and checks the cluster. Also returns the causes of the findings.
    pub(crate) async fn check(&self, access: Access<'_>) -> Result<(CheckResult, Advice)> {
        let advise = |context: Context<'_>, report: &Report| self.advise(context, report);
        let (checked, advice) =
            check_and_confirm(access, &self.criteria(), self.options.confirm, advise).await?;
        Ok((checked, advice?))
    }

    /// Finds the causes of the findings in a complete report, and what helps in the selected part of the cluster.
    pub(crate) fn advise(&self, context: Context<'_>, report: &Report) -> Result<Advice> {
        calipam_workflow::advise(context, report, &self.names())
    }

    /// Returns the names that select a part of the cluster.
    pub(super) fn names(&self) -> Names {
        self.options.selection.names(self.options.namespace.as_ref())
    }

    /// Removes findings that are accepted or not requested. Returns an error for each name that was not found.
    pub(super) fn keep_requested(
        &self,
        report: &mut Report,
        snapshot: &Snapshot,
        console: &Console,
    ) -> Result<Vec<calipam_workflow::Failure>> {
        let Found {
            found: scope,
            not_found,
        } = self.names().found(&[snapshot])?;
        self.filter(&mut [("", report)], scope, console);
        Ok(not_found)
    }

    /// Filters the reports of clusters by accepted findings, rules and scope.
    pub(crate) fn filter(&self, reports: &mut [(&str, &mut Report)], scope: Scope, console: &Console) {
        let CheckOptions {
            rules, skip_rules, ..
        } = self.options;
        let filter = Filter {
            rules: rules.clone(),
            skip: skip_rules.clone(),
            scope,
        };
        // Accepted findings come first, since an entry whose finding is filtered out would seem to match nothing.
        for note in &self.ignored.apply(reports) {
            console.note(note);
        }
        for (_, report) in reports.iter_mut() {
            report.filter(&filter);
        }
    }

    /// Returns the criteria of a check with these options.
    pub(super) fn criteria(&self) -> Criteria {
        Criteria {
            options: Options {
                grace: self.options.grace,
                pool_threshold: self.options.pool_threshold,
                cni_configuration: self.cni_configuration.clone(),
            },
            recheck_after: self.options.recheck.settle,
        }
    }
}

/// Reads the report that `--compare-with` names, and decodes it with `decode`. Returns `None` without this option, or
/// if the file does not exist yet and this call writes it.
pub(crate) fn read_earlier_report<T>(
    args: &ReportArgs,
    console: &Console,
    decode: impl FnOnce(&Value) -> Result<T, NoReport>,
) -> Result<Option<T>> {
    let Some(path) = &args.compare_with else {
        return Ok(None);
    };

    let opened = regular::open(path);
    let is_missing = opened
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    // The first of regular calls that each compare with the last one's report finds none.
    if is_missing && args.writes(path) {
        console.note(&format!(
            "{} does not exist yet: there is nothing to compare with",
            path.display()
        ));
        return Ok(None);
    }

    let file = opened.map_err(Failure::io_at("read the report", path))?;
    match read_document(file).and_then(|document| decode(&document)) {
        Ok(report) => Ok(Some(report)),
        Err(reason) => Err(no_report(path, &reason.into())),
    }
}

/// Returns the changes since an earlier report, which must be from the same cluster. `path` is the earlier report's,
/// for the error.
fn changes_since(earlier: EarlierReport, checked: &CheckResult, path: Option<&Path>) -> Result<Changes> {
    let guid = &checked.report.cluster.guid;
    if earlier.guid != *guid {
        let other = ReportError::OtherCluster {
            reported: earlier.guid,
            found: guid.clone(),
        };
        let name = path.unwrap_or(Path::new("-")).display();
        return Err(Failure::usage(format!("cannot compare with {name}: {other}"))
            .hint("keep the reports of different clusters apart"));
    }
    Ok(Changes::since(
        earlier,
        &checked.report.coverage,
        &checked.report.findings,
        &checked.dropped,
    ))
}

/// Writes the report in calicoctl's format.
fn write_report(path: Option<&Path>, view: Option<&CalicoctlView>, snapshot: &Snapshot) -> Result<()> {
    let (Some(path), Some(view)) = (path, view) else {
        return Ok(());
    };
    output_file::write(path, |out| write_calicoctl(view, snapshot, out))
}

/// Writes a report to the files that the options name. Tries all files, and then returns the first failure.
pub(crate) fn write_files(report: &impl Document, args: &CheckArgs) -> Result<()> {
    let mut result = Ok(());
    for file in &args.reports.output_files {
        let written = file.write(|out| document::write(report, file.format, Page::default(), out));
        result = result.and(written);
    }
    result
}

/// Prints a report unless `--quiet` omits it. With `--only-new`, fails if the reader of stdout has closed the pipe.
pub(crate) fn print(
    report: &impl Document,
    has_findings: bool,
    args: &CheckArgs,
    console: &Console,
) -> Result<()> {
    if has_findings || console.prints_empty_results() {
        console.print(report)?;
    }
    if args.reports.only_new && READER_IS_GONE.load(Ordering::SeqCst) {
        return Err(Failure::new(
            Kind::Failed,
            "stdout was closed: the report files are left unchanged",
        ));
    }
    Ok(())
}

/// Prints hints about the report's findings, and a note if the cluster's Calico is newer than calipam knows. Prints
/// nothing beside formats for programs.
fn print_advice(checked: &Checked<'_>, console: &Console) {
    if !console.format.is_for_people() {
        return;
    }
    print_hints(checked.report, console);
    if let Some(cluster) = &checked.snapshot.cluster
        && cluster.is_newer_than_known()
    {
        let version = &cluster.calico_version;
        let newest = newest_known();
        console.note(&format!("Calico {version} is newer than calipam supports (up to {newest}): its new features are not checked"));
    }
}

/// Writes the metrics of a failed check to all files and the output in this format, so that an alert can see the
/// failure. Files in other formats keep the last report.
fn write_failure_metrics(took: Duration, exit_code: u8, args: &CheckArgs, console: &Console) -> Result<()> {
    let run = RunMetrics {
        up: false,
        took,
        exit_code,
        live: None,
    };
    let no_report = None;
    let write_metrics = |out: &mut dyn Write| run.write(no_report, out);

    let mut result = Ok(());
    for file in &args.reports.output_files {
        if file.format == Format::Prometheus {
            let written = file.write(write_metrics);
            result = result.and(written);
        }
    }
    if console.format == Format::Prometheus {
        console.data(write_metrics)?;
    }
    result
}

/// Prints how to learn more about the findings, and a note if some of them could be changes in progress.
fn print_hints(report: &Report, console: &Console) {
    let Some(worst) = report.findings.first() else {
        return;
    };
    console.hint(&meaning(worst, console));
    if let Some(step) = explain_refusal(report) {
        console.hint(&step);
    }
    let can_be_rechecked = |finding: &Finding| !finding.depends_on.is_empty();
    if !report.rechecked && report.findings.iter().any(can_be_rechecked) {
        console.note("this is a single read: some findings could be changes in progress");
    }
}

/// Returns the hint that says where to read about the worst finding, and how to see every finding.
pub(crate) fn meaning(worst: &Finding, console: &Console) -> String {
    let explain = hints::command_elsewhere(&["explain", worst.code.name()]);
    match console.format {
        Format::Table => {
            let every_finding = rerun::in_wide_form();
            format!("what it means: {explain}; every finding: {every_finding}")
        }
        _ => format!("what it means and what to do: {explain}"),
    }
}

/// Returns a hint to run `explain` for the first pod without an address; if there is none, for the first node or
/// service. `None` if nothing lacks an address.
fn explain_refusal(report: &Report) -> Option<String> {
    if let Some(finding) = first_finding(report, Code::PodWithoutAddress)
        && let Subject::Endpoint(pod) = &finding.subject
    {
        let explain = hints::command(&["explain", "--pod", pod]);
        return Some(format!("see why {pod} gets no address: {explain}"));
    }
    if let Some(finding) = first_finding(report, Code::NodeWithoutAddresses)
        && let Some(node) = finding.nodes.first()
    {
        let explain = hints::command(&["explain", "--node", node]);
        return Some(format!("see why {node} gets no address: {explain}"));
    }
    if let Some(finding) = first_finding(report, Code::ServiceWithoutAddress)
        && let Subject::Service(service) = &finding.subject
    {
        let explain = hints::command(&["explain", "--service", service]);
        return Some(format!("see why {service} lacks an address: {explain}"));
    }
    None
}

fn first_finding(report: &Report, code: Code) -> Option<&Finding> {
    report.findings.iter().find(|finding| finding.code == code)
}
