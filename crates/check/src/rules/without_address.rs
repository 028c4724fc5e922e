//! Nodes whose next pod gets no address, and pods that are waiting for one.

mod pods;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use calipam_assign::{Answer, Family, NextAddress, NodeSelector, NotKnown, Outlook, Reason, Refused};
use calipam_model::IpNet;
use calipam_model::node::Node;
use calipam_model::pod::Pod;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::Source;

use self::pods::PodsOfNodes;
use crate::Context;
use crate::code::{Code, Severity};
use crate::finding::{Evidence, Finding, NoAddressEvidence, RefusalEvidence, Subject};
use crate::names::short;
use crate::needs::{Need, Needs, pools_of};

/// The maximum number of nodes that have separate findings although they get no address for the same reason. If there
/// are more, all of them share one finding.
const MOST_SINGLE: usize = 3;
/// The maximum number of waiting pods that a finding names.
const MOST_NAMED: usize = 20;

/// Checks every node that could run pods, and every waiting pod.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    if context.index.services_only || context.index.host_local_pods > 0 {
        return;
    }
    let Some(outlook) = Outlook::new(context.snapshot) else { return };
    let judge = Judge {
        context,
        outlook,
        pods: PodsOfNodes::new(context),
        needs: Needs::new(context),
        by_name: Default::default(),
    };
    let (refusals, served) = judge.nodes();
    judge.report_nodes(refusals, served, out);
    judge.report_pods(served, out);
}

/// A node that gets no further address of a family.
struct NodeRefusal<'s> {
    node: &'s Node,
    family: Family,
    refused: Arc<Refused>,
    severity: Severity,
}

struct Judge<'c, 's> {
    context: &'c Context<'s>,
    outlook: Outlook<'s>,
    pods: PodsOfNodes<'s>,
    needs: Needs<'c, 's>,
    by_name: [OnceCell<bool>; 2],
}

impl<'s> Judge<'_, 's> {
    /// Returns the nodes that get no address, except where that could be intended. Also returns, for each family, true
    /// if any node with pods gets or might get an address.
    fn nodes(&self) -> (Vec<NodeRefusal<'s>>, [bool; 2]) {
        let families: Vec<Family> =
            Family::BOTH.into_iter().filter(|family| self.needs.matters(*family)).collect();
        let (mut refusals, mut served) = (Vec::new(), [false; 2]);
        for node in self.existing() {
            let has_pods = self.pods.run_on(node);
            if node.is_virtual_kubelet() || node.tainted && !has_pods {
                continue;
            }
            let mut found = Vec::new();
            for family in families.iter().copied() {
                match self.outlook.refusal(node, family) {
                    Ok(Some(refused)) => found.push((family, refused)),
                    Ok(None) | Err(NotKnown) => {
                        served[family as usize] |= has_pods || !self.context.snapshot.has_read(Source::Pods);
                    }
                }
            }
            let fails = found.iter().any(|(family, _)| self.needs.is_needed(*family));
            refusals.extend(found.into_iter().filter_map(|(family, refused)| {
                let severity = self.severity(node, family, &refused, fails)?;
                Some(NodeRefusal { node, family, refused, severity })
            }));
        }
        (refusals, served)
    }

    fn existing(&self) -> impl Iterator<Item = &'s Node> {
        let nodes = self.context.snapshot.nodes.iter().map(|stored| &stored.value);
        nodes.filter(|node| self.context.index.node_exists(&node.name))
    }

    /// Returns true if neither the pod nor its namespace names pools or addresses.
    fn asks_for_any(&self, pod: &Pod) -> bool {
        let namespace = self.outlook.namespace(&pod.namespace().to_string());
        pod.request.is_none() && namespace.is_none_or(|of| of.pools.iter().all(Vec::is_empty))
    }

    /// Returns the severity, or `None` if the state could be intended. `fails` is true if the node gets no address of a
    /// family that pods ask for.
    fn severity(&self, node: &Node, family: Family, refused: &Refused, fails: bool) -> Option<Severity> {
        let waits = self.pods.waiting_on(node).any(|pod| self.asks_for_any(pod));
        let may_be_intended = match refused.reason {
            // It could be intended that a node has no block of the family.
            Reason::NoAutoAllocation => !self.outlook.holds_some(node, family),
            Reason::NoneSelectsNode
            | Reason::NoneAutomatic
            | Reason::NoneSelectsNamespace
            | Reason::NoneForWorkloads => self.are_named(family),
            // Windows pods can use another IPAM.
            Reason::WindowsNeedsStrictAffinity => true,
            _ => false,
        };
        match (self.needs.of(family), waits) {
            (_, false) if may_be_intended => None,
            (Need::NotOfPods, true) if !fails => Some(Severity::Error),
            (Need::NotOfPods, _) => (!refused.serving.is_empty()).then_some(Severity::Warning),
            (Need::Elsewhere, _) => None,
            (Need::OfPods | Need::Unknown, true) => Some(Severity::Critical),
            (Need::OfPods | Need::Unknown, false) => Some(Severity::Error),
        }
    }

    fn report_nodes(&self, refusals: Vec<NodeRefusal<'s>>, served: [bool; 2], out: &mut Vec<Finding>) {
        let mut groups: BTreeMap<(Family, &str), Vec<NodeRefusal<'_>>> = BTreeMap::new();
        for mut refusal in refusals {
            let family = refusal.family;
            if !served[family as usize] && self.needs.of(family) == Need::OfPods {
                refusal.severity = Severity::Critical;
            }
            groups.entry((family, refusal.refused.reason.name())).or_default().push(refusal);
        }
        let mut single: BTreeMap<&str, Vec<NodeRefusal<'_>>> = BTreeMap::new();
        for ((family, reason), group) in groups {
            if group.len() > MOST_SINGLE {
                let subject = Subject::Cluster(format!("{}/{reason}", family.name()));
                out.push(self.finding(subject, &group));
            } else {
                group
                    .into_iter()
                    .for_each(|refusal| single.entry(&refusal.node.name).or_default().push(refusal));
            }
        }
        out.extend(single.into_iter().map(|(node, of)| self.finding(Subject::Node(node.to_owned()), &of)));
    }

    /// Makes the finding about one node, or about all nodes with the same reason.
    fn finding(&self, subject: Subject, of: &[NodeRefusal<'_>]) -> Finding {
        let is_group = matches!(subject, Subject::Cluster(_));
        let severity = of.iter().map(|refusal| refusal.severity).min().unwrap_or(Severity::Error);
        let shown = if is_group { &of[..1] } else { of };
        let nodes: Vec<&str> = of.iter().map(|refusal| refusal.node.name.as_str()).collect();
        let mut waiting: Vec<String> = (if is_group { of } else { &of[..1] })
            .iter()
            .flat_map(|refusal| self.pods.waiting_on(refusal.node))
            .filter(|pod| self.asks_for_any(pod))
            .map(name_of_pod)
            .collect();
        waiting.sort();
        let evidence = NoAddressEvidence {
            refusals: shown.iter().map(|r| RefusalEvidence::new(r.family, &r.refused)).collect(),
            nodes: nodes.iter().filter(|_| is_group).map(|node| (*node).to_owned()).collect(),
            waiting_pods: waiting.len(),
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
        let says = format!("{who} no further {}{waiting}", evidence.says("; no further "));
        Finding::new(Code::NodeWithoutAddresses, subject, says, Evidence::NoAddress(Box::new(evidence)))
            .with_severity(severity)
            .on_nodes(nodes)
    }

    fn report_pods(&self, served: [bool; 2], out: &mut Vec<Finding>) {
        for node in self.existing() {
            if node.is_virtual_kubelet() {
                continue;
            }
            for pod in self.pods.waiting_on(node) {
                let families = Family::BOTH.into_iter().filter(|family| self.needs.is_needed(*family));
                let refused =
                    families.filter_map(|family| Some((family, self.refusal_of(pod, node, family)?)));
                let refused: Vec<(Family, Arc<Refused>)> = refused.collect();
                let Some((first, _)) = refused.first() else { continue };
                let all_fail = self.asks_for_any(pod) && !served[*first as usize];
                let evidence = NoAddressEvidence {
                    refusals: refused.iter().map(|(family, of)| RefusalEvidence::new(*family, of)).collect(),
                    node: Some(node.name.clone()),
                    ..NoAddressEvidence::default()
                };
                let name = name_of_pod(pod);
                let (who, on) = (short(&name), short(&node.name));
                let says = format!("{who} gets no {} (on {on})", evidence.says("; no "));
                let (subject, evidence) = (Subject::Endpoint(name), Evidence::NoAddress(Box::new(evidence)));
                let finding = Finding::new(Code::PodWithoutAddress, subject, says, evidence)
                    .with_severity(if all_fail { Severity::Critical } else { Severity::Error })
                    .on_nodes([node.name.as_str()])
                    .depending_on([pod.key()]);
                out.push(finding);
            }
        }
    }

    /// Returns the reason why a pod gets no address of a family; `None` if it gets one, asks for none, or if that is
    /// unknown.
    fn refusal_of(&self, pod: &Pod, node: &Node, family: Family) -> Option<Arc<Refused>> {
        match answer_for_pod(&self.outlook, pod, &node.name, family) {
            PodAnswer::AsAny => {
                self.outlook.refusal_in(&pod.namespace().to_string(), node, family).ok().flatten()
            }
            PodAnswer::Asked(answer) => answer.outcome.err().map(Arc::new),
            PodAnswer::NotAsked | PodAnswer::UnknownPool(_) => None,
        }
    }

    /// Returns true if pods ask for pools of the family by name: an annotation names a pool, or a pool that can be used
    /// only by name has blocks.
    fn are_named(&self, family: Family) -> bool {
        *self.by_name[family as usize].get_or_init(|| {
            let snapshot = self.context.snapshot;
            let requests = snapshot.pods.iter().filter_map(|stored| stored.value.request.as_ref());
            let by_pods = requests.filter_map(|request| request.pools[family as usize].as_ref());
            let namespaces = snapshot.namespaces.iter().flat_map(BTreeMap::values);
            let by_namespaces = namespaces.map(|namespace| &namespace.pools[family as usize]);
            if by_pods.chain(by_namespaces).any(|pools| !pools.is_empty()) {
                return true;
            }
            let is_only_named = |pool: &&Pool| {
                let selector = NodeSelector::of(pool);
                let selects = |node: &Node| selector.as_ref().is_ok_and(|it| it.selects(&node.labels));
                pool.is_enabled()
                    && pool.allows(PoolUse::Workload)
                    && (!pool.automatic || !snapshot.nodes.iter().any(|stored| selects(&stored.value)))
            };
            let named: Vec<&Pool> = pools_of(snapshot, family).filter(is_only_named).collect();
            let mut of_nodes = self.context.index.blocks.iter().filter(|block| block.host().is_some());
            of_nodes.any(|block| named.iter().any(|pool| pool.cidr.contains(&block.key)))
        })
    }
}

/// IPAM's answer to a pod.
pub(crate) enum PodAnswer {
    /// The pod asks for nothing in particular.
    AsAny,
    /// The answer about the pools or the address in the pod's request.
    Asked(Box<Answer>),
    /// The pod names addresses, but none of this family.
    NotAsked,
    /// The pod names a pool that does not exist.
    UnknownPool(String),
}

/// Answers a pod's request for an address of a family, based on its annotations and those of its namespace.
pub(crate) fn answer_for_pod(outlook: &Outlook<'_>, pod: &Pod, node: &str, family: Family) -> PodAnswer {
    let addresses = pod.request.as_ref().map_or(&[][..], |request| &request.addresses);
    if let Some(address) = addresses.iter().find(|address| Family::of_address(**address) == family) {
        return PodAnswer::Asked(Box::new(outlook.next_named(node, *address)));
    }
    if !addresses.is_empty() {
        return PodAnswer::NotAsked;
    }
    let by_pod = pod.request.as_ref().and_then(|request| request.pools[family as usize].as_ref());
    let by_namespace =
        || outlook.namespace(&pod.namespace().to_string()).map(|of| &of.pools[family as usize]);
    let mut pools: Vec<IpNet> = Vec::new();
    for name in by_pod.or_else(by_namespace).into_iter().flatten() {
        match outlook.pool_cidr(name) {
            Some(cidr) => pools.push(cidr),
            None => return PodAnswer::UnknownPool(name.clone()),
        }
    }
    if pools.is_empty() {
        return PodAnswer::AsAny;
    }
    let request = NextAddress { node, family, pools: &pools, namespace_labels: None };
    PodAnswer::Asked(Box::new(outlook.next(&request)))
}

/// Returns `namespace/name`.
pub(crate) fn name_of_pod(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}
