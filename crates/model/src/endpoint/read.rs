//! Reads endpoint JSON.

use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use crate::DecodeError;
use crate::json::{Array, Fields, Items, Object, Str, is_field, read_object};

/// Reads the fields that matter to IPAM.
pub(super) fn read(json: &[u8]) -> Result<RawEndpoint<'_>, DecodeError> {
    read_object(json, RawEndpoint::default).map_err(DecodeError::from)
}

/// The text of a field; empty if it is absent.
pub(super) fn text<'t>(field: &'t Option<Str<'_>>) -> &'t str {
    field.as_ref().map_or("", |text| &text.0)
}

#[derive(Default)]
pub(super) struct RawEndpoint<'de> {
    pub metadata: RawMetadata<'de>,
    pub spec: RawSpec<'de>,
}

impl<'de> Fields<'de> for RawEndpoint<'de> {
    /// Reads the metadata and the specification of an endpoint.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if is_field(name, "metadata") {
            map.next_value_seed(Object(&mut self.metadata))?;
        } else if is_field(name, "spec") {
            map.next_value_seed(Object(&mut self.spec))?;
        } else {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct RawMetadata<'de> {
    pub created: Option<Str<'de>>,
}

impl<'de> Fields<'de> for RawMetadata<'de> {
    /// Reads the time of the creation.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if is_field(name, "creationTimestamp") {
            self.created = map.next_value()?;
        } else {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct RawSpec<'de> {
    pub node: Option<Str<'de>>,
    pub orchestrator: Option<Str<'de>>,
    pub pod: Option<Str<'de>>,
    pub endpoint: Option<Str<'de>>,
    pub container_id: Option<Str<'de>>,
    pub workload: Option<Str<'de>>,
    pub networks: Networks<'de>,
}

impl<'de> Fields<'de> for RawSpec<'de> {
    /// Reads a field of the specification.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if is_field(name, "node") {
            self.node = map.next_value()?;
        } else if is_field(name, "orchestrator") {
            self.orchestrator = map.next_value()?;
        } else if is_field(name, "pod") {
            self.pod = map.next_value()?;
        } else if is_field(name, "endpoint") {
            self.endpoint = map.next_value()?;
        } else if is_field(name, "containerID") {
            self.container_id = map.next_value()?;
        } else if is_field(name, "workload") {
            self.workload = map.next_value()?;
        } else if is_field(name, "ipNetworks") {
            self.networks = Networks::default();
            map.next_value_seed(Array(&mut self.networks))?;
        } else {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// The field `ipNetworks`. Nearly all endpoints have one network, so they need no list.
#[derive(Default)]
pub(super) struct Networks<'de> {
    pub first: Option<Str<'de>>,
    pub others: Vec<Str<'de>>,
}

impl<'de> Items<'de> for Networks<'de> {
    /// Reads the next network. The first one is kept without a list.
    fn item<A: SeqAccess<'de>>(&mut self, seq: &mut A) -> Result<bool, A::Error> {
        let Some(network) = seq.next_element::<Option<Str<'de>>>()? else {
            return Ok(false);
        };
        if self.first.is_none() {
            self.first = network;
        } else {
            self.others.extend(network);
        }
        Ok(true)
    }
}
