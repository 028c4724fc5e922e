//! `migrate` under load: it is killed at random points, resumed, and partly undone. A soak uses 5,000 pods, and as many
//! nodes as the pool has blocks of /24.

mod disturbed;
mod scene;

use std::net::Ipv4Addr;

use calipam_testkit::allocator::{Activity, Churn, ChurnLog, Target};
use calipam_testkit::cluster::wire::Tunnel;
use calipam_testkit::rounds;

use self::disturbed::Disturbed;
use self::scene::Scene;
use super::kubernetes::{KubeSite, in_each_group};
use super::migrate::spec;
use super::site::*;

/// A migration: its arguments, and the pool that must exist at its end.
struct Way {
    arguments: &'static [&'static str],
    cidr: &'static str,
    block_size: u8,
}

/// Returns the migrations: to blocks of /28 in the same CIDR, and in a soak also to another range, back, and to blocks
/// of /24.
fn ways() -> Vec<Way> {
    let way = |arguments, cidr, block_size| Way {
        arguments,
        cidr,
        block_size,
    };
    const SMALL: &[&str] = &[
        "--from",
        "10.244.0.0/16",
        "--block-size",
        "28",
        "--via",
        "10.99.0.0/16",
    ];
    const LARGE: &[&str] = &[
        "--from",
        "10.98.0.0/16",
        "--block-size",
        "24",
        "--via",
        "10.99.0.0/16",
    ];
    let mut ways = vec![way(SMALL, "10.244.0.0/16", 28)];
    if is_soak() {
        ways.extend([to_range(28), way(LARGE, "10.98.0.0/16", 24)]);
    }
    ways
}

/// Returns a migration to another range.
fn to_range(block_size: u8) -> Way {
    Way {
        arguments: &["--from", "10.244.0.0/16", "--to-cidr", "10.98.0.0/16"],
        cidr: "10.98.0.0/16",
        block_size,
    }
}

/// Returns the time limit.
fn limit() -> Duration {
    if is_soak() {
        Duration::from_hours(2)
    } else {
        Duration::from_mins(15)
    }
}

/// The size of the cluster, and the number of disturbances.
struct Amount {
    nodes: usize,
    pods: usize,
    /// The number of kills and undo runs of each phase.
    rounds: usize,
    /// The minimum number of times that a phase must be killed.
    killed: usize,
    /// The minimum number of phases that must be undone.
    undone: usize,
}

/// Migrates a cluster under load, and checks that nothing was lost.
fn moves(scene: &dyn Scene, target: Target<'_>, names: &[String], ways: &[Way], amount: &Amount) {
    let activity = Activity::default();
    let churn = Churn {
        workers: amount.nodes,
        operations: usize::MAX,
        limit: limit(),
        leaks: if is_soak() { 5 } else { 50 },
        // Leaves processor time for the migration.
        pause: Duration::from_millis(if is_soak() { 100 } else { 10 }),
        pods: amount.pods,
        activity: activity.clone(),
        ..Churn::default()
    };

    let mut disturbed = Disturbed::new(scene, amount.rounds);
    let began = Instant::now();
    let log = thread::scope(|scope| {
        let working = scope.spawn(|| churn.run(target, &spec(), names).unwrap());
        let stops = StopsWhenDropped(&activity);
        // Most pods start before the migration.
        let expected = amount.nodes * amount.pods * 9 / 10;
        while scene.assigned() < expected {
            assert!(began.elapsed() < limit() && !working.is_finished());
            thread::sleep(Duration::from_millis(200));
        }
        for way in ways {
            disturbed.execute(way, began);
            let Disturbed {
                killed,
                undone,
                refused,
                ..
            } = &disturbed;
            let (cidr, size, took) = (way.cidr, way.block_size, began.elapsed());
            println!(
                "{cidr} /{size} after {took:.0?}: {killed} killed, {undone} undone, {refused} undos refused"
            );
        }
        drop(stops);
        working.join().unwrap()
    });
    println!("{log:?}");

    assert!(disturbed.killed >= amount.killed, "{} killed", disturbed.killed);
    assert!(disturbed.undone >= amount.undone, "{} undone", disturbed.undone);
    is_sound(scene, &log, ways.last().unwrap(), target);
}

fn is_soak() -> bool {
    rounds(1) > 1
}

#[test]
fn completes_despite_kills_and_undos_under_load() {
    let amount = if is_soak() {
        Amount {
            nodes: 199,
            pods: 25,
            rounds: 3,
            killed: 50,
            undone: 40,
        }
    } else {
        Amount {
            nodes: 8,
            pods: 3,
            rounds: 1,
            killed: 5,
            undone: 3,
        }
    };
    let mut cluster = Cluster::plain(spec(), amount.nodes as u32, 0);
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
    // The agents of nodes would move tunnels to the new pool, but no agents run here.
    for name in &names {
        Tunnel::ALL
            .iter()
            .for_each(|tunnel| cluster.set_tunnel(name, *tunnel, ""));
    }
    let site = Site::of(&cluster);
    moves(&site, Target::Etcd(&site.etcd), &names, &ways(), &amount);
}

fn on_kubernetes(flavour: Flavour) {
    let amount = if is_soak() {
        Amount {
            nodes: 20,
            pods: 10,
            rounds: 3,
            killed: 12,
            undone: 6,
        }
    } else {
        Amount {
            nodes: 4,
            pods: 2,
            rounds: 1,
            killed: 2,
            undone: 1,
        }
    };
    let (site, names) = KubeSite::seeded(flavour, &spec(), amount.nodes);
    moves(
        &site,
        Target::Kubernetes(&site.server, flavour),
        &names,
        &[to_range(26)],
        &amount,
    );
}

in_each_group!(
    on_kubernetes: on_kubernetes_classic_nodes_work_meanwhile,
    on_kubernetes_native_nodes_work_meanwhile
);

/// Ends the churn when it is dropped, even if the test fails.
struct StopsWhenDropped<'a>(&'a Activity);

impl Drop for StopsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Asserts that all running pods have an address of the new pool, in blocks of its size, without findings.
fn is_sound(scene: &dyn Scene, log: &ChurnLog, way: &Way, target: Target<'_>) {
    let cidr: IpNet = way.cidr.parse().unwrap();
    assert!(log.started > 100 && log.ledger.live().len() > 0, "{log:?}");
    for tenant in log.ledger.live() {
        assert!(cidr.contains(&tenant.address), "{tenant:?}");
        assert_eq!(tenant.block.prefix_len(), way.block_size, "{tenant:?}");
    }
    assert_eq!(log.ledger.verify(target).unwrap(), []);
    let is_error = |line: &String| line.starts_with("error") || line.starts_with("critical");
    let is_leak = |line: &String| {
        let address = line
            .split("leaked-address ")
            .nth(1)
            .and_then(|text| text.parse::<Ipv4Addr>().ok());
        address.is_some_and(|address| log.ledger.leaked().contains_key(&address.into()))
    };
    let errors = scene
        .findings(&[])
        .into_iter()
        .filter(is_error)
        .filter(|line| !is_leak(line));
    assert_eq!(errors.collect::<Vec<_>>(), Vec::<String>::new());
    let elsewhere = scene
        .cidrs()
        .concat()
        .into_iter()
        .filter(|own| !cidr.contains(own));
    assert_eq!(elsewhere.collect::<Vec<_>>(), Vec::<IpNet>::new());
}
