//! `assign`.

use std::collections::BTreeMap;

use calipam_check::Options;
use calipam_plan::assign::Request;
use calipam_workflow::{AssignRequest, Criteria};
use jiff::SignedDuration;

use super::repair;
use crate::args::{AssignArgs, Global};
use crate::console::Console;
use crate::exit::{Failure, Outcome};

pub(super) fn run(args: &AssignArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let what = if args.count.is_some() { "--count" } else { "--ip" };
    let request = AssignRequest {
        wanted: Request {
            node: args.node.clone(),
            addresses: args.addresses.clone(),
            count: args.count.unwrap_or(0),
            handle: args.handle.clone(),
            attributes: attributes(args)?,
            force: args.force,
            pools: Vec::new(),
        },
        pools: args.pools.clone(),
        // An assignment needs no recheck of findings.
        criteria: Criteria { options: Options::default(), recheck_after: SignedDuration::ZERO },
        intent: args.writing.intent((!args.dry_run).then(|| format!("assign {what}"))),
    };
    let on_file = (!args.dry_run).then(|| Failure::not_live("an assignment"));
    repair::run(&args.writing, args.dry_run, on_file, (global, console), async |datastore, person| {
        calipam_workflow::assign(datastore, &request, person).await
    })
}

fn attributes(args: &AssignArgs) -> Result<BTreeMap<String, String>, Failure> {
    let mut attributes = BTreeMap::new();
    for (key, value) in &args.attributes {
        if attributes.insert(key.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("--attribute {key} is given more than once")));
        }
    }
    Ok(attributes)
}
