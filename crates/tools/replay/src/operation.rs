//! The operations of traces on calipam's allocator, with results in the form of the traces.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_assign::{
    Allocator, AssignIp, Assigned, AutoAssign, Error, Expected, InUse, NewOwner, OwnerConditions,
    OwnerUpdates, PodName, Release, Released, Store,
};
use calipam_model::IpNet;
use calipam_model::affinity::AffinityType;
use calipam_model::attributes::Attribute;
use calipam_model::config::IpamConfig;
use calipam_model::pool::PoolUse;
use calipam_testkit::operator::{Claimed, Operator};
use serde_json::{Map, Value, json};

/// The inputs of a step.
pub(crate) struct Input<'t>(pub &'t Map<String, Value>);

impl Input<'_> {
    pub(crate) fn text(&self, name: &str) -> String {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    pub(crate) fn number(&self, name: &str) -> u32 {
        self.0.get(name).and_then(Value::as_u64).and_then(|n| n.try_into().ok()).unwrap_or_default()
    }

    fn in_use(&self) -> InUse {
        if self.flag("mustBeEmpty") { InUse::Refuse } else { InUse::Release }
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Returns a string input; `None` if it is empty or missing.
    fn optional(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    fn map(&self, name: &str) -> Option<BTreeMap<String, String>> {
        texts(self.0.get(name)?)
    }

    fn cidr(&self, name: &str) -> Result<IpNet, String> {
        self.text(name).parse().map_err(|_| format!("the input {name} is not a CIDR"))
    }

    fn address(&self, name: &str) -> Result<IpAddr, String> {
        address(&self.text(name)).ok_or_else(|| format!("the input {name} is no address"))
    }

    fn cidrs(&self, name: &str) -> Result<Vec<IpNet>, String> {
        let items = self.0.get(name).and_then(Value::as_array).into_iter().flatten();
        items
            .map(|item| item.as_str()?.parse().ok())
            .collect::<Option<_>>()
            .ok_or(format!("the input {name} is no list of CIDRs"))
    }

    fn intended_use(&self) -> Result<Option<PoolUse>, String> {
        match self.text("use").as_str() {
            "" => Ok(None),
            name => PoolUse::parse(name).map(Some).ok_or_else(|| format!("no use is called {name:?}")),
        }
    }

    fn holder(&self) -> (AffinityType, String) {
        (AffinityType::parse(&self.text("type")), self.text("host"))
    }
}

/// Reads an address. Like Go, it treats an IPv4-mapped IPv6 address as IPv4.
fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn texts(value: &Value) -> Option<BTreeMap<String, String>> {
    let fields = value.as_object()?;
    Some(
        fields
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
    )
}

/// Runs an operation of the allocator. Returns `None` if no operation has that name.
pub(crate) async fn perform(
    allocator: &Allocator<&impl Store>,
    operation: &str,
    input: &Input<'_>,
) -> Result<Option<Value>, String> {
    let result = match operation {
        "auto" => auto(allocator, input).await?,
        "assign" => only_error(allocator.assign_ip(&assign_request(input)?).await),
        "release" => release(allocator, input).await,
        "release-handle" => only_error(allocator.release_by_handle(&input.text("handle")).await),
        "ips-of-handle" => match allocator.ips_by_handle(&input.text("handle")).await {
            Ok(ips) => json!({"error": null, "ips": ips}),
            Err(error) => json!({"error": error.to_string(), "ips": null}),
        },
        "attributes" => match allocator.assignment_attributes(input.address("ip")?).await {
            Ok(record) => json!({"error": null, "attributes": attributes(&record)}),
            Err(error) => json!({"error": error.to_string(), "attributes": null}),
        },
        "set-owner" => set_owner(allocator, input).await?,
        "claim" => claim(allocator, input).await?,
        "release-affinity" => {
            let (_, host) = input.holder();
            only_error(allocator.release_affinity(input.cidr("cidr")?, &host, input.in_use()).await)
        }
        "release-host" => {
            let (kind, host) = input.holder();
            only_error(allocator.release_host_affinities(kind, &host, input.in_use()).await)
        }
        "release-pool" => only_error(allocator.release_pool_affinities(input.cidr("cidr")?).await),
        "remove-host" => {
            let (kind, host) = input.holder();
            only_error(allocator.remove_host(kind, &host).await)
        }
        "config" => {
            let set = input.0.get("set").and_then(Value::as_object).cloned().unwrap_or_default();
            only_error(allocator.set_config(|config| set_config(config, &set)).await)
        }
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn only_error<E: ToString>(result: Result<(), E>) -> Value {
    json!({"error": result.err().map(|error| error.to_string())})
}

async fn auto(allocator: &Allocator<&impl Store>, input: &Input<'_>) -> Result<Value, String> {
    let request = AutoAssign {
        host: input.text("host"),
        v4: input.number("num4"),
        v6: input.number("num6"),
        handle: input.optional("handle"),
        attributes: input.map("attrs"),
        pools_v4: input.cidrs("pools4")?,
        pools_v6: input.cidrs("pools6")?,
        intended_use: input.intended_use()?,
        max_blocks_per_host: input.number("maxBlocksPerHost"),
        max_per_handle: input.number("maxAllocPerHandle"),
        namespace_labels: input.map("namespaceLabels"),
        windows: input.flag("windows"),
    };
    let (done, error) = match allocator.auto_assign(&request).await {
        Ok(done) => (done, None),
        Err(partly) => (partly.done.clone(), Some(partly.error.to_string())),
    };
    Ok(
        json!({"error": error, "ipv4": done.v4.as_ref().map(assigned), "ipv6": done.v6.as_ref().map(assigned)}),
    )
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

fn assign_request(input: &Input<'_>) -> Result<AssignIp, String> {
    Ok(AssignIp {
        handle: input.optional("handle"),
        attributes: input.map("attrs"),
        intended_use: input.intended_use()?,
        max_per_handle: input.number("maxAllocPerHandle"),
        windows: input.flag("windows"),
        ..AssignIp::new(input.text("host"), input.address("ip")?)
    })
}

async fn release(allocator: &Allocator<&impl Store>, input: &Input<'_>) -> Value {
    let ips = input.0.get("ips").and_then(Value::as_array).cloned().unwrap_or_default();
    let sequence = input.0.get("sequenceNumber").and_then(Value::as_u64);
    let mut requests = Vec::new();
    let mut texts = BTreeMap::new();
    for ip in ips.iter().filter_map(Value::as_str) {
        match address(ip) {
            Some(address) => {
                requests.push(Release { address, handle: input.optional("handle"), sequence });
                texts.insert(address, ip);
            }
            None => {
                let error = format!("failed to parse IP: {ip}");
                return json!({"error": error, "notAllocated": null, "withoutError": null});
            }
        }
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
        json!({"Address": texts.get(&request.address), "Handle": request.handle.as_deref().unwrap_or_default(),
            "SequenceNumber": request.sequence})
    };
    let without_error: Vec<Value> = done.without_error.iter().map(request).collect();
    json!({"error": error, "notAllocated": done.not_allocated, "withoutError": without_error})
}

fn attributes(record: &Attribute) -> Value {
    let mut fields = Map::new();
    let maps = [("secondary", &record.owner), ("alternateOwnerAttrs", &record.alternate)];
    fields.extend(record.handle.iter().map(|handle| ("handle_id".to_owned(), handle.as_str().into())));
    for (name, entries) in maps {
        fields.extend(entries.iter().map(|entries| (name.to_owned(), json!(entries))));
    }
    fields.into()
}

async fn claim(allocator: &Allocator<&impl Store>, input: &Input<'_>) -> Result<Value, String> {
    let (kind, host) = input.holder();
    let result = |done: &Claimed, error: Option<String>| json!({"error": error, "claimed": done.claimed, "ofOthers": done.of_others});
    Ok(match allocator.claim_affinity(input.cidr("cidr")?, kind, &host).await {
        Ok(done) => result(&done, None),
        Err(partly) => match &partly.error {
            // The request itself is invalid, so nothing was claimed.
            error @ (Error::CidrOutsidePools(_) | Error::CidrTooSmall(_)) => {
                json!({"error": error.to_string(), "claimed": null, "ofOthers": null})
            }
            error => result(&partly.done, Some(error.to_string())),
        },
    })
}

async fn set_owner(allocator: &Allocator<&impl Store>, input: &Input<'_>) -> Result<Value, String> {
    let none = Map::new();
    let fields = |name: &str| input.0.get(name).and_then(Value::as_object).unwrap_or(&none);
    let (updates, preconditions) = (fields("updates"), fields("preconditions"));
    let is =
        |fields: &Map<String, Value>, name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or(false);
    let exclusive = |first: &str, second: &str| json!({"error": format!("cannot set both {first} and {second}: these are mutually exclusive")});

    let mut owners = Vec::new();
    for side in ["Active", "Alternate"] {
        let (clear, attributes) = (format!("Clear{side}Owner"), format!("{side}OwnerAttrs"));
        owners.push(match (is(updates, &clear), updates.get(&attributes).and_then(texts)) {
            (true, Some(_)) => return Ok(exclusive(&format!("{clear}=true"), &attributes)),
            (true, None) => NewOwner::Clear,
            (false, Some(attributes)) => NewOwner::Set(attributes),
            (false, None) => NewOwner::Keep,
        });
    }
    let mut expected = Vec::new();
    for side in ["Active", "Alternate"] {
        let (owner, empty) = (format!("Expected{side}Owner"), format!("Verify{side}OwnerEmpty"));
        let pod = preconditions.get(&owner).and_then(Value::as_object).map(|pod| {
            let text = |name: &str| pod.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            PodName { namespace: text("Namespace"), name: text("Name") }
        });
        expected.push(match (is(preconditions, &empty), pod) {
            (true, Some(_)) => return Ok(exclusive(&owner, &empty)),
            (true, None) => Expected::None,
            (false, Some(pod)) => Expected::Pod(pod),
            (false, None) => Expected::Any,
        });
    }
    let (alternate, active) = (owners.pop().unwrap_or_default(), owners.pop().unwrap_or_default());
    let updates = OwnerUpdates { active, alternate };
    let (alternate, active) = (expected.pop().unwrap_or_default(), expected.pop().unwrap_or_default());
    let conditions = OwnerConditions { active, alternate };
    let (address, handle) = (input.address("ip")?, input.text("handle"));
    Ok(only_error(allocator.set_owner_attributes(address, &handle, &updates, &conditions).await))
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
