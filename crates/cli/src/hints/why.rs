//! The commands that help if a pod has no address.

use calipam_assign::{PoolPassedOver, Reason, Refused};
use calipam_check::views::{Explanation, RequestState};

use super::command;
use crate::render::text::shell_word;

const ADD_POOL: &str = "add a pool: `calicoctl create -f POOL.yaml`";

/// Returns the next steps, the most likely one first.
pub(crate) fn steps(explanation: &Explanation) -> Vec<String> {
    let describe = || {
        let (namespace, name) = explanation.pod.as_deref()?.split_once('/')?;
        let (namespace, name) = (shell_word(namespace), shell_word(name));
        Some(format!("see what it is waiting for: `kubectl describe pod --namespace {namespace} {name}`"))
    };
    let one = match &explanation.state {
        RequestState::Has(addresses) => {
            let shown = addresses.iter().map(|address| {
                format!("see where it is recorded: {}", command(&["show", "--ip", &address.to_string()]))
            });
            return shown.chain(describe()).collect();
        }
        RequestState::NamespacesNotRead => {
            "let the account list namespaces; to check this: `kubectl auth can-i list namespaces`".into()
        }
        RequestState::NotKnown => format!("see what is missing: {}", command(&["check", "-o", "wide"])),
        RequestState::Elsewhere => "read the Kubernetes datastore: `--datastore kubernetes`".into(),
        RequestState::Asks if let Some(refused) = explanation.refusal() => {
            return of_refusal(explanation, refused);
        }
        RequestState::Asks if explanation.waits_in_vain => {
            let configured = "if Calico says that a pool does not exist or is not enabled, the node's CNI configuration names it: look for ipv4_pools in /etc/cni/net.d on the node";
            return describe().into_iter().chain([configured.to_owned()]).collect();
        }
        _ => return describe().into_iter().collect(),
    };
    vec![one]
}

fn of_refusal(explanation: &Explanation, refused: &Refused) -> Vec<String> {
    let leaked = |of: &[&str]| {
        format!("release what has leaked: {}", command(&[&["release", "--leaked"], of].concat()))
    };
    let leaked_of_node = || leaked(&["--node", &explanation.node]);
    let configure = |words: &[&str]| command(&[&["configure"][..], words].concat());
    let borrow = || configure(&["--strict-affinity", "false"]);
    let one = match &refused.reason {
        Reason::NoNode => "see whether calico-node is running there: `kubectl get nodes`".to_owned(),
        Reason::NoPool => ADD_POOL.to_owned(),
        Reason::NoneEnabled => {
            let is_disabled = |why: &PoolPassedOver| matches!(why, PoolPassedOver::Disabled);
            return patches(refused, "enable it", ENABLED, is_disabled);
        }
        Reason::BlocksTooSmall => {
            "add a pool whose blocks are /29 or larger: `calicoctl create -f POOL.yaml`".to_owned()
        }
        Reason::NoneAutomatic => {
            let is_manual = |why: &PoolPassedOver| matches!(why, PoolPassedOver::Manual);
            let patch = r#"{"spec":{"assignmentMode":"Automatic"}}"#;
            let mut steps = patches(refused, "let it serve all pods", patch, is_manual);
            steps.push(
                "or name the pool in the pod's annotation cni.projectcalico.org/ipv4pools or ipv6pools"
                    .into(),
            );
            return steps;
        }
        Reason::NoneSelectsNode => {
            let label = |(pool, selector)| {
                format!("label {} so that pool {pool} selects it: {selector}", explanation.node)
            };
            let selects = |why: &PoolPassedOver| matches!(why, PoolPassedOver::NodeSelector(_));
            let all = patches(refused, "or let it serve all nodes", ALL_NODES, selects);
            return selectors(refused).map(label).chain(all).collect();
        }
        Reason::NoneSelectsNamespace => {
            let label =
                |(pool, selector)| format!("label the namespace so that pool {pool} selects it: {selector}");
            return selectors(refused).map(label).collect();
        }
        Reason::NoneForWorkloads => {
            let is_of_use = |why: &PoolPassedOver| matches!(why, PoolPassedOver::Use(_));
            let patch = r#"{"spec":{"allowedUses":["Workload","Tunnel"]}}"#;
            return patches(refused, "let it serve pods", patch, is_of_use);
        }
        Reason::NamedClosed { pool, why: PoolPassedOver::Disabled } => {
            return vec![patch("enable it", pool, ENABLED), ANOTHER_POOL.to_owned()];
        }
        Reason::NamedClosed { .. } | Reason::BrokenPool { .. } => ANOTHER_POOL.trim_start_matches("or ").to_owned(),
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
        Reason::NoneForServices => ADD_POOL.to_owned(),
        Reason::BrokenSelector(pool) => patch("correct its selector", pool, ALL_NODES),
        Reason::BlockLimit { limit, .. } => {
            let more = (limit + 1).to_string();
            let raise = configure(&["--max-blocks-per-host", &more, "--strict-affinity", "true"]);
            return vec![leaked_of_node(), format!("or raise the limit: {raise}")];
        }
        Reason::SingleBlock => {
            let other = "or move pods to another node: a Windows node has one block while windows_use_single_network is true";
            return vec![leaked_of_node(), other.to_owned()];
        }
        Reason::NoAutoAllocation => {
            format!("let nodes claim blocks: {}", configure(&["--auto-allocate-blocks", "true"]))
        }
        Reason::StrictAffinity => {
            return vec![leaked(&[]), format!("or {ADD_POOL}"), format!("or allow borrowing: {}", borrow())];
        }
        Reason::Exhausted(cooling) => {
            let end = || format!("end the cooldown: {}", configure(&["--ip-cooldown-seconds", "0"]));
            let steps = cooling.iter().map(|_| end());
            return steps.chain([leaked(&[]), format!("or {ADD_POOL}")]).collect();
        }
        Reason::WindowsNeedsStrictAffinity => {
            format!("turn strict affinity on: {}", configure(&["--strict-affinity", "true"]))
        }
        Reason::Taken(address) => {
            format!("see who has it: {}", command(&["show", "--ip", &address.to_string()]))
        }
        Reason::TakenByEarlier(address) => {
            let release = command(&["release", "--ip", &address.to_string()]);
            return vec![format!("release the record of the earlier container: {release}")];
        }
        Reason::InClosedPool { pool, why: PoolPassedOver::Disabled, .. } => {
            return vec![patch("enable the pool", pool, ENABLED), "or name an address of another pool".into()];
        }
        Reason::NotForWorkloads { pool, .. } => {
            return vec![
                patch("let the pool serve pods", pool, r#"{"spec":{"allowedUses":["Workload","Tunnel"]}}"#),
                "or name an address of another pool".into(),
            ];
        }
        Reason::InClosedPool { .. } | Reason::OutsidePools(_) => format!("name an address of an enabled pool: {}", command(&["show"])),
        Reason::ForeignBlock(_) => format!("allow borrowing: {}", borrow()),
        Reason::Other => format!("see what is damaged: {}", command(&["check", "-o", "wide"])),
    };
    vec![one]
}

const ANOTHER_POOL: &str = "or name another pool in the annotation";
const ENABLED: &str = r#"{"spec":{"disabled":false}}"#;
const ALL_NODES: &str = r#"{"spec":{"nodeSelector":"all()"}}"#;

/// Returns each pool whose selector does not match, with the selector.
fn selectors(refused: &Refused) -> impl Iterator<Item = (&str, &str)> {
    refused.pools.iter().filter_map(|(pool, why)| match why {
        PoolPassedOver::NodeSelector(selector) | PoolPassedOver::NamespaceSelector(selector) => {
            Some((pool.as_str(), selector.as_str()))
        }
        _ => None,
    })
}

fn patches(
    refused: &Refused,
    what: &str,
    with: &str,
    is_meant: impl Fn(&PoolPassedOver) -> bool,
) -> Vec<String> {
    let meant = refused.pools.iter().filter(|(_, why)| is_meant(why));
    meant.map(|(pool, _)| patch(what, pool, with)).collect()
}

fn patch(what: &str, pool: &str, with: &str) -> String {
    format!("{what}: `calicoctl patch ippool {} -p '{with}'`", shell_word(pool))
}
