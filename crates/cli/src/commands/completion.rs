//! `completion`.

use crate::applet::Applet;
use crate::args::CompletionArgs;
use crate::exit::{Failure, Outcome};
use crate::output::Console;

/// Prints the completion script of a shell, for the name that the program was called by. kubectl completes
/// its plugins by a script of its own: see `install-links`.
pub fn run(args: &CompletionArgs, applet: Applet, console: &Console) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    let name = if applet == Applet::Ipam { "ipam" } else { "calipam" };
    clap_complete::generate(args.shell, &mut crate::command(), name, &mut script);
    console.data(|out| out.write_all(&script))?;
    Ok(Outcome::Clean)
}
