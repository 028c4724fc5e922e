//! `completion`.

use crate::args::CompletionArgs;
use crate::exit::{Failure, Outcome};
use crate::output::Console;

/// Prints the completion script of a shell.
///
/// # Errors
/// Where stdout cannot be written.
pub fn run(args: &CompletionArgs, console: &Console) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "calipam", &mut script);
    console.data(|out| out.write_all(&script))?;
    Ok(Outcome::Clean)
}
