//! Measures real plugin calls for the arrivals that a simulation assumes.

use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use calipam_testkit::cluster::rng::Rng;

use super::PODS;
use crate::plugin::Plugin;

/// Arrivals of pods, distributed as in simulations: gaps vary between zero and twice their mean, and a pod is placed on
/// the one of two random nodes that has fewer pods.
fn arrivals(nodes: &[String], between: Duration) -> Vec<(Duration, &str)> {
    let (mut rng, mut due) = (Rng::new(1), Duration::ZERO);
    let mut pods_of = vec![0; nodes.len()];
    let mut arrive = || {
        due += Duration::from_micros(rng.below(between.as_micros() as u64 * 2 + 1));
        let chosen = [0; 2].map(|_| rng.below(nodes.len() as u64) as usize);
        let node = chosen.into_iter().min_by_key(|node| pods_of[*node]).unwrap_or(0);
        pods_of[node] += 1;
        (due, &*nodes[node])
    };
    (0..nodes.len() * PODS as usize).map(|_| arrive()).collect()
}

/// Calls ADD for each pod when it arrives. Returns the times of the calls in ascending order.
pub(super) fn run(plugin: &Plugin, nodes: &[String], between: Duration) -> Result<Vec<Duration>> {
    let arrivals = arrivals(nodes, between);
    // Many threads take a while to start, so a burst begins when all of them are ready.
    let (together, released) = (Barrier::new(arrivals.len()), OnceLock::new());
    let begin = Instant::now();
    let mut times = thread::scope(|scope| {
        let call = |(pod, (due, node)): (usize, (Duration, _))| {
            thread::sleep(due.saturating_sub(begin.elapsed()));
            let (together, released) = (&together, &released);
            scope.spawn(move || {
                let at_once = between.is_zero().then(|| {
                    together.wait();
                    *released.get_or_init(Instant::now)
                });
                let taken = plugin.call("ADD", node, &format!("{node}-c{pod}"))?.seconds;
                Ok(at_once.map_or(Duration::from_secs_f64(taken), |released: Instant| released.elapsed()))
            })
        };
        let calls: Vec<_> = arrivals.into_iter().enumerate().map(call).collect();
        let ended = calls.into_iter().map(|call| call.join().expect("a call does not panic"));
        ended.collect::<Result<Vec<Duration>>>()
    })?;
    times.sort();
    Ok(times)
}
