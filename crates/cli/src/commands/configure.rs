//! `configure`.

use calipam_workflow::ConfigureRequest;

use super::repair;
use crate::args::{ConfigureArgs, Global};
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::{connect, hints};

pub(super) fn run(args: &ConfigureArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let settings = args.settings();
    if settings.is_empty() {
        return Err(Failure::Usage {
            message:
                "specify what to set: --strict-affinity, --auto-allocate-blocks, --max-blocks-per-host, \
                      --kubevirt-ip-persistence or --ip-cooldown-seconds"
                    .into(),
            hint: Some(format!("{} prints what is set", hints::command(&["show", "--configuration"]))),
        });
    }
    let intent = args.writing.intent((!args.dry_run).then(|| "configure".into()));
    let request = ConfigureRequest { settings, foresees: true, intent };
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let person = Person::new(console, args.writing.yes);
        let repaired = calipam_workflow::configure(&datastore, &request, &person).await?;
        repair::finish(repaired, args.dry_run, datastore.is_live(), console)
    })
}
