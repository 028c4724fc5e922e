//! `assign`.

use std::collections::BTreeMap;

use calipam_check::Options;
use calipam_plan::assign::Request;
use calipam_workflow::{AssignRequest, Criteria};
use jiff::SignedDuration;

use super::repair;
use crate::args::{AssignArgs, Global};
use crate::connect;
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;

pub(super) fn run(args: &AssignArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let plans_only = args.dry_run;
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
        // What a recheck would drop is not an objection to an assignment.
        criteria: Criteria { options: Options::default(), recheck_after: SignedDuration::ZERO },
        intent: args.writing.intent((!plans_only).then(|| format!("assign {what}"))),
    };
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        if !plans_only && !datastore.is_live() {
            return Err(calipam_workflow::Error::NotLive("an assignment").into());
        }
        let person = Person::new(console, args.writing.yes);
        let repaired = calipam_workflow::assign(&datastore, &request, &person).await?;
        repair::finish(repaired, args.dry_run, datastore.is_live(), console)
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
