//! Compares the outlook for a snapshot with the plugin on a real etcd with the same data. On random clusters, for each
//! node and family, both give the same address, or no address for the same reason in Calico's words.

use calipam_assign::{Family, NextAddress, Outlook};
use calipam_model::cidr::address_at;
use calipam_testkit::servers::EtcdVersion;
use calipam_testkit::values;
use serde_json::json;

use crate::runtime::addresses;
use crate::world::World;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";
/// The number of random clusters. Together, they take some seconds.
const CLUSTERS: u64 = 24;

/// A generator of pseudo-random numbers, which are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

#[test]
fn the_program_does_what_the_outlook_predicts() {
    let world = World::etcd(EtcdVersion::V3_6);
    let (mut given, mut refused) = (0, 0);
    for seed in 0..CLUSTERS {
        put_cluster(&world, &mut Dice(seed));
        for (node, family) in [("a", Family::V4), ("b", Family::V4), ("a", Family::V6), ("b", Family::V6)] {
            let snapshot = world.observe();
            let request = NextAddress { node, family, pools: &[], namespace_labels: None };
            let outlook = Outlook::new(&snapshot).expect("all is known");
            let predicted = outlook.next(&request).outcome;
            let of_node = snapshot.nodes.iter().find(|stored| stored.value.name == node).unwrap();
            let remembered = outlook.refusal(&of_node.value, family).expect("all is known");
            assert_eq!(remembered.is_none(), predicted.is_ok(), "{seed} {node} {family:?}");

            let wants = |wanted: Family| if wanted == family { "true" } else { "false" };
            let runtime = world
                .runtime()
                .with("nodename", node)
                .with_ipam("assign_ipv4", wants(Family::V4))
                .with_ipam("assign_ipv6", wants(Family::V6));
            let outcome = runtime.call("ADD", "c1", "");
            match predicted {
                Ok(expected) => {
                    let got = addresses(&outcome.success());
                    assert_eq!(got, [expected.address.to_string()], "{seed} {node} {family:?}");
                    given += 1;
                }
                Err(expected) => {
                    let (_, message) = outcome.error();
                    assert!(
                        message.contains(expected.calico.trim()),
                        "{seed} {node} {family:?}: {message} {expected:?}"
                    );
                    refused += 1;
                }
            }
            runtime.call("DEL", "c1", "").success();
        }
    }
    assert!(given > 10 && refused > 10, "{given} {refused}");
}

/// Writes pools of four blocks each. Most of the blocks exist, and belong to one of the nodes.
fn put_cluster(world: &World, dice: &mut Dice) {
    world.delete_prefix("/calico/ipam/v2/");
    world.delete_prefix(&format!("{RESOURCES}/ip"));
    let strict = dice.one_in(2);
    let mut config = json!({"strict_affinity": strict, "auto_allocate_blocks": !strict || !dice.one_in(4)});
    if strict && dice.one_in(3) {
        config["maxBlocksPerHost"] = (1 + dice.below(2)).into();
    }
    world.put_key("/calico/ipam/v2/config", &config);
    for name in ["a", "b"] {
        world.put("nodes", "Node", name, &json!({}), &json!({"name": name}));
    }
    for (family, cidr, size) in [("ipv4", "10.7.0.0/28", 30), ("ipv6", "fd00:7::/124", 126)] {
        let mut spec = json!({"cidr": cidr, "blockSize": size, "nodeSelector": "all()"});
        match dice.below(12) {
            0 => spec["disabled"] = true.into(),
            1 => spec["assignmentMode"] = "Manual".into(),
            2 => spec["nodeSelector"] = "name == 'b'".into(),
            3 => spec["allowedUses"] = json!(["Tunnel"]),
            _ => {}
        }
        world.put("ippools", "IPPool", family, &spec, &json!({}));
        let pool: calipam_model::IpNet = cidr.parse().unwrap();
        for block in pool.subnets(size).unwrap() {
            if dice.one_in(6) {
                continue;
            }
            let (owner, taken) =
                (["a", "b"][dice.below(2) as usize], [4, 4, 4, 3, 0][dice.below(5) as usize]);
            put_block(world, &block.to_string(), owner, taken);
        }
        if dice.one_in(4) {
            let reserved = format!("{}", address_at(pool, dice.below(16) as u32));
            let name = format!("{family}-kept");
            let value = json!({"reservedCIDRs": [reserved]});
            world.put("ipreservations", "IPReservation", &name, &value, &json!({}));
        }
    }
}

fn put_block(world: &World, block: &str, owner: &str, taken: usize) {
    let records = vec![json!({"handle_id": "others"}); taken];
    world.put_key(&values::block_key(block), &values::block(block, format!("host:{owner}"), records));
    let key = values::affinity_key(&format!("host/{owner}"), block);
    world.put_key(&key, &json!({"state": "confirmed"}));
}
