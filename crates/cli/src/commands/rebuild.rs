//! `rebuild`.

use calipam_plan::rebuild::Request;
use calipam_workflow::RebuildRequest;

use super::repair;
use crate::args::{Global, RebuildArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;

pub(super) fn run(args: &RebuildArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let request = RebuildRequest {
        scope: Request {
            nodes: args.nodes.clone(),
            blocks: args.blocks.clone(),
            endpoints_only: args.endpoints_only,
            pools: Vec::new(),
        },
        pools: args.pools.clone(),
        selector: args.selector.clone(),
        output_dir: args.output_dir.clone(),
        criteria: args.criteria.criteria(),
        intent: args.writing.intent(args.apply.then(|| "rebuild --apply".into())),
    };
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        if args.apply && !datastore.is_live() {
            return Err(calipam_workflow::Error::NotLive("rebuild --apply").into());
        }
        let person = Person::new(console, args.writing.yes);
        let repaired = calipam_workflow::rebuild(&datastore, &request, &person).await?;
        repair::finish(repaired, !args.apply, datastore.is_live(), console)
    })
}
