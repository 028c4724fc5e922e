//! The golden traces, replayed on a datastore in memory.

use std::path::{Path, PathBuf};

use calipam_replay::{MemoryEnvironment, Trace, known, replay, traces};

fn files() -> Vec<PathBuf> {
    traces(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn environment() -> MemoryEnvironment {
    MemoryEnvironment::new("2026-05-01T10:00:00Z".parse().unwrap())
}

#[test]
fn every_allocator_trace_is_reproduced() {
    let traces: Vec<Trace> = files().iter().map(|path| Trace::read(path).unwrap()).collect();
    let traces: Vec<Trace> = traces.into_iter().filter(|trace| !trace.runs_programs()).collect();
    assert!(traces.len() >= 42, "there are only {} traces", traces.len());
    let (mut differences, mut on_purpose) = (Vec::new(), 0);
    for trace in &traces {
        let outcome = runtime().block_on(replay(trace, &environment(), &known()));
        let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", trace.scenario));
        differences.extend(outcome.differences.iter().map(ToString::to_string));
        on_purpose += outcome.on_purpose.len();
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
    let listed = known().into_iter().filter(|known| traces.iter().any(|trace| trace.scenario == known.trace));
    assert_eq!(on_purpose, listed.count(), "every difference on purpose is met");
}

#[test]
fn a_replay_reports_differences_from_the_recording() {
    let path = files().into_iter().find(|path| path.ends_with("auto-first-block.json")).unwrap();
    let recorded = Trace::read(&path).unwrap();
    let found = |change: &dyn Fn(&mut Trace)| {
        let mut trace = recorded.clone();
        change(&mut trace);
        let outcome = runtime().block_on(replay(&trace, &environment(), &[])).unwrap();
        let fields = outcome.differences.into_iter().map(|difference| (difference.step, difference.field));
        fields.collect::<Vec<_>>()
    };
    assert_eq!(found(&|_| {}), []);
    assert_eq!(
        found(&|trace| trace.steps[6].result["error"] = "another".into()),
        [(6, "result.error".into())]
    );
    let block = "/calico/ipam/v2/assignment/ipv4/block/10.7.0.0-30";
    let after =
        found(&|trace| trace.steps[1].after.get_mut(block).unwrap()["sequenceNumber"] = "S1+3".into());
    assert_eq!(after.first(), Some(&(1, format!("after[{block}].sequenceNumber"))));
    let swapped = found(&|trace| trace.steps[0].writes.swap(4, 5));
    assert!(
        swapped.iter().all(|(step, field)| *step == 0 && field.starts_with("writes[")) && !swapped.is_empty()
    );
    assert_eq!(found(&|trace| drop(trace.steps[0].writes.pop())), [(0, "writes".into())]);
}
