//! The operations of traces on calipam's allocator, with results in the form of the traces.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use calipam_assign::{
    Allocator, AssignIp, Assigned, AutoAssign, Error, Expected, InUse, NewOwner, OwnerConditions,
    OwnerUpdates, PodName, Release, Released, Store,
};
use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_model::attributes::Attribute;
use calipam_model::config::IpamConfig;
use calipam_model::pool::PoolUse;
use calipam_testkit::operator::{self, Claimed};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

type Entries = BTreeMap<String, String>;

/// The inputs of an operation. One that it does not have is empty.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Input {
    attrs: Option<Entries>,
    cidr: Option<IpNet>,
    handle: Option<String>,
    host: String,
    ip: String,
    ips: Vec<String>,
    max_alloc_per_handle: u32,
    max_blocks_per_host: u32,
    must_be_empty: bool,
    namespace_labels: Option<Entries>,
    num4: u32,
    num6: u32,
    pools4: Vec<IpNet>,
    pools6: Vec<IpNet>,
    preconditions: Map<String, Value>,
    sequence_number: Option<u64>,
    set: Map<String, Value>,
    #[serde(rename = "type")]
    kind: String,
    updates: Map<String, Value>,
    #[serde(rename = "use")]
    intended_use: String,
    windows: bool,
}

impl Input {
    fn in_use(&self) -> InUse {
        if self.must_be_empty {
            InUse::Refuse
        } else {
            InUse::Release
        }
    }

    fn handle(&self) -> Option<String> {
        self.handle.clone().filter(|handle| !handle.is_empty())
    }

    fn cidr(&self) -> Result<IpNet> {
        self.cidr.context("there is no CIDR")
    }

    fn address(&self) -> Result<IpAddr> {
        address(&self.ip).with_context(|| format!("{:?} is no address", self.ip))
    }

    fn intended_use(&self) -> Result<Option<PoolUse>> {
        match self.intended_use.as_str() {
            "" => Ok(None),
            name => PoolUse::parse(name)
                .map(Some)
                .with_context(|| format!("no use is called {name:?}")),
        }
    }

    fn kind(&self) -> AffinityType {
        AffinityType::parse(&self.kind)
    }
}

/// Reads an address. Like Go, it treats an IPv4-mapped IPv6 address as IPv4.
fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Reads a field of an input; `None` if there is none.
fn field<T: DeserializeOwned>(fields: &Map<String, Value>, name: &str) -> Result<Option<T>, String> {
    let value = fields.get(name).unwrap_or(&Value::Null);
    Option::deserialize(value).map_err(|error| format!("{name}: {error}"))
}

/// Runs an operation of the allocator.
pub(crate) async fn perform(
    allocator: &Allocator<&impl Store>,
    operation: &str,
    input: Map<String, Value>,
) -> Result<Value> {
    let input: &Input = &serde_json::from_value(input.into())?;
    let host = input.host.as_str();
    let handle = input.handle.as_deref().unwrap_or_default();
    Ok(match operation {
        "auto" => auto(allocator, input).await?,
        "assign" => only_error(allocator.assign_ip(&assign_request(input)?).await),
        "release" => release(allocator, input).await,
        "release-handle" => only_error(allocator.release_by_handle(handle).await),
        "ips-of-handle" => found("ips", allocator.ips_by_handle(handle).await),
        "attributes" => {
            let record = allocator.assignment_attributes(input.address()?).await;
            found("attributes", record.map(|record| attributes(&record)))
        }
        "set-owner" => set_owner(allocator, input).await?,
        "claim" => claim(allocator, input).await?,
        "release-affinity" => only_error(
            allocator
                .release_affinity(input.cidr()?, host, input.in_use())
                .await,
        ),
        "release-host" => only_error(
            allocator
                .release_host_affinities(input.kind(), host, input.in_use())
                .await,
        ),
        "release-pool" => only_error(operator::release_pool_affinities(allocator, input.cidr()?).await),
        "remove-host" => only_error(operator::remove_host(allocator, input.kind(), host).await),
        "config" => {
            only_error(operator::set_config(allocator, |config| set_config(config, &input.set)).await)
        }
        _ => bail!("no operation is called {operation:?}"),
    })
}

fn only_error<E: ToString>(result: Result<(), E>) -> Value {
    json!({"error": result.err().map(|error| error.to_string())})
}

fn found<E: ToString>(name: &str, result: Result<impl Serialize, E>) -> Value {
    let (found, error) = result.map_or_else(
        |error| (None, Some(error.to_string())),
        |found| (Some(found), None),
    );
    json!({"error": error, name: found})
}

async fn auto(allocator: &Allocator<&impl Store>, input: &Input) -> Result<Value> {
    let request = AutoAssign {
        host: input.host.clone(),
        v4: input.num4,
        v6: input.num6,
        handle: input.handle(),
        attributes: input.attrs.clone(),
        pools_v4: input.pools4.clone(),
        pools_v6: input.pools6.clone(),
        intended_use: input.intended_use()?,
        max_blocks_per_host: input.max_blocks_per_host,
        max_per_handle: input.max_alloc_per_handle,
        namespace_labels: input.namespace_labels.clone(),
        windows: input.windows,
    };
    let (done, error) = match allocator.auto_assign(&request).await {
        Ok(done) => (done, None),
        Err(partly) => (partly.done, Some(partly.error.to_string())),
    };
    let [v4, v6] = [done.v4, done.v6].map(|family| family.as_ref().map(assigned));
    Ok(json!({"error": error, "ipv4": v4, "ipv6": v6}))
}

fn assigned(assigned: &Assigned) -> Value {
    let reserved = json!({"StartOfBlock": 3, "EndOfBlock": 1,
        "Handle": "windows-reserved-ipam-handle", "Note": "windows host rsvd"});
    let texts = |items: Vec<String>| (!items.is_empty()).then_some(items);
    json!({
        "HostReservedAttr": assigned.windows.then_some(reserved),
        "IPVersion": assigned.family.number(),
        "IPs": texts(assigned.addresses.iter().map(ToString::to_string).collect()),
        "Msgs": texts(assigned.messages.iter().map(ToString::to_string).collect()),
        "NumRequested": assigned.requested,
    })
}

fn assign_request(input: &Input) -> Result<AssignIp> {
    Ok(AssignIp {
        handle: input.handle(),
        attributes: input.attrs.clone(),
        intended_use: input.intended_use()?,
        max_per_handle: input.max_alloc_per_handle,
        windows: input.windows,
        ..AssignIp::new(input.host.clone(), input.address()?)
    })
}

async fn release(allocator: &Allocator<&impl Store>, input: &Input) -> Value {
    let mut requests = Vec::new();
    let mut texts = BTreeMap::new();
    for ip in &input.ips {
        let Some(address) = address(ip) else {
            let error = format!("failed to parse IP: {ip}");
            return json!({"error": error, "notAllocated": null, "withoutError": null});
        };
        requests.push(Release {
            address,
            handle: input.handle(),
            sequence: input.sequence_number,
        });
        texts.insert(address, ip.as_str());
    }
    match allocator.release_ips(&requests).await {
        Ok(done) => released(&done, None, &texts),
        Err(partly) => {
            let error = match &partly.error {
                Error::Changed(address) => {
                    let text = texts.get(address).copied().unwrap_or_default();
                    partly.error.to_string().replace(&address.to_string(), text)
                }
                error => error.to_string(),
            };
            released(&partly.done, Some(error), &texts)
        }
    }
}

/// The result of a release. Calico repeats addresses as the request spells them; `texts` contains these spellings.
fn released(done: &Released, error: Option<String>, texts: &BTreeMap<IpAddr, &str>) -> Value {
    let request = |request: &Release| {
        let address = texts.get(&request.address);
        let handle = request.handle.as_deref().unwrap_or_default();
        json!({"Address": address, "Handle": handle, "SequenceNumber": request.sequence})
    };
    let without_error: Vec<Value> = done.without_error.iter().map(request).collect();
    json!({"error": error, "notAllocated": done.not_allocated, "withoutError": without_error})
}

fn attributes(record: &Attribute) -> Value {
    let Attribute {
        handle,
        owner,
        alternate,
        ..
    } = record;
    let mut fields = json!({"handle_id": handle, "secondary": owner, "alternateOwnerAttrs": alternate});
    fields
        .as_object_mut()
        .into_iter()
        .for_each(|fields| fields.retain(|_, value| !value.is_null()));
    fields
}

async fn claim(allocator: &Allocator<&impl Store>, input: &Input) -> Result<Value> {
    let result = |done: &Claimed, error: Option<String>| json!({"error": error, "claimed": done.claimed, "ofOthers": done.of_others});
    Ok(
        match operator::claim_affinity(allocator, input.cidr()?, input.kind(), &input.host).await {
            Ok(done) => result(&done, None),
            Err(partly) => match &partly.error {
                // The request itself is invalid, so nothing was claimed.
                error @ (Error::CidrOutsidePools(_) | Error::CidrTooSmall(_)) => {
                    json!({"error": error.to_string(), "claimed": null, "ofOthers": null})
                }
                error => result(&partly.done, Some(error.to_string())),
            },
        },
    )
}

async fn set_owner(allocator: &Allocator<&impl Store>, input: &Input) -> Result<Value> {
    let updates = &input.updates;
    let preconditions = &input.preconditions;
    let request = || {
        let active = new_owner(updates, "Active")?;
        let alternate = new_owner(updates, "Alternate")?;
        let updates = OwnerUpdates { active, alternate };
        let active = expected(preconditions, "Active")?;
        let alternate = expected(preconditions, "Alternate")?;
        Ok((updates, OwnerConditions { active, alternate }))
    };
    let (updates, conditions) = match request() {
        Ok(request) => request,
        Err(error) => return Ok(only_error::<String>(Err(error))),
    };
    let handle = input.handle.as_deref().unwrap_or_default();
    Ok(only_error(
        allocator
            .set_owner_attributes(input.address()?, handle, &updates, &conditions)
            .await,
    ))
}

fn new_owner(updates: &Map<String, Value>, side: &str) -> Result<NewOwner, String> {
    let clear = format!("Clear{side}Owner");
    let attributes = format!("{side}OwnerAttrs");
    match (is_set(updates, &clear)?, field::<Entries>(updates, &attributes)?) {
        (true, Some(_)) => Err(exclusive(&format!("{clear}=true"), &attributes)),
        (true, None) => Ok(NewOwner::Clear),
        (false, attributes) => Ok(attributes.map_or(NewOwner::Keep, NewOwner::Set)),
    }
}

fn expected(preconditions: &Map<String, Value>, side: &str) -> Result<Expected, String> {
    let owner = format!("Expected{side}Owner");
    let empty = format!("Verify{side}OwnerEmpty");
    let pod = field::<Entries>(preconditions, &owner)?.map(|mut pod| {
        let mut text = |name: &str| pod.remove(name).unwrap_or_default();
        PodName {
            namespace: text("Namespace"),
            name: text("Name"),
        }
    });
    match (is_set(preconditions, &empty)?, pod) {
        (true, Some(_)) => Err(exclusive(&owner, &empty)),
        (true, None) => Ok(Expected::None),
        (false, pod) => Ok(pod.map_or(Expected::Any, Expected::Pod)),
    }
}

fn is_set(fields: &Map<String, Value>, name: &str) -> Result<bool, String> {
    Ok(field(fields, name)?.unwrap_or_default())
}

fn exclusive(first: &str, second: &str) -> String {
    format!("cannot set both {first} and {second}: these are mutually exclusive")
}

/// Sets fields by their names in Go.
fn set_config(config: &mut IpamConfig, set: &Map<String, Value>) {
    for (name, value) in set {
        match name.as_str() {
            "StrictAffinity" => config.strict_affinity = value.as_bool().unwrap_or_default(),
            "AutoAllocateBlocks" => config.auto_allocate_blocks = value.as_bool().unwrap_or_default(),
            "MaxBlocksPerHost" => config.max_blocks_per_host = value.as_i64().unwrap_or_default(),
            "IPCooldownSeconds" => config.cooldown_seconds = value.as_i64().unwrap_or_default(),
            "KubeVirtVMAddressPersistence" => {
                config.kubevirt_persistence = value.as_str().map(|text| text != "Disabled");
            }
            _ => {}
        }
    }
}
