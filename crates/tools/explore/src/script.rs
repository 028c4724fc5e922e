//! Schedules as text, one line for each step, for people to read and edit.

use std::fmt::Write;

use crate::run::{Choice, Run};
use crate::scenario::{Scenario, all};
use crate::search::Violation;
use crate::world::RequestId;

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

fn line(choice: Choice) -> String {
    match choice {
        Choice::Go(id) => format!("go {}.{}", id.actor, id.number),
        Choice::Fail(id) => format!("fail {}.{}", id.actor, id.number),
        Choice::PutOff(id) => format!("put-off {}.{}", id.actor, id.number),
        Choice::Expire(id) => format!("expire {}.{}", id.actor, id.number),
        Choice::Land(id) => format!("land {}.{}", id.actor, id.number),
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
    let (mut scenario, mut schedule) = (None, Vec::new());
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some((word, rest)) = line.split_once(' ') else {
            if line.is_empty() {
                continue;
            }
            return Err(format!("line {}: {line}", index + 1));
        };
        let understood = match word {
            "scenario" => {
                scenario = all().into_iter().find(|known| known.name == rest);
                scenario.is_some()
            }
            "faults" => {
                let faults = rest.parse::<usize>().ok();
                scenario = scenario.zip(faults).map(|(scenario, faults)| scenario.with_faults(faults));
                scenario.is_some()
            }
            _ => step(word, rest).map(|choice| schedule.push(choice)).is_some(),
        };
        if !understood {
            return Err(format!("line {}: {line}", index + 1));
        }
    }
    Ok((scenario.ok_or("no line names the scenario")?, schedule))
}

fn step(word: &str, rest: &str) -> Option<Choice> {
    let id = || {
        let (actor, number) = rest.split_once('.')?;
        Some(RequestId { actor: actor.parse().ok()?, number: number.parse().ok()? })
    };
    match word {
        "go" => id().map(Choice::Go),
        "fail" => id().map(Choice::Fail),
        "put-off" => id().map(Choice::PutOff),
        "expire" => id().map(Choice::Expire),
        "land" => id().map(Choice::Land),
        "kill" => rest.parse().ok().map(Choice::Kill),
        "crash" => rest.parse().ok().map(Choice::Crash),
        "tear-notes" => rest.parse().ok().map(Choice::TearNotes),
        "old-notes" => rest.parse().ok().map(Choice::OldNotes),
        "jump" => rest.parse().ok().map(Choice::Jump),
        _ => None,
    }
}
