//! Cluster information and configuration (facts 1.6, 1.11, 1.12).

mod controllers;
#[cfg(test)]
mod tests;

use jiff::SignedDuration;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess};

use crate::DecodeError;
use crate::document::Document;
use crate::json::{self, Fields, is_field, or_empty, set_unless_null};
use crate::resource::read;
use crate::writable::Object;

pub use self::controllers::{KubeControllersConfiguration, LoadBalancerController, NotServed};

/// Default limit for a node's blocks in one family (Calico 3.19 and later).
pub const DEFAULT_MAX_BLOCKS_PER_HOST: u32 = 20;

/// The allocator configuration. The same five settings are under `/calico/ipam/v2/config`, which the allocator reads,
/// and in the resource IPAMConfiguration. In etcd, nothing keeps the two in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpamConfig {
    /// True if nodes assign addresses only from their own blocks.
    pub strict_affinity: bool,
    /// True if nodes claim more blocks when they need them.
    pub auto_allocate_blocks: bool,
    /// Limit for a node's blocks; 0 for the default.
    pub max_blocks_per_host: i64,
    /// True if stopped KubeVirt machines keep their addresses; `None` if the setting is missing, which means true.
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

/// The settings in their stored form. Two settings have different names in etcd (`ETCD`) and in the resource, and each
/// of Calico's readers accepts only one of the names. A missing flag is false. This includes `autoAllocateBlocks`,
/// although it is true if no configuration is stored.
struct Stored<const ETCD: bool>(IpamConfig);

impl<const ETCD: bool> Default for Stored<ETCD> {
    fn default() -> Self {
        Self(IpamConfig {
            auto_allocate_blocks: false,
            kubevirt_persistence: None,
            ..IpamConfig::default()
        })
    }
}

impl<'de, const ETCD: bool> Fields<'de> for Stored<ETCD> {
    /// Reads a field of the configuration by its name in etcd or in the resource.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        let Self(config) = self;
        let strict_affinity = if ETCD { "strict_affinity" } else { "strictAffinity" };
        let auto_allocate_blocks = if ETCD {
            "auto_allocate_blocks"
        } else {
            "autoAllocateBlocks"
        };

        if is_field(name, strict_affinity) {
            set_unless_null(&mut config.strict_affinity, map)?;
        } else if is_field(name, auto_allocate_blocks) {
            set_unless_null(&mut config.auto_allocate_blocks, map)?;
        } else if is_field(name, "maxBlocksPerHost") {
            set_unless_null(&mut config.max_blocks_per_host, map)?;
        } else if is_field(name, "kubeVirtVMAddressPersistence") {
            if let Some(text) = map.next_value::<Option<String>>()? {
                config.kubevirt_persistence = Some(text != persistence(false));
            }
        } else if is_field(name, "ipCooldownSeconds") {
            set_unless_null(&mut config.cooldown_seconds, map)?;
        } else {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

impl<'de, const ETCD: bool> Deserialize<'de> for Stored<ETCD> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut stored = Self::default();
        json::Object(&mut stored).deserialize(deserializer)?;
        Ok(stored)
    }
}

impl IpamConfig {
    /// Reads the value under `/calico/ipam/v2/config`. The value `{}` turns off the automatic allocation of blocks
    /// (facts 1.6).
    pub fn parse(text: &[u8]) -> Result<Self, DecodeError> {
        let Stored::<true>(config) = json::from_slice(text)?;
        Ok(config)
    }

    /// Reads the resource IPAMConfiguration.
    pub fn parse_resource(json: &[u8]) -> Result<Self, DecodeError> {
        let (_, Stored(config), _) = read::<Stored<false>>(json)?;
        Ok(config)
    }

    /// True if a node may take addresses from blocks of other holders, which strict affinity forbids.
    pub fn may_borrow(&self) -> bool {
        !self.strict_affinity
    }

    /// True if Windows nodes get addresses: they have no routes to borrowed ones, so strict affinity must be on.
    pub fn serves_windows(&self) -> bool {
        self.strict_affinity
    }

    /// True if stopped KubeVirt machines keep their addresses.
    pub fn keeps_addresses_of_machines(&self) -> bool {
        self.kubevirt_persistence.unwrap_or(true)
    }

    /// Encodes the value that Calico writes to etcd. Omits fields whose value is false or 0, and settings that are not
    /// set.
    pub fn encode(&self) -> Vec<u8> {
        let mut settings = self.settings().to_vec();
        if self.kubevirt_persistence.is_none() {
            settings.retain(|setting| !matches!(setting, IpamSetting::Kubevirt(_)));
        }
        let mut document = Document::default();
        document.set(&settings);
        Object::IpamConfig(document).encode()
    }

    /// The settings that an operator can change.
    fn settings(&self) -> [IpamSetting; 5] {
        [
            IpamSetting::StrictAffinity(self.strict_affinity),
            IpamSetting::AutoAllocateBlocks(self.auto_allocate_blocks),
            IpamSetting::MaxBlocksPerHost(self.max_blocks_per_host),
            IpamSetting::Cooldown(self.cooldown_seconds),
            IpamSetting::Kubevirt(self.keeps_addresses_of_machines()),
        ]
    }

    /// The configuration with these settings.
    #[must_use]
    pub fn with(mut self, settings: &[IpamSetting]) -> Self {
        for setting in settings {
            match *setting {
                IpamSetting::StrictAffinity(value) => self.strict_affinity = value,
                IpamSetting::AutoAllocateBlocks(value) => self.auto_allocate_blocks = value,
                IpamSetting::MaxBlocksPerHost(number) => self.max_blocks_per_host = number,
                IpamSetting::Kubevirt(keeps) => self.kubevirt_persistence = Some(keeps),
                IpamSetting::Cooldown(seconds) => self.cooldown_seconds = seconds,
            }
        }
        self
    }

    pub fn cooldown(&self) -> SignedDuration {
        SignedDuration::from_secs(self.cooldown_seconds)
    }

    /// The limit for a node's blocks in one family.
    pub fn block_limit(&self) -> u32 {
        if self.max_blocks_per_host <= 0 {
            return DEFAULT_MAX_BLOCKS_PER_HOST;
        }
        // No node has as many blocks as would fit into a larger number.
        u32::try_from(self.max_blocks_per_host).unwrap_or(u32::MAX)
    }
}

/// A setting of [`IpamConfig`] and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpamSetting {
    StrictAffinity(bool),
    AutoAllocateBlocks(bool),
    /// Limit for a node's blocks; 0 for the default.
    MaxBlocksPerHost(i64),
    /// True if stopped KubeVirt machines keep their addresses.
    Kubevirt(bool),
    /// Seconds until a released address can be assigned again.
    Cooldown(i64),
}

/// Fields of the configuration with different names in etcd and in the `spec` of a resource.
pub const RENAMED_FIELDS: [(&str, &str); 2] = [
    ("strict_affinity", "strictAffinity"),
    ("auto_allocate_blocks", "autoAllocateBlocks"),
];

impl IpamSetting {
    /// The setting that gives a node with this limit one more block.
    pub fn one_more_block(limit: u32) -> Self {
        Self::MaxBlocksPerHost(i64::from(limit) + 1)
    }

    /// The name that calicoctl prints.
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

    /// The field in the spec of the resource IPAMConfiguration.
    pub fn resource_field(self) -> &'static str {
        let (name, _) = self.field();
        for (name_in_etcd, name_in_spec) in RENAMED_FIELDS {
            if name_in_etcd == name {
                return name_in_spec;
            }
        }
        name
    }

    /// True if the configuration has this setting with this value.
    pub fn is_set(self, config: &IpamConfig) -> bool {
        config.settings().contains(&self)
    }
}

impl Document {
    /// Sets allocator settings.
    pub fn set(&mut self, settings: &[IpamSetting]) {
        for setting in settings {
            let (name, value) = setting.field();
            self.set_field(name, value);
        }
    }

    pub fn ipam_config(&self) -> Result<IpamConfig, DecodeError> {
        IpamConfig::parse(&serde_json::to_vec(self)?)
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

/// The first Calico version (major, minor) that finds a node's affinities by labels (facts 2.5).
const LABELS_SINCE: (u32, u32) = (3, 31);
/// The newest Calico version whose data and allocator this program supports (facts 9).
const NEWEST_KNOWN: (u32, u32) = (3, 33);
/// The oldest Calico version whose data this program supports.
const OLDEST_KNOWN: (u32, u32) = (2, 0);

/// The newest Calico version that this program supports, such as `v3.33`.
pub fn newest_known() -> String {
    format!("v{}.{}", NEWEST_KNOWN.0, NEWEST_KNOWN.1)
}

/// The annotation of ClusterInformation with the calipam run that locked the datastore. Calico 2.x has no annotations.
pub const LOCKED_BY: &str = "calipam.io/locked-by";

/// Cluster information (facts 1.11).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterInformation {
    /// 32 hexadecimal digits; empty if unset.
    #[serde(rename = "clusterGUID", deserialize_with = "or_empty")]
    pub guid: String,
    /// Comma-separated words such as `k8s,bgp,kdd`.
    #[serde(deserialize_with = "or_empty")]
    pub cluster_type: String,
    /// The version of the component that last wrote this object, such as `v3.32.1`.
    #[serde(deserialize_with = "or_empty")]
    pub calico_version: String,
    /// False while the datastore is locked ([`Self::is_locked`]).
    pub datastore_ready: Option<bool>,
    /// The calipam run that [`LOCKED_BY`] names, such as "`release --leaked` of 2026-05-01T10:00:00Z".
    #[serde(skip)]
    pub locked_by: Option<String>,
}

impl ClusterInformation {
    pub fn parse(json: &[u8]) -> Result<Self, DecodeError> {
        let (metadata, spec, _) = read::<Self>(json)?;
        Ok(Self {
            locked_by: metadata.annotation(LOCKED_BY),
            ..spec
        })
    }

    /// True while the datastore is locked, so that no pod can start or stop. A missing field is no lock.
    pub fn is_locked(&self) -> bool {
        self.datastore_ready == Some(false)
    }

    /// True if `calico_version` is this version (major, minor) or later; `None` if it is missing or unreadable.
    pub fn is_since(&self, version: (u32, u32)) -> Option<bool> {
        self.version().map(|(major, minor, _)| (major, minor) >= version)
    }

    /// The parts of `calico_version`; the patch number is 0 if it is missing.
    pub fn version(&self) -> Option<(u32, u32, u32)> {
        let text = self
            .calico_version
            .strip_prefix('v')
            .unwrap_or(&self.calico_version);
        let release = text.split_once('-').map_or(text, |(release, _)| release);
        let mut parts = release.split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let patch = parts.next().unwrap_or("0").parse().ok()?;
        Some((major, minor, patch))
    }

    /// True if the cluster's Calico version is newer than all versions that this program supports.
    pub fn is_newer_than_known(&self) -> bool {
        self.is_since((NEWEST_KNOWN.0, NEWEST_KNOWN.1 + 1))
            .unwrap_or(false)
    }

    /// True if this program supports the cluster's Calico version; `None` if the version is missing or unreadable.
    pub fn is_known(&self) -> Option<bool> {
        self.is_since(OLDEST_KNOWN)
            .map(|since| since && !self.is_newer_than_known())
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
    /// Services with Calico's class, and services without a class that request addresses from Calico.
    RequestedServicesOnly,
}

/// Reads a duration in Go's form: `15m0s`, `1h30m`, `1.5s`, `0`. `None` for a text of another form.
pub fn parse_go_duration(text: &str) -> Option<SignedDuration> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }

    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end_of_number = rest.find(|c: char| !is_of_number(c))?;
        let (number, after_number) = rest.split_at(end_of_number);
        let end_of_unit = after_number.find(is_of_number).unwrap_or(after_number.len());
        let (unit, after_unit) = after_number.split_at(end_of_unit);
        let number: f64 = number.parse().ok()?;
        let seconds_of_unit = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        seconds += number * seconds_of_unit;
        rest = after_unit;
    }
    SignedDuration::try_from_secs_f64(sign * seconds).ok()
}

/// Reads a boolean like Go's `strconv.ParseBool`.
pub fn parse_go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
