//! Moves pods by evicting them. Kubernetes respects disruption budgets, and controllers create the pods again, with
//! addresses from the new pool. KubeVirt migrates virtual machines live, if that changes their addresses. An eviction
//! keeps no state: a run that ends at any point leaves pods that have moved and pods that have not.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use calipam_datastore::workloads::{Controller, Evicted, WorkloadPod, Workloads};
use calipam_model::hint::{Call, Hint};
use calipam_model::pool::Pool;
use calipam_model::words::count;
use calipam_repair::Interrupt;
use tokio::time::{Instant, sleep};

use super::Eviction;
use super::eviction::{MACHINE, Moves};
use super::moving::Pins;
use crate::failure::{Failure, Kind, Result};
use crate::operator::{Activity, Meter, Operator};
use crate::write::WritingNow;

/// The time between two reads of the pods.
const POLL: Duration = Duration::from_secs(1);

/// A namespace and a controller in it.
type Owner = (String, Controller);

/// The result of evicting a batch of pods.
#[derive(Default)]
struct BatchResult {
    /// The owners of evicted pods, by pod UID.
    evicted: BTreeMap<String, Owner>,
    /// The virtual machines that KubeVirt does not migrate, with the reasons, by pod UID.
    refused: BTreeMap<String, String>,
    /// True if a pod was evicted, was already gone, or was refused permanently.
    has_moved: bool,
}

/// The progress of an eviction, for the report of one that ends early.
#[derive(Default)]
struct Progress {
    evicted: Cell<usize>,
    remaining: Cell<usize>,
    /// True while an eviction has been requested and not answered.
    is_asking: Cell<bool>,
}

impl fmt::Display for Progress {
    /// Writes `2 pods evicted, 22 left`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evicted = count(self.evicted.get(), "pod", "pods");
        write!(f, "{evicted} evicted, {} left", self.remaining.get())?;
        if self.is_asking.get() {
            f.write_str("; one eviction was not answered, and may still happen")?;
        }
        Ok(())
    }
}

impl Progress {
    /// Counts one more evicted pod, which no longer remains.
    fn count_evicted(&self) {
        self.evicted.set(self.evicted.get() + 1);
        self.remaining.set(self.remaining.get().saturating_sub(1));
    }

    fn interrupted(&self) -> Failure {
        Failure::new(Kind::Interrupted, format!("interrupted: {self}"))
            .hint(Hint::new("the same command continues: {}", [Call::again()]))
    }
}

impl Eviction {
    /// Evicts pods of the old pool, batch after batch, until no more can be evicted or a signal arrives. Reports the
    /// number of evicted pods, even after a failure. `moves` says which pods get another address when they are evicted;
    /// `pods` is their number as last read.
    pub(super) async fn run(
        &self,
        workloads: &Workloads,
        pool: &Pool,
        moves: Moves,
        pods: usize,
        operator: &dyn Operator,
    ) -> Result<()> {
        let guard = WritingNow::begin();
        let interrupt = Interrupt::on_signals().map_err(Failure::io("wait for signals"))?;
        let progress = Progress {
            remaining: Cell::new(pods),
            ..Progress::default()
        };
        let meter = operator.start(Activity::Evicting);
        let result = tokio::select! {
            result = self.evict_all(workloads, pool, moves, operator, &progress, &*meter) => result,
            () = interrupt.wait() => Err(progress.interrupted()),
        };
        meter.end();
        drop(guard);

        // The failure of an interrupted run already contains the progress.
        if let Err(failure) = &result
            && failure.kind != Kind::Interrupted
        {
            operator.info(progress.to_string());
        }
        result
    }

    /// Evicts batch after batch, and waits after each until the pods are back.
    async fn evict_all(
        &self,
        workloads: &Workloads,
        pool: &Pool,
        moves: Moves,
        operator: &dyn Operator,
        progress: &Progress,
        meter: &dyn Meter,
    ) -> Result<()> {
        // If namespaces cannot be read, only pod annotations are known; the survey reports that.
        let namespaces = workloads.namespaces().await.unwrap_or_default();
        let pins = Pins::of(pool, &namespaces);
        // The pods that were evicted, by UID.
        let mut evicted: BTreeSet<String> = BTreeSet::new();
        // The virtual machines that KubeVirt does not migrate, with the reasons, by the UID of the pod.
        let mut refused: BTreeMap<String, String> = BTreeMap::new();
        let mut stuck_since: Option<Instant> = None;
        loop {
            let pods = workloads.pods().await?;
            let mut pinned: usize = 0;
            let mut ending: Vec<&WorkloadPod> = Vec::new();
            let mut remaining: Vec<&WorkloadPod> = Vec::new();
            for pod in &pods {
                if !moves.can_move(pod, pool.cidr) || !self.is_selected(pod) {
                    continue;
                }
                if pins.pin(pod) {
                    pinned += 1;
                } else if evicted.contains(&pod.uid) {
                    ending.push(pod);
                } else if !refused.contains_key(&pod.uid) {
                    remaining.push(pod);
                }
            }
            progress.evicted.set(evicted.len());
            progress.remaining.set(remaining.len());
            meter.set(evicted.len() as u64, (evicted.len() + remaining.len()) as u64);

            let Some(first) = remaining.first().or(ending.first()) else {
                operator.info(format!("evicted {}", count(evicted.len(), "pod", "pods")));
                warn_of_unmoved(pinned, &refused, operator);
                return Ok(());
            };

            let result = self.evict_batch(workloads, &remaining, progress).await?;
            refused.extend(result.refused);
            if result.has_moved {
                stuck_since = None;
            } else if stuck_since.get_or_insert_with(Instant::now).elapsed() >= self.patience() {
                return Err(self.stuck(first, remaining.len(), ending.len()));
            }
            if result.evicted.is_empty() {
                sleep(POLL).await;
                continue;
            }

            evicted.extend(result.evicted.keys().cloned());
            self.wait_until_back(workloads, &pods, &result.evicted, pool)
                .await?;
            sleep(Duration::try_from(self.pause).unwrap_or_default()).await;
        }
    }

    /// Evicts pods until as many are evicted as may be absent at the same time, or there are no further pods.
    async fn evict_batch(
        &self,
        workloads: &Workloads,
        remaining: &[&WorkloadPod],
        progress: &Progress,
    ) -> Result<BatchResult> {
        let most_absent = self.batch.max(1);
        let mut result = BatchResult::default();
        for pod in remaining {
            if result.evicted.len() >= most_absent {
                break;
            }
            // Nothing would create a pod without a controller again.
            let Some(controller) = &pod.controller else {
                continue;
            };
            let answer = request_eviction(workloads, pod, controller, progress).await?;
            result.has_moved |= answer != Evicted::NotNow;
            match answer {
                Evicted::Yes => {
                    progress.count_evicted();
                    let owner = (pod.namespace.clone(), controller.clone());
                    result.evicted.insert(pod.uid.clone(), owner);
                }
                Evicted::Refused(reason) => {
                    let machine_and_reason = format!("{}/{}: {reason}", pod.namespace, controller.name);
                    result.refused.insert(pod.uid.clone(), machine_and_reason);
                }
                Evicted::Gone | Evicted::NotNow => {}
            }
        }
        Ok(result)
    }

    /// The error if no pod moved for [`Self::patience`]: budgets protect pods, or evicted pods have not ended.
    fn stuck(&self, example: &WorkloadPod, remaining: usize, ending: usize) -> Failure {
        let waited = self.patience;
        let WorkloadPod { namespace, name, .. } = example;
        if remaining > 0 {
            return Failure::refused(format!(
                "for {waited:#}, no eviction was allowed; pods left: {remaining}, such as {namespace}/{name}"
            ))
            .hint(Hint::new(
                "{} shows what disruption budgets allow; a busy API server allows none, too",
                [Call::kubectl(["get", "poddisruptionbudgets", "-A"])],
            ));
        }
        // The nodes of the pods are down, or a finalizer blocks them.
        let message =
            format!("evicted pods have not ended after {waited:#}: {ending}, such as {namespace}/{name}");
        let hint = "is their node down? {} shows it; once the pods are gone, {} continues";
        let calls = [Call::kubectl(["get", "nodes"]), Call::again()];
        Failure::refused(message).hint(Hint::new(hint, calls))
    }

    /// Waits until each controller has as many ready pods as before the eviction.
    ///
    /// # Errors
    /// If that takes longer than [`Self::patience`], or a new pod gets an address from the old pool.
    async fn wait_until_back(
        &self,
        workloads: &Workloads,
        before: &[WorkloadPod],
        evicted: &BTreeMap<String, Owner>,
        old: &Pool,
    ) -> Result<()> {
        let owners: BTreeSet<&Owner> = evicted.values().collect();
        let uids_before: BTreeSet<&str> = before.iter().map(|pod| pod.uid.as_str()).collect();
        let began = Instant::now();
        loop {
            let pods = workloads.pods().await?;
            for pod in &pods {
                let is_new = !uids_before.contains(pod.uid.as_str());
                let is_of_old = pod.addresses.iter().any(|address| old.cidr.contains(address));
                if is_new && is_of_old && owners.iter().any(|owner| is_owned_by(pod, owner)) {
                    return Err(got_old_address(pod, old));
                }
            }

            let mut has_absent = false;
            for owner in &owners {
                // An evicted pod may still be ready until its node notices the eviction.
                let is_ready = |pod: &&WorkloadPod| {
                    pod.ready && is_owned_by(pod, owner) && !evicted.contains_key(&pod.uid)
                };
                let ready = pods.iter().filter(is_ready).count();
                let was_ready = |pod: &&WorkloadPod| pod.ready && is_owned_by(pod, owner);
                let expected = before.iter().filter(was_ready).count();
                if ready >= expected {
                    continue;
                }

                has_absent = true;
                if began.elapsed() >= self.patience() {
                    let (namespace, Controller { kind, name }) = owner;
                    let waited = self.patience;
                    return Err(Failure::refused(format!(
                        "{kind} {namespace}/{name} has had only {ready} of {expected} pods ready for {waited:#}: eviction stopped"
                    ))
                    .hint(Hint::new("once its pods are ready, {} continues", [Call::again()])));
                }
            }
            if !has_absent {
                return Ok(());
            }
            sleep(POLL).await;
        }
    }
}

/// Requests the eviction of a pod, or the live migration of a virtual machine. While the answer is awaited, `progress`
/// says so, in case a signal ends the run.
async fn request_eviction(
    workloads: &Workloads,
    pod: &WorkloadPod,
    controller: &Controller,
    progress: &Progress,
) -> Result<Evicted> {
    progress.is_asking.set(true);
    let answer = match controller.kind.as_str() {
        MACHINE => workloads.live_migrate(pod, &controller.name).await,
        _ => workloads.evict(pod).await,
    };
    progress.is_asking.set(false);
    Ok(answer?)
}

/// Warns of pods that an annotation pins to the old pool, and of virtual machines that KubeVirt does not migrate.
fn warn_of_unmoved(pinned: usize, refused: &BTreeMap<String, String>, operator: &dyn Operator) {
    if pinned > 0 {
        let pinned = count(pinned, "pod", "pods");
        operator.warn(format!(
            "not evicted, since an annotation asks for the old pool or an address in it: {pinned}"
        ));
    }
    for machine in refused.values() {
        operator.warn(format!("KubeVirt does not migrate the virtual machine {machine}"));
    }
}

fn is_owned_by(pod: &WorkloadPod, (namespace, controller): &Owner) -> bool {
    pod.namespace == *namespace && pod.controller.as_ref() == Some(controller)
}

/// The failure if a pod that replaces an evicted one gets an address from the old pool.
fn got_old_address(pod: &WorkloadPod, old: &Pool) -> Failure {
    let WorkloadPod { namespace, name, .. } = pod;
    let hint = "an annotation or the CNI plugin's configuration might ask for the pool: {} shows annotations";
    Failure::refused(format!(
        "the new pod {namespace}/{name} got an address from the old pool again: eviction stopped"
    ))
    .hint(Hint::new(hint, [Call::to(["migrate", "--from", &old.name])]))
}
