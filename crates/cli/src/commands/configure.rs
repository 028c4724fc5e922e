//! `configure`.

use calipam_workflow::ConfigureRequest;

use super::repair;
use crate::args::{ConfigureArgs, Global};
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::hints;

pub(super) fn run(args: &ConfigureArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let settings = args.settings();
    if settings.is_empty() {
        return Err(Failure::usage(
            "specify what to set: --strict-affinity, --auto-allocate-blocks, --max-blocks-per-host, \
                      --kubevirt-ip-persistence or --ip-cooldown-seconds",
        )
        .hint(format!("{} prints what is set", hints::command(&["show", "--configuration"]))));
    }
    let intent = args.writing.intent((!args.dry_run).then(|| "configure".into()));
    let request = ConfigureRequest { settings, foresees: true, intent };
    repair::run(&args.writing, args.dry_run, None, (global, console), async |datastore, person| {
        calipam_workflow::configure(datastore, &request, person).await
    })
}
