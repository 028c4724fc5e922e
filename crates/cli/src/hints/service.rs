//! The commands that help if a LoadBalancer service has no address.

use calipam_assign::{NotAsked, PoolPassedOver, Reason, Refused};
use calipam_check::views::{FamilyOfService, ServiceExplanation, ServiceState};
use calipam_model::config::NotServed;
use calipam_model::service::request;
use calipam_model::words::joined;

use super::command;
use crate::render::text::shell_word;

const ADD_POOL: &str = "add a pool with `allowedUses: [LoadBalancer]`: `calicoctl create -f POOL.yaml`";
const SEE_CONTROLLERS: &str = "see whether kube-controllers is running: `kubectl get pods --all-namespaces --selector k8s-app=calico-kube-controllers`";
const SERVE: &str = r#"`calicoctl patch kubecontrollersconfiguration default -p '{"spec":{"controllers":{"loadBalancer":{"assignIPs":"AllServices"}}}}'`"#;

/// Returns the next steps, the most likely one first.
pub(crate) fn steps(explanation: &ServiceExplanation) -> Vec<String> {
    let mut steps = match &explanation.state {
        ServiceState::Served => of_served(explanation),
        ServiceState::NotServed(why) => vec![of_controller(*why)],
        ServiceState::NoPool => vec![ADD_POOL.to_owned()],
        ServiceState::Unreadable(why) => vec![format!(
            "correct the annotation, which is a JSON list such as [\"{}\"]: {}",
            if why.field == request::ADDRESSES {
                "198.51.100.7"
            } else {
                "POOL"
            },
            annotate(explanation, why.field, "LIST")
        )],
        ServiceState::NotRequested if explanation.unread_wish.is_none() => {
            let ask = annotate(explanation, request::POOLS_V4, "[\"POOL\"]");
            vec![format!("if Calico is to serve it, name a pool: {ask}")]
        }
        ServiceState::NotKnown => {
            vec![format!(
                "see what is missing: {}",
                command(&["check", "-o", "wide"])
            )]
        }
        ServiceState::NotRequested
        | ServiceState::NotLoadBalancer
        | ServiceState::Deleting
        | ServiceState::OtherClass(_) => Vec::new(),
    };
    if let Some(wish) = &explanation.unread_wish {
        let ask = annotate(explanation, request::ADDRESSES, &format!("[\"{wish}\"]"));
        steps.push(format!("name the address in the annotation that it reads: {ask}"));
    }
    steps
}

fn of_controller(why: NotServed) -> String {
    match why {
        NotServed::ControllerOff => {
            "add loadbalancer to ENABLED_CONTROLLERS in the environment of kube-controllers".to_owned()
        }
        NotServed::NoSection | NotServed::OnlyByEnvironment => format!("add the section: {SERVE}"),
        NotServed::TooOld => "upgrade Calico to v3.30 or later, or use another load balancer".to_owned(),
        NotServed::NoConfiguration => SEE_CONTROLLERS.to_owned(),
    }
}

fn of_served(explanation: &ServiceExplanation) -> Vec<String> {
    if !explanation.settles {
        let names = joined([request::POOLS_V4, request::POOLS_V6, request::ADDRESSES], ", ");
        return vec![format!(
            "let its annotations ({names}) name the pool or the address of each family that it gets, or remove them"
        )];
    }
    let Some(family) = explanation.refused_family() else {
        let is_published = explanation
            .recorded
            .iter()
            .all(|address| explanation.ingress.contains(address));
        let is_given = explanation
            .families
            .iter()
            .any(|family| family.answer().is_some());
        let show = explanation.recorded.iter().map(|address| {
            format!(
                "see where it is recorded: {}",
                command(&["show", "--ip", &address.to_string()])
            )
        });
        let waits = (is_given || !is_published).then(|| SEE_CONTROLLERS.to_owned());
        return waits.into_iter().chain(show).collect();
    };
    match family.not_asked() {
        Some(NotAsked::HasOther) => {
            let kept = explanation.families.iter().flat_map(|family| &family.family.kept);
            let given = explanation
                .families
                .iter()
                .filter_map(|family| family.answer()?.outcome.as_ref().ok());
            let mut all: Vec<String> = kept.map(|address| format!("\"{address}\"")).collect();
            all.extend(
                given
                    .filter(|given| given.address.is_ipv4())
                    .map(|given| format!("\"{}\"", given.address)),
            );
            all.push("\"IPV6-ADDRESS\"".to_owned());
            let list = format!("[{}]", joined(all, ","));
            let ask = annotate(explanation, request::ADDRESSES, &list);
            vec![format!("name both addresses, or create the service again: {ask}")]
        }
        Some(NotAsked::Unreadable(why)) => vec![format!("correct {}, or remove it", why.field)],
        Some(NotAsked::OtherFailed) | None => {
            let refused = explanation.families.iter().find_map(|family| refusal(family));
            refused
                .map(|refused| of_refusal(explanation, refused))
                .unwrap_or_default()
        }
    }
}

fn refusal(family: &FamilyOfService) -> Option<&Refused> {
    family.answer()?.outcome.as_ref().err()
}

fn of_refusal(explanation: &ServiceExplanation, refused: &Refused) -> Vec<String> {
    let configure = |words: &[&str]| command(&[&["configure"][..], words].concat());
    let patch = |what: &str, pool: &str, with: &str| {
        format!(
            "{what}: `calicoctl patch ippool {} -p '{with}'`",
            shell_word(pool)
        )
    };
    let one = match &refused.reason {
        Reason::NoneAutomatic => {
            let manual = refused
                .pools
                .iter()
                .find(|(_, why)| *why == PoolPassedOver::Manual);
            let pool = manual.map_or("POOL", |(pool, _)| pool.as_str());
            let automatic = patch(
                "or let it serve all services",
                pool,
                r#"{"spec":{"assignmentMode":"Automatic"}}"#,
            );
            let name = annotate(explanation, request::POOLS_V4, &format!("[\"{pool}\"]"));
            return vec![format!("name the pool: {name}"), automatic];
        }
        Reason::NamedClosed {
            pool,
            why: PoolPassedOver::Disabled,
        } => {
            let enable = patch("enable it", pool, r#"{"spec":{"disabled":false}}"#);
            return vec![enable, "or name another pool".to_owned()];
        }
        Reason::NamedClosed { .. } => "name another pool".to_owned(),
        Reason::BrokenSelector(pool) => patch(
            "correct its selector",
            pool,
            r#"{"spec":{"nodeSelector":"all()"}}"#,
        ),
        Reason::BlockLimit { limit, .. } => {
            let more = (limit + 1).to_string();
            let raise = configure(&["--max-blocks-per-host", &more, "--strict-affinity", "true"]);
            return vec![
                format!("raise the limit: {raise}"),
                "or use a pool with larger blocks for services".to_owned(),
            ];
        }
        Reason::NoAutoAllocation => {
            format!(
                "let blocks be claimed: {}",
                configure(&["--auto-allocate-blocks", "true"])
            )
        }
        Reason::Taken(address) => {
            format!(
                "see who has it: {}",
                command(&["show", "--ip", &address.to_string()])
            )
        }
        Reason::OutsidePools(_) => {
            format!(
                "name an address of an enabled pool for services: {}",
                command(&["show"])
            )
        }
        Reason::ForeignBlock(_) => {
            format!("allow borrowing: {}", configure(&["--strict-affinity", "false"]))
        }
        Reason::Exhausted(cooling) => {
            let leaked = format!("release what has leaked: {}", command(&["release", "--leaked"]));
            let end = cooling
                .iter()
                .map(|_| format!("end the cooldown: {}", configure(&["--ip-cooldown-seconds", "0"])));
            return end.chain([leaked, format!("or {ADD_POOL}")]).collect();
        }
        Reason::Other => format!("see what is damaged: {}", command(&["check", "-o", "wide"])),
        _ => ADD_POOL.to_owned(),
    };
    vec![one]
}

/// The command that sets an annotation of the service.
fn annotate(explanation: &ServiceExplanation, field: &str, value: &str) -> String {
    let (namespace, name) = explanation.service.split_once('/').unwrap_or_default();
    format!(
        "`kubectl annotate --overwrite service --namespace {} {} {field}={}`",
        shell_word(namespace),
        shell_word(name),
        shell_word(value)
    )
}
