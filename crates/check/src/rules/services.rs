//! LoadBalancer services without an address.

use calipam_model::config::AssignIps;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::service::Service;
use calipam_model::snapshot::Source;

use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, NoAddress, OwnerEvidence, OwnerKind, Subject};
use crate::names::short;

/// Checks whether services that Calico serves, or should serve, have addresses. Without a pool for LoadBalancers, or
/// without Calico's LoadBalancer controller, only services that name Calico are checked. Other services get their
/// addresses from elsewhere, or by hand.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let old = |service: &Service| {
        service.created.is_some_and(|created| context.now.duration_since(created) >= context.grace)
    };
    let offers = |pool: &&Pool| pool.is_enabled() && pool.allows(PoolUse::LoadBalancer);
    let pools: Vec<&Pool> = context.snapshot.pools.iter().map(|pool| &pool.value).filter(offers).collect();
    for service in context.snapshot.services.iter().map(|service| &service.value) {
        if service.ingress.is_empty() && old(service) && !service.deleting {
            out.extend(without_address(context, &pools, service));
        }
    }
}

fn without_address(context: &Context<'_>, pools: &[&Pool], service: &Service) -> Option<Finding> {
    let snapshot = context.snapshot;
    let is_in_doubt = context.index.pools_incomplete || !snapshot.has_read(Source::Pools);
    let serves = snapshot.serves_services()?;
    let cause = match serves {
        _ if pools.is_empty() => (service.names_calico && !is_in_doubt).then_some(Some(NoAddress::NoPool)),
        Err(why) => {
            let is_meant = service.names_calico && service.is_managed(AssignIps::AllServices);
            is_meant.then_some(Some(NoAddress::NotServed(why)))
        }
        Ok(assign) => service.is_managed(assign).then(|| {
            let is_manual = !service.requests_addresses && pools.iter().all(|pool| !pool.automatic);
            (is_manual && !is_in_doubt).then_some(NoAddress::PoolsManual)
        }),
    }?;

    let name = service.full_name();
    let why = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    let says = format!("{} is a LoadBalancer service without an address{why}", short(&name));
    let evidence = OwnerEvidence { cause, ..OwnerEvidence::new(OwnerKind::Service, name.clone()) };
    let evidence = Evidence::Endpoint(Box::new(evidence));
    let finding = Finding::new(Code::ServiceWithoutAddress, Subject::Service(name), says, evidence);
    Some(finding.depending_on([service.key()]))
}
