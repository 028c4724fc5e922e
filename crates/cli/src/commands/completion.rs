//! The `completion` command.

use crate::applet::Applet;
use crate::args::CompletionArgs;
use crate::complete;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};

/// Prints the completion script of a shell for the name that the program was called by.
pub(super) fn run(args: &CompletionArgs, applet: Applet, console: &Console) -> Result<Outcome> {
    let shell = args.shell.to_string();
    let script = complete::registration(&shell, applet);
    let script = script.ok_or_else(|| Failure::usage(format!("there is no completion for {shell}")))?;
    console.data(|out| out.write_all(&script))?;
    Ok(Outcome::Clean)
}
