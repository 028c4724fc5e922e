//! Schedules as text, one line for each step, for people to read and edit.

use std::fmt::Write;

use clap::ValueEnum;

use crate::run::{Choice, Run};
use crate::scenario::{MOST_ACTORS, Scenario, all};
use crate::search::Violation;
use crate::world::{Event, RequestId};

/// Prints a schedule with a description of its steps.
pub fn print(scenario: &Scenario, found: &Violation) -> String {
    let mut text = format!("scenario {}\nfaults {}\n", scenario.name, scenario.faults);
    if let Ok(mut run) = Run::new(scenario) {
        for actor in (0..run.actors()).filter(|actor| scenario.leaves_out(*actor)) {
            let _ = writeln!(text, "without {actor}");
        }
        for choice in &found.schedule {
            let option = run.options().into_iter().find(|option| option.choice == *choice);
            let _ = writeln!(
                text,
                "{:<12} # {}",
                line(*choice),
                option.map_or(String::new(), |option| option.what)
            );
            // The last step may be the violation.
            let _ = run.step(*choice);
        }
    }
    let _ = writeln!(text, "# {}", found.what);
    text
}

fn line(
    Choice {
        event,
        id: RequestId { actor, number },
    }: Choice,
) -> String {
    let word = event
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    // An event without a request has only one number.
    if event.has_request() {
        format!("{word} {actor}.{number}")
    } else {
        format!("{word} {actor}")
    }
}

/// Parses a schedule.
///
/// # Errors
/// Returns an error if a line cannot be parsed.
pub fn parse(text: &str) -> Result<(Scenario, Vec<Choice>), String> {
    let mut scenario = None;
    let mut faults = None;
    let mut left_out = Vec::new();
    let mut schedule = Vec::new();
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
            Some(("without", actor)) => {
                let actor = actor.parse().ok().filter(|actor| *actor < MOST_ACTORS);
                left_out.push(actor.ok_or_else(not_understood)?);
            }
            Some((word, rest)) => schedule.push(step(word, rest).ok_or_else(not_understood)?),
        }
    }
    let scenario = scenario.ok_or("no line names the scenario")?;
    let scenario = left_out
        .iter()
        .fold(scenario, |scenario, actor| scenario.without(*actor));
    Ok((
        faults.map_or(scenario, |faults| scenario.with_faults(faults)),
        schedule,
    ))
}

fn step(word: &str, about: &str) -> Option<Choice> {
    let event = Event::from_str(word, false).ok()?;
    let (actor, number) = match about.split_once('.') {
        Some((actor, number)) if event.has_request() => {
            (actor, number.parse().ok().filter(|number| *number > 0)?)
        }
        None if !event.has_request() => (about, 0),
        _ => return None,
    };
    Some(Choice {
        event,
        id: RequestId {
            actor: actor.parse().ok()?,
            number,
        },
    })
}
