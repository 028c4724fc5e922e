//! Answers for whole pods, most of them of virtual machines, on hand-made snapshots.

use calipam_model::CniConfiguration;
use calipam_model::pod::{Annotations, MachineReference, PodRequest};
use calipam_model::service::Machine;
use calipam_model::snapshot::{DatastoreKind, Revision, Source, Versioned};
use calipam_testkit::values;
use serde_json::json;

use super::request::PodAdd;
use super::tests::World;
use super::{AddressSource, Answer, NextAddress, Outlook, Reason};
use crate::family::Family;

/// A world with a pool of each family, in which the virtual machine `ns/vm` has these addresses.
fn world(addresses: &[&str]) -> World {
    let mut world = World::new(r#"{"auto_allocate_blocks":true}"#, &[]);
    world.pool("six", r#""cidr":"fd00::/124","blockSize":126"#);
    let handle = "k8s-pod-network.vmi.ns.vm";
    let mut blocks = serde_json::Map::new();
    for address in addresses {
        let record = format!(r#"{{"handle_id":"{handle}","secondary":{{"namespace":"ns","vmi":"vm"}}}}"#);
        world.block(address, "n1", 1, &record);
        let length = if address.contains(':') { 126 } else { 30 };
        blocks.insert(format!("{address}/{length}"), 1.into());
    }
    if !blocks.is_empty() {
        let value = serde_json::json!({ "block": blocks });
        world.put(&format!("/calico/ipam/v2/handle/{handle}"), &value.to_string());
    }
    let machine = Machine {
        namespace: "ns".into(),
        name: "vm".into(),
        uid: "u1".into(),
        is_instance: true,
        ..Machine::default()
    };
    world.0.machines.push(Versioned {
        value: machine,
        revision: Revision::Etcd(1),
    });
    world.0.mark_read([Source::Machines]);
    world
}

/// The answers for a pod of the machine with these annotations. Asks both ways, which must agree.
fn add(world: &World, annotations: Annotations) -> Vec<(Family, Answer)> {
    let machine = &world.0.machines[0].value;
    let request = PodRequest {
        annotations,
        machine: Some(MachineReference {
            name: machine.name.clone(),
            uid: machine.uid.clone(),
        }),
        ..PodRequest::default()
    };
    let configuration = CniConfiguration::default();
    let pod = PodAdd {
        node: "n1",
        namespace: "ns",
        name: "launcher",
        request: Some(&request),
        held: &[],
        configuration: &configuration,
    };
    let outlook = Outlook::new(&world.0).unwrap();
    let answers = outlook.add(&pod);
    let refusals = outlook.refusals(&pod, Some(&world.0.nodes[0].value)).unwrap();
    let refused: Vec<_> = answers
        .iter()
        .filter_map(|(family, answer)| Some((*family, answer.outcome.as_ref().err()?)))
        .collect();
    let quickly: Vec<_> = refusals
        .iter()
        .map(|(family, refused)| (*family, &**refused))
        .collect();
    assert_eq!(quickly, refused);
    answers
}

fn named(addresses: &str) -> Annotations {
    Annotations {
        addresses: addresses.to_owned(),
        ..Annotations::default()
    }
}

fn reasons(answers: &[(Family, Answer)]) -> Vec<String> {
    answers
        .iter()
        .map(|(family, answer)| match &answer.outcome {
            Ok(given) => format!("{family} {}", given.address),
            Err(refused) => format!("{family} {}: {}", refused.reason.name(), refused.calico),
        })
        .collect()
}

const TWICE: &str = "virtual-machine-names-two-addresses: failed to add IP addr to …: file exists";

/// Calico's main plugin calls the IPAM plugin once for each named address. Each call after the first one returns what the
/// virtual machine has by then.
#[test]
fn a_machine_gets_one_address_for_each_that_its_pod_names() {
    let both = r#"["10.0.0.5","fd00::5"]"#;
    let refused = [format!("IPv4 {TWICE}"), format!("IPv6 {TWICE}")];
    assert_eq!(reasons(&add(&world(&[]), named(both))), refused);
    assert_eq!(reasons(&add(&world(&["10.0.0.8"]), named(both))), refused);
    // They are in two blocks, which Calico's plugin reads in random order. The kubelet repeats what fails.
    let mut dual = world(&["10.0.0.8", "fd00::8"]);
    let kept = ["IPv4 10.0.0.8", "IPv6 fd00::8"];
    assert_eq!(reasons(&add(&dual, named(both))), kept);
    dual.0.nodes[0].value.plugin = Some("calipam 0.1.0".to_owned());
    assert_eq!(reasons(&add(&dual, named(both))), refused);

    let one = r#"["10.0.0.5"]"#;
    assert_eq!(reasons(&add(&world(&[]), named(one))), ["IPv4 10.0.0.5"]);
    assert_eq!(
        reasons(&add(&world(&["10.0.0.8", "fd00::8"]), named(one))),
        ["IPv4 10.0.0.8"]
    );

    let any = Annotations::default();
    let found = add(&world(&["10.0.0.8", "fd00::8"]), any);
    assert_eq!(reasons(&found), ["IPv4 10.0.0.8", "IPv6 fd00::8"]);
}

/// The handle of a machine is its network, its namespace and its name, at most 128 characters.
#[test]
fn calico_crashes_at_a_machine_whose_name_is_too_long_for_a_handle() {
    let named_with = |length: usize| {
        let mut world = world(&[]);
        world.0.machines[0].value.name = "v".repeat(length);
        world
    };
    let longest = 128 - "k8s-pod-network.vmi.ns.".len();
    let any = Annotations::default;
    assert_eq!(reasons(&add(&named_with(longest), any())), ["IPv4 10.0.0.8"]);
    let crash = "virtual-machine-name-too-long: netplugin failed: \"panic: runtime error: slice bounds out of range [:107] with length 43…";
    let too_long = named_with(longest + 1);
    assert_eq!(reasons(&add(&too_long, any())), [format!("IPv4 {crash}")]);

    let mut forgets = named_with(longest + 1);
    forgets.put(
        "/calico/resources/v3/projectcalico.org/ipamconfigurations/default",
        r#"{"spec":{"autoAllocateBlocks":true,"kubeVirtVMAddressPersistence":"Disabled"}}"#,
    );
    assert_eq!(reasons(&add(&forgets, any())), ["IPv4 10.0.0.8"]);

    // calipam's plugin refuses such a machine.
    let mut own = named_with(longest + 1);
    for node in &mut own.0.nodes {
        node.value.plugin = Some("calipam 0.1.0".to_owned());
    }
    let name = "v".repeat(longest + 1);
    let refusal = format!(
        "virtual-machine-name-too-long: the name of virtual machine ns/{name} is too long: its handle would have 129 \
         characters, and Calico's programs crash at more than 128"
    );
    assert_eq!(reasons(&add(&own, any())), [format!("IPv4 {refusal}")]);
}

/// The main plugin finds another fault of the request first, or the address taken.
#[test]
fn a_machine_with_two_addresses_fails_for_the_first_reason() {
    let both = r#"["10.0.0.5","fd00::5"]"#;
    let mac = Annotations {
        mac: "x".into(),
        ..named(both)
    };
    let found = add(&world(&[]), mac);
    assert!(matches!(
        found[0].1.outcome.as_ref().unwrap_err().reason,
        Reason::BadEntry { .. }
    ));

    let outside = add(&world(&[]), named(r#"["192.0.2.1","fd00::5"]"#));
    let refused = outside[0].1.outcome.as_ref().unwrap_err();
    assert_eq!(refused.reason, Reason::OutsidePools("192.0.2.1".parse().unwrap()));
    assert_eq!(outside.len(), 1, "the second address is not asked for");

    // Floating addresses are read later.
    let floating = Annotations {
        floating: Some("x".into()),
        ..named(both)
    };
    let found = add(&world(&[]), floating);
    let address = "10.0.0.5".parse().unwrap();
    assert_eq!(
        found[0].1.outcome.as_ref().unwrap_err().reason,
        Reason::OneForEach(address)
    );
}

/// The main plugin makes an endpoint of the pod before it reads anything else, whatever the datastore.
#[test]
fn source_prefixes_are_read_first() {
    for (datastore, addresses) in [
        (DatastoreKind::Etcd, "x"),
        (DatastoreKind::Kubernetes, "x"),
        (DatastoreKind::Etcd, ""),
    ] {
        let mut world = world(&[]);
        world.0.datastore = datastore;
        world.0.pools.clear();
        let annotations = Annotations {
            source_prefixes: "[1]".into(),
            ..named(addresses)
        };
        let found = add(&world, annotations);
        let refused = found[0].1.outcome.as_ref().unwrap_err();
        assert_eq!(
            refused.reason,
            Reason::NotJson("cni.projectcalico.org/allowedSourcePrefixes"),
            "{datastore:?}"
        );
    }
}

/// With Kubernetes, Calico makes the endpoint from the pod, and reads an empty list of floating addresses as JSON.
#[test]
fn an_empty_list_of_floating_addresses_is_no_json_on_kubernetes() {
    for (datastore, floating, is_refused) in [
        (DatastoreKind::Kubernetes, Some(""), true),
        (DatastoreKind::Kubernetes, None, false),
        (DatastoreKind::Etcd, Some(""), false),
    ] {
        let mut world = world(&[]);
        world.0.datastore = datastore;
        let annotations = Annotations {
            floating: floating.map(str::to_owned),
            ..Annotations::default()
        };
        let found = add(&world, annotations);
        let refused = found[0].1.outcome.as_ref().err();
        assert_eq!(refused.is_some(), is_refused, "{datastore:?} {floating:?}");
        if let Some(refused) = refused {
            let text = "failed to parse '' as JSON: unexpected end of JSON input";
            assert_eq!(
                (&refused.reason, refused.calico.as_str()),
                (&Reason::NotJson("cni.projectcalico.org/floatingIPs"), text)
            );
        }
    }
}

/// The main plugin looks for the pod's address of the floating address's family, and dies if there is none.
#[test]
fn a_floating_address_needs_an_address_of_its_family() {
    for (floating, crashes) in [
        (r#"["192.0.2.1"]"#, false),
        (r#"["192.0.2.1", "2001:db8::1"]"#, true),
    ] {
        let world = World::new(r#"{"auto_allocate_blocks":true}"#, &[]);
        let configuration = CniConfiguration {
            allows_floating: true,
            ..CniConfiguration::default()
        };
        let annotations = Annotations {
            floating: Some(floating.into()),
            ..Annotations::default()
        };
        let request = PodRequest {
            annotations,
            ..PodRequest::default()
        };
        let pod = PodAdd {
            request: Some(&request),
            ..plain_pod(&configuration)
        };
        let outlook = Outlook::new(&world.0).unwrap();
        let refused = outlook.add(&pod)[0].1.outcome.clone().err();
        assert_eq!(refused.is_some(), crashes, "{floating}");
        if let Some(refused) = refused {
            assert_eq!(refused.reason.name(), "floating-without-address");
        }
        let node = &world.0.nodes[0].value;
        let quick = outlook.refusals(&pod, Some(node)).unwrap();
        assert_eq!(!quick.is_empty(), crashes, "{floating}");
    }
}

/// A pod on `n1` that asks for nothing in particular.
fn plain_pod(configuration: &CniConfiguration) -> PodAdd<'_> {
    PodAdd {
        node: "n1",
        namespace: "ns",
        name: "web",
        request: None,
        held: &[],
        configuration,
    }
}

/// The kubelet deletes the sandbox of the first attempt, so that its IPv4 address becomes the last free one.
#[test]
fn the_second_attempt_gets_another_address() {
    let mut world = World::new(r#"{"auto_allocate_blocks":true}"#, &[("n1", 1)]);
    world.pool("six", r#""cidr":"fd00::/126","blockSize":126"#);
    let configuration = CniConfiguration {
        families: [true; 2],
        ..CniConfiguration::default()
    };
    let pod = plain_pod(&configuration);
    let ask = |world: &World| Outlook::new(&world.0).unwrap().add(&pod);
    assert_eq!(reasons(&ask(&world)), ["IPv4 10.0.0.1", "IPv6 fd00::"]);

    // A deletion of the affinity was broken off, which leaves a mark on Kubernetes.
    world.0.datastore = DatastoreKind::Kubernetes;
    world.put(
        &values::affinity_key("host/n1", "fd00::/126"),
        r#"{"state":"pendingDeletion","deleted":true}"#,
    );
    let answers = ask(&world);
    assert!(answers[1].1.first.is_some(), "{:?}", reasons(&answers));
    assert_eq!(reasons(&answers), ["IPv4 10.0.0.2", "IPv6 fd00::"]);
}

/// Calico looks for a place for a new block in a list, in which a full block is in the way although its deletion stopped
/// half-way. No attempt reads the block itself, which would finish the deletion.
#[test]
fn a_full_block_that_is_marked_deleted_stays_in_the_way() {
    for (taken, is_refused) in [(4, true), (3, false)] {
        let strict = r#"{"auto_allocate_blocks":true,"strict_affinity":true}"#;
        let mut world = World::new(strict, &[]);
        for base in ["10.0.0.4", "10.0.0.8", "10.0.0.12"] {
            world.block(base, "n2", 4, "{}");
        }
        world.0.datastore = DatastoreKind::Kubernetes;
        let mut block = values::block("10.0.0.0/30", "host:n1", vec![json!({}); taken]);
        block["deleted"] = true.into();
        world.put(&values::block_key("10.0.0.0/30"), &block.to_string());
        world.put(
            &values::affinity_key("host/n1", "10.0.0.0/30"),
            r#"{"state":"confirmed","deleted":true}"#,
        );
        let refusal = world.refusal("n1", Family::V4);
        assert_eq!(
            refusal.unwrap().is_some(),
            is_refused,
            "{taken} addresses are taken"
        );
    }
}

/// Calico reads a block whose deletion stopped half-way only to take it from its owner, or to borrow from it.
#[test]
fn an_empty_block_that_is_marked_deleted_goes_only_if_it_is_read() {
    for (owner, has_affinity, strict, taken, gets) in [
        (None, false, true, 0, false),
        (Some("host:n2"), false, true, 0, false),
        (Some("host:n2"), true, true, 0, true),
        (Some("host:n2"), true, true, 4, false),
        (None, false, false, 0, true),
        (Some("host:n2"), true, false, 4, true),
    ] {
        let config = json!({"auto_allocate_blocks": true, "strict_affinity": strict});
        let mut world = World::new(&config.to_string(), &[]);
        world.0.datastore = DatastoreKind::Kubernetes;
        for base in ["10.0.0.4", "10.0.0.8", "10.0.0.12"] {
            world.block(base, "n2", 4, "{}");
        }
        let mut block = values::block("10.0.0.0/30", "host:n2", vec![json!({}); taken]);
        block["deleted"] = true.into();
        block["affinity"] = owner.into();
        world.put(&values::block_key("10.0.0.0/30"), &block.to_string());
        if has_affinity {
            let key = values::affinity_key("host/n2", "10.0.0.0/30");
            world.put(&key, r#"{"state":"confirmed"}"#);
        }
        let outlook = Outlook::new(&world.0).unwrap();
        let answer = outlook.next(&NextAddress::new("n1", Family::V4, &[]));
        let case = format!("{owner:?} {has_affinity} {strict} {taken}: {:?}", answer.outcome);
        assert_eq!(answer.outcome.is_ok(), gets, "{case}");
        assert_eq!(answer.first.is_some(), gets, "{case}");
    }
}

/// The list of blocks does not tell the node's own block from one whose deletion stopped half-way, so Calico claims it
/// before it looks in the next pool.
#[test]
fn an_own_block_that_is_marked_deleted_is_claimed_before_the_next_pool() {
    for fails_once in [true, false] {
        let mut world = World::new(r#"{"auto_allocate_blocks":true}"#, &[]);
        world.pool("the-next", r#""cidr":"10.1.0.0/24","blockSize":26"#);
        world.0.datastore = DatastoreKind::Kubernetes;
        for base in ["10.0.0.4", "10.0.0.8", "10.0.0.12"] {
            world.block(base, "n2", 4, "{}");
        }
        let mut block = values::block("10.0.0.0/30", "host:n1", vec![]);
        block["deleted"] = true.into();
        world.put(&values::block_key("10.0.0.0/30"), &block.to_string());
        if fails_once {
            let key = values::affinity_key("host/n1", "10.0.0.0/30");
            world.put(&key, r#"{"state":"confirmed","deleted":true}"#);
        }

        let outlook = Outlook::new(&world.0).unwrap();
        let answer = outlook.next(&NextAddress::new("n1", Family::V4, &[]));
        let given = answer.outcome.unwrap();
        assert_eq!(given.address.to_string(), "10.0.0.0");
        assert_eq!(given.source, AddressSource::NewBlock);
        assert_eq!(answer.first.is_some(), fails_once);
    }
}

/// `assign_ipv6` is on only if it is `true`, in small letters.
#[test]
fn a_configuration_that_asks_for_no_family_refuses_every_pod() {
    let world = World::new(r#"{"auto_allocate_blocks":true}"#, &[]);
    let configuration = CniConfiguration {
        families: [false; 2],
        ..CniConfiguration::default()
    };
    let pod = plain_pod(&configuration);
    let answers = Outlook::new(&world.0).unwrap().add(&pod);
    let refused = answers[0].1.outcome.as_ref().unwrap_err();
    assert_eq!(refused.reason, Reason::NoFamilyConfigured);
    assert_eq!(refused.calico, "IPAM plugin returned missing IP config");
}
