//! LoadBalancer services that Calico should serve and does not.

use calipam_model::key::Key;
use calipam_model::pool::PoolUse;
use calipam_model::service::Service;

use super::wording::short;
use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, OwnerEvidence, OwnerKind, Subject};

/// Judges whether managed services have addresses. Calico's controller passes over every service while no
/// pool is for LoadBalancers.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let offers = |p: &calipam_model::pool::Pool| p.is_enabled() && p.allows(PoolUse::LoadBalancer);
    if !snapshot.pools.iter().any(|p| offers(&p.value)) {
        return;
    }
    let assign = snapshot.kube_controllers.as_ref().and_then(|c| c.assign_ips).unwrap_or_default();
    let old = |service: &Service| {
        service.created.is_some_and(|created| snapshot.taken_at.duration_since(created) >= context.grace)
    };
    for service in snapshot.services.iter().map(|s| &s.value) {
        if service.is_managed(assign) && service.ingress.is_empty() && old(service) {
            out.push(finding(service));
        }
    }
}

fn finding(service: &Service) -> Finding {
    let name = format!("{}/{}", service.namespace, service.name);
    let message = format!("{} is a LoadBalancer service that has got no address", short(&name));
    let evidence = OwnerEvidence::new(OwnerKind::Service, name.clone());
    let key = Key::Service { namespace: service.namespace.clone(), name: service.name.clone() };
    let evidence = Evidence::Endpoint(Box::new(evidence));
    Finding::new(Code::ServiceWithoutAddress, Subject::Service(name), message, evidence).depending_on([key])
}
