//! The replay of a trace, step by step.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use calipam_assign::Allocator;
use serde_json::{Value, json};

use crate::clock::{Clock, Timed};
use crate::compare::{Difference, KnownDifference, compare};
use crate::environment::Environment;
use crate::operation::perform;
use crate::symbols::Symbols;
use crate::trace::{Step, Trace, kind_and_path};

/// The prefix of an allocator's keys.
const IPAM: &str = "/calico/ipam/v2/";

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Differences that are not in the list of known differences, each with its step, counted from 0.
    pub differences: Vec<(usize, Difference)>,
    /// Steps that differ on purpose, with the reason.
    pub on_purpose: Vec<(usize, String)>,
    /// Steps in which Calico was free to choose and calipam chose otherwise.
    pub other_choices: Vec<usize>,
}

/// Replays a trace from an empty datastore. Each step starts from the state that the trace recorded before the step. To
/// ensure this, a step that differs on purpose or by a free choice is followed by a restoration of the recorded state.
///
/// A trace of the allocator alone is replayed by a clock of its own, which does not wait while the trace sleeps. Programs
/// go by the machine's clock, and so does a trace that runs them.
pub async fn replay(trace: &Trace, environment: &Environment, known: &[KnownDifference]) -> Result<Outcome> {
    let clock = if trace.runs_programs() {
        Clock::of_machine()
    } else {
        Clock::own()
    };
    let mut replay = Replay {
        trace,
        environment,
        clock,
        symbols: Symbols::default(),
        recorded: trace.initial.clone(),
        outcome: Outcome::default(),
    };
    replay.load().await?;
    for (number, step) in trace.steps.iter().enumerate() {
        let known = known
            .iter()
            .find(|known| known.trace == trace.scenario && known.step == number);
        let done = replay.step(number, step, known).await;
        done.with_context(|| format!("step {number} ({})", step.op))?;
        replay.record(step);
    }
    Ok(replay.outcome)
}

struct Replay<'r> {
    trace: &'r Trace,
    environment: &'r Environment,
    clock: Clock,
    symbols: Symbols,
    /// The value that the trace most recently recorded under each key.
    recorded: BTreeMap<String, Value>,
    outcome: Outcome,
}

impl Replay<'_> {
    async fn load(&mut self) -> Result<()> {
        self.environment.clear().await?;
        let initial = self
            .trace
            .initial
            .iter()
            .map(|(path, value)| (path.as_str(), Some(value)));
        self.write(initial).await?;
        self.environment.writes().await.map(drop)
    }

    /// Stores and deletes values of the trace.
    async fn write<'v>(&mut self, values: impl Iterator<Item = (&'v str, Option<&'v Value>)>) -> Result<()> {
        let now = self.clock.now();
        for (path, value) in values {
            let value = value.map(|value| self.symbols.fill(value, now));
            self.environment.set(path, value.as_ref()).await?;
        }
        Ok(())
    }

    async fn step(&mut self, number: usize, step: &Step, known: Option<&KnownDifference>) -> Result<()> {
        let before = self.symbols.clone();
        let result = self.perform(step).await?;
        self.symbols.advance_to(self.clock.taken());
        let writes = self.environment.writes().await?;
        let after = self.environment.values(IPAM).await?;
        let done = Step {
            result,
            writes,
            after,
            ..step.clone()
        };

        let differences = self.differences(step, &done);
        if differences.is_empty() {
            let missing = |known: &KnownDifference| {
                let expected = format!("a difference on purpose: {}", known.reason);
                (number, Difference::new("differences.toml", expected, "none"))
            };
            self.outcome.differences.extend(known.map(missing));
            return Ok(());
        }
        if let Some(known) = known {
            self.outcome.on_purpose.push((number, known.reason.clone()));
        } else if step.choice && has_same_shape(step, &done) {
            self.outcome.other_choices.push(number);
        } else {
            self.outcome
                .differences
                .extend(differences.into_iter().map(|difference| (number, difference)));
        }
        self.symbols = before;
        self.restore(step).await
    }

    fn record(&mut self, step: &Step) {
        for (path, value) in step.written() {
            match value {
                Some(value) => drop(self.recorded.insert(path.to_owned(), value.clone())),
                None => drop(self.recorded.remove(path)),
            }
        }
    }

    /// Runs a step and returns its result.
    async fn perform(&mut self, step: &Step) -> Result<Value> {
        let input = |name: &str| step.input.get(name).cloned().unwrap_or_default();
        match step.op.as_str() {
            "put" | "patch" | "delete" | "node" | "pool" | "reservation" => {
                self.write(step.written()).await?
            }
            "sleep" => {
                let milliseconds = input("milliseconds").as_u64().unwrap_or_default();
                self.clock.sleep(Duration::from_millis(milliseconds)).await;
            }
            "cni" => return self.environment.cni(&step.input),
            "calicoctl" => {
                return self
                    .environment
                    .calicoctl(input("args").as_str().unwrap_or_default());
            }
            operation => {
                let mut input = step.input.clone();
                if let Some(number) = input.get_mut("sequenceNumber") {
                    *number = self.symbols.fill(number, self.clock.now());
                }
                let store = Timed {
                    store: &self.environment.store,
                    clock: &self.clock,
                };
                return perform(&Allocator::new(&store), operation, input).await;
            }
        }
        Ok(json!({"error": null}))
    }

    /// Restores the state that the trace recorded after a step.
    async fn restore(&mut self, step: &Step) -> Result<()> {
        let found = self.environment.values(IPAM).await?;
        let surplus = found.keys().filter(|path| !step.after.contains_key(*path));
        let after = step
            .after
            .iter()
            .map(|(path, value)| (path.as_str(), Some(value)));
        let others = step.written().filter(|(path, _)| !path.starts_with(IPAM));
        self.write(
            surplus
                .map(|path| (path.as_str(), None))
                .chain(after)
                .chain(others),
        )
        .await?;
        self.environment.writes().await.map(drop)
    }

    /// Compares a step with the same step as it was done now.
    fn differences(&mut self, step: &Step, done: &Step) -> Vec<Difference> {
        let symbols = &mut self.symbols;
        let mut expected = with_error(&step.result);
        let mut found = with_error(&done.result);
        if step.any_order() {
            found = sorted_lists(&found);
        }
        if step.op == "ips-of-handle" {
            // Calico iterates over a map of blocks, whose order varies.
            (expected, found) = (sorted_lists(&expected), sorted_lists(&found));
        }
        let is_other_refusal =
            step.any_order() && refuses_one_of(step, &expected) && refuses_one_of(step, &found);
        if is_other_refusal {
            found["error"] = expected["error"].clone();
        }
        let mut differences = compare("result", &expected, &found, symbols);

        let found = if step.any_order() {
            last_of_each(&done.writes)
        } else {
            done.writes.clone()
        };
        let expected = expected_writes(step, &self.recorded);
        if expected.len() == found.len() {
            differences.extend(compare("writes", &expected.into(), &found.into(), symbols));
        } else {
            let shown = |write: &Value| format!("{} {}", kind_and_path(write).0, kind_and_path(write).1);
            let all = |writes: &[Value]| writes.iter().map(shown).collect::<Vec<_>>().join(", ");
            differences.push(Difference::new("writes", all(&expected), all(&found)));
        }

        let object = |values: &BTreeMap<String, Value>| Value::Object(values.clone().into_iter().collect());
        differences.extend(compare(
            "after",
            &object(&step.after),
            &object(&done.after),
            symbols,
        ));
        differences
    }
}

/// The writes that a step should make. calicoctl also writes unchanged objects; the drop-in does not.
fn expected_writes(step: &Step, before: &BTreeMap<String, Value>) -> Vec<Value> {
    let changes_nothing = |write: &Value| {
        let path = write["update"].as_str();
        step.op == "calicoctl" && path.is_some_and(|path| before.get(path) == write.get("value"))
    };
    step.writes
        .iter()
        .filter(|write| !changes_nothing(write))
        .cloned()
        .collect()
}

/// True if a release of several addresses was refused because of one of them. The address that Calico names differs
/// from run to run.
fn refuses_one_of(step: &Step, result: &Value) -> bool {
    let ips = step.input.get("ips").and_then(Value::as_array);
    let refused = result["error"]
        .as_str()
        .and_then(|error| error.strip_prefix("update conflict: "));
    refused.is_some_and(|refused| ips.is_some_and(|ips| ips.iter().any(|ip| ip.as_str() == Some(refused))))
}

/// The last write of each key, sorted by key.
fn last_of_each(writes: &[Value]) -> Vec<Value> {
    let last: BTreeMap<&str, &Value> = writes
        .iter()
        .map(|write| (kind_and_path(write).1, write))
        .collect();
    last.into_values().cloned().collect()
}

/// Sorts the items of lists by their text, for steps that return them in varying order.
fn sorted_lists(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(sorted_lists).collect();
            items.sort_by_cached_key(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
            items.into()
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), sorted_lists(value)))
            .collect(),
        other => other.clone(),
    }
}

/// Adds the error `null` to a result without one.
fn with_error(result: &Value) -> Value {
    let mut result = result.clone();
    if let Some(fields) = result.as_object_mut() {
        fields.entry("error").or_insert(Value::Null);
    }
    result
}

/// True if a step in which calipam chose otherwise had an equivalent effect: the same error and messages, the same
/// number of addresses, and the same kinds of writes on the same kinds of objects in the same order.
fn has_same_shape(step: &Step, done: &Step) -> bool {
    let shape = |result: &Value| {
        let of = |family: &str| {
            let assigned = &result[family];
            let count = assigned["IPs"].as_array().map_or(0, Vec::len);
            json!([
                count,
                assigned["Msgs"],
                assigned["NumRequested"],
                assigned.is_null()
            ])
        };
        json!([result["error"], of("ipv4"), of("ipv6")])
    };
    let kind = |write: &Value| {
        let (kind, path) = kind_and_path(write);
        let objects = ["/assignment/", "/handle/", "/host/", "/virtual/"];
        (
            kind.to_owned(),
            objects.into_iter().find(|part| path.contains(part)),
        )
    };
    shape(&step.result) == shape(&done.result)
        && step.writes.iter().map(kind).eq(done.writes.iter().map(kind))
}
