//! Schedules as text, one line for each step, for people to read and edit.

use std::fmt::Write;

use crate::run::{Choice, Run};
use crate::scenario::{Scenario, all};
use crate::search::Violation;
use crate::world::{RequestId, Verdict};

/// Prints a schedule with a description of its steps.
pub fn print(scenario: &Scenario, found: &Violation) -> String {
    let mut text = format!("scenario {}\nfaults {}\n", scenario.name, scenario.faults);
    if let Ok(mut run) = Run::new(scenario) {
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

/// Creates a choice about a request.
type About = fn(RequestId) -> Choice;

/// The word for each choice, except for jumps. Choices that are not about requests are about the actor or the node with
/// this number.
const WORDS: [(&str, About); 9] = [
    ("go", |id| Choice::Decide(id, Verdict::Go)),
    ("fail", |id| Choice::Decide(id, Verdict::Fail)),
    ("put-off", |id| Choice::Decide(id, Verdict::PutOff)),
    ("expire", |id| Choice::Decide(id, Verdict::Expire)),
    ("land", Choice::Land),
    ("kill", |id| Choice::Kill(id.actor)),
    ("crash", |id| Choice::Crash(id.actor)),
    ("tear-notes", |id| Choice::TearNotes(id.actor)),
    ("old-notes", |id| Choice::OldNotes(id.actor)),
];

fn line(choice: Choice) -> String {
    let (id, about) = match choice {
        Choice::Decide(id, _) | Choice::Land(id) => (id, format!("{}.{}", id.actor, id.number)),
        Choice::Kill(actor) | Choice::Crash(actor) | Choice::TearNotes(actor) | Choice::OldNotes(actor) => {
            (RequestId { actor, number: 0 }, actor.to_string())
        }
        Choice::Jump(seconds) => return format!("jump {seconds}"),
    };
    let word = WORDS.into_iter().find(|(_, of)| of(id) == choice).map_or("", |(word, _)| word);
    format!("{word} {about}")
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

fn step(word: &str, about: &str) -> Option<Choice> {
    if word == "jump" {
        return about.parse().ok().map(Choice::Jump);
    }
    let (actor, number) = about.split_once('.').unwrap_or((about, "0"));
    let id = RequestId { actor: actor.parse().ok()?, number: number.parse().ok()? };
    WORDS.into_iter().find(|(known, _)| *known == word).map(|(_, of)| of(id))
}
