//! `export`.

use crate::args::{ExportArgs, Global};
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::output::Console;
use crate::render::text::count;
use crate::{connect, hints};

pub fn run(args: &ExportArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    if args.file.exists() && !args.overwrite {
        return Err(Failure::Usage {
            message: format!("{} exists", args.file.display()),
            hint: Some("choose another name, or replace it with `--overwrite`".into()),
        });
    }
    let objects = connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        Ok(calipam_workflow::export(&datastore, &args.file, &Person::watching(console)).await?)
    })?;
    let objects = usize::try_from(objects).unwrap_or(usize::MAX);
    console.say(&format!("wrote {} to {}", count(objects, "object", "objects"), args.file.display()));
    let check = hints::command_elsewhere(&["check", "--datastore", &args.file.to_string_lossy()]);
    console.hint(&format!("look at it with {check}"));
    Ok(Outcome::Clean)
}
