//! Advice for a pod without an address that cannot be tried: a person has to decide or to correct something.

use calipam_assign::{PoolPassedOver, Reason, Refused};
use calipam_check::views::{Explanation, RequestState};
use calipam_model::names::namespaced;
use calipam_model::snapshot::Snapshot;

use super::command;
use crate::render::text::shell_word;

const ADD_POOL: &str = "add a pool: `calicoctl create -f POOL.yaml`";

/// The first version of Calico whose pools have an assignment mode.
const ASSIGNMENT_MODE_SINCE: (u32, u32) = (3, 30);

/// Returns the next steps that cannot be tried, the most likely one first.
pub(crate) fn steps(snapshot: &Snapshot, explanation: &Explanation) -> Vec<String> {
    let describe = || {
        let (namespace, name) = namespaced(explanation.pod.as_deref()?)?;
        let namespace = shell_word(namespace);
        let name = shell_word(name);
        Some(format!(
            "see what it is waiting for: `kubectl describe pod --namespace {namespace} {name}`"
        ))
    };
    let one = match &explanation.state {
        RequestState::Has(addresses) => {
            let shown = addresses.iter().map(|address| {
                format!(
                    "see where it is recorded: {}",
                    command(&["show", "--ip", &address.to_string()])
                )
            });
            return shown.chain(describe()).collect();
        }
        RequestState::NamespacesNotRead => {
            "let the account list namespaces; to check this: `kubectl auth can-i list namespaces`".into()
        }
        RequestState::NotKnown => format!("see what is missing: {}", command(&["check", "-o", "wide"])),
        RequestState::Elsewhere => "read the Kubernetes datastore: `--datastore kubernetes`".into(),
        RequestState::Asks if let Some(refused) = explanation.refusal() => {
            return of_refusal(snapshot, explanation, refused);
        }
        RequestState::Asks if explanation.waits_in_vain => {
            let configured = "if Calico says that a pool does not exist or is not enabled, the node's CNI configuration names it: look for ipv4_pools in /etc/cni/net.d on the node";
            return describe().into_iter().chain([configured.to_owned()]).collect();
        }
        _ => return describe().into_iter().collect(),
    };
    vec![one]
}

fn of_refusal(snapshot: &Snapshot, explanation: &Explanation, refused: &Refused) -> Vec<String> {
    let one = match &refused.reason {
        Reason::NoNode => "see whether calico-node is running there: `kubectl get nodes`".to_owned(),
        Reason::NoPool | Reason::NoneEnabled | Reason::NoneForServices => ADD_POOL.to_owned(),
        Reason::BlocksTooSmall => {
            "add a pool whose blocks are /29 or larger: `calicoctl create -f POOL.yaml`".to_owned()
        }
        Reason::NoneAutomatic => {
            "name the pool in the pod's annotation cni.projectcalico.org/ipv4pools or ipv6pools".to_owned()
        }
        Reason::NoneSelectsNode => {
            let label = |(pool, selector)| {
                format!("label {} so that pool {pool} selects it: {selector}", explanation.node)
            };
            return selectors(refused).map(label).collect();
        }
        Reason::NoneSelectsNamespace => {
            let label =
                |(pool, selector)| format!("label the namespace so that pool {pool} selects it: {selector}");
            return selectors(refused).map(label).collect();
        }
        Reason::NoneForWorkloads => ADD_POOL.to_owned(),
        Reason::NamedClosed { .. } | Reason::BrokenPool { .. } => "name another pool in the annotation".to_owned(),
        Reason::UnknownPool(_) | Reason::UnknownCidr { .. } | Reason::OtherFamily { .. } => {
            format!("correct its annotation; to list the pools: {}", command(&["show"]))
        }
        Reason::SmallerThanBlock(pool) => {
            format!("replace the pool {} with one that has room for a block: {ADD_POOL}", shell_word(pool))
        }
        Reason::NotReady => {
            "unlock the datastore, if no upgrade or migration is in progress: `calicoctl datastore migrate unlock`".into()
        }
        Reason::NoClusterInformation | Reason::ReadyNotSet => {
            "restart calico-node, which writes the cluster information: `kubectl rollout restart daemonset --namespace calico-system calico-node`".into()
        }
        Reason::NotJson(annotation) => format!("correct the annotation {annotation}: a list such as `[\"a\", \"b\"]`"),
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
        Reason::NoFamily => "name IPv4, IPv6 or both in the annotation ipFamilies, or remove it".to_owned(),
        Reason::NoMachine(_) | Reason::MachineReplaced(_) => {
            "see whether the virtual machine is running: `kubectl get virtualmachineinstances --all-namespaces`".into()
        }
        Reason::MigrationOff => {
            "let virtual machines keep their addresses: `calicoctl ipam configure --kubevirt-ip-persistence=Enabled`".into()
        }
        Reason::NothingToMigrate => "stop and start the virtual machine instead of migrating it".to_owned(),
        Reason::MachineOutsidePools(address) => {
            format!("see which pool the address is in: {}", command(&["show", "--ip", &address.to_string()]))
        }
        Reason::OneForEach(_) => "leave only one address in the annotation cni.projectcalico.org/ipAddrs".to_owned(),
        Reason::BrokenSelector(pool) => format!("correct the selector of the pool {}", shell_word(pool)),
        Reason::BlockLimit { .. } | Reason::NoAutoAllocation | Reason::WindowsNeedsStrictAffinity => return Vec::new(),
        Reason::SingleBlock => {
            "move pods to another node: a Windows node has one block while windows_use_single_network is true".into()
        }
        Reason::StrictAffinity | Reason::Exhausted(_) => return of_full_pools(snapshot, refused),
        Reason::Taken(address) | Reason::TakenByEarlier(address) => {
            format!("see who has it: {}", command(&["show", "--ip", &address.to_string()]))
        }
        Reason::InClosedPool { .. } | Reason::OutsidePools(_) | Reason::NotForWorkloads { .. } => {
            format!("name an address of an enabled pool: {}", command(&["show"]))
        }
        Reason::ForeignBlock(_) => "name an address of a block of the node, or none".to_owned(),
        Reason::Other => format!("see what is damaged: {}", command(&["check", "-o", "wide"])),
    };
    vec![one]
}

/// Advice if the pools are full. If the pod names its pool, other pods can be kept out of it.
fn of_full_pools(snapshot: &Snapshot, refused: &Refused) -> Vec<String> {
    let is_named = refused
        .pools
        .iter()
        .any(|(_, why)| *why == PoolPassedOver::NotRequested);
    let keep_out = match snapshot.is_calico_since(ASSIGNMENT_MODE_SINCE) {
        Some(false) => r#"{"spec":{"nodeSelector":"!all()"}}"#,
        _ => r#"{"spec":{"assignmentMode":"Manual"}}"#,
    };
    let mut steps = Vec::new();
    for pool in refused.serving.iter().filter(|_| is_named) {
        steps.push(format!(
            "see who holds its addresses: {}",
            command(&["show", "--node", "*", "--pool", pool])
        ));
        steps.push(format!(
            "keep pods that do not name the pool out of it, and restart those that hold its addresses: `calicoctl patch ippool {} -p '{keep_out}'`",
            shell_word(pool)
        ));
    }
    steps.push(ADD_POOL.to_owned());
    steps
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
