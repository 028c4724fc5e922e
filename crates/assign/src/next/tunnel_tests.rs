//! The steps of calico-node for tunnel addresses, on hand-made snapshots.

use calipam_model::key::RESOURCE_PREFIX;
use calipam_model::node::TunnelKind;
use calipam_model::snapshot::{ALLOCATION_SOURCES, Snapshot};
use calipam_testkit::values;
use serde_json::{Value, json};

use super::{Outlook, Reason, TunnelLack, TunnelPools, TunnelStep};

const VXLAN: &str = "vxlan-tunnel-addr-n1";

/// A node `n1` with its own /30 block in a pool with VXLAN.
struct World {
    snapshot: Snapshot,
    config: Value,
    pool: Value,
    pool_status: Value,
    node: Value,
    status: Value,
    records: Vec<Value>,
}

impl World {
    fn new() -> Self {
        let mut snapshot = Snapshot {
            taken_at: "2026-05-01T12:00:00Z".parse().unwrap(),
            ..Snapshot::default()
        };
        snapshot.mark_read(ALLOCATION_SOURCES);
        let pool = json!({"cidr": "10.0.0.0/28", "blockSize": 30, "vxlanMode": "Always"});
        Self {
            snapshot,
            config: json!({"auto_allocate_blocks": true}),
            pool,
            pool_status: json!({}),
            node: json!({}),
            status: json!({}),
            records: Vec::new(),
        }
    }

    /// The node names 10.0.0.0, which is recorded like this.
    fn named(record: Value) -> Self {
        let mut world = Self::new();
        world.node = json!({"ipv4VXLANTunnelAddr": "10.0.0.0"});
        world.records.push(record);
        world
    }

    fn with_pool(mut self, field: &str, value: Value) -> Self {
        self.pool[field] = value;
        self
    }

    fn put(&mut self, key: &str, value: &Value) {
        self.snapshot
            .add_entry(key.as_bytes(), value.to_string().as_bytes(), 7);
    }

    /// Each kind of tunnel, with the step and the new address.
    fn steps(mut self) -> Vec<(TunnelKind, String)> {
        self.put("/calico/ipam/v2/config", &self.config.clone());
        self.put(
            &format!("{RESOURCE_PREFIX}ippools/p"),
            &json!({"spec": self.pool.clone(), "status": self.pool_status.clone()}),
        );
        self.put(
            &format!("{RESOURCE_PREFIX}nodes/n1"),
            &json!({"spec": self.node.clone(), "status": self.status.clone()}),
        );
        let cidr = "10.0.0.0/30";
        let block = values::block(cidr, "host:n1".to_owned(), self.records.clone());
        self.put(&values::block_key(cidr), &block);
        self.put(
            &values::affinity_key("host/n1", cidr),
            &json!({"state": "confirmed"}),
        );
        self.put_handle(VXLAN, self.records.len());

        let outlook = Outlook::new(&self.snapshot).unwrap();
        let pools = TunnelPools::new(&self.snapshot);
        let node = self
            .snapshot
            .nodes
            .iter()
            .map(|node| &node.value)
            .find(|node| node.name == "n1")
            .unwrap();
        let step = |next: TunnelStep| match next {
            TunnelStep::Keep => "keep".to_owned(),
            TunnelStep::Remove => "remove".to_owned(),
            TunnelStep::Assign { given, why } => format!("{} {why:?}", given.address),
            TunnelStep::Refuse { refused, why } => {
                format!("{:?} {why:?}: {}", refused.reason, refused.calico)
            }
            TunnelStep::NotReached => "not reached".to_owned(),
        };
        let answers = outlook.tunnels(node, &pools);
        answers
            .into_iter()
            .map(|answer| (answer.kind, step(answer.next)))
            .collect()
    }

    fn put_handle(&mut self, handle: &str, count: usize) {
        let value = json!({"id": handle, "block": {"10.0.0.0/30": count}});
        self.put(&format!("/calico/ipam/v2/handle/{handle}"), &value);
    }

    fn vxlan(self) -> String {
        let steps = self.steps();
        let [(TunnelKind::Vxlan, step)] = steps.as_slice() else {
            panic!("{steps:?}")
        };
        step.clone()
    }
}

fn own() -> Value {
    json!({"handle_id": VXLAN, "secondary": {"node": "n1", "type": "vxlanTunnelAddress"}})
}

fn pod() -> Value {
    json!({"handle_id": "h", "secondary": {"namespace": "a", "pod": "b", "node": "n1"}})
}

#[test]
fn an_address_stays_while_it_is_recorded_in_a_pool_that_offers_it() {
    assert_eq!(World::named(own()).vxlan(), "keep");
    let old = json!({"handle_id": null, "secondary": null});
    assert_eq!(
        World::named(old).vxlan(),
        "keep",
        "it is from an old Calico, and gets a handle"
    );
    let manual = World::named(own()).with_pool("assignmentMode", json!("Manual"));
    assert_eq!(manual.vxlan(), "keep", "the pool is named");

    assert_eq!(
        World::named(pod()).vxlan(),
        format!("10.0.0.1 {:?}", TunnelLack::OfAnother)
    );
    let mut lost = World::named(own());
    lost.records.clear();
    assert_eq!(lost.vxlan(), format!("10.0.0.0 {:?}", TunnelLack::NotRecorded));
}

#[test]
fn a_node_without_an_address_gets_one_and_loses_what_its_handle_holds() {
    let mut world = World::named(own()).with_pool("cidr", json!("10.0.0.0/30"));
    world.node = json!({});
    world.records.extend(vec![pod(); 3]);
    assert_eq!(world.vxlan(), format!("10.0.0.0 {:?}", TunnelLack::NoAddress));
}

#[test]
fn an_address_goes_when_no_pool_offers_one() {
    for (field, value) in [
        ("vxlanMode", json!("Never")),
        ("disabled", json!(true)),
        ("allowedUses", json!(["Workload"])),
        ("nodeSelector", json!("rack == 'a'")),
        ("nodeSelector", json!("rack ==")),
    ] {
        assert_eq!(
            World::named(own()).with_pool(field, value).vxlan(),
            "remove",
            "{field}"
        );
    }
    assert_eq!(World::new().with_pool("vxlanMode", json!("Never")).steps(), []);
}

#[test]
fn calico_node_fails_where_no_address_can_be_assigned() {
    let mut full = World::new().with_pool("cidr", json!("10.0.0.0/30"));
    full.records = vec![pod(); 4];
    full.pool["ipipMode"] = json!("Always");
    let steps = full.steps();
    let [(TunnelKind::Ipip, first), (TunnelKind::Vxlan, second)] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!(
        first,
        "Exhausted(None) NoAddress: failed to reconcile tunnel address: Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.0.0.0/30]"
    );
    assert_eq!(second, "not reached");

    let mut cooling = own();
    cooling["releasedAt"] = json!("2026-05-01T11:59:59Z");
    let released = World::named(cooling.clone());
    assert_eq!(
        released.vxlan(),
        format!("10.0.0.1 {:?}", TunnelLack::NotRecorded),
        "its cooldown is over"
    );
    let mut world = World::named(cooling);
    world.config["ipCooldownSeconds"] = json!(60);
    let fails = world.vxlan();
    assert!(
        fails.starts_with(&format!("{:?} {:?}", Reason::Other, TunnelLack::Cooling)),
        "{fails}"
    );
    assert!(
        fails.ends_with("for CIDR '10.0.0.0': address 10.0.0.0 is in cooldown"),
        "{fails}"
    );
}

/// The pool is full, and changes from IP-in-IP to VXLAN.
#[test]
fn an_address_that_one_tunnel_loses_is_free_for_the_next() {
    let mut world = World::new().with_pool("cidr", json!("10.0.0.0/30"));
    world.node = json!({"bgp": {"ipv4IPIPTunnelAddr": "10.0.0.0"}});
    let handle = "ipip-tunnel-addr-n1";
    world.put_handle(handle, 1);
    let record = json!({"handle_id": handle, "secondary": {"node": "n1", "type": "ipipTunnelAddress"}});
    world.records = vec![record, pod(), pod(), pod()];
    let assigned = format!("10.0.0.0 {:?}", TunnelLack::NoAddress);
    let expected = [
        (TunnelKind::Ipip, "remove".to_owned()),
        (TunnelKind::Vxlan, assigned),
    ];
    assert_eq!(world.steps(), expected);
}

/// One address is free, and the node lacks two.
#[test]
fn calico_node_writes_no_address_if_it_fails_at_another_one() {
    let mut world = World::new().with_pool("cidr", json!("10.0.0.0/30"));
    world.pool["ipipMode"] = json!("Always");
    world.records = vec![pod(); 3];
    let steps = world.steps();
    let [(TunnelKind::Ipip, first), (TunnelKind::Vxlan, second)] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert_eq!(first, "not reached");
    assert!(second.starts_with("Exhausted"), "{second}");
}

#[test]
fn an_address_in_a_pool_that_is_not_allocatable_counts_as_not_recorded() {
    let mut world = World::named(own());
    world.pool_status = json!({"conditions": [{"type": "Allocatable", "status": "False"}]});
    let fails = world.vxlan();
    assert!(
        fails.contains(&format!("{:?}", TunnelLack::NotRecorded)),
        "{fails}"
    );
    assert!(fails.ends_with("cannot find a qualified ippool"), "{fails}");
}

#[test]
fn an_address_of_an_old_calico_is_recorded_again_unless_its_cooldown_begins() {
    let old = json!({"handle_id": null, "secondary": null});
    let mut cooling = World::named(old.clone());
    cooling.config["ipCooldownSeconds"] = json!(60);
    assert_eq!(cooling.vxlan(), format!("10.0.0.1 {:?}", TunnelLack::OfOldCalico));

    // A pod's address that nobody owns is not the tunnel's.
    let with_handle = json!({"handle_id": "h", "secondary": null});
    assert_eq!(
        World::named(with_handle).vxlan(),
        format!("10.0.0.1 {:?}", TunnelLack::OfAnother)
    );
}

#[test]
fn a_wireguard_address_needs_a_key_and_other_nodes_that_have_one() {
    let world = |status: &Value, of_others: &Value| {
        let mut world = World::new().with_pool("vxlanMode", json!("Never"));
        world.status = status.clone();
        world.put(&format!("{RESOURCE_PREFIX}nodes/n0"), &json!({"spec": of_others}));
        world.steps()
    };
    let key = json!({"wireguardPublicKey": "k"});
    let named = json!({"wireguard": {"interfaceIPv4Address": "10.0.0.9"}});
    assert_eq!(world(&json!({}), &named), [], "there is no key");
    assert_eq!(
        world(&key, &json!({})),
        [],
        "WireGuard may encrypt the traffic of hosts"
    );
    let assigned = format!("10.0.0.0 {:?}", TunnelLack::NoAddress);
    assert_eq!(world(&key, &named), [(TunnelKind::Wireguard, assigned)]);
}
