//! LoadBalancer services (facts 2.13).

use std::borrow::Cow;

use calipam_model::key::Key;
use calipam_model::service::Service;
use calipam_model::snapshot::{FieldDefect, Snapshot, Versioned};
use serde::{Deserialize, Serialize};

use super::ObjectError;
use super::list_splitter::Encoding;
use super::meta::{Meta, Parts, Wanted, identify};
use super::wire::{decode, text};
use super::{export, note_fields, note_value, path};

/// Annotations by which a service asks for addresses of Calico.
const ASKS: [&str; 3] =
    ["projectcalico.org/ipv4pools", "projectcalico.org/ipv6pools", "projectcalico.org/loadBalancerIPs"];

const WANTED: Wanted = Wanted { labels: false, annotations: &ASKS, owners: false };

type ServiceObject<'a> = Parts<'a, Spec<'a>, Status<'a>>;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Spec<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, rename = "loadBalancerIP")]
    ip: Cow<'a, str>,
    #[serde(borrow, rename = "loadBalancerClass", skip_serializing_if = "Option::is_none")]
    class: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    load_balancer: LoadBalancer<'a>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct LoadBalancer<'a> {
    #[serde(borrow)]
    ingress: Vec<Ingress<'a>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Ingress<'a> {
    #[serde(borrow)]
    ip: Cow<'a, str>,
}

/// Adds a service, if it is of type `LoadBalancer`.
pub(crate) fn add_service(snapshot: &mut Snapshot, object: &[u8], encoding: Encoding) {
    match read(object, encoding) {
        Ok(service) if service.spec.kind == "LoadBalancer" => add(snapshot, &service),
        Ok(_) => {}
        Err(error) => {
            let (namespace, name) = identify(object, encoding);
            let path = path("services", &namespace, &name);
            note_value(snapshot, path, Some(Key::Service { namespace, name }), &error);
        }
    }
}

/// What an export keeps of a service, if it is of type `LoadBalancer`.
pub(crate) fn export_service(object: &[u8], encoding: Encoding) -> Result<Option<Vec<u8>>, ObjectError> {
    let mut service = read(object, encoding)?;
    if service.spec.kind != "LoadBalancer" {
        return Ok(None);
    }
    service.metadata = service.metadata.for_export(WANTED);
    export("Service", service)
}

fn read(object: &[u8], encoding: Encoding) -> Result<ServiceObject<'_>, ObjectError> {
    match encoding {
        Encoding::Json => Ok(serde_json::from_slice(object)?),
        Encoding::Protobuf => from_protobuf(object),
    }
}

fn add(snapshot: &mut Snapshot, object: &ServiceObject<'_>) {
    let meta = &object.metadata;
    let asked = |name: &&str| meta.annotation(name).is_some_and(|text| !text.is_empty());
    let mut service = Service {
        namespace: meta.namespace.to_string(),
        name: meta.name.to_string(),
        uid: meta.uid.to_string(),
        created: meta.created_at(),
        deleting: meta.deleted.is_some(),
        class: object.spec.class.as_ref().map(ToString::to_string),
        asks: ASKS.iter().any(asked) || !object.spec.ip.is_empty(),
        ingress: Vec::new(),
    };
    let mut defects = Vec::new();
    // Entries with a host name only have no address.
    for Ingress { ip } in object.status.load_balancer.ingress.iter().filter(|i| !i.ip.is_empty()) {
        match ip.parse() {
            Ok(address) => service.ingress.push(address),
            Err(_) => {
                let reason = format!("{ip:?} is not an address");
                defects.push(FieldDefect::new("status.loadBalancer.ingress", reason));
            }
        }
    }
    let key = Key::Service { namespace: service.namespace.clone(), name: service.name.clone() };
    note_fields(snapshot, path("services", &meta.namespace, &meta.name), key, defects);
    snapshot.newest_creation = snapshot.newest_creation.max(service.created);
    snapshot.services.push(Versioned { value: service, revision: meta.revision() });
}

fn from_protobuf(message: &[u8]) -> Result<ServiceObject<'_>, ObjectError> {
    decode!(message, service: ServiceObject<'_>, value, {
        1 => service.metadata = Meta::from_protobuf(value.bytes(), WANTED)?,
        2 => service.spec = spec(value.bytes())?,
        3 => service.status.load_balancer = load_balancer(value.bytes())?,
    })
}

fn spec(message: &[u8]) -> Result<Spec<'_>, ObjectError> {
    decode!(message, spec: Spec<'_>, value, {
        4 => spec.kind = text(value)?,
        8 => spec.ip = text(value)?,
        21 => spec.class = Some(text(value)?),
    })
}

fn load_balancer(status: &[u8]) -> Result<LoadBalancer<'_>, ObjectError> {
    decode!(status, found: LoadBalancer<'_>, value, { 1 => found.ingress.extend(ingress(value.bytes())?) })
}

fn ingress(balancer: &[u8]) -> Result<Vec<Ingress<'_>>, ObjectError> {
    decode!(balancer, found: Vec<Ingress<'_>>, value, { 1 => found.extend(addresses(value.bytes())?) })
}

fn addresses(ingress: &[u8]) -> Result<Vec<Ingress<'_>>, ObjectError> {
    decode!(ingress, found: Vec<Ingress<'_>>, value, { 1 => found.push(Ingress { ip: text(value)? }) })
}
