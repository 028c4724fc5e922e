//! Explains why a LoadBalancer service does or does not get an address.

use calipam_model::snapshot::Snapshot;

use crate::services::{ServiceExplanation, Services};
use crate::{Context, Options};

/// Explains a service's addresses; `None` if there is no such service with an address.
pub fn explain_service(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<ServiceExplanation> {
    let context = Context::new(snapshot, &Options::default());
    let mut services = snapshot.services.iter().map(|stored| &stored.value);
    let service = services.find(|service| service.namespace == namespace && service.name == name)?;
    Some(Services::new(&context).explain(service))
}
