//! `migrate` while nodes work: killed and resumed at random points, and undone half-way. In a soak with as many nodes as a pool has room
//! for blocks of /24, and 5,000 pods.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::key::Key;
use calipam_testkit::allocator::{Activity, Churn, ChurnLog, Target};
use calipam_testkit::cluster::Cluster;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::rounds;
use calipam_testkit::servers::{Tear, Tearing};
use serde_json::Value;

use super::killed::run_and_kill;
use super::migrate::spec;
use super::site::*;
use crate::cli::program::Run;

/// A migration, and what it ends with.
struct Way {
    arguments: &'static [&'static str],
    cidr: &'static str,
    block_size: u8,
}

/// To blocks of /28 in the same CIDR, and in a soak to another range, back, and on to blocks of /24.
fn ways() -> Vec<Way> {
    let way = |arguments, cidr, block_size| Way { arguments, cidr, block_size };
    const SMALL: &[&str] = &["--from", "10.244.0.0/16", "--block-size", "28", "--via", "10.99.0.0/16"];
    const RANGE: &[&str] = &["--from", "10.244.0.0/16", "--to-cidr", "10.98.0.0/16"];
    const LARGE: &[&str] = &["--from", "10.98.0.0/16", "--block-size", "24", "--via", "10.99.0.0/16"];
    let mut ways = vec![way(SMALL, "10.244.0.0/16", 28)];
    if rounds(1) > 1 {
        ways.extend([way(RANGE, "10.98.0.0/16", 28), way(LARGE, "10.98.0.0/16", 24)]);
    }
    ways
}

/// A site on which a migration is killed, resumed and undone.
struct Disturbed<'s> {
    site: &'s Site,
    torn: Tearing,
    rng: Rng,
    /// Requests of the last run that was not killed.
    requests: u64,
    killed: usize,
    /// Kills of each phase, before it comes to its end.
    kills: usize,
    /// The journal of the last run, where it was not killed and has written.
    ended: Option<PathBuf>,
    /// Phases that were undone, and those of which the undo was refused.
    undone: usize,
    refused: usize,
}

impl Disturbed<'_> {
    /// Carries out the migration, phase after phase. Each phase is killed several times at random requests, and undone once where it
    /// came to its end.
    fn go(&mut self, way: &Way, began: Instant) {
        let arguments = [&["migrate"], &AT_ONCE[..], way.arguments, &["--apply", "--yes"]].concat();
        let mut seen: BTreeSet<(String, String)> = BTreeSet::new();
        let (mut now, mut kills) = (Default::default(), 0);
        while !self.has_come(way) {
            assert!(began.elapsed() < limit(), "{now:?} after {} kills", self.killed);
            let status = self.migrate(&[way.arguments, &["-o", "json"]].concat()).json();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let at = (text(&status["from"]["name"]), text(&status["phase"]));
            if at != now {
                (now, kills) = (at.clone(), 0);
            }
            if at.1 == "move" {
                // Some have moved when the old pool is enabled again.
                if seen.insert(at) {
                    self.undo_last();
                }
                thread::sleep(Duration::from_millis(300));
                continue;
            }

            let at_request = if kills < self.kills { 1 + self.rng.below(self.requests) } else { u64::MAX };
            if self.run(&arguments, at_request) {
                kills += 1;
            } else if at.1 != "disable" && seen.insert(at) {
                self.undo_last();
            }
            self.no_blocks_overlap();
        }
    }

    fn migrate(&self, arguments: &[&str]) -> Run {
        self.site.run(&[&["migrate"], &AT_ONCE[..], arguments].concat())
    }

    /// Runs a command, and kills it at that request. True if it was killed.
    fn run(&mut self, arguments: &[&str], at_request: u64) -> bool {
        let mut command = self.site.command(arguments);
        command.env("ETCD_ENDPOINTS", self.torn.url());
        let tear = if self.rng.below(2) == 0 { Tear::Drop } else { Tear::Swallow };
        let (mut number, earlier) = (0, self.site.journals());
        let was_killed = run_and_kill(command, &self.torn, tear, move |_| {
            number += 1;
            number == at_request
        });
        self.killed += usize::from(was_killed);
        let own = self.site.journals().pop().filter(|journal| !earlier.contains(journal));
        self.ended = own.filter(|_| !was_killed);
        if !was_killed {
            self.requests = (self.torn.count() as u64).max(10);
        }
        was_killed
    }

    /// Undoes the last phase that came to its end. It is refused where pods have blocks in the new pool.
    fn undo_last(&mut self) {
        let Some(journal) = self.ended.take() else { return };
        let undo = self.site.undo(journal.to_str().unwrap());
        match undo.code {
            0 => self.undone += 1,
            1 => self.refused += 1,
            _ => panic!("{undo:?}"),
        }
    }

    /// The pools are what the migration is to end with.
    fn has_come(&self, way: &Way) -> bool {
        let dump = self.site.dump();
        let pools = dump.iter().filter(|(key, _)| key.contains("/ippools/"));
        let pools: Vec<Value> = pools.map(|(_, (raw, _))| serde_json::from_slice(raw).unwrap()).collect();
        let [pool] = pools.as_slice() else { return false };
        (&pool["spec"]["cidr"], &pool["spec"]["blockSize"]) == (&way.cidr.into(), &way.block_size.into())
    }

    /// No block lies in another one.
    fn no_blocks_overlap(&self) {
        let dump = self.site.dump();
        let block = |key: &String| match Key::parse(key) {
            Ok(Some(Key::Block(cidr))) => Some(cidr),
            _ => None,
        };
        let mut blocks: Vec<IpNet> = dump.keys().filter_map(block).collect();
        blocks.sort_unstable();
        for pair in blocks.windows(2) {
            assert!(!overlap(pair[0], pair[1]), "{pair:?}");
        }
    }
}

/// How long it takes at most.
fn limit() -> Duration {
    if rounds(1) > 1 { Duration::from_hours(2) } else { Duration::from_mins(15) }
}

#[test]
fn killed_resumed_and_undone_it_comes_to_its_end_while_nodes_work() {
    let is_soak = rounds(1) > 1;
    let (nodes, pods, kills) = if is_soak { (199, 25, 3) } else { (8, 3, 1) };
    let mut cluster = Cluster::plain(spec(), nodes, 0);
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
    // Their agents move tunnels, of which there are none here.
    for name in &names {
        let node = cluster.node_mut(name);
        (node.spec.vxlan, node.spec.wireguard, node.spec.bgp.ipip) = Default::default();
    }
    let site = Site::of(&cluster);
    let activity = Activity::default();
    let churn = Churn {
        workers: nodes as usize,
        operations: usize::MAX,
        limit: limit(),
        leaks: if is_soak { 5 } else { 50 },
        // The nodes are not to take the processors from the migration.
        pause: Duration::from_millis(if is_soak { 100 } else { 10 }),
        pods,
        activity: activity.clone(),
        ..Churn::default()
    };

    let (endpoint, spec, ways) = (site.etcd.endpoint(), *cluster.spec(), ways());
    let mut disturbed = Disturbed {
        site: &site,
        torn: Tearing::etcd(&site.etcd).unwrap(),
        rng: Rng::new(33),
        requests: 40,
        killed: 0,
        kills,
        ended: None,
        undone: 0,
        refused: 0,
    };
    let began = Instant::now();
    let log = thread::scope(|scope| {
        let working = scope.spawn(|| churn.run_on(Target::Etcd(&endpoint), &spec, &names).unwrap());
        let stops = StopsWhenDropped(&activity);
        // Most have come before anything moves.
        let expected = nodes as usize * pods * 9 / 10;
        while recorded(&site.dump()).len() < expected {
            assert!(began.elapsed() < limit() && !working.is_finished());
            thread::sleep(Duration::from_millis(200));
        }
        for way in &ways {
            disturbed.go(way, began);
            let Disturbed { killed, undone, refused, .. } = &disturbed;
            let (cidr, size, took) = (way.cidr, way.block_size, began.elapsed());
            println!(
                "{cidr} /{size} after {took:.0?}: {killed} killed, {undone} undone, {refused} undos refused"
            );
        }
        drop(stops);
        working.join().unwrap()
    });
    println!("{log:?}");

    let (least, undos) = if is_soak { (50, 12) } else { (5, 3) };
    assert!(disturbed.killed >= least, "{} killed", disturbed.killed);
    assert!(disturbed.undone >= undos, "{} undone", disturbed.undone);
    is_sound(&site, &log, ways.last().unwrap(), Target::Etcd(&endpoint));
}

/// Ends the churn also where the test fails.
struct StopsWhenDropped<'a>(&'a Activity);

impl Drop for StopsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// All pods that live have an address of the new pool, in blocks of its size, and nothing is wrong.
fn is_sound(site: &Site, log: &ChurnLog, way: &Way, target: Target<'_>) {
    let cidr: IpNet = way.cidr.parse().unwrap();
    assert!(log.started > 100 && log.ledger.live().len() > 0, "{log:?}");
    for tenant in log.ledger.live() {
        assert!(cidr.contains(&tenant.address), "{tenant:?}");
        assert_eq!(tenant.block.prefix_len(), way.block_size, "{tenant:?}");
    }
    assert_eq!(log.ledger.verify(target).unwrap(), []);
    let is_error = |line: &String| line.starts_with("error") || line.starts_with("critical");
    let is_leak = |line: &String| {
        let address = line.split("leaked-address ").nth(1).and_then(|text| text.parse::<Ipv4Addr>().ok());
        address.is_some_and(|address| log.ledger.leaked().contains_key(&address.into()))
    };
    let errors = site.findings(&[]).into_iter().filter(is_error).filter(|line| !is_leak(line));
    assert_eq!(errors.collect::<Vec<_>>(), Vec::<String>::new());
    let left = site.dump().keys().filter(|key| key.starts_with("/calico/ipam/")).cloned().collect::<Vec<_>>();
    let elsewhere = left.iter().filter(|key| match Key::parse(key) {
        Ok(Some(Key::Block(block))) => !cidr.contains(&block),
        Ok(Some(Key::Affinity(affinity))) => !cidr.contains(&affinity.cidr),
        _ => false,
    });
    assert_eq!(elsewhere.collect::<Vec<_>>(), Vec::<&String>::new());
}
