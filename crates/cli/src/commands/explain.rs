//! `explain`.

use crate::args::ExplainArgs;
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::render::explanation::Rules;

/// Prints the sections of the rules, or the list of all rules.
pub(super) fn run(args: &ExplainArgs, console: &Console) -> Result<Outcome, Failure> {
    console.print(&Rules::of(&args.rules))?;
    Ok(Outcome::Clean)
}
