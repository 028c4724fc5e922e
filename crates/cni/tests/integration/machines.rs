//! Pods of KubeVirt's machines. A machine keeps its addresses when its pods are replaced or migrate.

use calipam_model::key::Key;
use calipam_testkit::kube::{Flavour, create, delete, read};
use calipam_testkit::servers::KubeApiserver;
use serde_json::{Value, json};

use crate::runtime::addresses;
use crate::world::World;

const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances";
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines";
const PODS: &str = "/api/v1/namespaces/ns/pods";

fn args(pod: &str) -> String {
    format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME={pod}")
}

fn kubevirt(kind: &str, name: &str, metadata: &Value) -> Value {
    let mut object = json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": {}});
    object["metadata"]["name"] = name.into();
    object["metadata"]["namespace"] = "ns".into();
    object
}

/// Creates a machine, its instance, and a pod of the instance.
fn start_machine(server: &KubeApiserver) {
    create_machine(server, "vm");
    start_pod(server, "virt-launcher-vm-1", &json!({}));
}

/// Creates a machine and its instance.
fn create_machine(server: &KubeApiserver, name: &str) {
    let machine = kubevirt("VirtualMachine", name, &json!({"finalizers": ["test/keep"]}));
    create(server, MACHINES, &[machine]).unwrap();
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name,
        "uid": read(server, &format!("{MACHINES}/{name}"))["metadata"]["uid"], "controller": true}]);
    let instance = kubevirt("VirtualMachineInstance", name, &json!({"ownerReferences": owner}));
    create(server, INSTANCES, &[instance]).unwrap();
}

fn start_pod(server: &KubeApiserver, name: &str, labels: &Value) {
    start_pod_of(server, "vm", name, labels);
}

/// Creates a pod of a machine's instance.
fn start_pod_of(server: &KubeApiserver, machine: &str, name: &str, labels: &Value) {
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": machine,
        "uid": read(server, &format!("{INSTANCES}/{machine}"))["metadata"]["uid"], "controller": true}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "labels": labels, "ownerReferences": owner},
        "spec": {"nodeName": "a", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}});
    create(server, PODS, &[pod]).unwrap();
}

#[test]
fn a_machine_keeps_its_addresses() {
    let world = World::kubernetes(Flavour::Classic);
    let (server, runtime) = (world.server(), world.runtime().with("cniVersion", "1.0.0"));
    start_machine(server);
    let first = runtime.call("ADD", "c1", &args("virt-launcher-vm-1")).success();
    let held = world.allocated();
    assert!(held.len() == 1 && held[0].1 == "net.vmi.ns.vm", "{held:?}");
    runtime.call("DEL", "c1", &args("virt-launcher-vm-1")).success();
    assert_eq!(world.allocated(), held);

    // The next pod of the machine gets the same address, as a /32.
    start_pod(server, "virt-launcher-vm-2", &json!({}));
    let second = runtime.call("ADD", "c2", &args("virt-launcher-vm-2")).success();
    assert_eq!(addresses(&second), addresses(&first));
    assert!(
        second["ips"][0]["address"].as_str().unwrap().ends_with("/32"),
        "{second}"
    );
    // The target of a migration has the same address, without routes.
    start_pod(
        server,
        "virt-launcher-vm-3",
        &json!({"kubevirt.io/migrationJobUID": "m"}),
    );
    let target = runtime.call("ADD", "c3", &args("virt-launcher-vm-3")).success();
    assert_eq!(
        (addresses(&target), &target["routes"]),
        (addresses(&first), &Value::Null)
    );
    let attribute = owners(server);
    assert_eq!(attribute["secondary"]["pod"], "virt-launcher-vm-2");
    assert_eq!(attribute["alternateOwnerAttrs"]["pod"], "virt-launcher-vm-3");
    assert_eq!(attribute["alternateOwnerAttrs"]["vmim-uid"], "m");

    // The address is released after the machine was deleted and no pod has the address any more. DEL may be repeated.
    delete(server, &format!("{MACHINES}/vm"));
    runtime.call("DEL", "c2", &args("virt-launcher-vm-2")).success();
    assert_eq!(world.allocated(), held);
    runtime.call("DEL", "c3", &args("virt-launcher-vm-3")).success();
    assert_eq!(world.allocated(), []);
    runtime.call("DEL", "c3", &args("virt-launcher-vm-3")).success();
    delete(server, &format!("{INSTANCES}/vm"));
    runtime.call("DEL", "c3", &args("virt-launcher-vm-3")).success();
    // A pod without its instance gets no address, because the addresses belong to the next instance.
    let (code, text) = runtime.call("ADD", "c3", &args("virt-launcher-vm-3")).error();
    assert!(
        code == 999 && text.contains("virtualmachineinstances.kubevirt.io \"vm\" not found"),
        "{text}"
    );
    delete(server, &format!("{PODS}/virt-launcher-vm-3"));
    runtime.call("DEL", "c3", &args("virt-launcher-vm-3")).success();
    assert_eq!(
        runtime.call("ADD", "c4", &args("virt-launcher-vm-3")).error().0,
        999
    );
}

/// Calico's plugin crashes at such a name, and Kubernetes takes no handle with the name that it would have.
#[test]
fn a_machine_whose_name_is_too_long_for_a_handle_is_refused_before_anything_is_written() {
    let world = World::kubernetes(Flavour::Classic);
    let server = world.server();
    let runtime = world.runtime();
    let name = "v".repeat(200);
    create_machine(server, &name);
    start_pod_of(server, &name, "virt-launcher-vvv-1", &json!({}));
    let (code, text) = runtime.call("ADD", "c1", &args("virt-launcher-vvv-1")).error();
    assert!(
        code == 999 && text.contains("its handle would have 211 characters"),
        "{text}"
    );
    world.assert_empty();
    runtime.call("DEL", "c1", &args("virt-launcher-vvv-1")).success();
    set_persistence(&world, "Disabled");
    runtime.call("ADD", "c2", &args("virt-launcher-vvv-1")).success();
    assert_eq!(world.allocated()[0].1, "net.c2");
}

/// The first owner record in the only block.
fn owners(server: &KubeApiserver) -> Value {
    let blocks = read(server, &Flavour::Classic.path("ipamblocks"));
    blocks["items"][0]["spec"]["attributes"][0].clone()
}

#[test]
fn without_persistence_a_launcher_is_any_pod() {
    let world = World::kubernetes(Flavour::Native);
    let (server, runtime) = (world.server(), world.runtime());
    set_persistence(&world, "Disabled");
    start_machine(server);
    runtime.call("ADD", "c1", &args("virt-launcher-vm-1")).success();
    assert_eq!(world.allocated()[0].1, "net.c1");
    start_pod(
        server,
        "virt-launcher-vm-2",
        &json!({"kubevirt.io/migrationJobUID": "m"}),
    );
    let (code, text) = runtime.call("ADD", "c2", &args("virt-launcher-vm-2")).error();
    assert!(code == 999 && text.contains("migration target"), "{text}");
    runtime.call("DEL", "c2", &args("virt-launcher-vm-2")).success();

    // An address that belongs to a container is released, although machines now keep their addresses.
    start_pod(server, "virt-launcher-vm-3", &json!({}));
    runtime.call("ADD", "c3", &args("virt-launcher-vm-3")).success();
    assert_eq!(world.allocated().len(), 2);
    set_persistence(&world, "Enabled");
    runtime.call("DEL", "c3", &args("virt-launcher-vm-3")).success();
    assert_eq!(world.allocated()[0].1, "net.c1");
    pods_of_replaced_instances_get_nothing(&world);
    // The address is released even though the pod is already deleted. Calico's plugin would release nothing.
    delete(server, &format!("{PODS}/virt-launcher-vm-1"));
    runtime.call("DEL", "c1", &args("virt-launcher-vm-1")).success();
    world.assert_empty();
}

/// Sets whether machines keep their addresses.
fn set_persistence(world: &World, persistence: &str) {
    world.edit(&Key::IpamConfig, |config| {
        config["kubeVirtVMAddressPersistence"] = persistence.into()
    });
}

/// A pod whose instance was replaced by another one of the same name gets no address. The machine keeps its addresses.
fn pods_of_replaced_instances_get_nothing(world: &World) {
    let (server, runtime) = (world.server(), world.runtime());
    start_pod(server, "virt-launcher-vm-4", &json!({}));
    runtime.call("ADD", "c4", &args("virt-launcher-vm-4")).success();
    delete(server, &format!("{INSTANCES}/vm"));
    let instance = kubevirt("VirtualMachineInstance", "vm", &json!({}));
    create(server, INSTANCES, &[instance]).unwrap();
    let (code, text) = runtime.call("ADD", "c5", &args("virt-launcher-vm-4")).error();
    assert!(code == 999 && text.contains("VMI UID mismatch"), "{text}");
    let check = world
        .runtime()
        .with("cniVersion", "1.0.0")
        .call("CHECK", "c4", &args("virt-launcher-vm-4"));
    assert_eq!(check.error(), (code, text));
    runtime.call("DEL", "c4", &args("virt-launcher-vm-4")).success();

    // The address still belongs to the machine, although no pod has it now.
    let held = world.allocated();
    assert!(
        held.len() == 2 && held.iter().any(|(_, handle)| handle == "net.vmi.ns.vm"),
        "{held:?}"
    );
    start_pod(server, "virt-launcher-vm-5", &json!({}));
    runtime.call("ADD", "c5", &args("virt-launcher-vm-5")).success();
    assert_eq!(world.allocated(), held);
    delete(server, &format!("{INSTANCES}/vm"));
    delete(server, &format!("{MACHINES}/vm"));
    runtime.call("DEL", "c5", &args("virt-launcher-vm-5")).success();
    assert_eq!(world.allocated().len(), 1);
}
