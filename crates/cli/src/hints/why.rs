//! Advice for a pod without an address that cannot be tried: a person has to decide or to correct something.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_assign::{PoolPassedOver, Reason, Refused};
use calipam_check::views::{Explanation, LeftOfNode, RequestState};
use calipam_check::{Finding, Remedy};
use calipam_model::config::IpamSetting;
use calipam_model::names::namespaced;
use calipam_model::snapshot::Snapshot;

use super::{Reader, calicoctl, command, kubectl, list_findings, new_pool, remedy, show_address};
use crate::render::text::shell_word;

const SEE_CNI_CONFIGURATION: &str = "if Calico says that a pool does not exist or is not enabled, the node's CNI configuration names it: look for ipv4_pools in /etc/cni/net.d on the node";

const WAITS_FOR: &str = "see what it is waiting for";

/// The first version of Calico whose pools have an assignment mode.
const ASSIGNMENT_MODE_SINCE: (u32, u32) = (3, 30);

/// Returns the next steps for a pod or node that cannot be tried in advance, the most likely one first. `has_cure` is
/// true if a remedy was tried and helps.
pub(crate) fn steps(snapshot: &Snapshot, explanation: &Explanation, has_cure: bool) -> Vec<String> {
    match &explanation.state {
        RequestState::Asks => match explanation.refusal() {
            Some(refused) => steps_for_refusal(snapshot, explanation, refused, has_cure),
            None => steps_while_waiting(explanation),
        },
        RequestState::Has(addresses) => steps_with_addresses(explanation, addresses),
        RequestState::NodeGone(remaining) => steps_for_deleted_node(&explanation.node, *remaining),
        RequestState::NotBound
        | RequestState::HostNetwork
        | RequestState::Finished
        | RequestState::Leaving(_)
        | RequestState::BypassesIpam(_) => describe_pod(explanation, WAITS_FOR),
        RequestState::NotKnown => vec![format!("see what is missing: {}", list_findings())],
        RequestState::NamespacesNotRead => vec![format!(
            "let the account list namespaces; to check this: {}",
            kubectl("auth can-i list namespaces")
        )],
        RequestState::Elsewhere => vec!["read the Kubernetes datastore: `--datastore kubernetes`".to_owned()],
    }
}

/// Returns the steps for a pod that will get an address.
fn steps_while_waiting(explanation: &Explanation) -> Vec<String> {
    let mut steps = describe_pod(explanation, WAITS_FOR);
    // The pod could have got an address long ago, so something else than IPAM holds it up.
    if explanation.waits_in_vain {
        steps.push(SEE_CNI_CONFIGURATION.to_owned());
    }
    steps
}

/// Returns the steps for a pod that has these addresses: the remedies of its critical findings come first.
fn steps_with_addresses(explanation: &Explanation, addresses: &[IpAddr]) -> Vec<String> {
    let mut steps = Vec::new();
    for remedy in explanation.critical.iter().filter_map(Finding::remedy) {
        let command = remedy::line(&remedy, Reader::Operator);
        steps.push(format!("{}: {command}", remedy::purpose(&remedy)));
    }
    for address in addresses {
        steps.push(format!("see where it is recorded: {}", show_address(address)));
    }
    steps.extend(describe_pod(explanation, "see its events"));
    steps
}

/// Returns the steps for a node that does not exist: release what it holds, and see what names it.
fn steps_for_deleted_node(node: &str, remaining: LeftOfNode) -> Vec<String> {
    let mut steps = Vec::new();
    if remaining.is_releasable() {
        let release = Remedy::ReleaseNodes(BTreeSet::from([node.to_owned()]));
        let line = remedy::line(&release, Reader::Operator);
        steps.push(format!("{}: {line}", remedy::purpose(&release)));
    }
    steps.push(format!(
        "see what names it: {}",
        command(&["check", "--node", node])
    ));
    steps
}

/// Returns the step that shows the events of the pod, with its purpose. Empty if the question was about the next pod of
/// a node, which does not exist yet.
fn describe_pod(explanation: &Explanation, purpose: &str) -> Vec<String> {
    let Some((namespace, name)) = explanation.pod.as_deref().and_then(namespaced) else {
        return Vec::new();
    };
    let describe = format!(
        "describe pod --namespace {} {}",
        shell_word(namespace),
        shell_word(name)
    );
    vec![format!("{purpose}: {}", kubectl(&describe))]
}

/// Suggests how a request gets an address that was refused, by the reason. If a remedy was tried and helps, suggests no
/// change of settings beside it.
fn steps_for_refusal(
    snapshot: &Snapshot,
    explanation: &Explanation,
    refused: &Refused,
    has_cure: bool,
) -> Vec<String> {
    match &refused.reason {
        Reason::NoneSelectsNode => steps_to_label(&explanation.node, refused),
        Reason::NoneSelectsNamespace => steps_to_label("the namespace", refused),
        Reason::StrictAffinity | Reason::Exhausted(_) => steps_for_full_pools(snapshot, refused),
        Reason::BlockLimit { limit, .. } if !has_cure => {
            let raised = IpamSetting::one_more_block(*limit);
            no_block_left(refused, vec![raised, IpamSetting::StrictAffinity(true)])
        }
        Reason::NoAutoAllocation if !has_cure => {
            no_block_left(refused, vec![IpamSetting::AutoAllocateBlocks(true)])
        }
        reason => step_for_reason(reason).into_iter().collect(),
    }
}

/// Returns a step for each pool whose selector does not match: to label the object that it should select.
fn steps_to_label(object: &str, refused: &Refused) -> Vec<String> {
    let mut steps = Vec::new();
    for (pool, selector) in selectors(refused) {
        steps.push(format!(
            "label {object} so that pool {pool} selects it: {selector}"
        ));
    }
    steps
}

/// Returns the only step that helps against a reason, unless several do, or the cures are tried.
fn step_for_reason(reason: &Reason) -> Option<String> {
    let step = match reason {
        // Cures are tried for these reasons, or they have several steps: see `steps_for_refusal`.
        Reason::BlockLimit { .. }
        | Reason::NoAutoAllocation
        | Reason::WindowsNeedsStrictAffinity
        | Reason::NoneSelectsNode
        | Reason::NoneSelectsNamespace
        | Reason::StrictAffinity
        | Reason::Exhausted(_) => return None,

        // The cluster and its nodes.
        Reason::NoNode => format!(
            "see whether calico-node is running there: {}",
            kubectl("get nodes")
        ),
        Reason::NoClusterInformation | Reason::ReadyNotSet => format!(
            "restart calico-node, which writes the cluster information: {}",
            kubectl("rollout restart daemonset --namespace calico-system calico-node")
        ),
        Reason::NotReady => format!(
            "unlock the datastore, if no upgrade or migration is in progress: {}; if a killed run of calipam left the lock, {} names its journal",
            calicoctl("datastore migrate unlock"),
            command(&["undo", "--list"])
        ),
        Reason::SingleBlock => {
            "move pods to another node: the node has one block while windows_use_single_network is true, as is usual on Windows"
                .to_owned()
        }
        Reason::Other | Reason::BrokenConfiguration | Reason::MalformedReservation(_) => format!("see what is damaged: {}", list_findings()),

        // The pools.
        Reason::NoPool
        | Reason::NoneEnabled
        | Reason::NoneForServices
        | Reason::NoneForWorkloads
        // The default block size is large enough.
        | Reason::BlocksTooSmall => new_pool::with_defaults(),
        Reason::SmallerThanBlock(pool) | Reason::ImpossibleBlocks { pool, .. } => {
            let pool = shell_word(pool);
            format!(
                "replace the pool {pool}, which has no room for a block: {}",
                new_pool::with_defaults()
            )
        }
        Reason::BrokenSelector(pool) => format!("correct the selector of the pool {}", shell_word(pool)),
        Reason::NoneAutomatic => {
            "name the pool in the pod's annotation cni.projectcalico.org/ipv4pools or ipv6pools".to_owned()
        }
        Reason::NamedClosed { .. } | Reason::BrokenPool { .. } => {
            "name another pool in the annotation".to_owned()
        }
        Reason::UnknownPool(_) | Reason::UnknownCidr { .. } | Reason::OtherFamily { .. } => {
            format!(
                "correct its annotation; to list the pools: {}",
                command(&["show"])
            )
        }

        // The requested address.
        Reason::Taken(address) | Reason::TakenByEarlier(address) => {
            format!("see who has it: {}", show_address(address))
        }
        Reason::InClosedPool { .. } | Reason::OutsidePools(_) | Reason::NotForWorkloads { .. } => {
            format!("name an address of an enabled pool: {}", command(&["show"]))
        }
        Reason::ForeignBlock(_) => "name an address of a block of the node, or none".to_owned(),
        Reason::OneForEach(_) => {
            "leave only one address in the annotation cni.projectcalico.org/ipAddrs".to_owned()
        }

        // Other annotations.
        Reason::NotJson(annotation) => {
            format!("correct the annotation {annotation}: a list such as `[\"a\", \"b\"]`")
        }
        Reason::BadEntry { annotation, .. } | Reason::NamesNothing(annotation) => {
            format!("correct the annotation {annotation}, or remove it")
        }
        Reason::TwoOfAFamily { annotation, family } => {
            format!("leave only one {family} address in the annotation {annotation}")
        }
        Reason::TwoRequests => "remove one of the annotations ipAddrs and ipAddrsNoIpam".to_owned(),
        Reason::FeatureOff { feature, .. } => format!(
            "enable it in the CNI configuration of the nodes: `feature_control: {{\"{feature}\": true}}`; or remove the annotation"
        ),
        Reason::FloatingWithoutAddress { family, .. } => {
            format!("remove the address from the annotation floatingIPs, or let the pod ask for an {family} address: ipFamilies")
        }
        Reason::NoFamily => "name IPv4, IPv6 or both in the annotation ipFamilies, or remove it".to_owned(),
        Reason::NoFamilyConfigured => {
            "set `assign_ipv4` or `assign_ipv6` to \"true\" in the CNI configuration of the nodes".to_owned()
        }

        // Virtual machines.
        Reason::NoMachine(_) | Reason::MachineReplaced(_) => format!(
            "see whether the virtual machine is running: {}",
            kubectl("get virtualmachineinstances --all-namespaces")
        ),
        Reason::MigrationOff => format!(
            "let virtual machines keep their addresses: {}",
            calicoctl("ipam configure --kubevirt-ip-persistence=Enabled")
        ),
        Reason::NothingToMigrate => "stop and start the virtual machine instead of migrating it".to_owned(),
        Reason::MachineOutsidePools(address) => {
            format!("see which pool the address is in: {}", show_address(address))
        }
        Reason::MachineNameTooLong(_) => format!(
            "give the virtual machine a shorter name, or let virtual machines take new addresses at each start: {}",
            calicoctl("ipam configure --kubevirt-ip-persistence=Disabled")
        ),
    };
    Some(step)
}

/// Returns the steps if the pools are full. If the pod names its pool, other pods can be kept out of it.
fn steps_for_full_pools(snapshot: &Snapshot, refused: &Refused) -> Vec<String> {
    let is_named = refused
        .pools
        .iter()
        .any(|(_, why)| *why == PoolPassedOver::NotRequested);
    if !is_named {
        return vec![pool_like_these(refused)];
    }

    // Before assignment modes, the only way was a selector that matches no node.
    let has_no_mode = snapshot.is_calico_since(ASSIGNMENT_MODE_SINCE) == Some(false);
    let keep_out = if has_no_mode {
        r#"{"spec":{"nodeSelector":"!all()"}}"#
    } else {
        r#"{"spec":{"assignmentMode":"Manual"}}"#
    };

    let mut steps = Vec::new();
    for pool in &refused.serving {
        let holders = command(&["show", "--node", "*", "--pool", pool]);
        let patch = calicoctl(&format!("patch ippool {} -p '{keep_out}'", shell_word(pool)));
        steps.push(format!("see who holds its addresses: {holders}"));
        steps.push(format!(
            "keep pods that do not name the pool out of it, and restart those that hold its addresses: {patch}"
        ));
    }
    steps.push(pool_like_these(refused));
    steps
}

/// Returns the step if a setting stops the node from claiming a block, and no pool has a block left: changing the
/// setting alone was tried, and does not help.
fn no_block_left(refused: &Refused, settings: Vec<IpamSetting>) -> Vec<String> {
    let change = Remedy::Configure(settings);
    let add = pool_like_these(refused);
    let purpose = remedy::purpose(&change);
    let command = remedy::line(&change, Reader::Operator);
    vec![format!(
        "no block is left to claim either: {add}; then {purpose}: {command}"
    )]
}

/// Returns the step that adds a pool like the first one that serves the request.
fn pool_like_these(refused: &Refused) -> String {
    match refused.serving.first() {
        Some(pool) => new_pool::like(pool),
        None => new_pool::with_defaults(),
    }
}

/// Returns each pool whose selector does not match, with the selector.
fn selectors(refused: &Refused) -> impl Iterator<Item = (&str, &str)> {
    refused.pools.iter().filter_map(|(pool, why)| match why {
        PoolPassedOver::NodeSelector(selector) | PoolPassedOver::NamespaceSelector(selector) => {
            Some((pool.as_str(), selector.as_str()))
        }
        _ => None,
    })
}
