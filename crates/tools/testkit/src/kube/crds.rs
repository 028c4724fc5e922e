//! The custom resource definitions (facts 2.2 to 2.7), exactly as strict as Calico's.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{create, named};
use crate::servers::KubeApiserver;

/// Time limit for the server to serve a new kind.
const SERVED: Duration = Duration::from_secs(60);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The plural and the name of a kind, and its schema or its API version.
type Kind<S> = (&'static str, &'static str, S);

/// Makes the schema of the `spec` of a kind.
type Schema = fn(Flavour) -> Value;

/// The API group with Calico's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flavour {
    /// `crd.projectcalico.org/v1`.
    Classic,
    /// `projectcalico.org/v3`.
    Native,
}

impl Flavour {
    pub fn group(self) -> &'static str {
        match self {
            Self::Classic => "crd.projectcalico.org",
            Self::Native => "projectcalico.org",
        }
    }

    /// The `apiVersion` of the group's objects.
    pub fn api_version(self) -> String {
        let version = if self == Self::Classic { "v1" } else { "v3" };
        format!("{}/{version}", self.group())
    }

    /// Plural and kind of the allocator's configuration.
    pub fn ipam_config(self) -> (&'static str, &'static str) {
        match self {
            Self::Classic => ("ipamconfigs", "IPAMConfig"),
            Self::Native => ("ipamconfigurations", "IPAMConfiguration"),
        }
    }

    /// The path of all objects of a kind.
    pub fn path(self, plural: &str) -> String {
        format!("/apis/{}/{plural}", self.api_version())
    }

    /// Calico's kinds: plural, kind, and the schema of the `spec`.
    fn own_kinds(self) -> [Kind<Schema>; 8] {
        let (config, config_kind) = self.ipam_config();
        [
            ("ipamblocks", "IPAMBlock", block),
            ("ipamhandles", "IPAMHandle", |_| handle()),
            ("blockaffinities", "BlockAffinity", affinity),
            (config, config_kind, |_| configuration()),
            ("ippools", "IPPool", pool),
            ("ipreservations", "IPReservation", reservation),
            ("clusterinformations", "ClusterInformation", |_| open()),
            (
                "kubecontrollersconfigurations",
                "KubeControllersConfiguration",
                |_| open(),
            ),
        ]
    }

    /// All kinds of objects that a cluster has: plural, kind and API version.
    pub(crate) fn kinds(self) -> impl Iterator<Item = Kind<String>> {
        let own = self
            .own_kinds()
            .map(|(plural, kind, _)| (plural, kind, self.api_version()));
        own.into_iter()
            .chain(FOREIGN.map(|(plural, kind, version)| (plural, kind, version.to_owned())))
    }

    /// The kind with this plural, as [`kinds`](Self::kinds) has it.
    pub(crate) fn kind(self, plural: &str) -> Option<Kind<String>> {
        self.kinds().find(|(known, ..)| *known == plural)
    }

    /// The path of all objects of a kind in a namespace, which is empty for kinds without namespaces.
    pub(crate) fn folder(self, plural: &str, namespace: &str) -> String {
        let (.., version) = self.kind(plural).expect("a kind of a cluster");
        let root = if version == "v1" { "/api" } else { "/apis" };
        match namespace {
            "" => format!("{root}/{version}/{plural}"),
            _ => format!("{root}/{version}/namespaces/{namespace}/{plural}"),
        }
    }

    /// An object with the version and the kind of this plural, and a name.
    pub(crate) fn named(self, object: Value, plural: &str, name: &str) -> Value {
        let (_, kind, version) = self.kind(plural).expect("a kind of a cluster");
        named(object, &version, kind, name)
    }
}

/// The kinds that are not Calico's: plural, kind and API version.
const FOREIGN: [Kind<&str>; 5] = [
    ("nodes", "Node", "v1"),
    ("pods", "Pod", "v1"),
    ("services", "Service", "v1"),
    ("virtualmachines", "VirtualMachine", "kubevirt.io/v1"),
    (
        "virtualmachineinstances",
        "VirtualMachineInstance",
        "kubevirt.io/v1",
    ),
];

/// The row of a kind that is not Calico's.
pub(crate) fn foreign_kind(plural: &str) -> Option<Kind<&'static str>> {
    FOREIGN.into_iter().find(|(known, ..)| *known == plural)
}

/// Installs Calico's kinds and waits until they are served. Returns the paths of their lists.
///
/// # Errors
/// Returns an error if the server does not answer, refuses a definition, or does not serve a kind in time.
pub fn install(server: &KubeApiserver, flavour: Flavour) -> Result<Vec<String>> {
    let kinds = flavour
        .own_kinds()
        .map(|(plural, kind, schema)| (plural, kind, schema(flavour)));
    define(server, &flavour.api_version(), "Cluster", &kinds)
}

/// Installs KubeVirt's kinds of machines and waits until they are served. Returns the paths of their lists.
pub fn install_kubevirt(server: &KubeApiserver) -> Result<Vec<String>> {
    let kinds = [
        ("virtualmachines", "VirtualMachine", open()),
        ("virtualmachineinstances", "VirtualMachineInstance", open()),
        (
            "virtualmachineinstancemigrations",
            "VirtualMachineInstanceMigration",
            open(),
        ),
    ];
    define(server, "kubevirt.io/v1", "Namespaced", &kinds)
}

/// Creates the definitions of kinds, each with its plural and the schema of its `spec`, and waits until all are served.
fn define(
    server: &KubeApiserver,
    api_version: &str,
    scope: &str,
    kinds: &[(&str, &str, Value)],
) -> Result<Vec<String>> {
    let (group, version) = api_version.split_once('/').expect("a group and a version");
    let required: &[&str] = if version == "v3" {
        &["metadata", "spec"]
    } else {
        &[]
    };
    for (plural, kind, spec) in kinds {
        let schema = object(required, json!({"spec": spec, "status": open()}));
        let version =
            json!({"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let spec = json!({"group": group, "scope": scope, "names": {"plural": plural, "kind": kind},
            "versions": [version]});
        let version = "apiextensions.k8s.io/v1";
        let name = format!("{plural}.{group}");
        let definition = named(json!({"spec": spec}), version, "CustomResourceDefinition", &name);
        create(server, DEFINITIONS, &[definition])?;
    }
    let lists = kinds
        .iter()
        .map(|(plural, ..)| format!("/apis/{api_version}/{plural}"));
    let (lists, begin) = (lists.collect::<Vec<_>>(), Instant::now());
    for path in &lists {
        loop {
            let response = server.request("GET", path, "")?;
            if response.status == 200 {
                break;
            }
            assert!(
                begin.elapsed() < SERVED,
                "{path} is not served: {}",
                response.body
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(lists)
}

/// The schema of an object with these fields.
fn object(required: &[&str], fields: Value) -> Value {
    json!({"type": "object", "required": required, "properties": fields})
}

/// The schema of an object with any fields.
fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The schema of a CIDR. The classic group accepts any string in blocks and affinities, and did so in pools and
/// reservations before 3.32.
fn cidr(flavour: Flavour) -> Value {
    match flavour {
        Flavour::Classic => json!({"type": "string"}),
        Flavour::Native => json!({"type": "string", "format": "cidr"}),
    }
}

fn pool(flavour: Flavour) -> Value {
    let mode = json!({"type": "string", "enum": ["Never", "Always", "CrossSubnet"]});
    let fields = json!({
        "allowedUses": {"type": "array", "items": {"type": "string", "enum": ["Workload", "Tunnel", "LoadBalancer"]}},
        "assignmentMode": {"type": "string", "enum": ["Automatic", "Manual"], "default": "Automatic"},
        "blockSize": {"type": "integer", "minimum": 0, "maximum": 128},
        "cidr": cidr(flavour),
        "disabled": {"type": "boolean"},
        "ipipMode": mode,
        "natOutgoing": {"type": "boolean"},
        "nodeSelector": {"type": "string", "default": "all()"},
        "vxlanMode": mode,
    });
    let mut schema = object(&["cidr"], fields);
    schema["x-kubernetes-preserve-unknown-fields"] = true.into();
    schema
}

fn reservation(flavour: Flavour) -> Value {
    object(
        &[],
        json!({"reservedCIDRs": {"type": "array", "items": cidr(flavour)}}),
    )
}

fn block(flavour: Flavour) -> Value {
    let mut affinity = json!({"type": "string"});
    if flavour == Flavour::Native {
        affinity["pattern"] = r"^(host|virtual):[a-zA-Z0-9\.\-_]+$".into();
    }
    let time = json!({"type": "string", "format": "date-time"});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let attribute = json!({"handle_id": {"type": "string"}, "secondary": texts, "alternateOwnerAttrs": texts,
        "releasedAt": time});
    let number = json!({"type": "integer", "format": "int64"});
    let fields = json!({
        "affinity": affinity,
        "affinityClaimTime": time,
        "allocations": {"type": "array", "items": {"type": "integer", "nullable": true}},
        "attributes": {"type": "array", "items": object(&[], attribute)},
        "cidr": cidr(flavour),
        "deleted": {"type": "boolean"},
        "sequenceNumber": {"type": "integer", "format": "int64", "default": 0},
        "sequenceNumberForAllocation": {"type": "object", "additionalProperties": number},
        "strictAffinity": {"type": "boolean"},
        "unallocated": {"type": "array", "items": {"type": "integer"}},
    });
    object(
        &[
            "allocations",
            "attributes",
            "cidr",
            "strictAffinity",
            "unallocated",
        ],
        fields,
    )
}

fn handle() -> Value {
    let fields = json!({
        "block": {"type": "object", "additionalProperties": {"type": "integer"}},
        "deleted": {"type": "boolean"},
        "handleID": {"type": "string"},
    });
    object(&["block", "handleID"], fields)
}

fn affinity(flavour: Flavour) -> Value {
    let text = json!({"type": "string"});
    let (deleted, state) = match flavour {
        Flavour::Classic => (text.clone(), text.clone()),
        Flavour::Native => (
            json!({"type": "boolean", "default": false}),
            json!({"type": "string", "enum": ["", "confirmed", "pending", "pendingDeletion"]}),
        ),
    };
    let fields =
        json!({"cidr": cidr(flavour), "deleted": deleted, "node": text, "state": state, "type": text});
    object(&["cidr", "deleted", "node", "state"], fields)
}

fn configuration() -> Value {
    let fields = json!({
        "autoAllocateBlocks": {"type": "boolean", "default": true},
        "ipCooldownSeconds": {"type": "integer", "minimum": 0, "maximum": 1200},
        "kubeVirtVMAddressPersistence": {"type": "string", "enum": ["Enabled", "Disabled"]},
        "maxBlocksPerHost": {"type": "integer", "minimum": 0},
        "strictAffinity": {"type": "boolean", "default": false},
    });
    object(&["autoAllocateBlocks", "strictAffinity"], fields)
}
