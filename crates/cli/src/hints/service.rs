//! The commands that help if a LoadBalancer service has no address.

use std::net::IpAddr;

use calipam_assign::{NotAsked, PoolPassedOver, Reason, Refused};
use calipam_check::views::{FamilyOfService, ServiceExplanation, ServiceState};
use calipam_check::{PoolChange, Remedy};
use calipam_model::config::{IpamSetting, NotServed};
use calipam_model::service::request;
use calipam_model::words::joined;

use super::remedy::line;
use super::{Reader, calicoctl, command, kubectl, list_findings, new_pool, show_address};
use crate::render::text::shell_word;

/// The change that makes the controller serve all services.
const SERVE: &str = r#"{"spec":{"controllers":{"loadBalancer":{"assignIPs":"AllServices"}}}}"#;

/// Returns the next steps, the most likely one first.
pub(crate) fn steps(explanation: &ServiceExplanation) -> Vec<String> {
    let mut steps = steps_for_state(explanation);
    for address in &explanation.of_earlier {
        steps.push(step_for_earlier(explanation, *address));
    }
    if let Some(wish) = &explanation.unread_wish {
        let annotate = annotate(explanation, request::ADDRESSES, &format!("[\"{wish}\"]"));
        steps.push(format!(
            "name the address in the annotation that it reads: {annotate}"
        ));
    }
    steps
}

/// Suggests how an address of an earlier service of the same name comes free.
fn step_for_earlier(explanation: &ServiceExplanation, address: IpAddr) -> String {
    if explanation.ingress.contains(&address) {
        return format!(
            "delete the service, wait until {address} is free, and create the service again: {}",
            show_address(&address)
        );
    }
    let release = Remedy::ReleaseAddress(address);
    format!(
        "release the address of the earlier service: {}",
        line(&release, Reader::Operator)
    )
}

/// Suggests how a service gets an address, by the reason why it has none.
fn steps_for_state(explanation: &ServiceExplanation) -> Vec<String> {
    match &explanation.state {
        ServiceState::Served => steps_for_served(explanation),
        ServiceState::NotServed(why) => vec![step_for_controller(*why)],
        ServiceState::NoPool => vec![new_pool::for_services()],
        ServiceState::Unreadable(why) => vec![correct_annotation(explanation, why.field)],
        ServiceState::NotRequested if explanation.unread_wish.is_none() => {
            let annotate = annotate(explanation, request::POOLS_V4, "[\"POOL\"]");
            vec![format!("if Calico is to serve it, name a pool: {annotate}")]
        }
        ServiceState::NotKnown => {
            vec![format!("see what is missing: {}", list_findings())]
        }
        ServiceState::NotRequested
        | ServiceState::NotLoadBalancer
        | ServiceState::Deleting
        | ServiceState::OtherClass(_) => Vec::new(),
    }
}

/// Returns the step that corrects an annotation that cannot be read.
fn correct_annotation(explanation: &ServiceExplanation, field: &str) -> String {
    let example = if field == request::ADDRESSES {
        "198.51.100.7"
    } else {
        "POOL"
    };
    let annotate = annotate(explanation, field, "LIST");
    format!("correct the annotation, which is a JSON list such as [\"{example}\"]: {annotate}")
}

/// Returns the step that lists the pods of kube-controllers.
fn see_controllers() -> String {
    let list = kubectl("get pods --all-namespaces --selector k8s-app=calico-kube-controllers");
    format!("see whether kube-controllers is running: {list}")
}

/// Suggests how the controller comes to serve services.
fn step_for_controller(why: NotServed) -> String {
    match why {
        NotServed::ControllerOff => {
            "add loadbalancer to ENABLED_CONTROLLERS in the environment of kube-controllers".to_owned()
        }
        NotServed::NoSection | NotServed::OnlyByEnvironment => {
            let patch = format!("patch kubecontrollersconfiguration default -p '{SERVE}'");
            format!("add the section: {}", calicoctl(&patch))
        }
        NotServed::TooOld => "upgrade Calico to v3.30 or later, or use another load balancer".to_owned(),
        NotServed::NoConfiguration => see_controllers(),
    }
}

/// Suggests how a service gets the addresses that the controller refuses.
fn steps_for_served(explanation: &ServiceExplanation) -> Vec<String> {
    if !explanation.settles {
        let names = joined([request::POOLS_V4, request::POOLS_V6, request::ADDRESSES], ", ");
        return vec![format!(
            "let its annotations ({names}) name the pool or the address of each family that it gets, or remove them"
        )];
    }
    let Some(family) = explanation.refused_family() else {
        return steps_for_granted(explanation);
    };

    match family.not_asked() {
        Some(NotAsked::HasOther) => vec![name_addresses(explanation, "both addresses")],
        Some(NotAsked::HasEnough) => vec![name_addresses(explanation, "the addresses that it needs")],
        Some(NotAsked::Unreadable(why)) => vec![format!("correct {}, or remove it", why.field)],
        Some(NotAsked::OtherFailed) | None => match explanation.families.iter().find_map(refusal) {
            Some(refused) => steps_for_refusal(explanation, refused),
            None => Vec::new(),
        },
    }
}

/// Returns the steps for a service that has its addresses, or gets them.
fn steps_for_granted(explanation: &ServiceExplanation) -> Vec<String> {
    let is_published = explanation
        .recorded
        .iter()
        .all(|address| explanation.ingress.contains(address));
    let gets_address = explanation
        .families
        .iter()
        .any(|family| family.answer().is_some());

    let mut steps = Vec::new();
    // An address that is missing in the service or its status is for the controller to add.
    if gets_address || !is_published {
        steps.push(see_controllers());
    }
    for address in &explanation.recorded {
        steps.push(format!("see where it is recorded: {}", show_address(address)));
    }
    steps
}

/// Returns the step that names `addresses` in the annotation, where the controller reads them.
fn name_addresses(explanation: &ServiceExplanation, addresses: &str) -> String {
    let annotate = annotate(explanation, request::ADDRESSES, &list_of_addresses(explanation));
    format!("name {addresses}, or create the service again: {annotate}")
}

/// Returns a JSON list with an address of each family that the service needs: one that it keeps or gets, or a
/// placeholder, such as `IPV6-ADDRESS`, that the user replaces.
fn list_of_addresses(explanation: &ServiceExplanation) -> String {
    let mut quoted = Vec::new();
    for family in &explanation.families {
        if family.family.is_needed {
            quoted.push(format!("\"{}\"", address_or_placeholder(family)));
        }
    }
    format!("[{}]", joined(quoted, ","))
}

/// Returns the address that a service keeps in a family, the one that it would get, or a placeholder.
fn address_or_placeholder(family: &FamilyOfService) -> String {
    if let Some(kept) = family.family.kept.first() {
        return kept.to_string();
    }
    let assigned = family.answer().and_then(|answer| answer.outcome.as_ref().ok());
    match assigned {
        Some(assigned) => assigned.address.to_string(),
        None => format!("{}-ADDRESS", family.family.family.to_string().to_uppercase()),
    }
}

/// Returns the reason why the controller gets no address in a family; `None` if it gets one, or does not ask.
fn refusal(family: &FamilyOfService) -> Option<&Refused> {
    family.answer()?.outcome.as_ref().err()
}

/// Suggests how a service gets an address that the controller refuses.
fn steps_for_refusal(explanation: &ServiceExplanation, refused: &Refused) -> Vec<String> {
    match &refused.reason {
        Reason::NoneAutomatic => {
            let mut pools = refused.pools.iter();
            let pool = match pools.find(|(_, why)| *why == PoolPassedOver::Manual) {
                Some((pool, _)) => pool.as_str(),
                None => "POOL",
            };
            let name = annotate(explanation, request::POOLS_V4, &format!("[\"{pool}\"]"));
            let automatic = change_pool(pool, PoolChange::AssignAutomatically);
            vec![
                format!("name the pool: {name}"),
                format!("or let it serve all services: {automatic}"),
            ]
        }
        Reason::NamedClosed {
            pool,
            why: PoolPassedOver::Disabled,
        } => {
            let enable = change_pool(pool, PoolChange::Enable);
            vec![format!("enable it: {enable}"), "or name another pool".to_owned()]
        }
        Reason::NamedClosed { .. } => vec!["name another pool".to_owned()],
        Reason::BrokenSelector(pool) => {
            let select = change_pool(pool, PoolChange::SelectAllNodes);
            vec![format!("correct its selector: {select}")]
        }
        Reason::BlockLimit { limit, .. } => {
            let raised = IpamSetting::one_more_block(*limit);
            let raise = configure(&[raised, IpamSetting::StrictAffinity(true)]);
            vec![
                format!("raise the limit: {raise}"),
                "or use a pool with larger blocks for services".to_owned(),
            ]
        }
        Reason::NoAutoAllocation => {
            let allow = configure(&[IpamSetting::AutoAllocateBlocks(true)]);
            vec![format!("let blocks be claimed: {allow}")]
        }
        Reason::Taken(address) => vec![format!("see who has it: {}", show_address(address))],
        Reason::OutsidePools(_) => {
            let show = command(&["show"]);
            vec![format!("name an address of an enabled pool for services: {show}")]
        }
        Reason::ForeignBlock(_) => {
            let allow = configure(&[IpamSetting::StrictAffinity(false)]);
            vec![format!("allow borrowing: {allow}")]
        }
        Reason::Exhausted(cooling) => {
            let mut steps = Vec::new();
            if cooling.is_some() {
                let end = configure(&[IpamSetting::Cooldown(0)]);
                steps.push(format!("end the cooldown: {end}"));
            }
            let release = command(&["release", "--leaked"]);
            steps.push(format!("release what has leaked: {release}"));
            steps.push(format!("or {}", new_pool::for_services()));
            steps
        }
        Reason::Other => {
            vec![format!("see what is damaged: {}", list_findings())]
        }
        _ => vec![new_pool::for_services()],
    }
}

fn change_pool(pool: &str, change: PoolChange) -> String {
    let pool = pool.to_owned();
    line(&Remedy::ChangePool { pool, change }, Reader::Operator)
}

fn configure(settings: &[IpamSetting]) -> String {
    line(&Remedy::Configure(settings.to_vec()), Reader::Operator)
}

/// Formats the command that sets an annotation of the service.
fn annotate(explanation: &ServiceExplanation, field: &str, value: &str) -> String {
    let (namespace, name) = explanation.service.split_once('/').unwrap_or_default();
    kubectl(&format!(
        "annotate --overwrite service --namespace {} {} {field}={}",
        shell_word(namespace),
        shell_word(name),
        shell_word(value)
    ))
}
