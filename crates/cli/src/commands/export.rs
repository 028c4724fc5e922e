//! `export`.

use crate::args::{ExportArgs, Global};
use crate::exit::{Failure, Outcome};
use crate::output::Console;
use crate::progress::Reading;
use crate::render::text::count;
use crate::{connect, render};

/// Writes what a check reads into a file.
///
/// # Errors
/// Where the datastore cannot be read or the file not be written.
pub fn run(args: &ExportArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    if args.file.exists() && !args.overwrite {
        return Err(Failure::Usage {
            message: format!("{} exists", args.file.display()),
            hint: Some("choose another name, or replace it with `--overwrite`".into()),
        });
    }
    let entries = connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let reading = Reading::start(console, "exporting");
        let result = datastore.export(&args.file, &reading.callback()).await;
        reading.end();
        Ok(result?)
    })?;
    let entries = usize::try_from(entries).unwrap_or(usize::MAX);
    console.say(&format!("wrote {} to {}", count(entries, "object", "objects"), args.file.display()));
    console
        .hint(&format!("look at it with `calipam check --datastore {}`", render::text::quoted(&args.file)));
    Ok(Outcome::Clean)
}
