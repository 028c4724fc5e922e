//! Compares the outlook for a snapshot with the plugin on a real etcd with the same data. On random clusters, for each
//! node and family, both give the same address, or no address for the same reason in Calico's words.

use calipam_assign::{Family, NextAddress, Outlook};
use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::cidr::address_at;
use calipam_model::key::Key;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::values;
use serde_json::json;

use crate::runtime::addresses;
use crate::world::World;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";
/// The number of random clusters. Together, they take some seconds.
const CLUSTERS: u64 = 24;

fn one_in(many: u64, dice: &mut Rng) -> bool {
    dice.below(many) == 0
}

#[test]
fn the_program_does_what_the_outlook_predicts() {
    let world = World::etcd();
    let (mut given, mut refused) = (0, 0);
    for seed in 0..CLUSTERS {
        put_cluster(&world, &mut Rng::new(seed));
        for (node, family) in [
            ("a", Family::V4),
            ("b", Family::V4),
            ("a", Family::V6),
            ("b", Family::V6),
        ] {
            let snapshot = world.observe();
            let request = NextAddress::new(node, family, &[]);
            let outlook = Outlook::new(&snapshot).expect("all is known");
            let predicted = outlook.next(&request).outcome;
            let of_node = snapshot
                .nodes
                .iter()
                .find(|stored| stored.value.name == node)
                .unwrap();
            let remembered = outlook
                .refusal(&of_node.value, family, &[])
                .expect("all is known");
            assert_eq!(
                remembered.is_none(),
                predicted.is_ok(),
                "{seed} {node} {family:?}"
            );

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
fn put_cluster(world: &World, dice: &mut Rng) {
    world.keys().delete_below("/calico/ipam/v2/").unwrap();
    world.keys().delete_below(&format!("{RESOURCES}/ip")).unwrap();
    let strict = one_in(2, dice);
    let mut config = json!({"strict_affinity": strict, "auto_allocate_blocks": !strict || !one_in(4, dice)});
    if strict && one_in(3, dice) {
        config["maxBlocksPerHost"] = (1 + dice.below(2)).into();
    }
    world.create(&Key::IpamConfig, &config);
    for name in ["a", "b"] {
        world.put_node(name, &json!({"name": name}));
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
        world.create(&Key::Pool(family.into()), &json!({"spec": spec}));
        let pool: IpNet = cidr.parse().unwrap();
        for block in pool.subnets(size).unwrap() {
            if one_in(6, dice) {
                continue;
            }
            let (owner, taken) = (*dice.pick(&["a", "b"]), *dice.pick(&[4, 4, 4, 3, 0]));
            put_block(world, block, owner, taken);
        }
        if one_in(4, dice) {
            let reserved = format!("{}", address_at(pool, dice.below(16) as u32));
            let kept = Key::Reservation(format!("{family}-kept"));
            world.create(&kept, &json!({"spec": {"reservedCIDRs": [reserved]}}));
        }
    }
}

fn put_block(world: &World, cidr: IpNet, owner: &str, taken: usize) {
    let records = vec![json!({"handle_id": "others"}); taken];
    let value = values::block(&cidr.to_string(), format!("host:{owner}"), records);
    world.create(&Key::Block(cidr), &value);
    let key = AffinityKey {
        kind: AffinityType::Host,
        node: owner.to_owned(),
        cidr,
    };
    world.create(&Key::Affinity(key), &json!({"state": "confirmed"}));
}
