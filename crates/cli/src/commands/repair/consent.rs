//! Asking the operator.

use std::io::{self, BufRead, IsTerminal, Write};

use calipam_datastore::write::{Consent, Question};

use crate::args::WritingArgs;
use crate::exit::Failure;
use crate::output::Console;

/// True where somebody will be asked, who has to see first what about.
pub fn will_ask(args: &WritingArgs) -> bool {
    !args.yes && io::stdin().is_terminal()
}

/// Asks on the terminal, unless `--yes` has answered already.
///
/// # Errors
/// Where the answer is no, or nobody is there to be asked.
pub async fn agree(question: Question, args: &WritingArgs, console: &Console) -> Result<Consent, Failure> {
    if let Some(consent) = Consent::from_option(question.clone(), args.yes) {
        console.verbose(&format!("{question} --yes"));
        return Ok(consent);
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage {
            message: "there is no terminal to ask on, and nothing was changed".into(),
            hint: Some("look at the plan with `--dry-run`, then agree with `--yes`".into()),
        });
    }
    let answer = ask(question.to_string()).await?;
    Consent::from_answer(question, &answer)
        .ok_or_else(|| Failure::Refused { message: "not agreed; nothing was changed".into(), hint: None })
}

/// Asks a question and waits for a line. On a thread of its own: whoever presses ctrl-c instead ends the program.
async fn ask(question: String) -> Result<String, Failure> {
    let failed = |error| Failure::Io { doing: "ask".into(), error };
    let asked = tokio::task::spawn_blocking(move || -> io::Result<String> {
        let mut out = io::stderr().lock();
        write!(out, "{question} [y/N] ")?;
        out.flush()?;
        drop(out);
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(answer)
    });
    asked.await.map_err(|lost| failed(io::Error::other(lost)))?.map_err(failed)
}
