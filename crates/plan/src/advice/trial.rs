//! Tries remedies in memory. Nothing is copied but what an edit touches and, if nodes or pods get no address now, what
//! the allocator reads.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use calipam_check::views::{Asking, Explanation, explain};
use calipam_check::{Code, Finding, PoolChange, Remedy, Scope, Severity, Subject};
use calipam_model::config::IpamSetting;
use calipam_model::key::Key;
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::Snapshot;
use jiff::SignedDuration;

use super::cure::{Cure, Effect, RebuildScope};
use super::{MOST_TRIALS, is_outside};
use crate::basis::Basis;
use crate::plan::{Plan, Verb};
use crate::release::{self, Observations};
use crate::skipped::SkipReason;
use crate::trial::Touched;
use crate::{configure, rebuild};

/// The trials of remedies for one report.
pub(super) struct Trials<'b, 's> {
    basis: Basis<'s>,
    /// The findings as an earlier read, for remedies that need a second check.
    seen: &'s [Observations],
    /// The part of the cluster to which commands are limited.
    scope: &'b Scope,
    /// The nodes and pods that get no address now.
    refused: Unserved,
    /// The request that is explained.
    asking: Option<Asking<'b>>,
    /// The refusals of the explained request now.
    refuses: Refuses,
    /// The objects that the allocator reads, copied for the first trial that asks it.
    world: Option<Snapshot>,
    tried: Vec<(Remedy, Option<Arc<Effect>>)>,
}

/// The parts of an explained request that get no address.
#[derive(Clone, Copy, Debug, Default)]
struct Refuses {
    pod: bool,
    tunnels: bool,
}

/// Nodes and pods without addresses.
#[derive(Debug, Default)]
struct Unserved {
    nodes: BTreeSet<String>,
    pods: BTreeSet<String>,
}

impl Unserved {
    /// Collects the nodes and pods without addresses from findings.
    fn of_findings<'f>(findings: impl Iterator<Item = &'f Finding>) -> Self {
        let mut unserved = Self::default();
        for finding in findings {
            // Such findings are about addresses that no pod asks for.
            if finding.severity == Severity::Info {
                continue;
            }
            match (finding.code, &finding.subject) {
                (Code::NodeWithoutAddresses, _) => unserved.nodes.extend(finding.nodes.iter().cloned()),
                (Code::PodWithoutAddress, Subject::Endpoint(pod)) => {
                    unserved.pods.insert(pod.clone());
                }
                _ => {}
            }
        }
        unserved
    }

    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.pods.is_empty()
    }
}

impl<'b, 's> Trials<'b, 's> {
    /// Prepares trials on a basis without observations.
    pub(super) fn new(basis: Basis<'s>, seen: &'s [Observations], scope: &'b Scope) -> Self {
        let refused = Unserved::of_findings(basis.report.findings.iter());
        Self {
            basis,
            seen,
            scope,
            refused,
            asking: None,
            refuses: Refuses::default(),
            world: None,
            tried: Vec::new(),
        }
    }

    /// Also asks for the addresses of an explained request, some of which are refused now.
    pub(super) fn asking(self, asking: Asking<'b>, explained: &Explanation) -> Self {
        let tunnels = explained.tunnel_refusal().is_some();
        let refuses = Refuses {
            pod: explained.refuses_pod(),
            tunnels,
        };
        Self {
            asking: Some(asking),
            refuses,
            ..self
        }
    }

    /// The form of a rebuild. Its command takes no node and no namespace, so blocks stand for those in scope.
    pub(super) fn rebuild_scope(&self) -> RebuildScope {
        if self.scope.nodes.is_empty() && self.scope.namespace.is_none() {
            RebuildScope::Everything
        } else {
            RebuildScope::NamedBlocks
        }
    }

    pub(super) fn basis(&self) -> &Basis<'s> {
        &self.basis
    }

    /// Tries a remedy. Returns the cure; `None` if it has no effect. The cure has no effect to show if the remedy
    /// cannot be tried, because it is outside the datastore, or because too many others were.
    pub(super) fn cure(&mut self, remedy: Remedy) -> Option<Cure> {
        let remedy = self.within_scope(remedy)?;
        // Several causes may have the same remedy, which is tried once.
        let is_tried = self.tried.iter().any(|(tried, _)| *tried == remedy);
        let were_too_many = !is_tried && self.tried.len() >= MOST_TRIALS;
        if were_too_many || is_outside(&remedy) {
            return Some(Cure { remedy, effect: None });
        }

        if !is_tried {
            let effect = self.effect(&remedy).filter(|effect| !effect.is_nothing());
            self.tried.push((remedy.clone(), effect.map(Arc::new)));
        }

        let (_, effect) = self.tried.iter().find(|(tried, _)| *tried == remedy)?;
        let effect = effect.clone()?;
        Some(Cure {
            remedy,
            effect: Some(effect),
        })
    }

    /// Limits a remedy to the nodes in scope; `None` if nothing of it is left, or if its command would do more than
    /// the scope allows.
    fn within_scope(&self, mut remedy: Remedy) -> Option<Remedy> {
        if let Remedy::ReleaseNodes(nodes) = &mut remedy {
            nodes.retain(|node| self.scope.has_node(node));
            // All addresses of a node are more than those of a namespace.
            if nodes.is_empty() || self.scope.namespace.is_some() {
                return None;
            }
        }
        if let Remedy::Rebuild(blocks) = &remedy {
            let rebuilds_all = blocks.is_empty();
            if rebuilds_all && self.rebuild_scope() == RebuildScope::NamedBlocks {
                return None;
            }
        }
        Some(remedy)
    }

    /// Tries a remedy, and returns its effect; `None` if it changes nothing or cannot be carried out.
    fn effect(&mut self, remedy: &Remedy) -> Option<Effect> {
        match remedy {
            Remedy::Configure(settings) => self.effect_of_configuration(settings),
            Remedy::ChangePool { pool, change } => self.effect_of_pool(pool, *change),
            // All others that can be tried have a planner.
            _ => self.effect_of_plan(remedy),
        }
    }

    /// Tries settings of the configuration; `None` if they are set already, or not valid.
    fn effect_of_configuration(&mut self, settings: &[IpamSetting]) -> Option<Effect> {
        let before = self.basis.snapshot.effective_ipam_config()?;
        let after = configure::configured(before, settings).ok()?;
        if after == before {
            return None;
        }
        let mut effect = self.effect_of_settings(|world| world.ipam_config = Some(after));
        // With strict affinity, Calico's allocator borrows no more addresses. The effect names the present ones.
        if after.strict_affinity && !before.strict_affinity {
            effect.borrowed = self.basis.context.borrowed_if_strict();
        }
        Some(effect)
    }

    /// Tries a change of a pool; `None` if there is no such pool.
    fn effect_of_pool(&mut self, pool: &str, change: PoolChange) -> Option<Effect> {
        // The allocator's copy has the same pools in the same order.
        let mut pools = self.basis.snapshot.pools.iter();
        let position = pools.position(|stored| stored.value.name == pool)?;
        Some(self.effect_of_settings(|world| change_pool(&mut world.pools[position].value, change)))
    }

    /// Tries a remedy that the planners carry out, on the objects that its plan changes. Returns `None` if the plan has
    /// no changes, or its changes cannot be applied.
    fn effect_of_plan(&mut self, remedy: &Remedy) -> Option<Effect> {
        let mut plan = self.plan(remedy)?;
        let released_at_once = released(&plan);
        let mut skipped = plan.skipped.iter();
        let needs_second_check = skipped.any(|skipped| skipped.reason == SkipReason::SeenOnce);
        let mut second_check = None;
        if needs_second_check {
            // Two plans for a million handles would take gigabytes.
            drop(plan);
            self.basis.observations = self.seen;
            let after_second_check = self.plan(remedy);
            self.basis.observations = &[];
            plan = after_second_check?;
            second_check = Some(self.basis.context.grace);
        }
        if plan.is_empty() {
            return None;
        }

        let snapshot = self.basis.snapshot;
        let keys = plan.keys();
        let mut touched = Touched::copy(snapshot, &keys);
        touched.apply(&plan, snapshot.datastore, snapshot.taken_at).ok()?;
        let served = if self.asks_allocator() {
            self.served_by_changes(touched, &keys)
        } else {
            Effect::default()
        };

        let repairs = plan.changes().flat_map(|change| &change.repairs);
        let repaired: HashSet<(Code, &Subject)> = repairs.map(|(code, subject)| (*code, subject)).collect();
        let mut effect = Effect {
            addresses: released(&plan),
            at_once: released_at_once,
            second_check,
            cooldown: self.basis.cooldown,
            endpoints_only: matches!(remedy, Remedy::Rebuild(_)) && rebuild::needs_endpoints_only(snapshot),
            ..served
        };
        let findings = self.basis.report.findings.iter();
        let repaired = findings.filter(|finding| repaired.contains(&finding.key_ref()));
        effect.resolved.extend(repaired.map(Finding::key));
        Some(effect)
    }

    /// Changes objects that the allocator reads, asks it, and undoes the change.
    fn served_by_changes(&mut self, changed: Touched, keys: &HashSet<Key>) -> Effect {
        let cooldown = SignedDuration::from_secs(self.basis.cooldown);
        let world = self.world();
        let now = world.taken_at;
        let original = Touched::take(world, keys);
        changed.put_into(world);
        // Released addresses are free only after the cooldown.
        world.taken_at = now.saturating_add(cooldown).unwrap_or(now);

        let served = self.served();

        let world = self.world();
        drop(Touched::take(world, keys));
        original.put_into(world);
        world.taken_at = now;
        served
    }

    /// Plans a remedy as its command does; `None` if its command makes no plan of blocks.
    fn plan(&self, remedy: &Remedy) -> Option<Plan> {
        let within = |request| release::plan(&self.basis, &request);
        let scope = self.scope.clone();
        Some(match remedy {
            Remedy::ReleaseLeaked => within(release::Request {
                leaked: true,
                scope,
                ..Default::default()
            }),
            Remedy::ReleaseLeakedOf(node) => {
                let scope = Scope {
                    nodes: [node.clone()].into(),
                    ..scope
                };
                within(release::Request {
                    leaked: true,
                    scope,
                    ..Default::default()
                })
            }
            Remedy::ReleaseNodes(nodes) => {
                let scope = Scope {
                    nodes: nodes.clone(),
                    namespace: None,
                    ..scope
                };
                within(release::Request {
                    scope,
                    ..Default::default()
                })
            }
            Remedy::ReleaseOrphanHandles => within(release::Request {
                orphan_handles: true,
                scope,
                ..Default::default()
            }),
            Remedy::ReleaseAddress(address) => within(release::Request {
                addresses: vec![*address],
                ..Default::default()
            }),
            Remedy::Rebuild(blocks) => {
                let scope = Scope {
                    nodes: BTreeSet::new(),
                    namespace: None,
                    ..scope
                };
                let request = rebuild::Request {
                    scope,
                    blocks: blocks.iter().copied().collect(),
                    endpoints_only: false,
                };
                rebuild::plan(&self.basis, &request)
            }
            Remedy::Configure(_)
            | Remedy::ChangePool { .. }
            | Remedy::RestartPod { .. }
            | Remedy::RestartCalicoNode(_)
            | Remedy::UndoRun
            | Remedy::Explain(_) => return None,
        })
    }

    fn asks_allocator(&self) -> bool {
        !self.refused.is_empty() || self.asking.is_some()
    }

    /// Changes the pools or the configuration that the allocator reads, asks it, and undoes the change.
    fn effect_of_settings(&mut self, change: impl FnOnce(&mut Snapshot)) -> Effect {
        let world = self.world();
        let pools = world.pools.clone();
        let config = world.ipam_config;
        change(world);

        let effect = self.served();

        let world = self.world();
        world.pools = pools;
        world.ipam_config = config;
        effect
    }

    fn world(&mut self) -> &mut Snapshot {
        let snapshot = self.basis.snapshot;
        self.world.get_or_insert_with(|| copy_for_allocator(snapshot))
    }

    /// Asks the allocator which of the refused nodes, pods and requests get an address in the changed world.
    fn served(&self) -> Effect {
        let Some(world) = &self.world else {
            return Effect::default();
        };
        let context = &self.basis.context;
        let mut effect = Effect::default();
        if let Some(explained) = self.asking.and_then(|asking| explain(context, world, asking)) {
            effect.serves_pod = self.refuses.pod && !explained.refuses_pod();
            effect.serves_tunnels = self.refuses.tunnels && explained.tunnel_refusal().is_none();
        }
        // It takes long to ask for all nodes.
        if self.refused.is_empty() {
            return effect;
        }

        let unserved = Unserved::of_findings(context.without_addresses(world).iter());
        effect.nodes = self.refused.nodes.difference(&unserved.nodes).cloned().collect();
        effect.pods = self.refused.pods.difference(&unserved.pods).cloned().collect();
        for finding in &self.basis.report.findings {
            if is_resolved(finding, &effect) {
                effect.resolved.push(finding.key());
            }
        }
        effect
    }
}

/// Returns true if the waiting pod, or all nodes, of a finding get an address with this effect.
fn is_resolved(finding: &Finding, effect: &Effect) -> bool {
    // Such findings are about addresses that no pod asks for.
    if finding.severity == Severity::Info {
        return false;
    }
    if finding.code == Code::NodeWithoutAddresses {
        return finding.nodes.iter().all(|node| effect.nodes.contains(node));
    }
    match &finding.subject {
        Subject::Endpoint(pod) => finding.code == Code::PodWithoutAddress && effect.pods.contains(pod),
        _ => false,
    }
}

/// The number of addresses that a plan releases.
fn released(plan: &Plan) -> usize {
    let mut addresses = HashSet::new();
    for change in plan.changes() {
        if change.action == Verb::ReleaseAddress {
            addresses.extend(change.subject.address());
        }
    }
    addresses.len()
}

/// Changes a pool so that it serves more requests.
fn change_pool(pool: &mut calipam_model::pool::Pool, change: PoolChange) {
    match change {
        PoolChange::Enable => pool.disabled = false,
        PoolChange::SelectAllNodes => pool.node_selector = "all()".to_owned(),
        PoolChange::AllowWorkloads => pool.allowed_uses = vec![PoolUse::Workload, PoolUse::Tunnel],
        PoolChange::AssignAutomatically => pool.automatic = true,
    }
}

/// Copies what the allocator reads. Only virtual machines need handles.
fn copy_for_allocator(snapshot: &Snapshot) -> Snapshot {
    let handles = if snapshot.machines.is_empty() {
        Vec::new()
    } else {
        snapshot.handles.clone()
    };
    Snapshot {
        datastore: snapshot.datastore,
        is_native: snapshot.is_native,
        taken_at: snapshot.taken_at,
        newest_creation: snapshot.newest_creation,
        coverage: snapshot.coverage.clone(),
        cluster: snapshot.cluster.clone(),
        cluster_revision: snapshot.cluster_revision.clone(),
        ipam_config: snapshot.ipam_config,
        ipam_configuration: snapshot.ipam_configuration,
        kube_controllers: snapshot.kube_controllers.clone(),
        blocks: snapshot.blocks.clone(),
        affinities: snapshot.affinities.clone(),
        handles,
        pools: snapshot.pools.clone(),
        reservations: snapshot.reservations.clone(),
        nodes: snapshot.nodes.clone(),
        machines: snapshot.machines.clone(),
        namespaces: snapshot.namespaces.clone(),
        defects: snapshot.defects.clone(),
        ..Snapshot::default()
    }
}
