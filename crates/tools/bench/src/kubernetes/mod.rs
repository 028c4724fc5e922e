//! A large cluster on Kubernetes, written straight into the API server's etcd.

mod objects;

use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
use calipam_testkit::kube::{Flavour, install};
use calipam_testkit::servers::KubeApiserver;

use crate::Failed;
use crate::measured::Measured;

/// Calico's kinds for address allocation, which the plugin reads or writes.
pub(crate) const OF_ALLOCATION: [&str; 6] =
    ["ipamblocks", "ipamhandles", "blockaffinities", "ipamconfigs", "ippools", "ipreservations"];
/// The other Calico kinds that a check reads.
const OF_CLUSTER: [&str; 2] = ["clusterinformations", "kubecontrollersconfigurations"];
/// The core Kubernetes kinds that a check reads.
const CORE: [&str; 3] = ["pods", "nodes", "services"];

/// Time limit for the API server to load a million keys into its caches.
const CACHES: Duration = Duration::from_secs(900);
/// Pause between two attempts while the API server has not caught up with its etcd.
const PAUSE: Duration = Duration::from_secs(3);

/// Starts an API server with a healthy cluster of `pods` pods, and waits until its caches contain all objects.
pub(crate) fn seeded(pods: u64) -> Result<KubeApiserver, Failed> {
    let server = KubeApiserver::start()?;
    install(&server, Flavour::Classic)?;
    let start = Instant::now();
    let cluster = SizedCluster::of_pods(ClusterSpec::new(1), pods);
    cluster.write_to_etcd_of(&server, Flavour::Classic, objects::complete)?;
    eprintln!("{pods} pods: seeded in {:.1} s", start.elapsed().as_secs_f64());
    for kind in all() {
        wait_for(|| pull(&server, [kind]).map(drop))?;
    }
    eprintln!("all of it in the API server's caches after {:.1} s", start.elapsed().as_secs_f64());
    Ok(server)
}

/// Waits until `is_there` finds the expected objects in the API server's caches. The server watches its etcd, and
/// refuses list requests until it has caught up. Callers wait for one kind at a time, since listing kinds that are
/// ready would keep the server from catching up with the others.
pub(crate) fn wait_for(is_there: impl Fn() -> Result<(), Failed>) -> Result<(), Failed> {
    let start = Instant::now();
    while let Err(error) = is_there() {
        if start.elapsed() > CACHES {
            return Err(error);
        }
        eprintln!("not in the caches after {:.1} s: {error}", start.elapsed().as_secs_f64());
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The kinds that a check reads.
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    CORE.into_iter().chain(OF_ALLOCATION).chain(OF_CLUSTER)
}

/// Reads all objects of some kinds once. This is the floor: the time in which the API server sends the lists. All lists
/// are requested at the same time, each as a single page on its own connection. Built-in kinds are requested as
/// protobuf. Nothing is decoded.
pub(crate) fn pull<'k>(
    server: &KubeApiserver,
    kinds: impl IntoIterator<Item = &'k str>,
) -> Result<Measured, Failed> {
    let start = Instant::now();
    let bytes = thread::scope(|scope| {
        let pull = |plural: &'k str| {
            let (path, accept) = if CORE.contains(&plural) {
                (format!("/api/v1/{plural}"), "application/vnd.kubernetes.protobuf")
            } else {
                (Flavour::Classic.path(plural), "application/json")
            };
            scope.spawn(move || server.pull(&path, accept))
        };
        let pulls: Vec<_> = kinds.into_iter().map(pull).collect();
        let ended = pulls.into_iter().map(|pull| pull.join().expect("a pull does not panic"));
        ended.sum::<Result<u64, _>>()
    })?;
    Ok(Measured { seconds: start.elapsed().as_secs_f64(), bytes, ..Measured::default() })
}

/// Makes the API server collect its garbage. A collection costs as much as sending all lists, and with a heap of this
/// size, one is due about every second run. Left to chance, it could always slow down the checks, or always the floor.
pub(crate) fn collect_garbage(server: &KubeApiserver) -> Result<(), Failed> {
    Ok(server.pull("/debug/pprof/heap?gc=1", "*/*").map(drop)?)
}
