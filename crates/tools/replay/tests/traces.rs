//! The golden traces of the allocator, replayed on an etcd. `cargo xtask replay` also replays those of programs.

use std::path::{Path, PathBuf};

use calipam_replay::{Environment, Trace, known, replay, traces};

fn files() -> Vec<PathBuf> {
    traces(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")).unwrap()
}

async fn environment() -> Environment {
    Environment::start(Path::new("no programs")).await.unwrap()
}

#[tokio::test]
async fn every_allocator_trace_is_reproduced() {
    let traces: Vec<Trace> = files().iter().map(|path| Trace::read(path).unwrap()).collect();
    let traces: Vec<Trace> = traces
        .into_iter()
        .filter(|trace| !trace.runs_programs())
        .collect();
    assert!(traces.len() >= 42, "there are only {} traces", traces.len());
    let (mut differences, mut on_purpose) = (Vec::new(), 0);
    let environment = environment().await;
    for trace in &traces {
        let replayed = replay(trace, &environment, &known()).await;
        let outcome = replayed.unwrap_or_else(|error| panic!("{}: {error:#}", trace.scenario));
        let shown = |(step, difference)| format!("{} step {step}: {difference}", trace.scenario);
        differences.extend(outcome.differences.into_iter().map(shown));
        on_purpose += outcome.on_purpose.len();
    }
    assert!(
        differences.is_empty(),
        "{} differences\n{}",
        differences.len(),
        differences.join("\n")
    );
    let listed = known()
        .into_iter()
        .filter(|known| traces.iter().any(|trace| trace.scenario == known.trace));
    assert_eq!(on_purpose, listed.count(), "every difference on purpose is met");
}

#[tokio::test]
async fn a_replay_reports_differences_from_the_recording() {
    let path = files()
        .into_iter()
        .find(|path| path.ends_with("auto-first-block.json"))
        .unwrap();
    let recorded = Trace::read(&path).unwrap();
    let environment = environment().await;
    let found = async |change: &dyn Fn(&mut Trace)| {
        let mut trace = recorded.clone();
        change(&mut trace);
        let outcome = replay(&trace, &environment, &[]).await.unwrap();
        let fields = outcome
            .differences
            .into_iter()
            .map(|(step, difference)| (step, difference.field));
        fields.collect::<Vec<_>>()
    };
    assert_eq!(found(&|_| {}).await, []);
    let another = found(&|trace| trace.steps[6].result["error"] = "another".into()).await;
    assert_eq!(another, [(6, "result.error".into())]);
    let block = "/calico/ipam/v2/assignment/ipv4/block/10.7.0.0-30";
    let change = |trace: &mut Trace| {
        trace.steps[1].after.get_mut(block).unwrap()["sequenceNumber"] = "S1+3".into();
    };
    let after = found(&change).await;
    assert_eq!(
        after.first(),
        Some(&(1, format!("after[{block}].sequenceNumber")))
    );
    let swapped = found(&|trace| trace.steps[0].writes.swap(4, 5)).await;
    assert!(
        swapped
            .iter()
            .all(|(step, field)| *step == 0 && field.starts_with("writes["))
            && !swapped.is_empty()
    );
    assert_eq!(
        found(&|trace| drop(trace.steps[0].writes.pop())).await,
        [(0, "writes".into())]
    );
}
