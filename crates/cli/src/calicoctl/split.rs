//! The `ipam split` command.

use std::num::{IntErrorKind, ParseIntError};

use calipam_check::Subject;
use calipam_plan::split::SplitRefusal;
use calipam_plan::{PlanKind, Verb};
use calipam_workflow::{PoolName, Repaired, SplitRequest, UnknownPool};

use super::args::SplitArgs;
use super::{Call, plain_failure};
use crate::args::WritingArgs;
use crate::exit::Result;

/// calicoctl's message if the datastore is not locked.
const NOT_LOCKED: &str =
    "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order split the IP pools";

/// Splits a pool, with calicoctl's messages for refusals.
pub(super) fn run(args: &SplitArgs, call: Call<'_>) -> Result<()> {
    let number_of_parts: i64 = args.number.parse().map_err(|error: ParseIntError| {
        let number = &args.number;
        // These are Go's error messages.
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        plain_failure(format!(
            "error reading number to split IP pools into. {number} is not a valid number: strconv.Atoi: parsing {number:?}: {why}"
        ))
    })?;
    let unless_empty = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let name = unless_empty(&args.name);
    let cidr = unless_empty(&args.cidr);
    let not_found = || {
        let name = name.clone().unwrap_or_default();
        let cidr = cidr.clone().unwrap_or_default();
        if cidr.is_empty() {
            let why = format!("resource does not exist: IPPool({name}) with error: <nil>");
            plain_failure(format!("unable to find IP pool with name {name}: {why}"))
        } else {
            plain_failure(format!(
                "unable to find IP pool {name} covering the specified CIDR {cidr}"
            ))
        }
    };
    let pool = match (&name, &cidr) {
        (Some(name), _) => PoolName::Name(name.clone()),
        (None, Some(cidr)) => PoolName::Cidr(cidr.parse().map_err(|_| not_found())?),
        (None, None) => {
            let message = "no name or CIDR provided. Provide a name or CIDR to denote the IP pool to split";
            return Err(plain_failure(message));
        }
    };

    // The planner refuses invalid numbers with calicoctl's message.
    let parts = u32::try_from(number_of_parts).unwrap_or(0);
    let request = SplitRequest {
        pool,
        parts,
        needs_lock: true,
        disables_first: true,
        intent: WritingArgs::agreed(&format!("calicoctl ipam split {parts}")),
    };
    let split = call.with(async |access| calipam_workflow::split(access, &request).await);
    let repaired = split.map_err(|failure| {
        if failure.cause::<UnknownPool>().is_some() {
            return not_found();
        }
        match failure.cause() {
            Some(SplitRefusal::NotLocked(_)) => plain_failure(NOT_LOCKED),
            Some(SplitRefusal::NotPowerOfTwo(refused)) => plain_failure(refused.to_string()),
            // calicoctl has no text of its own for the others.
            _ => failure,
        }
    })?;
    let text = message(&repaired);
    call.print_run(repaired.run)?;
    call.print(&text)
}

/// Formats the result of a split as calicoctl does, without a line break after the first and the last sentence.
fn message(repaired: &Repaired) -> String {
    debug_assert_eq!(repaired.plan.kind, PlanKind::Split);
    // The detail of a change begins with the pool's name.
    let name = |detail: &str| detail.split([',', ';']).next().unwrap_or_default().to_owned();
    let mut old_pool = None;
    let mut parts = 0;
    let mut lines = String::new();
    for change in &repaired.plan.changes {
        match change.action {
            // Only the pool that was split is deleted.
            Verb::DeletePool if old_pool.is_none() => old_pool = Some(name(&change.detail)),
            Verb::CreatePool => {
                parts += 1;
                if let Subject::Pool(cidr) = &change.subject {
                    lines.push_str(&format!("Created {} with CIDR {cidr}.\n", name(&change.detail)));
                }
            }
            // The other steps, such as disabling the old pool, are not mentioned by calicoctl.
            _ => {}
        }
    }
    let old_pool = old_pool.unwrap_or_default();
    format!(
        "IP Pool {old_pool} was successfully split into {parts} smaller pools.{lines}Please refer to the documentation for final steps."
    )
}
