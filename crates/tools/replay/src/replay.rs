//! The replay of a trace, step by step.

use std::collections::BTreeMap;
use std::fmt;

use calipam_assign::{Allocator, Store};
use serde_json::{Map, Value, json};

use crate::compare::{FieldDifference, compare};
use crate::differences::KnownDifference;
use crate::environment::{Environment, Output, Write, parse};
use crate::operation::{Input, perform};
use crate::symbols::Symbols;
use crate::trace::{Step, Trace};

/// The prefix of an allocator's keys.
const IPAM: &str = "/calico/ipam/v2/";

/// A difference between a replay and its trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub trace: String,
    /// The step, counted from 0.
    pub step: usize,
    pub op: String,
    /// The path of the field, such as `result.error` or `after[/calico/ipam/v2/config]`.
    pub field: String,
    pub expected: String,
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} step {} ({}): {}", self.trace, self.step, self.op, self.field)?;
        writeln!(f, "  expected {}", self.expected)?;
        write!(f, "  found    {}", self.found)
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Differences that are not in the list of known differences.
    pub differences: Vec<Difference>,
    /// Steps that differ on purpose, with the reason.
    pub on_purpose: Vec<(usize, String)>,
    /// Steps in which Calico was free to choose and calipam chose otherwise.
    pub other_choices: Vec<usize>,
}

/// Replays a trace from an empty datastore. Each step starts from the state that the trace recorded before the step. To
/// ensure this, a step that differs on purpose or by a free choice is followed by a restoration of the recorded state.
pub async fn replay<G: Environment>(
    trace: &Trace,
    environment: &G,
    known: &[KnownDifference],
) -> Result<Outcome, String> {
    let mut replay = Replay {
        trace,
        environment,
        symbols: Symbols::default(),
        recorded: trace.initial.clone(),
        outcome: Outcome::default(),
    };
    replay.load().await?;
    for (number, step) in trace.steps.iter().enumerate() {
        let known = known.iter().find(|known| known.trace == trace.scenario && known.step == number);
        replay
            .step(number, step, known)
            .await
            .map_err(|error| format!("step {number} ({}): {error}", step.op))?;
        replay.record(step);
    }
    Ok(replay.outcome)
}

struct Replay<'r, G> {
    trace: &'r Trace,
    environment: &'r G,
    symbols: Symbols,
    /// The value that the trace most recently recorded under each key.
    recorded: BTreeMap<String, Value>,
    outcome: Outcome,
}

/// The result of a step, its writes, and the objects after it.
struct StepResult {
    result: Value,
    writes: Vec<Write>,
    after: BTreeMap<String, Value>,
}

impl<G: Environment> Replay<'_, G> {
    async fn load(&mut self) -> Result<(), String> {
        self.environment.clear().await?;
        let now = self.environment.store().now();
        for (path, value) in &self.trace.initial {
            let value = self.symbols.fill(value, now);
            self.environment.set(path, Some(&value)).await?;
        }
        self.environment.writes().await.map(drop)
    }

    async fn step(
        &mut self,
        number: usize,
        step: &Step,
        known: Option<&KnownDifference>,
    ) -> Result<(), String> {
        let before = self.symbols.clone();
        let result = self.perform(step).await?;
        let (writes, after) = (self.environment.writes().await?, self.environment.values(IPAM).await?);
        let done = StepResult { result, writes, after };

        let differences = self.differences(step, &done);
        if differences.is_empty() {
            if let Some(known) = known {
                let (expected, found) = (format!("a difference on purpose: {}", known.reason), "none".into());
                self.report(
                    number,
                    step,
                    FieldDifference { field: "differences.toml".into(), expected, found },
                );
            }
            return Ok(());
        }
        if let Some(known) = known {
            self.outcome.on_purpose.push((number, known.reason.clone()));
        } else if step.choice && has_same_shape(step, &done) {
            self.outcome.other_choices.push(number);
        } else {
            differences.into_iter().for_each(|difference| self.report(number, step, difference));
        }
        self.symbols = before;
        self.restore(step).await
    }

    fn record(&mut self, step: &Step) {
        for write in &step.writes {
            let Ok(path) = path_of(write) else { continue };
            match write.get("value") {
                Some(value) => drop(self.recorded.insert(path.to_owned(), value.clone())),
                None => drop(self.recorded.remove(path)),
            }
        }
    }

    fn report(&mut self, number: usize, step: &Step, difference: FieldDifference) {
        let FieldDifference { field, expected, found } = difference;
        let (trace, op) = (self.trace.scenario.clone(), step.op.clone());
        self.outcome.differences.push(Difference { trace, step: number, op, field, expected, found });
    }

    /// Runs a step and returns its result.
    async fn perform(&mut self, step: &Step) -> Result<Value, String> {
        let given = self.with_numbers(&step.input);
        let input = Input(&given);
        match step.op.as_str() {
            "put" | "patch" | "delete" | "node" | "pool" | "reservation" => self.apply_writes(step).await?,
            "sleep" => self.environment.sleep(input.number("milliseconds").into()).await,
            "cni" => return Ok(of_plugin(&self.environment.cni(&step.input).await?)),
            "calicoctl" => return Ok(of_tool(&self.environment.calicoctl(&input.text("args")).await?)),
            operation => {
                let allocator = Allocator::new(self.environment.store());
                let result = perform(&allocator, operation, &input).await?;
                return result.ok_or_else(|| format!("no operation is called {operation:?}"));
            }
        }
        Ok(json!({"error": null}))
    }

    /// Returns the input with the symbol of its sequence number replaced by the number.
    fn with_numbers(&mut self, input: &Map<String, Value>) -> Map<String, Value> {
        let mut input = input.clone();
        if let Some(number) = input.get_mut("sequenceNumber") {
            *number = self.symbols.fill(number, self.environment.store().now());
        }
        input
    }

    /// Applies the recorded writes of a step that calipam does not run.
    async fn apply_writes(&mut self, step: &Step) -> Result<(), String> {
        let now = self.environment.store().now();
        for write in &step.writes {
            let value = write.get("value").map(|value| self.symbols.fill(value, now));
            self.environment.set(path_of(write)?, value.as_ref()).await?;
        }
        Ok(())
    }

    /// Restores the state that the trace recorded after a step.
    async fn restore(&mut self, step: &Step) -> Result<(), String> {
        let now = self.environment.store().now();
        let found = self.environment.values(IPAM).await?;
        for path in found.keys().filter(|path| !step.after.contains_key(*path)) {
            self.environment.set(path, None).await?;
        }
        for (path, value) in &step.after {
            let value = self.symbols.fill(value, now);
            if found.get(path) != Some(&value) {
                self.environment.set(path, Some(&value)).await?;
            }
        }
        for write in
            step.writes.iter().filter(|write| path_of(write).is_ok_and(|path| !path.starts_with(IPAM)))
        {
            let value = write.get("value").map(|value| self.symbols.fill(value, now));
            self.environment.set(path_of(write)?, value.as_ref()).await?;
        }
        self.environment.writes().await.map(drop)
    }

    fn differences(&mut self, step: &Step, done: &StepResult) -> Vec<FieldDifference> {
        let mut differences = Vec::new();
        let symbols = &mut self.symbols;
        let (mut expected, mut found) = (with_error(&step.result), with_error(&done.result));
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
        compare("result", &expected, &found, symbols, &mut differences);

        let mut found: Vec<Value> = done.writes.iter().map(Write::to_json).collect();
        if step.any_order() {
            found = last_of_each(&done.writes);
        }
        let expected = expected_writes(step, &self.recorded);
        if expected.len() == found.len() {
            compare("writes", &expected.into(), &found.into(), symbols, &mut differences);
        } else {
            let kinds = |writes: &[Value]| writes.iter().map(kind_of).collect::<Vec<_>>().join(", ");
            let (expected, found) = (kinds(&expected), kinds(&found));
            differences.push(FieldDifference { field: "writes".into(), expected, found });
        }

        let object = |values: &BTreeMap<String, Value>| Value::Object(values.clone().into_iter().collect());
        compare("after", &object(&step.after), &object(&done.after), symbols, &mut differences);
        differences
    }
}

/// The writes that a step should make. calicoctl also writes unchanged objects; the drop-in does not.
fn expected_writes(step: &Step, before: &BTreeMap<String, Value>) -> Vec<Value> {
    let changes_nothing = |write: &Map<String, Value>| {
        let path = write.get("update").and_then(Value::as_str);
        step.op == "calicoctl" && path.is_some_and(|path| before.get(path) == write.get("value"))
    };
    step.writes.iter().filter(|write| !changes_nothing(write)).cloned().map(Value::Object).collect()
}

/// True if a release of several addresses was refused because of one of them. The address that Calico names differs
/// from run to run.
fn refuses_one_of(step: &Step, result: &Value) -> bool {
    let ips = step.input.get("ips").and_then(Value::as_array);
    let refused = result["error"].as_str().and_then(|error| error.strip_prefix("update conflict: "));
    refused.is_some_and(|refused| ips.is_some_and(|ips| ips.iter().any(|ip| ip.as_str() == Some(refused))))
}

/// The last write of each key, sorted by key.
fn last_of_each(writes: &[Write]) -> Vec<Value> {
    let last: BTreeMap<&str, &Write> = writes.iter().map(|write| (write.path.as_str(), write)).collect();
    last.into_values().map(Write::to_json).collect()
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
            .collect::<Map<_, _>>()
            .into(),
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

/// The kind of a write (`create`, `update` or `delete`) and its path.
fn kind_of(write: &Value) -> String {
    let kinds = ["create", "update", "delete"].into_iter();
    let found = kinds.filter_map(|kind| Some(format!("{kind} {}", write.get(kind)?.as_str()?)));
    found.collect()
}

fn path_of(write: &Map<String, Value>) -> Result<&str, String> {
    let path = ["create", "update", "delete"].into_iter().find_map(|kind| write.get(kind)?.as_str());
    path.ok_or_else(|| "a write of the trace names no key".to_owned())
}

/// True if a step in which calipam chose otherwise had an equivalent effect: the same error and messages, the same
/// number of addresses, and the same kinds of writes on the same kinds of objects in the same order.
fn has_same_shape(step: &Step, done: &StepResult) -> bool {
    let shape = |result: &Value| {
        let of = |family: &str| {
            let assigned = &result[family];
            let count = assigned["IPs"].as_array().map_or(0, Vec::len);
            json!([count, assigned["Msgs"], assigned["NumRequested"], assigned.is_null()])
        };
        json!([result["error"], of("ipv4"), of("ipv6")])
    };
    let kind = |write: &Value| {
        let text = kind_of(write);
        let object =
            ["/assignment/", "/handle/", "/host/", "/virtual/"].into_iter().find(|part| text.contains(part));
        (text.split(' ').next().map(str::to_owned), object)
    };
    let expected: Vec<_> = step.writes.iter().map(|write| kind(&Value::Object(write.clone()))).collect();
    let found: Vec<_> = done.writes.iter().map(|write| kind(&write.to_json())).collect();
    shape(&step.result) == shape(&done.result) && expected == found
}

/// The plugin's output, parsed if it is JSON.
fn of_plugin(output: &Output) -> Value {
    let stdout = match parse(output.stdout.as_bytes()) {
        Value::Null => output.stdout.as_str().into(),
        json => json,
    };
    json!({"error": null, "exitCode": output.exit_code, "stdout": stdout})
}

fn of_tool(output: &Output) -> Value {
    json!({"error": null, "exitCode": output.exit_code, "stdout": output.stdout})
}
