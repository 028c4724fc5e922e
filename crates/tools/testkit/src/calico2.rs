//! A cluster of Calico 2.x on a real etcd with the v2 API, and its allocator (facts 6).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Request;
use ipnet::Ipv4Net;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::cluster::wire::{Attribute, Block, Era};
use crate::servers::http::{Client, Response, client, exchange};
use crate::servers::{Etcd, EtcdOptions, EtcdVersion};

/// Maximum number of attempts at a compare-and-swap.
const ATTEMPTS: usize = 100;

/// Time limit for a response.
const ANSWER: Duration = Duration::from_secs(60);

/// Characters that are escaped in keys and values: all but letters, digits and `-._`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

static CLIENT: LazyLock<Client> = LazyLock::new(|| client(None, false).expect("it needs no file"));

/// An etcd with the v2 API, and its client.
#[derive(Debug)]
pub struct Calico2 {
    pub etcd: Etcd,
    pub client: Client2,
}

impl Calico2 {
    /// Starts a healthy cluster: two hosts, each with a tunnel address, a block and three pods.
    pub fn start() -> Result<Self> {
        let etcd = EtcdOptions::new()
            .version(EtcdVersion::V3_4)
            .argument("--enable-v2=true")
            .start()?;
        let calico = Client2 { port: etcd.port };
        calico.set("/calico/v1/Ready", "true")?;
        calico.set(
            "/calico/v1/config/ClusterGUID",
            "0f0e1d2c3b4a59687786950a1b2c3d4e",
        )?;
        let pool = json!({"cidr": "192.168.0.0/16", "ipip": "tunl0", "ipip_mode": "always", "masquerade": true,
            "ipam": true, "disabled": false});
        calico.set("/calico/v1/ipam/v4/pool/192.168.0.0-16", &pool.to_string())?;
        for (host, third) in [("node-1", 1), ("node-2", 2)] {
            calico.add_host(host, Ipv4Addr::new(192, 168, third, 0))?;
            for pod in ["a", "b", "c"] {
                calico.start_pod(host, &format!("default.{pod}-{third}"))?;
            }
        }
        Ok(Self { etcd, client: calico })
    }
}

/// A client that reads and writes the keys, and allocates addresses like Calico 2.x.
#[derive(Clone, Copy, Debug)]
pub struct Client2 {
    port: u16,
}

impl Client2 {
    /// Reads a value, with the index of its last change; `None` if the key does not exist.
    pub fn get(&self, key: &str) -> Result<Option<(String, u64)>> {
        let (status, answer) = self.ask("GET", key, "quorum=true", None)?;
        if status == 404 {
            return Ok(None);
        }
        let value = answer["node"]["value"]
            .as_str()
            .with_context(|| answer.to_string())?;
        Ok(Some((
            value.to_owned(),
            answer["node"]["modifiedIndex"].as_u64().unwrap_or_default(),
        )))
    }

    /// The JSON at a key, which must exist.
    pub fn json(&self, key: &str) -> Result<Value> {
        let (value, _) = self.get(key)?.with_context(|| format!("{key}: not found"))?;
        Ok(serde_json::from_str(&value)?)
    }

    /// Sets a key unconditionally.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        let (status, answer) = self.ask("PUT", key, "", Some(value))?;
        ensure!(status < 300, "{answer}");
        Ok(())
    }

    /// Deletes a key, if it exists, with everything below it.
    pub fn delete(&self, key: &str) -> Result<()> {
        self.ask("DELETE", key, "recursive=true", None).map(drop)
    }

    /// The keys below a key, at any depth, in ascending order.
    pub fn keys(&self, key: &str) -> Result<Vec<String>> {
        let (_, answer) = self.ask("GET", key, "quorum=true&recursive=true", None)?;
        let mut nodes = vec![&answer["node"]];
        let mut keys = Vec::new();
        while let Some(node) = nodes.pop() {
            match node["nodes"].as_array() {
                Some(inner) => nodes.extend(inner),
                None if node["dir"] == true => {}
                None => keys.extend(node["key"].as_str().map(str::to_owned)),
            }
        }
        keys.sort();
        Ok(keys)
    }

    /// Adds a host with an empty block; the first address of the block becomes its tunnel's.
    pub fn add_host(&self, host: &str, block: Ipv4Addr) -> Result<()> {
        self.set(&format!("/calico/v1/host/{host}/metadata"), "{}")?;
        self.add_block(host, block)?;
        self.change_block(block, |block| assign(block, None).map(drop))?;
        self.set(
            &format!("/calico/v1/host/{host}/config/IpInIpTunnelAddr"),
            &block.to_string(),
        )
    }

    /// Claims a block. Writes the affinity first.
    pub fn add_block(&self, host: &str, block: Ipv4Addr) -> Result<()> {
        self.set(
            &format!("/calico/ipam/v2/host/{host}/ipv4/block/{block}-26"),
            "{}",
        )?;
        let net = Ipv4Net::new_assert(block, 26).into();
        self.set(
            &block_key(block),
            &text(Block::new(net, Some(format!("host:{host}")), None, 0)),
        )
    }

    /// The first address of each block of a host.
    fn blocks(&self, host: &str) -> Result<Vec<Ipv4Addr>> {
        let keys = self.keys(&format!("/calico/ipam/v2/host/{host}/ipv4/block"))?;
        let block = |key: &String| key.rsplit('/').next()?.strip_suffix("-26")?.parse().ok();
        Ok(keys.iter().filter_map(block).collect())
    }

    /// Assigns a pod an address from a block of its host, and writes the pod's endpoint.
    pub fn start_pod(&self, host: &str, workload: &str) -> Result<Ipv4Addr> {
        let address = self.assign(host, workload)?;
        self.set_endpoint(host, workload, &[&address.to_string()])?;
        Ok(address)
    }

    /// Assigns an address without an endpoint. Increments the handle first, then writes the block.
    pub fn assign(&self, host: &str, handle: &str) -> Result<Ipv4Addr> {
        for block in self.blocks(host)? {
            self.count(handle, block, 1)?;
            match self.change_block(block, |value| assign(value, Some(handle)))? {
                Some(ordinal) => return Ok((u32::from(block) + ordinal).into()),
                None => self.count(handle, block, -1)?,
            }
        }
        bail!("{host} has no free address")
    }

    /// Writes a Kubernetes workload endpoint.
    pub fn set_endpoint(&self, host: &str, workload: &str, addresses: &[&str]) -> Result<()> {
        let nets = |v6: bool| -> Vec<String> {
            let family = addresses.iter().filter(|address| address.contains(':') == v6);
            family
                .map(|address| format!("{address}/{}", if v6 { 128 } else { 32 }))
                .collect()
        };
        let value = json!({
            "state": "active", "name": "cali0", "active_instance_id": format!("id-of-{workload}"),
            "mac": "ee:ee:ee:ee:ee:ee", "profile_ids": ["default"], "ipv4_nets": nets(false), "ipv6_nets": nets(true),
        });
        self.set(&endpoint_key(host, workload), &value.to_string())
    }

    /// Deletes a pod's endpoint, then frees the pod's addresses by its handle.
    pub fn stop_pod(&self, host: &str, workload: &str) -> Result<()> {
        self.delete(&endpoint_key(host, workload))?;
        self.release(workload)
    }

    /// Frees all addresses of a handle, including those of a newer pod with the same name, as a late deletion does.
    pub fn release(&self, handle: &str) -> Result<()> {
        let Some((value, _)) = self.get(&handle_key(handle))? else {
            return Ok(());
        };
        let value: Value = serde_json::from_str(&value)?;
        for cidr in value["block"]
            .as_object()
            .into_iter()
            .flat_map(|blocks| blocks.keys())
        {
            let block: Ipv4Addr = cidr.split('/').next().unwrap_or_default().parse()?;
            let freed = self
                .change_block(block, |value| Some(free(value, handle)))?
                .unwrap_or_default();
            self.count(handle, block, -freed)?;
        }
        Ok(())
    }

    /// Changes the count of a handle for a block, and retries if a compare-and-swap fails.
    fn count(&self, handle: &str, block: Ipv4Addr, by: i64) -> Result<()> {
        self.swap(&handle_key(handle), |before| {
            let before = before.unwrap_or(r#"{"block":{}}"#);
            let mut value: Value = serde_json::from_str(before).expect("a handle is JSON");
            let counts = value["block"]
                .as_object_mut()
                .expect("a handle has counts by block");
            let cidr = format!("{block}/26");
            let count = counts.get(&cidr).and_then(Value::as_i64).unwrap_or_default() + by;
            counts.insert(cidr, count.into());
            counts.retain(|_, count| count.as_i64().expect("counts are numbers") > 0);
            Some((!counts.is_empty()).then(|| value.to_string()))
        })
    }

    /// Changes a block, and retries if a compare-and-swap fails. Writes nothing if the change returns `None`.
    fn change_block<T>(
        &self,
        block: Ipv4Addr,
        mut change: impl FnMut(&mut Block) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut result = None;
        self.swap(&block_key(block), |before| {
            let mut value = Block::read(before?.as_bytes())?;
            result = change(&mut value);
            result.is_some().then(|| Some(text(value)))
        })?;
        Ok(result)
    }

    /// Changes a key with a compare-and-swap. `change` returns the new value, an inner `None` to delete the key, or an
    /// outer `None` to leave it unchanged.
    fn swap(&self, key: &str, mut change: impl FnMut(Option<&str>) -> Option<Option<String>>) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let stored = self.get(key)?;
            let Some(after) = change(stored.as_ref().map(|(value, _)| value.as_str())) else {
                return Ok(());
            };
            let condition = match &stored {
                Some((_, index)) => format!("prevIndex={index}"),
                None => "prevExist=false".to_owned(),
            };
            let (status, _) = match &after {
                Some(value) => self.ask("PUT", key, &condition, Some(value))?,
                None if stored.is_some() => self.ask("DELETE", key, &condition, None)?,
                None => return Ok(()),
            };
            if status < 300 {
                return Ok(());
            }
        }
        bail!("{key}: the compare-and-swap failed {ATTEMPTS} times")
    }

    /// Turns authentication on, so that only `root` with this password has access.
    pub fn require_login(&self, password: &str) -> Result<()> {
        let login = format!("Basic {}", STANDARD.encode(format!("root:{password}")));
        let user = json!({"user": "root", "password": password}).to_string();
        for (method, path, body) in [
            ("PUT", "users/root", user.as_str()),
            ("PUT", "enable", ""),
            ("DELETE", "roles/guest", ""),
        ] {
            let head = self
                .head(method, &format!("auth/{path}"))
                .header("authorization", &login);
            let request = head
                .header("content-type", "application/json")
                .body(body.to_owned())?;
            let Response { status, body } = exchange(&CLIENT, request, ANSWER)?;
            ensure!(status < 300, "{path}: {status} {body}");
        }
        Ok(())
    }

    fn head(&self, method: &str, path: &str) -> http::request::Builder {
        let uri = format!("http://127.0.0.1:{}/v2/{path}", self.port);
        Request::builder().method(method).uri(uri)
    }

    fn ask(&self, method: &str, key: &str, query: &str, value: Option<&str>) -> Result<(u16, Value)> {
        let encode = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
        let path = key.split('/').map(encode).collect::<Vec<_>>().join("/");
        let head = self.head(method, &format!("keys{path}?{query}"));
        let body = value
            .map(|value| format!("value={}", encode(value)))
            .unwrap_or_default();
        let request = head
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body)?;
        let response = exchange(&CLIENT, request, ANSWER)?;
        Ok((response.status, serde_json::from_str(&response.body)?))
    }
}

/// The key of the block of 64 addresses whose first address is `block`.
pub fn block_key(block: Ipv4Addr) -> String {
    format!("/calico/ipam/v2/assignment/ipv4/block/{block}-26")
}

pub fn handle_key(handle: &str) -> String {
    format!("/calico/ipam/v2/handle/{handle}")
}

/// The key of a pod's endpoint.
pub fn endpoint_key(host: &str, workload: &str) -> String {
    format!("/calico/v1/host/{host}/workload/k8s/{workload}/endpoint/eth0")
}

/// The value of a block, as Calico 2.x writes it.
fn text(block: Block) -> String {
    String::from_utf8(
        Block {
            era: Era::Legacy,
            ..block
        }
        .value(),
    )
    .expect("JSON is text")
}

/// Takes the first free ordinal.
fn assign(block: &mut Block, handle: Option<&str>) -> Option<u32> {
    let ordinal = u32::try_from(*block.unallocated.first()?).ok()?;
    block.take(
        1,
        Attribute {
            handle: handle.map(str::to_owned),
            ..Attribute::default()
        },
    );
    Some(ordinal)
}

/// Frees the addresses of a handle and returns their number.
fn free(block: &mut Block, handle: &str) -> i64 {
    let held = block
        .records()
        .filter(|(_, record)| record.handle.as_deref() == Some(handle));
    let addresses: Vec<IpAddr> = held.map(|(address, _)| address).collect();
    block.free_all(&addresses);
    addresses.len() as i64
}
