//! The `ipam release` command, which releases one address, or the leaked addresses and handles in reports.

use std::net::IpAddr;
use std::path::PathBuf;

use calipam_check::Subject;
use calipam_plan::release::{Force, ReportError, Request};
use calipam_plan::{SkipReason, Skipped, Verb};
use calipam_workflow::{Names, ReleaseRequest, Repaired, UnusableReport};

use super::args::ReleaseArgs;
use super::show::parse_address;
use super::{Call, criteria, plain_failure};
use crate::args::WritingArgs;
use crate::exit::{Failure, Result};
use crate::hints::{self, Reader};

/// Releases the address that `--ip` names, or what the reports of `--from-report` list.
pub(super) fn run(args: &ReleaseArgs, call: Call<'_>) -> Result<()> {
    if !args.from_report.is_empty() {
        return from_reports(args, call);
    }
    // Without options, calicoctl does nothing and succeeds.
    let Some(text) = args.ip.as_deref().filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    release_address(parse_address(text, call)?, args.force, call)
}

/// Releases the targets. `option` is recorded in the journal.
fn carry_out(targets: Request, reports: Vec<PathBuf>, option: &str, call: Call<'_>) -> Result<Repaired> {
    let request = ReleaseRequest {
        targets,
        names: Names::default(),
        reports,
        criteria: criteria(),
        intent: WritingArgs::agreed(&format!("calicoctl ipam release {option}")),
        lock: false,
    };
    call.with(async |access| calipam_workflow::release(access, &request).await)
}

/// Releases one address. If it is in use, only `force` releases it, unlike in calicoctl.
///
/// # Errors
/// If the address is not assigned, as in calicoctl, or is not released.
fn release_address(address: IpAddr, force: bool, call: Call<'_>) -> Result<()> {
    let targets = Request {
        addresses: vec![address],
        force: if force { Force::Named } else { Force::Nothing },
        ..Request::default()
    };
    let no_reports = Vec::new();
    let repaired = carry_out(targets, no_reports, "--ip", call)?;
    // The plan skips the address if there is a reason not to release it.
    if let Some(skipped) = repaired.plan.skipped.first() {
        return Err(not_released(address, skipped, force));
    }
    call.print_run(repaired.run)?;
    call.print(&format!("Successfully released IP address {address}\n"))
}

/// Creates the failure for an address that a release skips: calicoctl's if the address is free, otherwise the reason
/// and, unless it was used, the option that releases the address.
fn not_released(address: IpAddr, skipped: &Skipped, force: bool) -> Failure {
    let is_free = matches!(
        skipped.reason,
        SkipReason::NotAllocated | SkipReason::NotFound | SkipReason::Cooling
    );
    if is_free {
        return plain_failure(format!("IP address {address} is not assigned"));
    }

    let reason = hints::plan::skipped(skipped, Reader::Document);
    let failure = plain_failure(format!("error: IP address {address} is not released: {reason}"));
    if force {
        return failure;
    }
    failure.hint("calicoctl would have released it; with `--force`, calipam releases it too")
}

/// Releases the leaked addresses and orphan handles that the reports list. Prints each that is kept, and why.
fn from_reports(args: &ReleaseArgs, call: Call<'_>) -> Result<()> {
    let force = if args.force {
        Force::Reported
    } else {
        Force::Nothing
    };
    let targets = Request {
        leaked: true,
        orphan_handles: true,
        force,
        ..Request::default()
    };
    let result = carry_out(targets, args.from_report.clone(), "--from-report", call);
    let repaired = result.map_err(|failure| match failure.cause() {
        Some(UnusableReport { report, objection }) => refused(report, objection),
        None => failure,
    })?;

    // An address that is no longer allocated was released since the report, as was wanted.
    for skipped in &repaired.plan.skipped {
        if skipped.reason != SkipReason::NotAllocated {
            let subject = &skipped.subject;
            let why = hints::plan::skipped(skipped, Reader::Document);
            call.console.say(&format!("kept: {subject}: {why}"));
        }
    }
    call.print(&message(&repaired))?;
    call.print_run(repaired.run)?;
    call.print("You may now unlock the data store.\n")
}

/// Creates the failure for an objection to a report, with calicoctl's message.
fn refused(report: &str, objection: &ReportError) -> Failure {
    plain_failure(match objection {
        ReportError::OtherCluster { .. } => format!(
            "cluster does not match the provided report ({report}): mismatched cluster GUID. Refusing to release"
        ),
        ReportError::OtherVersion { reported, .. } => format!(
            "the provided report ({report}) was produced using a different version ({reported}) of calicoctl. Refusing \
             to release"
        ),
        ReportError::Stale => {
            "the provided reports are all stale - at least one should be up-to-date. Please generate \
                               a new report while the data store is locked and try again"
                .to_owned()
        }
        ReportError::NotLocked => {
            "data store is not locked. Either lock the data store, or re-run with --force".to_owned()
        }
        ReportError::NoReport(_) => format!("{report}: {objection}"),
    })
}

/// Formats the result as calicoctl does.
fn message(repaired: &Repaired) -> String {
    let plan = &repaired.plan;
    let mut kept = 0;
    if let Some(run) = &repaired.run {
        let conflicts = run.execution.conflicts.iter();
        kept = conflicts.map(|conflict| conflict.addresses.len()).sum();
    }
    let mut addresses: usize = 0;
    let mut deleted_handles = 0;
    for change in &plan.changes {
        match change.action {
            Verb::ReleaseAddress => addresses += 1,
            // As in calicoctl, handles that are deleted with their addresses do not count.
            Verb::DeleteHandle if !change.repairs.is_empty() => deleted_handles += 1,
            _ => {}
        }
    }
    let mut already_clean = 0;
    let mut skipped_handles = 0;
    for skipped in &plan.skipped {
        if skipped.reason == SkipReason::NotAllocated {
            already_clean += 1;
        }
        if matches!(skipped.subject, Subject::Handle(_)) {
            skipped_handles += 1;
        }
    }

    let mut text = String::new();
    if addresses + already_clean == 0 {
        text.push_str("Report didn't contain any leaked IPs to clean up.\n");
    } else {
        let released = addresses.saturating_sub(kept);
        text.push_str(&format!("Releasing {} old IPs...\n", addresses + already_clean));
        text.push_str(&format!("Released {released} IPs successfully\n"));
        if already_clean > 0 {
            text.push_str(&format!(
                "{already_clean} addresses marked as leaked in the report had already been cleaned up.\n"
            ));
        }
    }

    let handles = deleted_handles + skipped_handles;
    if handles == 0 {
        return text + "Report didn't contain any handles to clean up.\n";
    }
    let key = format!("{}{}", ".".repeat(deleted_handles), "x".repeat(skipped_handles));
    text.push_str(&format!("Deleting {handles} handles...\n"));
    text.push_str("Key: '.' = Deleted OK; 'x' = skip, handle missing/changed.\n");
    text.push_str(&format!("{key}\n"));
    text + &format!("Released {deleted_handles} handles; {skipped_handles} skipped; 0 errors.\n")
}
