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
struct Batch {
    /// The owners of evicted pods, by pod UID.
    gone: BTreeMap<String, Owner>,
    /// Reasons why KubeVirt does not migrate virtual machines, by pod UID.
    refused: BTreeMap<String, String>,
    /// True if a pod was evicted, was already gone, or was refused permanently.
    has_moved: bool,
}

/// The progress of an eviction, for the report of one that ends early.
#[derive(Default)]
struct Progress {
    evicted: Cell<usize>,
    left: Cell<usize>,
    /// True while an eviction has been requested and not answered.
    is_asking: Cell<bool>,
}

impl fmt::Display for Progress {
    /// Writes `2 pods evicted, 22 left`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let evicted = count(self.evicted.get(), "pod", "pods");
        write!(f, "{evicted} evicted, {} left", self.left.get())?;
        if self.is_asking.get() {
            f.write_str("; one eviction was not answered, and may still happen")?;
        }
        Ok(())
    }
}

impl Progress {
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
        let now = WritingNow::begin();
        let interrupt = Interrupt::on_signals().map_err(Failure::io("wait for signals"))?;
        let progress = Progress {
            left: Cell::new(pods),
            ..Progress::default()
        };
        let meter = operator.start(Activity::Evicting);
        let ended = tokio::select! {
            ended = self.evict_all(workloads, pool, moves, operator, &progress, &*meter) => ended,
            () = interrupt.wait() => Err(progress.interrupted()),
        };
        meter.end();
        drop(now);
        if ended
            .as_ref()
            .is_err_and(|failure| failure.kind != Kind::Interrupted)
        {
            operator.info(progress.to_string());
        }
        ended
    }

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
        let old = pool.cidr;
        let pins = Pins::of(pool, &namespaces);
        let (mut asked, mut refused): (BTreeSet<String>, BTreeMap<String, String>) = Default::default();
        let mut stuck_since: Option<Instant> = None;
        loop {
            let pods = workloads.pods().await?;
            let of_old = pods
                .iter()
                .filter(|pod| moves.can_move(pod, old) && self.is_selected(pod));
            let (held, free): (Vec<&WorkloadPod>, Vec<&WorkloadPod>) = of_old.partition(|pod| pins.hold(pod));
            let free = free.into_iter().filter(|pod| !refused.contains_key(&pod.uid));
            let (ending, left): (Vec<_>, Vec<_>) = free.partition(|pod| asked.contains(&pod.uid));
            progress.evicted.set(asked.len());
            progress.left.set(left.len());
            meter.set(asked.len() as u64, (asked.len() + left.len()) as u64);
            let Some(first) = left.first().or(ending.first()) else {
                operator.info(format!("evicted {}", count(asked.len(), "pod", "pods")));
                if !held.is_empty() {
                    let held = count(held.len(), "pod", "pods");
                    operator.warn(format!(
                        "not evicted, since an annotation asks for the old pool or an address in it: {held}"
                    ));
                }
                for machine in refused.values() {
                    operator.warn(format!("KubeVirt does not migrate the virtual machine {machine}"));
                }
                return Ok(());
            };

            let Batch {
                gone,
                refused: unmoved,
                has_moved,
            } = self.batch(workloads, &left, progress).await?;
            refused.extend(unmoved);
            if has_moved {
                stuck_since = None;
            } else if stuck_since.get_or_insert_with(Instant::now).elapsed() >= self.patience() {
                return Err(self.stopped(first, left.len(), ending.len()));
            }
            if gone.is_empty() {
                sleep(POLL).await;
                continue;
            }

            asked.extend(gone.keys().cloned());
            self.wait_until_back(workloads, &pods, &gone, pool).await?;
            sleep(Duration::try_from(self.pause).unwrap_or_default()).await;
        }
    }

    /// Evicts as many pods as may be absent at the same time.
    async fn batch(
        &self,
        workloads: &Workloads,
        left: &[&WorkloadPod],
        progress: &Progress,
    ) -> Result<Batch> {
        let mut batch = Batch::default();
        for pod in left {
            if batch.gone.len() >= self.batch.max(1) {
                break;
            }
            let Some(controller) = &pod.controller else {
                continue;
            };
            progress.is_asking.set(true);
            let answer = match controller.kind.as_str() {
                MACHINE => workloads.live_migrate(pod, &controller.name).await,
                _ => workloads.evict(pod).await,
            };
            progress.is_asking.set(false);
            let answer = answer?;
            batch.has_moved |= answer != Evicted::NotNow;
            match answer {
                Evicted::Yes => {
                    progress.evicted.set(progress.evicted.get() + 1);
                    progress.left.set(progress.left.get().saturating_sub(1));
                    batch
                        .gone
                        .insert(pod.uid.clone(), (pod.namespace.clone(), controller.clone()));
                }
                Evicted::Refused(why) => {
                    let machine = format!("{}/{}: {why}", pod.namespace, controller.name);
                    batch.refused.insert(pod.uid.clone(), machine);
                }
                Evicted::Gone | Evicted::NotNow => {}
            }
        }
        Ok(batch)
    }

    /// The error if no pod moved for [`Self::patience`]: budgets protect pods, or evicted pods have not ended.
    fn stopped(&self, example: &WorkloadPod, left: usize, ending: usize) -> Failure {
        let waited = self.patience;
        let WorkloadPod { namespace, name, .. } = example;
        if left > 0 {
            return Failure::refused(format!(
                "for {waited:#}, no eviction was allowed; pods left: {left}, such as {namespace}/{name}"
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
        gone: &BTreeMap<String, Owner>,
        old: &Pool,
    ) -> Result<()> {
        let owners: BTreeSet<&Owner> = gone.values().collect();
        let known: BTreeSet<&str> = before.iter().map(|pod| pod.uid.as_str()).collect();
        let began = Instant::now();
        loop {
            let pods = workloads.pods().await?;
            let is_of_owners = |pod: &&WorkloadPod| owners.iter().any(|owner| is_of(pod, owner));
            let mut new = pods
                .iter()
                .filter(|pod| !known.contains(pod.uid.as_str()))
                .filter(is_of_owners);
            let is_of_old = |pod: &&WorkloadPod| pod.addresses.iter().any(|one| old.cidr.contains(one));
            if let Some(WorkloadPod { namespace, name, .. }) = new.find(is_of_old) {
                let hint = "an annotation or the CNI plugin's configuration might ask for the pool: {} shows annotations";
                return Err(Failure::refused(format!(
                    "the new pod {namespace}/{name} got an address from the old pool again: eviction stopped"
                ))
                .hint(Hint::new(hint, [Call::to(["migrate", "--from", &old.name])])));
            }

            // An evicted pod may still be ready until its node notices the eviction.
            let ready = |pods: &[WorkloadPod], owner: &Owner| {
                let is_ready =
                    |pod: &&WorkloadPod| pod.ready && is_of(pod, owner) && !gone.contains_key(&pod.uid);
                pods.iter().filter(is_ready).count()
            };
            let expected = |owner: &Owner| before.iter().filter(|pod| pod.ready && is_of(pod, owner)).count();
            let Some(owner) = owners.iter().find(|owner| ready(&pods, owner) < expected(owner)) else {
                return Ok(());
            };
            if began.elapsed() >= self.patience() {
                let (namespace, Controller { kind, name }) = owner;
                let ready = ready(&pods, owner);
                let expected = expected(owner);
                let waited = self.patience;
                return Err(Failure::refused(format!(
                    "{kind} {namespace}/{name} has had only {ready} of {expected} pods ready for {waited:#}: eviction stopped"
                ))
                .hint(Hint::new("once its pods are ready, {} continues", [Call::again()])));
            }
            sleep(POLL).await;
        }
    }
}

fn is_of(pod: &WorkloadPod, (namespace, controller): &Owner) -> bool {
    pod.namespace == *namespace && pod.controller.as_ref() == Some(controller)
}
