//! Measures real plugin calls for the arrivals that a simulation assumes.

use std::path::PathBuf;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::rng::Rng;

use super::{PODS, calibrate, node_name};
use crate::cluster::Cluster;
use crate::requests::{self, Requests};
use crate::{Failed, plugin};

/// The measurements of a real run.
pub(super) struct Real {
    /// The times of the calls, in ascending order.
    times: Vec<Duration>,
    pub requests: Requests,
    /// Number of processors that the servers and this process kept busy.
    pub busy: f64,
}

impl Real {
    /// The time that `permille` thousandths of the calls did not exceed.
    pub(super) fn rank(&self, permille: usize) -> Duration {
        let place = (self.times.len() * permille).div_ceil(1_000).saturating_sub(1);
        self.times.get(place).copied().unwrap_or_default()
    }

    pub(super) fn requests_per_add(&self) -> f64 {
        self.requests.done as f64 / self.times.len().max(1) as f64
    }
}

/// Arrivals of pods, distributed as in simulations: gaps vary between zero and twice their mean, and a pod is placed on
/// the one of two random nodes that has fewer pods.
fn arrivals(nodes: u32, between: Duration) -> Vec<(Duration, u32)> {
    let mut rng = Rng::new(1);
    let mut pods_of = vec![0; nodes as usize];
    let mut due = Duration::ZERO;
    let micros = between.as_micros() as u64;
    let mut arrive = || {
        due += Duration::from_micros(rng.below(micros * 2 + 1));
        let chosen = [rng.below(nodes.into()), rng.below(nodes.into())].map(|node| node as usize);
        let node = chosen.into_iter().min_by_key(|node| pods_of[*node]).unwrap_or(0);
        pods_of[node] += 1;
        (due, node as u32)
    };
    (0..nodes * PODS).map(|_| arrive()).collect()
}

/// Calls ADD for each pod when it arrives.
pub(super) fn run(caller: &Caller, cluster: &Cluster, nodes: u32, between: Duration) -> Result<Real, Failed> {
    let locks = tempfile::tempdir()?;
    // Many threads take a while to start, so a burst begins when all of them are ready.
    let (together, released) = (&Barrier::new((nodes * PODS) as usize), &OnceLock::new());
    let (before, used) = (requests::done(cluster)?, calibrate::seconds(cluster));
    let begin = Instant::now();
    let mut times = thread::scope(|scope| {
        let call = |(pod, (due, node)): (usize, (Duration, u32))| {
            thread::sleep(due.saturating_sub(begin.elapsed()));
            let node = node_name(node);
            let lock = locks.path().join(&node).join("ipam.lock");
            let configuration = cluster.configuration(&node, &lock).to_string();
            scope.spawn(move || {
                let at_once = between.is_zero().then(|| {
                    together.wait();
                    *released.get_or_init(Instant::now)
                });
                let taken = caller.call("ADD", &format!("c{pod}"), &configuration)?;
                Ok(at_once.map_or(taken, |released: Instant| released.elapsed()))
            })
        };
        let calls: Vec<_> = arrivals(nodes, between).into_iter().enumerate().map(call).collect();
        let ended = calls.into_iter().map(|call| call.join().map_err(|_| "a call panicked")?);
        ended.collect::<Result<Vec<Duration>, Failed>>()
    })?;
    let busy = (calibrate::seconds(cluster) - used) / begin.elapsed().as_secs_f64();
    let requests = requests::done(cluster)?.since(&before);
    times.sort();
    Ok(Real { times, requests, busy })
}

/// The way to call the plugin.
pub(super) enum Caller {
    /// A process for each call, as runtimes start it.
    Process(PathBuf),
    /// The same code on threads of this process, since many processes would wait for each other to start.
    Thread,
}

impl Caller {
    /// Calls the plugin once. Returns the time that it took.
    pub(super) fn call(
        &self,
        command: &str,
        container: &str,
        configuration: &str,
    ) -> Result<Duration, Failed> {
        let begin = Instant::now();
        match self {
            Self::Process(program) => {
                let (measured, result) = plugin::run(program, command, container, configuration, false)?;
                result.map_err(|answer| format!("{command} of {container}: {answer}"))?;
                Ok(Duration::from_secs_f64(measured.seconds))
            }
            Self::Thread => {
                let variables = plugin::variables(command, container);
                let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
                let mut answer = Vec::new();
                match calipam_cni::run(&[], &variables, &mut configuration.as_bytes(), &mut answer) {
                    0 => Ok(begin.elapsed()),
                    _ => {
                        Err(format!("{command} of {container}: {}", String::from_utf8_lossy(&answer)).into())
                    }
                }
            }
        }
    }
}
