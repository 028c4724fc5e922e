//! Nodes whose next pod gets no address, and pods that are waiting for one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calipam_assign::{Family, Reason, Refused};
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
    let of_nodes = findings
        .iter()
        .filter(|finding| finding.code == Code::NodeWithoutAddresses);
    let certain = of_nodes.filter(|finding| finding.severity <= Severity::Error);
    certain
        .flat_map(|finding| &finding.nodes)
        .map(String::as_str)
        .collect()
}

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
    let mut single: BTreeMap<&str, Vec<NodeRefusal<'_>>> = BTreeMap::new();
    for ((family, reason, may_be_intended), group) in groups {
        if group.len() > MOST_SINGLE {
            let kind = if may_be_intended { "/may-be-intended" } else { "" };
            let subject = Subject::Cluster(format!("{}/{reason}{kind}", family.name()));
            out.push(finding(judge, subject, &group));
        } else {
            for refusal in group {
                single.entry(&refusal.node.name).or_default().push(refusal);
            }
        }
    }
    out.extend(
        single
            .into_iter()
            .map(|(node, of)| finding(judge, Subject::Node(node.to_owned()), &of)),
    );
}

/// Makes the finding about one node, or about all nodes with the same reason.
fn finding(judge: &Judge<'_, '_>, subject: Subject, of: &[NodeRefusal<'_>]) -> Finding {
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
    let waits_there = |waiting: &&WaitingPod<'_>| waiting.wants_any && nodes.contains(&waiting.node.as_str());
    let waiting = judge
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
    let intent = if severity == Severity::Info {
        intent(&shown[0].refused.reason)
    } else {
        ""
    };
    let says = format!(
        "{who} no further {}{again}{waiting}{intent}",
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

fn report_pods(judge: &Judge<'_, '_>, served: [bool; 2], out: &mut Vec<Finding>) {
    for WaitingPod {
        pod,
        node,
        refusals,
        wants_any,
    } in &judge.waiting
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
/// The end of a message about nodes that may be meant to get no address.
fn intent(reason: &Reason) -> &'static str {
    match reason {
        Reason::WindowsNeedsStrictAffinity => "; this may be intended: another IPAM may serve Windows",
        _ => "; this may be intended: no pod there asks for one",
    }
}
