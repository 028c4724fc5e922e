//! Many clients at once, under a scheduler that chooses the client of each request to the datastore, and kills clients.
//! Invariants: no address has two holders, none is lost, a handle never counts too little, and a check explains every
//! state.

use calipam_check::{Code, Options, check};
use jiff::SignedDuration;

use crate::clients::{Kind, client};
use crate::scheduler::Scheduler;
use crate::world::{Shape, World};

/// The findings that a check may have while clients are at work or were killed (facts 3.15). Everything else would be
/// damage.
pub(crate) const OF_INTERRUPTIONS: &[Code] = &[
    // Allocated, but with no endpoint yet or any longer.
    Code::LeakedAddress,
    // Counted before it is allocated, and still counted after it was released.
    Code::HandleCount,
    Code::OrphanHandle,
    // Between the steps of claiming or giving up a block.
    Code::UnsettledAffinity,
    Code::AffinityWithoutBlock,
    Code::AffinityBlockMismatch,
    Code::AffinityConflict,
    Code::EmptyUnownedBlock,
    Code::NodeOverBlockLimit,
    Code::NodeWithoutAddresses,
    Code::PoolNearlyFull,
    // From before strict affinity was turned on.
    Code::BorrowedUnderStrictAffinity,
];

/// The findings that a check may have when all clients have ended and killed operations were cleaned up.
pub(crate) const OF_QUIET: &[Code] = &[
    Code::UnsettledAffinity,
    Code::AffinityWithoutBlock,
    Code::AffinityBlockMismatch,
    Code::AffinityConflict,
    Code::NodeWithoutAddresses,
    Code::PoolNearlyFull,
];

pub(crate) fn assert_explained(world: &World, allowed: &[Code], when: &str) {
    let options = Options { grace: Some(SignedDuration::ZERO), ..Options::default() };
    for finding in check(&world.snapshot(), &options).findings {
        // Checks rightly report a clock that went back.
        let is_of_clock = world.shape.clock_jumps
            && finding.code == Code::CorruptBlock
            && finding.message().contains("was released in the future");
        assert!(
            is_of_clock || allowed.contains(&finding.code),
            "{when}: {}: {}",
            finding.code,
            finding.message()
        );
    }
}

/// Runs clients. `kills` of a thousand steps kill one.
fn run(seed: u64, shape: Shape, kinds: &[Kind], kills: u64) {
    let world = World::new(shape);
    let mut scheduler = Scheduler::new(seed);
    for (number, kind) in kinds.iter().enumerate() {
        scheduler.add(client(&world, *kind, number, seed));
    }
    let mut killed = 0;
    while scheduler.step() {
        world.assert_sound(seed);
        if scheduler.chance(kills) && killed < 20 {
            scheduler.kill();
            killed += 1;
            assert_explained(&world, OF_INTERRUPTIONS, &format!("seed {seed}, after a client was killed"));
            let number = kinds.len() + killed;
            scheduler.add(client(&world, kinds[number % kinds.len()], number, seed));
        }
    }
    drop(scheduler);
    assert_explained(&world, OF_INTERRUPTIONS, &format!("seed {seed}, at the end"));

    world.clean_up();
    if shape.lost_answers.is_some() {
        // A handle whose count could not be taken back counts too much until its pod stops.
        world.stop_all();
    }
    world.assert_settled(seed);
    assert_explained(&world, OF_QUIET, &format!("seed {seed}, when all was quiet"));
}

/// The seeds that a test tries.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let times = if std::env::var_os("CALIPAM_SOAK").is_some() { 100 } else { 1 };
    0..usual * times
}

const PODS: [Kind; 5] = [Kind::Pods, Kind::Pods, Kind::Pods, Kind::Pods, Kind::Pods];

#[test]
fn pods_come_and_go_on_all_nodes() {
    for seed in seeds(4) {
        run(seed, Shape::default(), &PODS, 0);
    }
}

#[test]
fn clients_are_killed_anywhere() {
    for seed in seeds(4) {
        run(seed, Shape::default(), &PODS, 20);
    }
}

#[test]
fn blocks_are_claimed_and_given_up_meanwhile() {
    let kinds = [Kind::Pods, Kind::Blocks, Kind::Pods, Kind::Blocks, Kind::Pods];
    for seed in seeds(4) {
        run(seed, Shape { empty_blocks_are_old: true, ..Shape::default() }, &kinds, 20);
    }
}

#[test]
fn released_addresses_cool_down() {
    let kinds = [Kind::Pods, Kind::Pods, Kind::Clock, Kind::Blocks];
    for seed in seeds(4) {
        run(seed, Shape { cooldown: 30, ..Shape::default() }, &kinds, 20);
    }
}

#[test]
fn affinity_is_strict() {
    let kinds = [Kind::Pods, Kind::Pods, Kind::Pods, Kind::Blocks];
    for seed in seeds(4) {
        run(seed, Shape { strict_affinity: true, ..Shape::default() }, &kinds, 20);
    }
}

#[test]
fn one_handle_is_filled_and_emptied_by_several_at_once() {
    let kinds = [Kind::OneHandle, Kind::OneHandle, Kind::OneHandle, Kind::Pods];
    for seed in seeds(4) {
        run(seed, Shape::default(), &kinds, 10);
    }
}

#[test]
fn answers_are_lost() {
    for seed in seeds(4) {
        run(seed, Shape { lost_answers: Some(seed), ..Shape::default() }, &PODS, 5);
    }
}

#[test]
fn the_clock_jumps() {
    let kinds = [Kind::Pods, Kind::Clock, Kind::Pods, Kind::Blocks, Kind::Pods];
    for seed in seeds(4) {
        run(seed, Shape { cooldown: 30, clock_jumps: true, ..Shape::default() }, &kinds, 20);
    }
}
