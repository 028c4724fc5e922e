//! The commands that help a pod without an address.

use calipam_assign::{PoolPassedOver, Reason, Refused};
use calipam_check::views::{Explanation, PodStanding};
use calipam_model::snapshot::Snapshot;

use super::command;
use crate::render::text::shell_word;

/// Returns the next steps, the most likely one first.
pub(crate) fn steps(snapshot: &Snapshot, explanation: &Explanation) -> Vec<String> {
    let describe = || {
        let (namespace, name) = explanation.pod.as_deref()?.split_once('/')?;
        let (namespace, name) = (shell_word(namespace), shell_word(name));
        Some(format!("see what it is waiting for: `kubectl describe pod --namespace {namespace} {name}`"))
    };
    match &explanation.standing {
        PodStanding::Has(addresses) => addresses
            .iter()
            .map(|address| {
                format!("see where it is recorded: {}", command(&["show", "--ip", &address.to_string()]))
            })
            .chain(describe())
            .collect(),
        PodStanding::NoNode => {
            vec![
                "see whether calico-node is running there: `kubectl get pods --all-namespaces -o wide`"
                    .to_owned(),
            ]
        }
        PodStanding::UnknownPool(_) => {
            vec![format!("correct its annotation; to list the pools: {}", command(&["show"]))]
        }
        PodStanding::NamespacesNotRead => {
            vec![
                "let the account list namespaces; to check this: `kubectl auth can-i list namespaces`"
                    .to_owned(),
            ]
        }
        PodStanding::NotKnown => vec![format!("see what is missing: {}", command(&["check", "-o", "wide"]))],
        PodStanding::Asks => match explanation.refusal() {
            Some(refused) => of_refusal(snapshot, explanation, refused),
            None => describe().into_iter().collect(),
        },
        _ => describe().into_iter().collect(),
    }
}

fn of_refusal(snapshot: &Snapshot, explanation: &Explanation, refused: &Refused) -> Vec<String> {
    let free_some = || {
        [
            format!("release what has leaked: {}", command(&["release", "--leaked"])),
            "or add a pool: `calicoctl create -f POOL.yaml`".to_owned(),
        ]
    };
    let configure = |words: &[&str]| command(&[&["configure"][..], words].concat());
    match &refused.reason {
        Reason::NoNode => vec!["see whether calico-node is running there: `kubectl get nodes`".to_owned()],
        Reason::NoPool => vec!["add a pool: `calicoctl create -f POOL.yaml`".to_owned()],
        Reason::NoneEnabled => patches(refused, "enable it", r#"{"spec":{"disabled":false}}"#, |why| {
            matches!(why, PoolPassedOver::Disabled)
        }),
        Reason::BlocksTooSmall => {
            vec!["add a pool whose blocks are /29 or larger: `calicoctl create -f POOL.yaml`".to_owned()]
        }
        Reason::NoneAutomatic => {
            let patch = r#"{"spec":{"assignmentMode":"Automatic"}}"#;
            let mut steps = patches(refused, "let it serve all pods", patch, |why| {
                matches!(why, PoolPassedOver::Manual)
            });
            steps.push("or name the pool in the pod's annotation cni.projectcalico.org/ipv4pools or ipv6pools".into());
            steps
        }
        Reason::NoneSelectsNode => {
            let mut steps: Vec<String> = selectors(refused)
                .map(|(pool, selector)| format!("label {} so that pool {pool} selects it: {selector}", explanation.node))
                .collect();
            let patch = r#"{"spec":{"nodeSelector":"all()"}}"#;
            steps.extend(patches(refused, "or let it serve all nodes", patch, |why| {
                matches!(why, PoolPassedOver::NodeSelector(_))
            }));
            steps
        }
        Reason::NoneSelectsNamespace => selectors(refused)
            .map(|(pool, selector)| {
                format!("label the namespace so that pool {pool} selects it: {selector}")
            })
            .collect(),
        Reason::NoneForWorkloads => {
            let patch = r#"{"spec":{"allowedUses":["Workload","Tunnel"]}}"#;
            patches(refused, "let it serve pods", patch, |why| matches!(why, PoolPassedOver::Use(_)))
        }
        Reason::NamedNotEnabled(cidr) => {
            let pool = snapshot.pools.iter().find(|stored| stored.value.cidr == *cidr);
            let name = pool.map_or_else(|| cidr.to_string(), |pool| pool.value.name.clone());
            vec![patch("enable it", &name, r#"{"spec":{"disabled":false}}"#), "or name another pool".to_owned()]
        }
        Reason::BrokenSelector(pool) => {
            vec![patch("correct its selector", pool, r#"{"spec":{"nodeSelector":"all()"}}"#)]
        }
        Reason::BlockLimit { limit, .. } => {
            let more = (limit + 1).to_string();
            let raise = configure(&["--max-blocks-per-host", &more, "--strict-affinity", "true"]);
            vec![
                format!("release what has leaked: {}", command(&["release", "--leaked", "--node", &explanation.node])),
                format!("or raise the limit: {raise}"),
            ]
        }
        Reason::SingleBlock => vec![
            format!("release what has leaked: {}", command(&["release", "--leaked", "--node", &explanation.node])),
            "or move pods to another node: a Windows node has one block while windows_use_single_network is true".into(),
        ],
        Reason::NoAutoAllocation => {
            vec![format!("let nodes claim blocks: {}", configure(&["--auto-allocate-blocks", "true"]))]
        }
        Reason::StrictAffinity => free_some()
            .into_iter()
            .chain([format!("or allow borrowing: {}", configure(&["--strict-affinity", "false"]))])
            .collect(),
        Reason::Exhausted(cooling) => cooling
            .iter()
            .map(|_| format!("end the cooldown: {}", configure(&["--ip-cooldown-seconds", "0"])))
            .chain(free_some())
            .collect(),
        Reason::WindowsNeedsStrictAffinity => {
            vec![format!("turn strict affinity on: {}", configure(&["--strict-affinity", "true"]))]
        }
        Reason::Taken(address) => {
            vec![format!("see who has it: {}", command(&["show", "--ip", &address.to_string()]))]
        }
        Reason::OutsidePools(_) => vec![format!("name an address of an enabled pool: {}", command(&["show"]))],
        Reason::ForeignBlock(_) => {
            vec![format!("allow borrowing: {}", configure(&["--strict-affinity", "false"]))]
        }
        Reason::Other => vec![format!("see what is damaged: {}", command(&["check", "-o", "wide"]))],
    }
}

/// Returns the pools whose selector does not match, with that selector.
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
