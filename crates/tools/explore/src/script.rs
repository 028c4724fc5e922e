//! Schedules as text, one line for each step, for people to read and edit.

use std::fmt::Write;

use crate::run::{Choice, Run};
use crate::scenario::{Scenario, all};
use crate::search::Violation;
use crate::world::{RequestId, Verdict};

/// Prints a schedule with a description of its steps.
pub fn print(scenario: &Scenario, found: &Violation) -> String {
    let mut text = format!("scenario {}\nfaults {}\n", scenario.name, scenario.faults);
    let mut run = Run::new(scenario).ok();
    for choice in &found.schedule {
        let options = run.as_ref().map(Run::options).unwrap_or_default();
        let what = options.into_iter().find(|option| option.choice == *choice).map(|option| option.what);
        let _ = writeln!(text, "{:<12} # {}", line(*choice), what.unwrap_or_default());
        // The step of the violation is the last one.
        if run.as_mut().is_some_and(|run| run.step(*choice).is_err()) {
            run = None;
        }
    }
    let _ = writeln!(text, "# {}", found.what);
    text
}

/// The word for each decision.
const VERDICTS: [(&str, Verdict); 4] =
    [("go", Verdict::Go), ("fail", Verdict::Fail), ("put-off", Verdict::PutOff), ("expire", Verdict::Expire)];

fn line(choice: Choice) -> String {
    let of_request = |word: &str, id: RequestId| format!("{word} {}.{}", id.actor, id.number);
    match choice {
        Choice::Decide(id, verdict) => {
            let word = VERDICTS.into_iter().find(|(_, known)| *known == verdict);
            of_request(word.map_or("", |(word, _)| word), id)
        }
        Choice::Land(id) => of_request("land", id),
        Choice::Kill(actor) => format!("kill {actor}"),
        Choice::Crash(actor) => format!("crash {actor}"),
        Choice::Jump(seconds) => format!("jump {seconds}"),
        Choice::TearNotes(node) => format!("tear-notes {node}"),
        Choice::OldNotes(node) => format!("old-notes {node}"),
    }
}

/// Parses a schedule.
///
/// # Errors
/// Returns an error if a line cannot be parsed.
pub fn parse(text: &str) -> Result<(Scenario, Vec<Choice>), String> {
    let (mut scenario, mut faults, mut schedule) = (None, None, Vec::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let not_understood = || format!("line {}: {line}", index + 1);
        match line.split_once(' ') {
            None if line.is_empty() => {}
            None => return Err(not_understood()),
            Some(("scenario", name)) => {
                let known = all().into_iter().find(|known| known.name == name);
                scenario = Some(known.ok_or_else(not_understood)?);
            }
            Some(("faults", number)) => faults = Some(number.parse().map_err(|_| not_understood())?),
            Some((word, rest)) => schedule.push(step(word, rest).ok_or_else(not_understood)?),
        }
    }
    let scenario = scenario.ok_or("no line names the scenario")?;
    Ok((faults.map_or(scenario, |faults| scenario.with_faults(faults)), schedule))
}

fn step(word: &str, rest: &str) -> Option<Choice> {
    let id = || {
        let (actor, number) = rest.split_once('.')?;
        Some(RequestId { actor: actor.parse().ok()?, number: number.parse().ok()? })
    };
    if let Some((_, verdict)) = VERDICTS.into_iter().find(|(known, _)| *known == word) {
        return Some(Choice::Decide(id()?, verdict));
    }
    match word {
        "land" => id().map(Choice::Land),
        "jump" => rest.parse().ok().map(Choice::Jump),
        "kill" => rest.parse().ok().map(Choice::Kill),
        "crash" => rest.parse().ok().map(Choice::Crash),
        "tear-notes" => rest.parse().ok().map(Choice::TearNotes),
        "old-notes" => rest.parse().ok().map(Choice::OldNotes),
        _ => None,
    }
}
