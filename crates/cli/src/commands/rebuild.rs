//! `rebuild`.

use calipam_plan::rebuild::Request;
use calipam_workflow::RebuildRequest;

use super::repair;
use crate::args::{Global, RebuildArgs};
use crate::console::Console;
use crate::exit::{Failure, Outcome};

pub(super) fn run(args: &RebuildArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let request = RebuildRequest {
        wanted: Request {
            blocks: args.blocks.clone(),
            endpoints_only: args.endpoints_only,
            ..Request::default()
        },
        names: args.selection.names(None),
        output_dir: args.output_dir.clone(),
        criteria: args.criteria.criteria(),
        intent: args.writing.intent(args.apply.then(|| "rebuild --apply".into())),
    };
    repair::run(
        &args.writing,
        !args.apply,
        args.apply.then(|| repair::not_live("rebuild --apply")),
        (global, console),
        async |datastore, person| calipam_workflow::rebuild(datastore, &request, person).await,
    )
}
