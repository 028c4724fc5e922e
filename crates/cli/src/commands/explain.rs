//! `explain`.

use crate::args::ExplainArgs;
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::render::codes::Rules;
use crate::render::explanation::{Explanation, Explanations};

/// Prints the sections of the rules, or the list of all rules.
pub(super) fn run(args: &ExplainArgs, console: &Console) -> Result<Outcome, Failure> {
    let mut explained: Vec<Explanation> = Vec::new();
    for code in &args.rules {
        if !explained.iter().any(|other| other.code == *code) {
            explained.push(Explanation::of(*code));
        }
    }
    match explained.as_slice() {
        [] => console.print(&Rules::all())?,
        [only] => console.print(only)?,
        _ => console.print(&Explanations { explanations: explained })?,
    }
    Ok(Outcome::Clean)
}
