//! The custom resource definitions (facts 2.2 to 2.7), exactly as strict as Calico's.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::servers::KubeApiserver;

/// Time limit for the server to serve a new kind.
const SERVED: Duration = Duration::from_secs(60);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The API group with Calico's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// The version of the group.
    pub fn version(self) -> &'static str {
        match self {
            Self::Classic => "v1",
            Self::Native => "v3",
        }
    }

    /// The `apiVersion` of the group's objects.
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group(), self.version())
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
        format!("/apis/{}/{}/{plural}", self.group(), self.version())
    }
}

/// Installs Calico's kinds and waits until they are served. Returns the paths of their lists.
///
/// # Errors
/// Returns an error if the server does not answer, refuses a definition, or does not serve a kind in time.
pub fn install(server: &KubeApiserver, flavour: Flavour) -> Result<Vec<String>> {
    let (config, config_kind) = flavour.ipam_config();
    let kinds = [
        ("ipamblocks", "IPAMBlock", block(flavour)),
        ("ipamhandles", "IPAMHandle", handle()),
        ("blockaffinities", "BlockAffinity", affinity(flavour)),
        (config, config_kind, configuration()),
        ("ippools", "IPPool", pool(flavour)),
        ("ipreservations", "IPReservation", reservation(flavour)),
        ("clusterinformations", "ClusterInformation", open()),
        ("kubecontrollersconfigurations", "KubeControllersConfiguration", open()),
    ];
    for (plural, kind, spec) in &kinds {
        define(server, flavour.group(), flavour.version(), plural, kind, "Cluster", spec)?;
    }
    served(server, kinds.iter().map(|(plural, ..)| flavour.path(plural)).collect())
}

/// Installs KubeVirt's kinds of machines and waits until they are served. Returns the paths of their lists.
pub fn install_kubevirt(server: &KubeApiserver) -> Result<Vec<String>> {
    let kinds = [
        ("virtualmachines", "VirtualMachine"),
        ("virtualmachineinstances", "VirtualMachineInstance"),
        ("virtualmachineinstancemigrations", "VirtualMachineInstanceMigration"),
    ];
    for (plural, kind) in kinds {
        define(server, "kubevirt.io", "v1", plural, kind, "Namespaced", &open())?;
    }
    served(server, kinds.iter().map(|(plural, _)| format!("/apis/kubevirt.io/v1/{plural}")).collect())
}

fn define(
    server: &KubeApiserver,
    group: &str,
    version: &str,
    plural: &str,
    kind: &str,
    scope: &str,
    spec: &Value,
) -> Result<()> {
    let required: &[&str] = if version == Flavour::Native.version() { &["metadata", "spec"] } else { &[] };
    let schema =
        json!({"type": "object", "properties": {"spec": spec, "status": open()}, "required": required});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let response = server.request("POST", DEFINITIONS, &definition.to_string())?;
    assert_eq!(response.status, 201, "{plural}: {}", response.body);
    Ok(())
}

/// Waits until the lists at these paths are served.
fn served(server: &KubeApiserver, paths: Vec<String>) -> Result<Vec<String>> {
    let begin = Instant::now();
    for path in &paths {
        loop {
            let response = server.request("GET", path, "")?;
            if response.status == 200 {
                break;
            }
            assert!(begin.elapsed() < SERVED, "{path} is not served: {}", response.body);
            thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(paths)
}

fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn text_map() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
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
    let mut schema = open();
    schema["required"] = json!(["cidr"]);
    schema["properties"] = json!({
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
    schema
}

fn reservation(flavour: Flavour) -> Value {
    json!({"type": "object", "properties": {"reservedCIDRs": {"type": "array", "items": cidr(flavour)}}})
}

fn block(flavour: Flavour) -> Value {
    let mut affinity = json!({"type": "string"});
    if flavour == Flavour::Native {
        affinity["pattern"] = r"^(host|virtual):[a-zA-Z0-9\.\-_]+$".into();
    }
    json!({
        "type": "object",
        "required": ["allocations", "attributes", "cidr", "strictAffinity", "unallocated"],
        "properties": {
            "affinity": affinity,
            "affinityClaimTime": {"type": "string", "format": "date-time"},
            "allocations": {"type": "array", "items": {"type": "integer", "nullable": true}},
            "attributes": {"type": "array", "items": {"type": "object", "properties": {
                "handle_id": {"type": "string"},
                "secondary": text_map(),
                "alternateOwnerAttrs": text_map(),
                "releasedAt": {"type": "string", "format": "date-time"},
            }}},
            "cidr": cidr(flavour),
            "deleted": {"type": "boolean"},
            "sequenceNumber": {"type": "integer", "format": "int64", "default": 0},
            "sequenceNumberForAllocation":
                {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}},
            "strictAffinity": {"type": "boolean"},
            "unallocated": {"type": "array", "items": {"type": "integer"}},
        },
    })
}

fn handle() -> Value {
    json!({
        "type": "object",
        "required": ["block", "handleID"],
        "properties": {
            "block": {"type": "object", "additionalProperties": {"type": "integer"}},
            "deleted": {"type": "boolean"},
            "handleID": {"type": "string"},
        },
    })
}

fn affinity(flavour: Flavour) -> Value {
    let (deleted, state) = match flavour {
        Flavour::Classic => (json!({"type": "string"}), json!({"type": "string"})),
        Flavour::Native => (
            json!({"type": "boolean", "default": false}),
            json!({"type": "string", "enum": ["", "confirmed", "pending", "pendingDeletion"]}),
        ),
    };
    json!({
        "type": "object",
        "required": ["cidr", "deleted", "node", "state"],
        "properties": {
            "cidr": cidr(flavour),
            "deleted": deleted,
            "node": {"type": "string"},
            "state": state,
            "type": {"type": "string"},
        },
    })
}

fn configuration() -> Value {
    json!({
        "type": "object",
        "required": ["autoAllocateBlocks", "strictAffinity"],
        "properties": {
            "autoAllocateBlocks": {"type": "boolean", "default": true},
            "ipCooldownSeconds": {"type": "integer", "minimum": 0, "maximum": 1200},
            "kubeVirtVMAddressPersistence": {"type": "string", "enum": ["Enabled", "Disabled"]},
            "maxBlocksPerHost": {"type": "integer", "minimum": 0},
            "strictAffinity": {"type": "boolean", "default": false},
        },
    })
}
