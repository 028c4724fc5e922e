//! Unforeseen data: values are changed in part, exchanged or lost at random.

use calipam_check::Scope;
use calipam_plan::rebuild::Request;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::json::pointers;
use serde_json::{Value, json};

use super::judge::{Rebuilt, rebuild};
use super::steps::{assert_no_harm, carry_out, part_of};

/// The keys of all IPAM data in the cluster.
fn keys(cluster: &Cluster) -> Vec<String> {
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).ok();
    cluster
        .keys()
        .filter_map(text)
        .filter(|key| key.starts_with("/calico/ipam/v2/"))
        .collect()
}

/// Changes one value: removes it, replaces it by another of its kind, or changes a part of it.
fn disturb(cluster: &mut Cluster, rng: &mut Rng) {
    let keys = keys(cluster);
    let key = rng.pick(&keys).clone();
    let kind = |key: &str| key.split('/').take(6).collect::<Vec<_>>().join("/");
    let alike: Vec<&String> = keys.iter().filter(|other| kind(other) == kind(&key)).collect();
    match rng.below(6) {
        0 => drop(cluster.remove(&key)),
        1 => {
            let other = cluster
                .get(rng.pick::<&String>(&alike))
                .expect("the key was listed")
                .value();
            cluster.put_raw(key, other);
        }
        _ => {
            let stored = cluster.get(&key).expect("it is there").value();
            let Ok(mut value) = serde_json::from_slice::<Value>(&stored) else {
                return;
            };
            let place = rng.pick(&pointers(&value)).clone();
            let strangers = json!([null, 0, 1, -1, 63, "host:node-1", "host:node-2", "pending", "pendingDeletion", true,
                [], {}, "k8s-pod-network.x\r\neth0", {"handle_id": "default.web-0"},
                {"releasedAt": "2026-06-01T07:59:00Z"}]);
            if let Some(target) = value.pointer_mut(&place) {
                *target = rng.pick(strangers.as_array().unwrap()).clone();
            }
            cluster.put_raw(key, value.to_string());
        }
    }
}

/// A random request to rebuild everything, or only a part.
fn request(cluster: &Cluster, rng: &mut Rng) -> Request {
    let node = &cluster.nodes()[rng.below(cluster.nodes().len() as u64) as usize];
    match rng.below(6) {
        0 => Request {
            scope: Scope::of_nodes([node.name.clone()]),
            ..Request::default()
        },
        1 => Request {
            blocks: node.blocks.clone(),
            ..Request::default()
        },
        2 => Request {
            scope: Scope::of_networks([cluster.spec().pool_v4()]),
            ..Request::default()
        },
        _ => Request::default(),
    }
}

#[test]
fn whatever_is_there_a_rebuild_keeps_its_promises() {
    for round in 0..calipam_testkit::rounds(150) {
        let mut rng = Rng::of(99, round);
        let mut cluster = Cluster::plain(ClusterSpec::new(round), 2, 3);
        for _ in 0..rng.below(3) {
            cluster.inject(*rng.pick(Fault::ALL), 1);
        }
        let wanted = request(&cluster, &mut rng);
        for _ in 0..1 + rng.below(8) {
            disturb(&mut cluster, &mut rng);
        }
        let name = format!("round {round}, {wanted:?}");
        let Rebuilt { before, plan, .. } = rebuild(&name, cluster.snapshot(), &wanted);
        // The same plan, but with random steps left out or interrupted.
        let kept = plan
            .actions
            .iter()
            .filter(|_| rng.below(4) > 0)
            .collect::<Vec<_>>();
        let parts = kept.into_iter().map(|action| {
            let all = action.step.edits().count() as u64;
            part_of(&action.step, rng.below(all + 2) as usize)
        });
        let after = carry_out(&before, &plan, parts.collect::<Vec<_>>().into_iter());
        assert_no_harm(&before, &plan, &after, &name);
    }
}
