//! The judgement of nodes and waiting pods: which of them get no address, and whether that may be intended.

use std::collections::HashMap;
use std::sync::Arc;

use calipam_assign::{Family, Reason, Refused};
use calipam_model::node::Node;
use calipam_model::pod::Pod;
use calipam_model::snapshot::Source;

use super::{Answers, Kinds};
use crate::code::Severity;
use crate::names::name_of_pod;

/// A waiting pod that gets no address.
pub(crate) struct WaitingPod<'s> {
    pub pod: &'s Pod,
    /// Calico's name of the node.
    pub node: String,
    pub refusals: Vec<(Family, Arc<Refused>)>,
    /// True if the pod names neither pools nor addresses.
    pub wants_any: bool,
}

/// Returns the waiting pods that get no address, sorted by name.
fn find_waiting<'s>(answers: &Answers<'_, 's>, kinds: &Kinds<'s>) -> Vec<WaitingPod<'s>> {
    let index = &answers.context.index;
    let mut refused_pods = Vec::new();
    for pod in kinds.waiting() {
        let node = index.calico_node(pod.node());
        if index.node(&node).is_some_and(Node::is_virtual_kubelet) || index.node_is_broken(&node) {
            continue;
        }
        // A refusal that depends on unknown data is not reported.
        let refusals = answers.refusals(pod, &node).unwrap_or_default();
        if !refusals.is_empty() {
            refused_pods.push(WaitingPod {
                pod,
                node,
                refusals,
                wants_any: answers.wants_any(pod),
            });
        }
    }
    refused_pods.sort_by_cached_key(|waiting| name_of_pod(waiting.pod));
    refused_pods
}

/// A node that gets no further address of a family.
pub(crate) struct NodeRefusal<'s> {
    pub node: &'s Node,
    pub family: Family,
    pub refused: Arc<Refused>,
    /// `Info` if the refusal may be intended.
    pub severity: Severity,
    /// The number of pods that run on the node, and whose successors would get no address even after these pods have
    /// ended.
    pub refused_pods: usize,
    pub running_pods: usize,
}

/// The judgement of all nodes.
pub(crate) struct Nodes<'s> {
    pub refusals: Vec<NodeRefusal<'s>>,
    /// True for each family in which a node with pods gets an address, or that may be so.
    pub served: [bool; 2],
}

/// Judges the nodes and the waiting pods of a snapshot.
pub(crate) struct Judge<'c, 's> {
    pub answers: Answers<'c, 's>,
    pub kinds: Kinds<'s>,
    /// The waiting pods that get no address, sorted by name.
    pub waiting: Vec<WaitingPod<'s>>,
}

impl<'c, 's> Judge<'c, 's> {
    /// Finds the kinds of pods on each node, and the pods that wait for an address.
    pub(crate) fn new(answers: Answers<'c, 's>) -> Self {
        let kinds = Kinds::new(&answers);
        Self {
            waiting: find_waiting(&answers, &kinds),
            answers,
            kinds,
        }
    }

    /// Judges every node that exists and on which Calico could serve pods: whether its next pods get addresses and, if
    /// not, how serious that is.
    pub(crate) fn nodes(&self) -> Nodes<'s> {
        let mut judged = Nodes {
            refusals: Vec::new(),
            served: [false; 2],
        };
        let mut refused_on: HashMap<&str, Vec<(Family, &'static str)>> = HashMap::new();
        for pod in self.waiting.iter().filter(|pod| pod.wants_any) {
            let refused_on_node = refused_on.entry(&pod.node).or_default();
            for (family, refused) in &pod.refusals {
                refused_on_node.push((*family, refused.reason.name()));
            }
        }

        let context = self.answers.context;
        for node in context.snapshot.nodes.iter().map(|stored| &stored.value) {
            if !context.index.node_exists(&node.name) || node.is_virtual_kubelet() {
                continue;
            }
            let reasons = refused_on.get(node.name.as_str());
            self.judge(node, reasons.map_or(&[][..], Vec::as_slice), &mut judged);
        }
        judged
    }

    /// Judges a node by the kinds of pods that run on it. A node without pods is judged by a pod that requests nothing
    /// in particular. `waits` has the reasons for which waiting pods get no address.
    fn judge(&self, node: &'s Node, waits: &[(Family, &'static str)], found: &mut Nodes<'s>) {
        let running = self.kinds.running_on(node);
        let plain = self.answers.plain_kind();
        let mut kinds = running.clone();
        if kinds.is_empty() {
            kinds.push((&plain, 0));
        }

        let of_requests = self.kinds.refused_on(node).len();
        let running_pods = running.iter().map(|(_, count)| count).sum::<usize>() + of_requests;
        let mut refused_pods = of_requests;
        let mut by_family: [Option<(Arc<Refused>, Severity)>; 2] = [None, None];
        for (position, (kind, count)) in kinds.into_iter().enumerate() {
            let is_usual = position == 0;
            let Ok(refusals) = self.answers.refusals_of_kind(kind, node) else {
                if is_usual {
                    self.note_served(node, kind.families, found);
                }
                continue;
            };
            let mut served = kind.families;
            let lasts = refusals
                .iter()
                .any(|(_, refused)| !is_of_capacity(&refused.reason));
            if lasts {
                refused_pods += count;
            }
            for (family, refused) in refusals {
                served[family as usize] = false;
                // Pods of another kind than the usual one matter only if their successors get no address even after
                // these pods have ended.
                let severity = if is_usual {
                    self.severity_for_usual(node, family, &refused.reason, count > 0, waits)
                } else if is_of_capacity(&refused.reason) {
                    continue;
                } else {
                    Severity::Warning
                };
                by_family[family as usize].get_or_insert((refused, severity));
            }
            if is_usual {
                self.note_served(node, served, found);
            }
        }
        if let Some(refused) = self.kinds.refused_on(node).first()
            && by_family == [None, None]
        {
            let family = if plain.families[0] { Family::V4 } else { Family::V6 };
            by_family[family as usize] = Some((Arc::new(refused.clone()), Severity::Warning));
        }
        self.add_unasked(node, &mut by_family);

        for (family, refusal) in Family::BOTH.into_iter().zip(by_family) {
            if let Some((refused, severity)) = refusal {
                let is_intended = severity == Severity::Info;
                found.refusals.push(NodeRefusal {
                    node,
                    family,
                    refused,
                    severity,
                    refused_pods: if is_intended { 0 } else { refused_pods },
                    running_pods,
                });
            }
        }
    }

    /// Marks the families that a node serves, unless it is known to have no pods.
    fn note_served(&self, node: &Node, families: [bool; 2], found: &mut Nodes<'s>) {
        let may_have_pods = !node.tainted && !self.answers.context.snapshot.has_read(Source::Pods);
        if !self.kinds.has_pods(node) && !may_have_pods {
            return;
        }
        for family in Family::BOTH {
            found.served[family as usize] |= families[family as usize];
        }
    }

    /// The severity of a refusal for the usual kind of pods on a node. `runs` is true if a pod of this kind runs there.
    fn severity_for_usual(
        &self,
        node: &Node,
        family: Family,
        reason: &Reason,
        runs: bool,
        waits: &[(Family, &'static str)],
    ) -> Severity {
        if waits.contains(&(family, reason.name())) {
            return Severity::Critical;
        }
        if runs {
            return Severity::Error;
        }
        if self.runs_no_pods(node) || self.may_be_intended(node, family, reason) {
            return Severity::Info;
        }
        Severity::Error
    }

    /// True if a taint keeps pods with addresses of their own away from the node.
    fn runs_no_pods(&self, node: &Node) -> bool {
        node.tainted && !self.kinds.has_pods(node)
    }

    /// True if a node on which Calico serves no pod may be meant to get no address.
    fn may_be_intended(&self, node: &Node, family: Family, reason: &Reason) -> bool {
        match reason {
            // Another IPAM may serve the pods of Windows nodes.
            Reason::WindowsNeedsStrictAffinity => true,
            // An operator who turns automatic allocation off gives blocks only to the nodes that need some.
            Reason::NoAutoAllocation => !self.answers.outlook.holds_some(node, family),
            // The operator chose the nodes, namespaces and uses of each pool.
            Reason::NoneSelectsNode
            | Reason::NoneAutomatic
            | Reason::NoneSelectsNamespace
            | Reason::NoneForWorkloads => true,
            _ => false,
        }
    }

    /// Adds, as information, a refusal in a family that no pod of the cluster asks for, although pools are there for it.
    fn add_unasked(&self, node: &Node, by_family: &mut [Option<(Arc<Refused>, Severity)>; 2]) {
        for family in Family::BOTH {
            let is_asked = self.answers.configurations.is_asked_for(family);
            if is_asked || by_family[family as usize].is_some() {
                continue;
            }
            if let Ok(Some(refused)) = self.answers.outlook.refusal(node, family, &[])
                && !refused.serving.is_empty()
            {
                by_family[family as usize] = Some((refused, Severity::Info));
            }
        }
    }
}

/// True if a request is refused because of missing capacity. A pod that ends makes room, so its successor gets the
/// address.
fn is_of_capacity(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Exhausted(_)
            | Reason::StrictAffinity
            | Reason::BlockLimit { .. }
            | Reason::SingleBlock
            | Reason::NoAutoAllocation
    )
}
