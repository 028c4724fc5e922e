//! Nodes whose next pod gets no address, and pods that are waiting for one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use calipam_assign::{Family, Reason, Refused};
use calipam_model::node::Node;
use calipam_model::pod::Pod;
use calipam_model::snapshot::{Snapshot, Source};

use crate::Context;
use crate::answers::{Answers, Kinds};
use crate::code::{Code, Severity};
use crate::finding::{Evidence, Finding, NoAddressEvidence, RefusalEvidence, Subject};
use crate::names::short;

/// The maximum number of nodes that have separate findings although they get no address for the same reason. If there
/// are more, all of them share one finding.
const MOST_SINGLE: usize = 3;
/// The maximum number of waiting pods that a finding names.
const MOST_NAMED: usize = 20;

/// Checks every node that could run pods, and every waiting pod.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    check_on(context, context.snapshot, out);
}

/// Like [`check`], as if the cluster had the blocks, affinities, pools and configuration of `changed`.
pub(crate) fn check_on(context: &Context<'_>, changed: &Snapshot, out: &mut Vec<Finding>) {
    if !context.serves_pods() {
        return;
    }
    let Some(answers) = Answers::on(context, changed) else {
        return;
    };
    let kinds = Kinds::new(&answers);
    let judge = Judge {
        context,
        waiting: waiting(&answers, &kinds),
        answers,
        kinds,
    };
    let nodes = judge.nodes();
    judge.report_pods(nodes.served, out);
    judge.report_nodes(nodes, out);
}

/// The nodes that get no further address, according to findings. What may be intended is information, and does not count.
pub fn nodes_without_addresses(findings: &[Finding]) -> BTreeSet<&str> {
    let of_nodes = findings
        .iter()
        .filter(|finding| finding.code == Code::NodeWithoutAddresses);
    let certain = of_nodes.filter(|finding| finding.severity != Severity::Info);
    certain
        .flat_map(|finding| &finding.nodes)
        .map(String::as_str)
        .collect()
}

/// A waiting pod that gets no address.
struct WaitingPod<'s> {
    pod: &'s Pod,
    /// Calico's name of the node.
    node: String,
    refusals: Vec<(Family, Arc<Refused>)>,
    /// True if the pod names neither pools nor addresses.
    wants_any: bool,
}

/// Returns the waiting pods that get no address, sorted by name.
fn waiting<'s>(answers: &Answers<'_, 's>, kinds: &Kinds<'s>) -> Vec<WaitingPod<'s>> {
    let index = &answers.context.index;
    let mut found = Vec::new();
    for pod in kinds.waiting() {
        let node = index.calico_node(pod.node());
        if index.node(&node).is_some_and(Node::is_virtual_kubelet) || index.node_is_broken(&node) {
            continue;
        }
        // What depends on unknown data is not reported.
        let refusals = answers.refusals(pod, &node).unwrap_or_default();
        if !refusals.is_empty() {
            found.push(WaitingPod {
                pod,
                node,
                refusals,
                wants_any: answers.wants_any(pod),
            });
        }
    }
    found.sort_by_cached_key(|waiting| name_of_pod(waiting.pod));
    found
}

/// A node that gets no further address of a family.
struct NodeRefusal<'s> {
    node: &'s Node,
    family: Family,
    refused: Arc<Refused>,
    severity: Severity,
    /// The number of pods that run on the node, and whose successors would get no address even after these pods have
    /// ended.
    refused_pods: usize,
    running_pods: usize,
}

/// The judgement of all nodes.
struct Nodes<'s> {
    refusals: Vec<NodeRefusal<'s>>,
    /// True for each family in which a node with pods gets an address, or that may be so.
    served: [bool; 2],
}

struct Judge<'c, 's> {
    context: &'c Context<'s>,
    answers: Answers<'c, 's>,
    kinds: Kinds<'s>,
    waiting: Vec<WaitingPod<'s>>,
}

impl<'s> Judge<'_, 's> {
    fn nodes(&self) -> Nodes<'s> {
        let mut found = Nodes {
            refusals: Vec::new(),
            served: [false; 2],
        };
        let mut waiting: HashMap<&str, Vec<(Family, &'static str)>> = HashMap::new();
        for pod in self.waiting.iter().filter(|pod| pod.wants_any) {
            let reasons = pod
                .refusals
                .iter()
                .map(|(family, refused)| (*family, refused.reason.name()));
            waiting.entry(&pod.node).or_default().extend(reasons);
        }
        let nodes = self.context.snapshot.nodes.iter().map(|stored| &stored.value);
        for node in nodes.filter(|node| self.context.index.node_exists(&node.name)) {
            let has_pods = self.kinds.has_pods(node);
            if !node.is_virtual_kubelet() && (has_pods || !node.tainted) {
                let waits = waiting.get(node.name.as_str()).map_or(&[][..], Vec::as_slice);
                self.judge(node, has_pods, waits, &mut found);
            }
        }
        found
    }

    /// Judges a node by the kinds of pods that run on it. A node without pods is judged by a pod that requests nothing
    /// in particular. `waits` has the reasons for which waiting pods get no address.
    fn judge(&self, node: &'s Node, has_pods: bool, waits: &[(Family, &'static str)], found: &mut Nodes<'s>) {
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
                    self.note_served(has_pods, kind.families, found);
                }
                continue;
            };
            let mut served = kind.families;
            let lasts = refusals
                .iter()
                .any(|(_, refused)| !is_of_capacity(&refused.reason));
            refused_pods += if lasts { count } else { 0 };
            for (family, refused) in refusals {
                served[family as usize] = false;
                let severity = self.severity(node, family, &refused.reason, is_usual, count > 0, waits);
                let known = &mut by_family[family as usize];
                if let Some(severity) = severity.filter(|_| known.is_none()) {
                    *known = Some((refused, severity));
                }
            }
            if is_usual {
                self.note_served(has_pods, served, found);
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
                let refused_pods = if severity == Severity::Info {
                    0
                } else {
                    refused_pods
                };
                found.refusals.push(NodeRefusal {
                    node,
                    family,
                    refused,
                    severity,
                    refused_pods,
                    running_pods,
                });
            }
        }
    }

    fn note_served(&self, has_pods: bool, families: [bool; 2], found: &mut Nodes<'s>) {
        if has_pods || !self.context.snapshot.has_read(Source::Pods) {
            for (served, is_served) in found.served.iter_mut().zip(families) {
                *served |= is_served;
            }
        }
    }

    /// The severity of a refusal; `None` if it is of no interest. Pods of a kind that is not the usual one matter only if
    /// their successors get no address even after these pods have ended.
    fn severity(
        &self,
        node: &Node,
        family: Family,
        reason: &Reason,
        is_usual: bool,
        runs: bool,
        waits: &[(Family, &'static str)],
    ) -> Option<Severity> {
        if !is_usual {
            return (!is_of_capacity(reason)).then_some(Severity::Warning);
        }
        if waits.contains(&(family, reason.name())) {
            return Some(Severity::Critical);
        }
        match reason {
            // Another IPAM may serve the pods of Windows nodes.
            Reason::WindowsNeedsStrictAffinity if !runs => return None,
            // It could be intended that a node has no block of the family, and `auto-allocation-off` says so.
            Reason::NoAutoAllocation if !self.answers.outlook.holds_some(node, family) => return None,
            _ => {}
        }
        let may_be_intended = !runs
            && matches!(
                reason,
                Reason::NoneSelectsNode
                    | Reason::NoneAutomatic
                    | Reason::NoneSelectsNamespace
                    | Reason::NoneForWorkloads
            );
        Some(if may_be_intended {
            Severity::Info
        } else {
            Severity::Error
        })
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

    fn report_nodes(&self, Nodes { refusals, served }: Nodes<'s>, out: &mut Vec<Finding>) {
        let mut groups: BTreeMap<(Family, &str), Vec<NodeRefusal<'_>>> = BTreeMap::new();
        for mut refusal in refusals {
            let is_general = refusal.severity == Severity::Error && !served[refusal.family as usize];
            if is_general && self.answers.configurations.is_known {
                refusal.severity = Severity::Critical;
            }
            groups
                .entry((refusal.family, refusal.refused.reason.name()))
                .or_default()
                .push(refusal);
        }
        let mut single: BTreeMap<&str, Vec<NodeRefusal<'_>>> = BTreeMap::new();
        for ((family, reason), group) in groups {
            if group.len() > MOST_SINGLE {
                let subject = Subject::Cluster(format!("{}/{reason}", family.name()));
                out.push(self.finding(subject, &group));
            } else {
                for refusal in group {
                    single.entry(&refusal.node.name).or_default().push(refusal);
                }
            }
        }
        out.extend(
            single
                .into_iter()
                .map(|(node, of)| self.finding(Subject::Node(node.to_owned()), &of)),
        );
    }

    /// Makes the finding about one node, or about all nodes with the same reason.
    fn finding(&self, subject: Subject, of: &[NodeRefusal<'_>]) -> Finding {
        let is_group = matches!(subject, Subject::Cluster(_));
        let severity = of
            .iter()
            .map(|refusal| refusal.severity)
            .min()
            .unwrap_or(Severity::Error);
        let shown = if is_group { &of[..1] } else { of };
        let of_nodes = if is_group { of } else { &of[..1] };
        let nodes: Vec<&str> = of_nodes
            .iter()
            .map(|refusal| refusal.node.name.as_str())
            .collect();
        let waits_there =
            |waiting: &&WaitingPod<'_>| waiting.wants_any && nodes.contains(&waiting.node.as_str());
        let waiting = self
            .waiting
            .iter()
            .filter(waits_there)
            .map(|waiting| name_of_pod(waiting.pod));
        let waiting: Vec<String> = waiting.collect();
        let evidence = NoAddressEvidence {
            refusals: shown
                .iter()
                .map(|r| RefusalEvidence::new(r.family, &r.refused))
                .collect(),
            nodes: nodes
                .iter()
                .filter(|_| is_group)
                .map(|node| (*node).to_owned())
                .collect(),
            waiting_pods: waiting.len(),
            refused_pods: of_nodes.iter().map(|refusal| refusal.refused_pods).sum(),
            running_pods: of_nodes.iter().map(|refusal| refusal.running_pods).sum(),
            waiting: waiting.into_iter().take(MOST_NAMED).collect(),
            node: None,
        };
        let who = match is_group {
            true => format!("{} nodes get", nodes.len()),
            false => format!("{} gets", short(nodes[0])),
        };
        let waiting = match evidence.waiting_pods {
            0 => String::new(),
            1 => "; 1 pod is waiting".to_owned(),
            many => format!("; {many} pods are waiting"),
        };
        let again = match (evidence.refused_pods, evidence.running_pods) {
            (0, _) => String::new(),
            (refused, running) => {
                format!("; {refused} of the {running} pods that run there would not start again")
            }
        };
        let says = format!(
            "{who} no further {}{again}{waiting}",
            evidence.says("; no further ")
        );
        Finding::new(
            Code::NodeWithoutAddresses,
            subject,
            says,
            Evidence::NoAddress(Box::new(evidence)),
        )
        .with_severity(severity)
        .on_nodes(nodes)
    }

    fn report_pods(&self, served: [bool; 2], out: &mut Vec<Finding>) {
        for WaitingPod {
            pod,
            node,
            refusals,
            wants_any,
        } in &self.waiting
        {
            let all_fail = |(family, refused): &(Family, Arc<Refused>)| {
                *wants_any && !refused.reason.is_of_request() && !served[*family as usize]
            };
            let severity = if refusals.iter().any(all_fail) {
                Severity::Critical
            } else {
                Severity::Error
            };
            let evidence = NoAddressEvidence {
                refusals: refusals
                    .iter()
                    .map(|(family, of)| RefusalEvidence::new(*family, of))
                    .collect(),
                node: Some(node.clone()),
                ..NoAddressEvidence::default()
            };
            let name = name_of_pod(pod);
            let who = short(&name);
            let on = short(node);
            let says = format!("{who} gets no {} (on {on})", evidence.says("; no "));
            let subject = Subject::Endpoint(name);
            let evidence = Evidence::NoAddress(Box::new(evidence));
            let finding = Finding::new(Code::PodWithoutAddress, subject, says, evidence)
                .with_severity(severity)
                .on_nodes([node.as_str()])
                .depending_on([pod.key()]);
            out.push(finding);
        }
    }
}

/// True if a pod that ends makes room for its successor.
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

/// Returns `namespace/name`.
pub(crate) fn name_of_pod(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}
