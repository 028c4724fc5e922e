//! The request of a pod, as Calico's CNI plugins read it: the main plugin translates annotations of the pod and its
//! namespace into the configuration of the IPAM plugin (facts of the plugin, section 9).

use std::net::IpAddr;

use calipam_model::cidr;
use calipam_model::key::Key;
use calipam_model::pod::{Annotations, PodRequest};
use calipam_model::snapshot::{DatastoreKind, DefectKind};
use calipam_model::string_list;
use calipam_model::{CniConfiguration, DecodeError, IpNet};

use super::Outlook;
use super::answer::{PANIC, Refused};
use super::reason::Reason;
use crate::family::Family;

/// An ADD of a pod.
#[derive(Clone, Copy, Debug)]
pub struct PodAdd<'r> {
    /// Calico's name of the node.
    pub node: &'r str,
    pub namespace: &'r str,
    pub name: &'r str,
    /// The pod's request; `None` for a pod that requests nothing in particular.
    pub request: Option<&'r PodRequest>,
    /// The addresses of the pod's endpoint, if it has one from an earlier sandbox. They count only for a pod that names
    /// addresses.
    pub held: &'r [IpAddr],
    pub configuration: &'r CniConfiguration,
}

const POOLS: [&str; 2] = [
    "cni.projectcalico.org/ipv4pools",
    "cni.projectcalico.org/ipv6pools",
];
const FAMILIES: &str = "cni.projectcalico.org/ipFamilies";
const ADDRESSES: &str = "cni.projectcalico.org/ipAddrs";
const NO_IPAM: &str = "cni.projectcalico.org/ipAddrsNoIpam";
const FLOATING: &str = "cni.projectcalico.org/floatingIPs";
const MAC: &str = "cni.projectcalico.org/hwAddr";
const SOURCE_PREFIXES: &str = "cni.projectcalico.org/allowedSourcePrefixes";

/// The first Calico version that reads the annotation `ipFamilies`.
const READS_FAMILIES_SINCE: (u32, u32) = (3, 30);

/// The addresses that a pod wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// Any address of each of the families.
    Any {
        families: [bool; 2],
        /// The CIDRs of the IPv4 and IPv6 pools that the pod or its namespace names. If empty, the pools that select the
        /// node and the namespace serve the request.
        pools: [Vec<IpNet>; 2],
    },
    /// These addresses.
    Addresses(Vec<IpAddr>),
    /// These addresses, without IPAM.
    Own(Vec<IpAddr>),
}

/// The configuration of the IPAM plugin for a pod, before pools are looked up.
pub(super) enum Asked {
    Any {
        families: [bool; 2],
        pools: [Vec<String>; 2],
    },
    Addresses(Vec<IpAddr>),
    Own(Vec<IpAddr>),
}

impl Asked {
    /// Reads the annotations of a pod and its namespace in the order in which Calico's main plugin does.
    ///
    /// # Errors
    /// The plugin's first complaint.
    pub(super) fn read(
        outlook: &Outlook<'_>,
        pod: &Annotations,
        namespace: &Annotations,
        configuration: &CniConfiguration,
    ) -> Result<Self, Refused> {
        let pools = read_pools(pod, namespace, configuration)?;
        let mut annotations = pod.pools.iter().chain(&namespace.pools);
        let is_named = annotations.any(|annotation| !annotation.is_empty());
        let families = parse_families(outlook, first_of(&pod.families, &namespace.families), is_named)?;

        let names_addresses = !pod.addresses.is_empty();
        let names_own_addresses = !pod.no_ipam.is_empty();
        if names_addresses && names_own_addresses {
            let text = "can't have both annotations: 'ipAddrs' and 'ipAddrsNoIpam' in use at the same time";
            return Err(Refused::new(Reason::TwoRequests, text));
        }
        if names_addresses {
            return parse_addresses(ADDRESSES, &pod.addresses).map(Self::Addresses);
        }
        if names_own_addresses {
            require_no_ipam_allowed(configuration)?;
            return parse_addresses(NO_IPAM, &pod.no_ipam).map(Self::Own);
        }
        Ok(Self::Any {
            families: families.unwrap_or(configuration.families),
            pools,
        })
    }

    /// The families of which the pod gets addresses, if all goes well.
    fn families(&self) -> [bool; 2] {
        match self {
            Self::Any { families, .. } => *families,
            Self::Addresses(addresses) | Self::Own(addresses) => Family::BOTH.map(|family| {
                addresses
                    .iter()
                    .any(|address| Family::of_address(*address) == family)
            }),
        }
    }
}

/// Reads the pools of each family: those of the pod, or else of its namespace, or else of the configuration.
fn read_pools(
    pod: &Annotations,
    namespace: &Annotations,
    configuration: &CniConfiguration,
) -> Result<[Vec<String>; 2], Refused> {
    let mut pools: [Vec<String>; 2] = Default::default();
    for family in Family::BOTH.map(|family| family as usize) {
        let text = first_of(&pod.pools[family], &namespace.pools[family]);
        pools[family] = if text.is_empty() {
            configuration.pools[family].clone()
        } else {
            parse_list(POOLS[family], text)?
        };
    }
    Ok(pools)
}

/// Refuses addresses of the pod's own choice, unless the plugin's configuration allows them.
fn require_no_ipam_allowed(configuration: &CniConfiguration) -> Result<(), Refused> {
    if configuration.allows_no_ipam {
        return Ok(());
    }
    let reason = Reason::FeatureOff {
        annotation: NO_IPAM,
        feature: "ip_addrs_no_ipam",
    };
    let text = "requested feature is not enabled: ip_addrs_no_ipam";
    Err(Refused::new(reason, text))
}

/// The pod's annotation or, if it is empty, the namespace's.
fn first_of<'a>(pod: &'a str, namespace: &'a str) -> &'a str {
    if pod.is_empty() { namespace } else { pod }
}

/// Reads an annotation with a JSON list; an empty annotation is an empty list.
fn parse_list(annotation: &'static str, text: &str) -> Result<Vec<String>, Refused> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    string_list(text).map_err(|error| Refused::new(Reason::NotJson(annotation), error))
}

/// Reads the families in the annotation `ipFamilies`; `None` if it is empty, or if the cluster's Calico ignores it. If
/// the pod also names pools (`is_named`), it is meant for nodes whose configuration asks for these families, so that the
/// annotation is right even if it is ignored.
fn parse_families(outlook: &Outlook<'_>, text: &str, is_named: bool) -> Result<Option<[bool; 2]>, Refused> {
    let is_ignored = outlook.indexed.snapshot.is_calico_since(READS_FAMILIES_SINCE) == Some(false);
    if text.is_empty() || is_ignored && !is_named {
        return Ok(None);
    }
    let mut families = [false; 2];
    for name in parse_list(FAMILIES, text)? {
        match name.as_str() {
            "IPv4" => families[Family::V4 as usize] = true,
            "IPv6" => families[Family::V6 as usize] = true,
            _ => {
                let reason = Reason::BadEntry {
                    annotation: FAMILIES,
                    entry: name,
                };
                return Err(Refused::new(reason, format!("error parsing ipFamilies: {text}")));
            }
        }
    }
    Ok(Some(families))
}

/// Reads an annotation, a JSON list with at most one address of each family.
///
/// # Errors
/// The plugin's complaint if it is not such a list, or if it is empty.
fn parse_addresses(annotation: &'static str, text: &str) -> Result<Vec<IpAddr>, Refused> {
    let entries = string_list(text).map_err(|error| {
        let calico_message = format!(
            "failed to parse IPs {text} for annotation \"{annotation}\": failed to parse '{text}' as JSON: {error}"
        );
        Refused::new(Reason::NotJson(annotation), calico_message)
    })?;
    if entries.is_empty() {
        let calico_message = format!("annotation \"{annotation}\" specified but empty");
        return Err(Refused::new(Reason::NamesNothing(annotation), calico_message));
    }

    let mut addresses: Vec<IpAddr> = Vec::new();
    for entry in entries {
        let Some(address) = cidr::parse_go_address(&entry) else {
            let calico_message = format!("invalid IP format: {entry}");
            return Err(Refused::new(
                Reason::BadEntry { annotation, entry },
                calico_message,
            ));
        };

        let family = Family::of_address(address);
        let has_other = addresses.iter().any(|other| Family::of_address(*other) == family);
        if has_other {
            let calico_message =
                format!("cannot have more than one {family} address for \"{annotation}\" annotation");
            let reason = Reason::TwoOfAFamily { annotation, family };
            return Err(Refused::new(reason, calico_message));
        }
        addresses.push(address);
    }
    Ok(addresses)
}

impl Outlook<'_> {
    /// Looks up the pools that a pod names, as Calico's IPAM plugin does before it assigns anything.
    ///
    /// # Errors
    /// If a pool does not exist, or is of the other family, even if the pod asks for no address of the family.
    pub(super) fn wanted_of(
        &self,
        asked: Asked,
        configuration: &CniConfiguration,
    ) -> Result<Wanted, Refused> {
        let (families, names) = match asked {
            Asked::Any { families, pools } => (families, pools),
            Asked::Addresses(addresses) => return Ok(Wanted::Addresses(addresses)),
            Asked::Own(addresses) => return Ok(Wanted::Own(addresses)),
        };
        let mut pools: [Vec<IpNet>; 2] = Default::default();
        for family in Family::BOTH {
            for name in &names[family as usize] {
                pools[family as usize].push(self.named_pool(name, family)?);
            }
        }
        if families == [false; 2] {
            let reason = if configuration.families == [false; 2] {
                Reason::NoFamilyConfigured
            } else {
                Reason::NoFamily
            };
            return Err(Refused::new(reason, "IPAM plugin returned missing IP config"));
        }
        Ok(Wanted::Any { families, pools })
    }

    /// Returns the CIDR of a pool that a pod requests by name or CIDR. A CIDR need not be that of any pool.
    ///
    /// # Errors
    /// If no pool has the name, or the pool is of the other family.
    fn named_pool(&self, name: &str, family: Family) -> Result<IpNet, Refused> {
        let by_name = || {
            let pools_with_name = self.pools().filter(|pool| pool.name == name);
            pools_with_name.last().map(|pool| pool.cidr)
        };
        let Some(cidr) = cidr::parse_pool(name).or_else(by_name) else {
            if let Some(cidr) = self.broken_cidr(name) {
                let calico_message = format!("failed to parse IP pool cidr: invalid CIDR address: {cidr}");
                return Err(Refused::new(
                    Reason::BrokenPool {
                        pool: name.to_owned(),
                        cidr,
                    },
                    calico_message,
                ));
            }
            let calico_message = format!("error parsing pool {name:?}: invalid CIDR address: {name}");
            return Err(Refused::new(Reason::UnknownPool(name.to_owned()), calico_message));
        };
        if Family::of(cidr) != family {
            let calico_message = format!("\"{}\" isn't a {family} address", cidr.network());
            return Err(Refused::new(
                Reason::OtherFamily {
                    pool: name.to_owned(),
                    family,
                },
                calico_message,
            ));
        }
        Ok(cidr)
    }

    /// The CIDR of the pool with this name as it is stored, if it is none.
    fn broken_cidr(&self, name: &str) -> Option<String> {
        for defect in &self.indexed.snapshot.defects {
            let is_of_pool = matches!(&defect.key, Some(Key::Pool(pool)) if pool == name);
            if !is_of_pool {
                continue;
            }
            if let DefectKind::Value(reason) = &defect.kind
                && let Some(cidr) = DecodeError::no_cidr_of(reason)
            {
                return Some(cidr);
            }
        }
        None
    }

    /// Returns what a pod wants from IPAM.
    ///
    /// # Errors
    /// If Calico's plugins refuse the request, whatever addresses are free.
    pub fn wanted(
        &self,
        request: Option<&PodRequest>,
        namespace: &str,
        configuration: &CniConfiguration,
    ) -> Result<Wanted, Refused> {
        self.wanted_of(self.asked(request, namespace, configuration)?, configuration)
    }

    /// Reads what a pod asks for, from its annotations, those of its namespace, and the plugin's configuration.
    pub(super) fn asked(
        &self,
        request: Option<&PodRequest>,
        namespace: &str,
        configuration: &CniConfiguration,
    ) -> Result<Asked, Refused> {
        let no_annotations = Annotations::default();
        let of_pod = request.map(|request| &request.annotations);
        let of_namespace = self.namespace(namespace).map(|namespace| &namespace.annotations);
        Asked::read(
            self,
            of_pod.unwrap_or(&no_annotations),
            of_namespace.unwrap_or(&no_annotations),
            configuration,
        )
    }

    /// The families of which a pod gets addresses if Calico serves it. If its request cannot be read, the configured
    /// ones.
    pub fn families_of(
        &self,
        request: Option<&PodRequest>,
        namespace: &str,
        configuration: &CniConfiguration,
    ) -> [bool; 2] {
        let asked = self.asked(request, namespace, configuration);
        asked.map_or(configuration.families, |asked| asked.families())
    }
}

/// Checks the annotations that Calico's main plugin reads after IPAM has assigned addresses of these families.
///
/// # Errors
/// The plugin's complaint. It releases the addresses again.
pub(super) fn check_rest(
    add: &PodAdd<'_>,
    families: [bool; 2],
    datastore: DatastoreKind,
) -> Result<(), Refused> {
    let Some(PodRequest { annotations: pod, .. }) = add.request else {
        return Ok(());
    };
    check_mac(add)?;
    let Some(floating) = pod.floating.as_deref() else {
        return Ok(());
    };
    // With Kubernetes, Calico makes the endpoint from the pod, whose annotation it then reads even if it is empty.
    if floating.is_empty() && datastore != DatastoreKind::Kubernetes {
        return Ok(());
    }
    if !floating.is_empty() && !add.configuration.allows_floating {
        let reason = Reason::FeatureOff {
            annotation: FLOATING,
            feature: "floating_ips",
        };
        let text = "requested feature is not enabled: floating_ips";
        return Err(Refused::new(reason, text));
    }
    let addresses = string_list(floating).map_err(|error| not_json(FLOATING, floating, &error))?;
    for address in addresses {
        let family = if address.contains(':') {
            Family::V6
        } else {
            Family::V4
        };
        if !families[family as usize] {
            let reason = Reason::FloatingWithoutAddress { address, family };
            return Err(Refused::new(reason, PANIC));
        }
    }
    Ok(())
}

/// Checks the annotation `hwAddr`, which Calico's main plugin reads before it adds the addresses to the container's
/// interface.
pub(super) fn check_mac(add: &PodAdd<'_>) -> Result<(), Refused> {
    let text = add.request.map_or("", |request| &request.annotations.mac);
    if text.is_empty() || is_mac(text) {
        return Ok(());
    }
    let calico_message =
        format!("failed to parse MAC address {text} provided via {MAC}: address {text}: invalid MAC address");
    let reason = Reason::BadEntry {
        annotation: MAC,
        entry: text.to_owned(),
    };
    Err(Refused::new(reason, calico_message))
}

/// Creates the refusal of an annotation that is no JSON list of strings.
fn not_json(annotation: &'static str, text: &str, error: &str) -> Refused {
    Refused::new(
        Reason::NotJson(annotation),
        format!("failed to parse '{text}' as JSON: {error}"),
    )
}

/// Checks the annotation `allowedSourcePrefixes`, a JSON list of addresses and CIDRs. Calico's main plugin reads it
/// before all other annotations, while it makes an endpoint of the pod.
///
/// # Errors
/// If the annotation is no such list.
pub(super) fn check_source_prefixes(pod: &Annotations) -> Result<(), Refused> {
    let annotation = &pod.source_prefixes;
    if annotation.is_empty() {
        return Ok(());
    }
    let prefixes = string_list(annotation).map_err(|error| not_json(SOURCE_PREFIXES, annotation, &error))?;
    for prefix in prefixes {
        let is_valid = cidr::parse_go_address(&prefix).is_some() || cidr::parse_pool(&prefix).is_some();
        if !is_valid {
            let calico_message =
                format!("failed to parse '{prefix}' as a CIDR: invalid CIDR address: {prefix}");
            let reason = Reason::BadEntry {
                annotation: SOURCE_PREFIXES,
                entry: prefix,
            };
            return Err(Refused::new(reason, calico_message));
        }
    }
    Ok(())
}

/// True for a MAC address that Go's `net.ParseMAC` reads: 6, 8 or 20 bytes, as pairs of hex digits after colons or
/// hyphens, or as groups of four digits after dots.
fn is_mac(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let consists_of = |separator: char, digits: usize, counts: [usize; 3]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|part| part.len() == digits && is_hex(part))
    };
    let pairs = [6, 8, 20];
    let groups_of_four = pairs.map(|bytes| bytes / 2);
    consists_of(':', 2, pairs) || consists_of('-', 2, pairs) || consists_of('.', 4, groups_of_four)
}
