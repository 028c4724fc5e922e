//! A run by its phases, and over time.

use super::run::times;
use super::{Moment, Phase, Phases};
use crate::cluster::{Sample, World};
use crate::time::Micros;

/// The phases of a run that is over, and its curve.
pub(super) fn of(world: &World) -> (Phases, Vec<Moment>) {
    let (storm, after) = bounds(world);
    let end = world.engine.now();
    let phase = |from, to| phase(world, from, to);
    let phases = Phases {
        fill: phase(Micros::ZERO, storm),
        storm: phase(storm, after),
        // What is created at the very end belongs to it.
        after: Phase { to: end, ..phase(after, end + Micros(1)) },
    };
    (phases, curve(world))
}

/// When the storm begins, and when what is after it does. If there is no storm, both are the end of the fill.
fn bounds(world: &World) -> (Micros, Micros) {
    let (scenario, end) = (&world.scenario, world.engine.now());
    let times = || scenario.events.iter().map(|planned| planned.at);
    let Some((first, last)) = times().min().zip(times().max()) else {
        // If no pod leaves, all belong to the fill, however late the last one arrives.
        let filled = if scenario.lifetime.is_some() { scenario.filled_at().min(end) } else { end };
        return (filled, filled);
    };
    let measured = world.measured.borrow();
    let is_calm = |sample: &&Sample| sample.at > last && sample.waiting == 0;
    let calm = measured.samples.iter().find(is_calm).map_or(end, |sample| sample.at);
    (first.min(end), calm)
}

fn phase(world: &World, from: Micros, to: Micros) -> Phase {
    let (pods, measured) = (world.pods.borrow(), world.measured.borrow());
    let is_in = |at: Micros| (from..to).contains(&at);
    let created = || pods.created().filter(|pod| is_in(pod.created));
    Phase {
        from,
        to,
        pods: created().count() as u64,
        never: created().filter(|pod| pod.is_waiting()).count() as u64,
        failed: measured.failures.iter().filter(|at| is_in(**at)).count() as u64,
        time_to_address: times(created().filter_map(|pod| pod.time_to_address())),
    }
}

fn curve(world: &World) -> Vec<Moment> {
    let (pods, measured) = (world.pods.borrow(), world.measured.borrow());
    let samples = &measured.samples;
    let mut moments: Vec<Moment> = samples
        .iter()
        .map(|sample| Moment { at: sample.at, waiting: sample.waiting, ..Moment::default() })
        .collect();
    let place = |at: Micros| samples.partition_point(|sample| sample.at < at);

    let mut taken: Vec<Vec<u32>> = vec![Vec::new(); moments.len()];
    for pod in pods.created() {
        let started = pod.started.and_then(|at| moments.get_mut(place(at)));
        if let Some(moment) = started {
            moment.started += 1;
        }
        if let (Some(micros), Some(taken)) = (pod.time_to_address(), taken.get_mut(place(pod.created))) {
            taken.push(micros);
        }
    }
    for at in &measured.failures {
        if let Some(moment) = moments.get_mut(place(*at)) {
            moment.failed += 1;
        }
    }
    for (moment, taken) in moments.iter_mut().zip(taken) {
        moment.p99 = times(taken.into_iter()).p99;
    }
    moments
}
