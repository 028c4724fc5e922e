//! LoadBalancer services without an address.

use calipam_assign::{Family, Reason};
use calipam_model::service::Service;
use calipam_model::snapshot::Source;
use calipam_model::words::joined;

use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, NoAddress, OwnerEvidence, OwnerKind, RefusalEvidence, Subject};
use crate::names::short;
use crate::services::{FamilyOfService, ServiceExplanation, ServiceState, Services};

/// Checks whether the services that Calico serves, or should serve, have their addresses.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let services = Services::new(context);
    for service in context.snapshot.services.iter().map(|service| &service.value) {
        if service.is_internal || service.deleting {
            continue;
        }
        let is_old = service
            .created
            .is_some_and(|created| context.now.duration_since(created) >= context.grace);
        if is_old && may_lack_address(&services, service) {
            let explained = services.explain(service);
            out.extend(find_without_address(context, &services, &explained, service));
        }
    }
}

/// True if the service could lack an address: it has none, or only some from Calico.
fn may_lack_address(services: &Services<'_, '_>, service: &Service) -> bool {
    if service.ingress.is_empty() {
        return !service.has_hostname;
    }
    let may_want_several = service.request.addresses.is_some() || service.request.dual_stack;
    let lacks_family = Family::BOTH
        .into_iter()
        .any(|family| Services::lacks(service, family));
    if !may_want_several || !lacks_family {
        return false;
    }
    let mut ingress = service.ingress.iter();
    ingress.all(|address| services.is_of_calico(service, *address))
}

/// Finds that a service lacks an address.
fn find_without_address(
    context: &Context<'_>,
    services: &Services<'_, '_>,
    explained: &ServiceExplanation,
    service: &Service,
) -> Option<Finding> {
    let missing: Vec<&FamilyOfService> = explained
        .families
        .iter()
        .filter(|family| family.family.is_needed && Services::lacks(service, family.family.family))
        .collect();
    let lacked: Vec<Family> = match &explained.state {
        ServiceState::Served => missing.iter().map(|family| family.family.family).collect(),
        _ => lacked_by_request(service),
    };
    if lacked.is_empty() && !service.ingress.is_empty() {
        return None;
    }
    let cause = match judge(context, services, explained, service, &missing) {
        Judgement::NotCalicos => return None,
        Judgement::Refused(cause) => Some(cause),
        Judgement::CauseUnknown => None,
    };
    let why = match (&explained.state, cause) {
        (ServiceState::Unreadable(why), _) => {
            format!(": the controller cannot read {}: {}", why.field, why.calico)
        }
        (_, Some(NoAddress::Refused) | None) => in_words(&missing),
        (_, Some(cause)) => format!(": {cause}"),
    };
    let lacked = match &lacked[..] {
        [family] if !service.ingress.is_empty() => format!("an {family} address"),
        _ => "an address".to_owned(),
    };

    let name = service.full_name();
    let message = format!("{} is a LoadBalancer service without {lacked}{why}", short(&name));
    let refusals = missing.iter().filter_map(|family| refusal(family)).collect();
    let evidence = OwnerEvidence {
        cause,
        refusals,
        ..OwnerEvidence::new(OwnerKind::Service, name.clone())
    };
    let evidence = Evidence::Endpoint(Box::new(evidence));
    let finding = Finding::new(
        Code::ServiceWithoutAddress,
        Subject::Service(name),
        message,
        evidence,
    );
    Some(finding.depending_on([service.key()]))
}

/// The judgement of a service whose status lacks an address.
enum Judgement {
    /// Calico owes the service no address, as far as is known.
    NotCalicos,
    /// Calico gives it no address for this cause.
    Refused(NoAddress),
    /// Calico serves it, and it is not known why it has no address.
    CauseUnknown,
}

/// Decides whether Calico owes an address to a service whose status lacks one, and why it has none. `missing` are the
/// families that Calico's controller is to serve and in which the status has no address.
fn judge(
    context: &Context<'_>,
    services: &Services<'_, '_>,
    explained: &ServiceExplanation,
    service: &Service,
    missing: &[&FamilyOfService],
) -> Judgement {
    let names_calico = service.request.names_calico();
    let knows_pools = !context.index.pools_incomplete && context.snapshot.has_read(Source::Pools);
    match &explained.state {
        ServiceState::Served if missing.is_empty() => Judgement::NotCalicos,
        ServiceState::Served if !explained.settles => Judgement::Refused(NoAddress::NeverSettles),
        ServiceState::Served => match cause_of_refusals(missing) {
            Some(cause) if knows_pools => Judgement::Refused(cause),
            _ => Judgement::CauseUnknown,
        },

        ServiceState::NoPool if names_calico && knows_pools => Judgement::Refused(NoAddress::NoPool),
        ServiceState::NotServed(_) if !services.has_pool => {
            if names_calico && knows_pools {
                Judgement::Refused(NoAddress::NoPool)
            } else {
                Judgement::NotCalicos
            }
        }
        // A service that does not name Calico may get its address elsewhere.
        ServiceState::NotServed(_) if !names_calico && services.has_other_controller() => {
            Judgement::NotCalicos
        }
        ServiceState::NotServed(why) => Judgement::Refused(NoAddress::NotServed(*why)),
        ServiceState::Unreadable(_) => Judgement::Refused(NoAddress::Unreadable),

        ServiceState::NotKnown => match context.snapshot.serves_services() {
            Some(Ok(controller)) if service.is_managed(controller) => Judgement::CauseUnknown,
            _ => Judgement::NotCalicos,
        },
        ServiceState::NoPool
        | ServiceState::NotLoadBalancer
        | ServiceState::Deleting
        | ServiceState::OtherClass(_)
        | ServiceState::NotRequested => Judgement::NotCalicos,
    }
}

/// The families in which the service's status lacks an address, judged by its request alone: the families of the addresses
/// that it names, or both families if it needs two addresses. An annotation that cannot be read names no address.
fn lacked_by_request(service: &Service) -> Vec<Family> {
    let named = service.request.named_addresses().unwrap_or_default();
    let is_asked = |family: Family| {
        let mut of_named = named.iter().map(|address| Family::of_address(*address));
        of_named.any(|of_address| of_address == family) || named.is_empty() && service.request.dual_stack
    };
    let mut lacked = Vec::new();
    for family in Family::BOTH {
        if is_asked(family) && Services::lacks(service, family) {
            lacked.push(family);
        }
    }
    lacked
}

/// The reason why the controller gets no address for some families of a service; `None` if it asked for all of them.
fn cause_of_refusals(missing: &[&FamilyOfService]) -> Option<NoAddress> {
    for family in missing {
        let refused = family.answer().and_then(|answer| answer.outcome.as_ref().err());
        if refused.is_some_and(|refused| refused.reason == Reason::NoneAutomatic) {
            return Some(NoAddress::PoolsManual);
        }
    }
    if missing.iter().any(|family| family.why().is_some()) {
        return Some(NoAddress::Refused);
    }
    None
}

/// Joins the reasons why families have no address into the end of a message.
fn in_words(missing: &[&FamilyOfService]) -> String {
    let mut reasons: Vec<String> = missing.iter().filter_map(|family| family.why()).collect();
    reasons.dedup();
    if reasons.is_empty() {
        return String::new();
    }
    format!(": {}", joined(reasons, ", and "))
}

/// Describes why a family of a service has no address; `None` if it has one, or if no reason is known.
fn refusal(family: &FamilyOfService) -> Option<RefusalEvidence> {
    let reason = family.reason()?;
    let why = family.why()?;
    let address_family = family.family.family;

    // Only a refusal of the allocator passes over pools; others are made before it is asked.
    let mut pools = Vec::new();
    let mut of_request = false;
    if let Some(answer) = family.answer()
        && let Err(refused) = &answer.outcome
    {
        pools = RefusalEvidence::new(address_family, refused).pools;
        of_request = refused.reason.is_of_request();
    }
    Some(RefusalEvidence {
        family: address_family,
        reason,
        why,
        of_request,
        calico: family.calico().unwrap_or_default().to_owned(),
        pools,
    })
}
