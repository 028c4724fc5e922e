//! Nodes whose next pod gets no address, and pods that are waiting for one.

use std::collections::{BTreeMap, BTreeSet};

use calipam_assign::{Family, Reason};
use calipam_model::snapshot::Snapshot;

use crate::Context;
use crate::answers::{Answers, Judge, NodeRefusal, Nodes, WaitingPod};
use crate::code::{Code, Severity};
use crate::finding::{Evidence, Finding, NoAddressEvidence, RefusalEvidence, Subject};
use crate::names::{name_of_pod, short};

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
    let judge = Judge::new(answers);
    let nodes = judge.nodes();
    report_pods(&judge, nodes.served, out);
    report_nodes(&judge, nodes, out);
}

/// The nodes whose next pod gets no address, according to findings. Information does not count, since it may be intended,
/// nor do warnings, since only pods of an unusual kind get none.
pub fn nodes_without_addresses(findings: &[Finding]) -> BTreeSet<&str> {
    let mut nodes = BTreeSet::new();
    for finding in findings {
        let is_certain = finding.severity <= Severity::Error;
        if is_certain && finding.code == Code::NodeWithoutAddresses {
            nodes.extend(finding.nodes.iter().map(String::as_str));
        }
    }
    nodes
}

/// Reports the nodes whose next pod gets no address. Nodes with the same reason share a finding if there are many.
fn report_nodes(judge: &Judge<'_, '_>, Nodes { refusals, served }: Nodes<'_>, out: &mut Vec<Finding>) {
    let mut groups: BTreeMap<(Family, &str, bool), Vec<NodeRefusal<'_>>> = BTreeMap::new();
    for mut refusal in refusals {
        let is_general = refusal.severity == Severity::Error && !served[refusal.family as usize];
        if is_general && judge.answers.configurations.is_known {
            refusal.severity = Severity::Critical;
        }
        let may_be_intended = refusal.severity == Severity::Info;
        groups
            .entry((refusal.family, refusal.refused.reason.name(), may_be_intended))
            .or_default()
            .push(refusal);
    }

    // The refusals that few nodes have are reported for each node, all of a node together.
    let mut by_node: BTreeMap<&str, Vec<NodeRefusal<'_>>> = BTreeMap::new();
    for ((family, reason, may_be_intended), group) in groups {
        if group.len() > MOST_SINGLE {
            let kind = if may_be_intended { "/may-be-intended" } else { "" };
            let subject = Subject::Cluster(format!("{}/{reason}{kind}", family.name()));
            out.push(new_finding(judge, subject, &group));
        } else {
            for refusal in group {
                by_node.entry(&refusal.node.name).or_default().push(refusal);
            }
        }
    }
    for (node, refusals) in by_node {
        out.push(new_finding(judge, Subject::Node(node.to_owned()), &refusals));
    }
}

/// Makes the finding about one node, or about all nodes with the same reason.
fn new_finding(judge: &Judge<'_, '_>, subject: Subject, refusals: &[NodeRefusal<'_>]) -> Finding {
    let severity = refusals
        .iter()
        .map(|refusal| refusal.severity)
        .min()
        .unwrap_or(Severity::Error);

    // The nodes of a group have the same refusal. A single node can have one for each family.
    let is_group = matches!(subject, Subject::Cluster(_));
    let shown = if is_group { &refusals[..1] } else { refusals };
    let of_nodes = if is_group { refusals } else { &refusals[..1] };
    let nodes: Vec<&str> = of_nodes
        .iter()
        .map(|refusal| refusal.node.name.as_str())
        .collect();
    let waiting: Vec<String> = judge
        .waiting
        .iter()
        .filter(|waiting| waiting.wants_any && nodes.contains(&waiting.node.as_str()))
        .map(|waiting| name_of_pod(waiting.pod))
        .collect();
    let named_nodes: &[&str] = if is_group { &nodes } else { &[] };

    let evidence = NoAddressEvidence {
        refusals: shown
            .iter()
            .map(|refusal| RefusalEvidence::new(refusal.family, &refusal.refused))
            .collect(),
        nodes: named_nodes.iter().map(|node| (*node).to_owned()).collect(),
        waiting_pods: waiting.len(),
        refused_pods: of_nodes.iter().map(|refusal| refusal.refused_pods).sum(),
        running_pods: of_nodes.iter().map(|refusal| refusal.running_pods).sum(),
        waiting: waiting.into_iter().take(MOST_NAMED).collect(),
        node: None,
    };

    let nodes_get = if is_group {
        format!("{} nodes get", nodes.len())
    } else {
        format!("{} gets", short(nodes[0]))
    };
    let waiting_clause = match evidence.waiting_pods {
        0 => String::new(),
        1 => "; 1 pod is waiting".to_owned(),
        many => format!("; {many} pods are waiting"),
    };
    let refused_clause = if evidence.refused_pods == 0 {
        String::new()
    } else {
        format!(
            "; {} of the {} pods that run there would not start again",
            evidence.refused_pods, evidence.running_pods
        )
    };
    let intent = if severity == Severity::Info {
        intent_clause(&shown[0].refused.reason)
    } else {
        ""
    };
    let message = format!(
        "{nodes_get} no further {}{refused_clause}{waiting_clause}{intent}",
        evidence.join_refusals("; no further ")
    );
    let evidence = Evidence::NoAddress(Box::new(evidence));
    Finding::new(Code::NodeWithoutAddresses, subject, message, evidence)
        .with_severity(severity)
        .on_nodes(nodes)
}

/// Reports the pods that are waiting for addresses. `served` is true for each family in which some node gets addresses.
fn report_pods(judge: &Judge<'_, '_>, served: [bool; 2], out: &mut Vec<Finding>) {
    for WaitingPod {
        pod,
        node,
        refusals,
        wants_any,
    } in &judge.waiting
    {
        let no_pod_is_served = refusals.iter().any(|(family, refused)| {
            *wants_any && !refused.reason.is_of_request() && !served[*family as usize]
        });
        let severity = if no_pod_is_served {
            Severity::Critical
        } else {
            Severity::Error
        };

        let evidence = NoAddressEvidence {
            refusals: refusals
                .iter()
                .map(|(family, refused)| RefusalEvidence::new(*family, refused))
                .collect(),
            node: Some(node.clone()),
            ..NoAddressEvidence::default()
        };
        let name = name_of_pod(pod);
        let message = format!(
            "{} gets no {} (on {})",
            short(&name),
            evidence.join_refusals("; no "),
            short(node)
        );

        let subject = Subject::Endpoint(name);
        let evidence = Evidence::NoAddress(Box::new(evidence));
        let finding = Finding::new(Code::PodWithoutAddress, subject, message, evidence)
            .with_severity(severity)
            .on_nodes([node.as_str()])
            .depending_on([pod.key()]);
        out.push(finding);
    }
}

/// The end of a message about nodes that may be meant to get no address.
fn intent_clause(reason: &Reason) -> &'static str {
    match reason {
        Reason::WindowsNeedsStrictAffinity => "; this may be intended: another IPAM may serve Windows",
        _ => "; this may be intended: no pod there asks for one",
    }
}
