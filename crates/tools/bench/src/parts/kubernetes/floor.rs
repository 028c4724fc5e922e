//! The floor: the time in which the API server sends the lists. All lists are requested at the same time, each whole on
//! a connection of its own. Built-in kinds come as protobuf; nothing is decoded.

use std::thread;
use std::time::Instant;

use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::KubeApiserver;

use crate::Failed;
use crate::kubernetes::OF_ALLOCATION;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";

/// Calico's kinds that a check reads beside those of allocation.
const OF_CLUSTER: [&str; 2] = ["clusterinformations", "kubecontrollersconfigurations"];

/// Kinds of Kubernetes and of Calico.
pub(super) struct Kinds {
    pub core: &'static [&'static str],
    pub calico: &'static [&'static [&'static str]],
}

/// The kinds that a check reads.
pub(super) const ALL: Kinds =
    Kinds { core: &["pods", "nodes", "services"], calico: &[&OF_ALLOCATION, &OF_CLUSTER] };

/// One read of everything.
pub(super) struct Floor {
    pub seconds: f64,
    pub bytes: u64,
    /// Processor time of the API server.
    pub server_seconds: f64,
}

impl Kinds {
    /// The paths of all kinds with their encodings.
    pub(super) fn each(&self) -> impl Iterator<Item = (String, &'static str)> + use<> {
        let core = self.core.iter().map(|plural| (format!("/api/v1/{plural}"), PROTOBUF));
        let calico = self.calico.iter().copied().flatten();
        core.chain(calico.map(|plural| (Flavour::Classic.path(plural), JSON)))
    }
}

/// Reads all objects of some kinds once.
pub(super) fn pull(
    server: &KubeApiserver,
    kinds: impl IntoIterator<Item = (String, &'static str)>,
) -> Result<Floor, Failed> {
    let (start, used) = (Instant::now(), server.processor_seconds());
    let bytes = thread::scope(|scope| {
        let pull = |(path, accept): (String, &'static str)| scope.spawn(move || server.pull(&path, accept));
        let pulls: Vec<_> = kinds.into_iter().map(pull).collect();
        let ended = pulls.into_iter().map(|pull| pull.join().expect("a pull does not panic"));
        ended.sum::<Result<u64, _>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Floor { seconds, bytes, server_seconds: server.processor_seconds() - used })
}
