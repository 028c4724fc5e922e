//! Cluster information and configuration (facts 1.6, 1.11, 1.12).

mod controllers;
#[cfg(test)]
mod tests;

use jiff::SignedDuration;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess};

use crate::DecodeError;
use crate::json::{self, Fields, Object, is, set};
use crate::resource::read;

pub use self::controllers::{KubeControllersConfiguration, NotServed};

/// Default limit for a node's blocks in one family (Calico 3.19 and later).
pub const DEFAULT_MAX_BLOCKS_PER_HOST: u32 = 20;

/// The allocator configuration. The same five settings are under `/calico/ipam/v2/config`, which the allocator reads,
/// and in the resource IPAMConfiguration. In etcd, nothing keeps the two equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpamConfig {
    /// Nodes take addresses only from their own blocks.
    pub strict_affinity: bool,
    /// Nodes claim more blocks when they need them.
    pub auto_allocate_blocks: bool,
    /// Limit for a node's blocks; 0 for [`DEFAULT_MAX_BLOCKS_PER_HOST`].
    pub max_blocks_per_host: i64,
    /// Stopped KubeVirt machines keep their addresses; `None` if not set, which means true.
    pub kubevirt_persistence: Option<bool>,
    /// Seconds until a released address can be assigned again.
    pub cooldown_seconds: i64,
}

impl Default for IpamConfig {
    /// The settings that Calico uses if nothing is stored.
    fn default() -> Self {
        Self {
            strict_affinity: false,
            auto_allocate_blocks: true,
            max_blocks_per_host: 0,
            kubevirt_persistence: Some(true),
            cooldown_seconds: 0,
        }
    }
}

/// The settings in their stored form. Two of them have different names in etcd (`ETCD`) and in the resource, and each
/// of Calico's readers knows only one of the names.
#[derive(Default)]
struct RawIpamConfig<const ETCD: bool> {
    strict_affinity: Option<bool>,
    auto_allocate_blocks: Option<bool>,
    max_blocks_per_host: Option<i64>,
    kubevirt_persistence: Option<String>,
    cooldown_seconds: Option<i64>,
}

impl<'de, const ETCD: bool> Fields<'de> for RawIpamConfig<ETCD> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let [strict_affinity, auto_allocate_blocks] = match ETCD {
            true => ["strict_affinity", "auto_allocate_blocks"],
            false => ["strictAffinity", "autoAllocateBlocks"],
        };
        match name {
            _ if is(name, strict_affinity) => set(&mut self.strict_affinity, map),
            _ if is(name, auto_allocate_blocks) => set(&mut self.auto_allocate_blocks, map),
            _ if is(name, "maxBlocksPerHost") => set(&mut self.max_blocks_per_host, map),
            _ if is(name, "kubeVirtVMAddressPersistence") => set(&mut self.kubevirt_persistence, map),
            _ if is(name, "ipCooldownSeconds") => set(&mut self.cooldown_seconds, map),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

impl<'de, const ETCD: bool> Deserialize<'de> for RawIpamConfig<ETCD> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut raw = Self::default();
        Object(&mut raw).deserialize(deserializer)?;
        Ok(raw)
    }
}

impl IpamConfig {
    /// Reads the value under `/calico/ipam/v2/config`. A missing flag is false, even if its default is true: `{}` turns
    /// off allocation of blocks (facts 1.6).
    pub fn parse(text: &[u8]) -> Result<Self, DecodeError> {
        let raw: RawIpamConfig<true> = json::from_slice(text)?;
        Ok(raw.into())
    }

    /// Reads the resource IPAMConfiguration.
    pub fn parse_resource(json: &[u8]) -> Result<Self, DecodeError> {
        let (_, raw, _) = read::<RawIpamConfig<false>>(json)?;
        Ok(raw.into())
    }

    /// True if stopped KubeVirt machines keep their addresses.
    pub fn keeps_addresses_of_machines(&self) -> bool {
        self.kubevirt_persistence.unwrap_or(true)
    }

    /// Encodes the value that Calico writes to etcd, without settings that are false, 0 or not set.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = serde_json::Map::new();
        let flags =
            [("strict_affinity", self.strict_affinity), ("auto_allocate_blocks", self.auto_allocate_blocks)];
        for (name, value) in flags.into_iter().filter(|(_, value)| *value) {
            fields.insert(name.to_owned(), value.into());
        }
        if self.max_blocks_per_host != 0 {
            fields.insert("maxBlocksPerHost".to_owned(), self.max_blocks_per_host.into());
        }
        if let Some(keep) = self.kubevirt_persistence {
            let text = if keep { "Enabled" } else { "Disabled" };
            fields.insert("kubeVirtVMAddressPersistence".to_owned(), text.into());
        }
        if self.cooldown_seconds != 0 {
            fields.insert("ipCooldownSeconds".to_owned(), self.cooldown_seconds.into());
        }
        serde_json::Value::Object(fields).to_string().into_bytes()
    }

    pub fn cooldown(&self) -> SignedDuration {
        SignedDuration::from_secs(self.cooldown_seconds)
    }

    /// The limit for a node's blocks in one family.
    pub fn block_limit(&self) -> u32 {
        u32::try_from(self.max_blocks_per_host).ok().filter(|n| *n > 0).unwrap_or(DEFAULT_MAX_BLOCKS_PER_HOST)
    }
}

impl<const ETCD: bool> From<RawIpamConfig<ETCD>> for IpamConfig {
    fn from(raw: RawIpamConfig<ETCD>) -> Self {
        Self {
            strict_affinity: raw.strict_affinity.unwrap_or(false),
            auto_allocate_blocks: raw.auto_allocate_blocks.unwrap_or(false),
            max_blocks_per_host: raw.max_blocks_per_host.unwrap_or(0),
            kubevirt_persistence: raw.kubevirt_persistence.map(|text| text != "Disabled"),
            cooldown_seconds: raw.cooldown_seconds.unwrap_or(0),
        }
    }
}

/// A setting of [`IpamConfig`] and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpamSetting {
    StrictAffinity(bool),
    AutoAllocateBlocks(bool),
    /// Limit for a node's blocks; 0 for the default.
    MaxBlocksPerHost(i64),
    /// Stopped KubeVirt machines keep their addresses.
    Kubevirt(bool),
    /// Seconds until a released address can be assigned again.
    Cooldown(i64),
}

impl IpamSetting {
    /// The name that Calico's API prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::StrictAffinity(_) => "StrictAffinity",
            Self::AutoAllocateBlocks(_) => "AutoAllocateBlocks",
            Self::MaxBlocksPerHost(_) => "MaxBlocksPerHost",
            Self::Kubevirt(_) => "KubeVirtVMAddressPersistence",
            Self::Cooldown(_) => "IPCooldownSeconds",
        }
    }

    /// The field in the value under `/calico/ipam/v2/config`, and its stored value.
    pub fn field(self) -> (&'static str, serde_json::Value) {
        match self {
            Self::StrictAffinity(value) => ("strict_affinity", value.into()),
            Self::AutoAllocateBlocks(value) => ("auto_allocate_blocks", value.into()),
            Self::MaxBlocksPerHost(number) => ("maxBlocksPerHost", number.into()),
            Self::Kubevirt(keeps) => ("kubeVirtVMAddressPersistence", persistence(keeps).into()),
            Self::Cooldown(seconds) => ("ipCooldownSeconds", seconds.into()),
        }
    }

    /// True if the configuration has this setting.
    pub fn is_set(self, config: &IpamConfig) -> bool {
        match self {
            Self::StrictAffinity(value) => config.strict_affinity == value,
            Self::AutoAllocateBlocks(value) => config.auto_allocate_blocks == value,
            Self::MaxBlocksPerHost(number) => config.max_blocks_per_host == number,
            Self::Kubevirt(keeps) => config.kubevirt_persistence.unwrap_or(true) == keeps,
            Self::Cooldown(seconds) => config.cooldown_seconds == seconds,
        }
    }
}

impl std::fmt::Display for IpamSetting {
    /// Prints the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::StrictAffinity(value) | Self::AutoAllocateBlocks(value) => write!(f, "{value}"),
            Self::MaxBlocksPerHost(number) | Self::Cooldown(number) => write!(f, "{number}"),
            Self::Kubevirt(keeps) => f.write_str(persistence(keeps)),
        }
    }
}

fn persistence(keeps: bool) -> &'static str {
    if keeps { "Enabled" } else { "Disabled" }
}

/// Cluster information (facts 1.11).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterInformation {
    /// 32 hexadecimal digits; empty if unset.
    pub guid: String,
    /// Comma-separated words such as `k8s,bgp,kdd`.
    pub cluster_type: String,
    /// The version of the component that wrote it last, such as `v3.32.1`.
    pub calico_version: String,
    /// False while the datastore is locked; `None` means not locked.
    pub datastore_ready: Option<bool>,
}

impl ClusterInformation {
    /// Reads the JSON of the resource.
    pub fn parse(json: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            #[serde(rename = "clusterGUID")]
            guid: Option<String>,
            cluster_type: Option<String>,
            calico_version: Option<String>,
            datastore_ready: Option<bool>,
        }
        let (_, spec, _) = read::<Spec>(json)?;
        Ok(Self {
            guid: spec.guid.unwrap_or_default(),
            cluster_type: spec.cluster_type.unwrap_or_default(),
            calico_version: spec.calico_version.unwrap_or_default(),
            datastore_ready: spec.datastore_ready,
        })
    }
}

/// The first Calico version (major, minor) that finds a node's affinities by labels (facts 2.5).
const LABELS_SINCE: (u32, u32) = (3, 31);
/// The newest Calico version whose data and allocator are known; its branch was read before release (facts 9).
const NEWEST_KNOWN: (u32, u32) = (3, 33);

/// The oldest Calico version whose data is known.
const OLDEST_KNOWN: (u32, u32) = (2, 0);

/// The newest Calico version whose data is known, such as `v3.33`.
pub fn newest_known() -> String {
    format!("v{}.{}", NEWEST_KNOWN.0, NEWEST_KNOWN.1)
}

impl ClusterInformation {
    /// True if the component that wrote it last is of this version (major, minor) or later; `None` if the version is not known.
    pub fn is_since(&self, version: (u32, u32)) -> Option<bool> {
        self.version().map(|(major, minor, _)| (major, minor) >= version)
    }

    /// The parts of `calico_version`; the patch is 0 if it names none.
    pub fn version(&self) -> Option<(u32, u32, u32)> {
        let text = self.calico_version.trim_start_matches('v');
        let mut numbers = text.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        Some((numbers.next()?, numbers.next()?, numbers.next().unwrap_or_default()))
    }

    /// True if the cluster's Calico version is newer than those that this program knows.
    pub fn is_newer_than_known(&self) -> bool {
        self.is_since((NEWEST_KNOWN.0, NEWEST_KNOWN.1 + 1)).unwrap_or(false)
    }

    /// True if this program knows the data of the cluster's Calico version; `None` if the cluster names no version.
    pub fn is_known(&self) -> Option<bool> {
        self.is_since(OLDEST_KNOWN).map(|since| since && !self.is_newer_than_known())
    }

    /// True for Calico 3.31 and later.
    pub fn finds_affinities_by_labels(&self) -> bool {
        self.is_since(LABELS_SINCE).unwrap_or(false)
    }
}

/// The LoadBalancer services that Calico serves (facts 2.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AssignIps {
    /// All services with Calico's class or without a class.
    #[default]
    AllServices,
    /// Only services that ask for Calico's addresses.
    RequestedServicesOnly,
}

/// Reads a duration in Go's form: `15m0s`, `1h30m`, `1.5s`, `0`.
pub fn parse_go_duration(text: &str) -> Option<SignedDuration> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit_len =
            rest[digits..].find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len() - digits);
        seconds += number
            * match &rest[digits..digits + unit_len] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" | "μs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[digits + unit_len..];
    }
    (!text.is_empty() && text != "-").then(|| SignedDuration::try_from_secs_f64(sign * seconds).ok())?
}
