//! A migration that is killed at random requests, resumed and partly undone.

use std::collections::BTreeMap;

use calipam_model::cidr::overlap;
use calipam_testkit::cluster::rng::Rng;

use super::super::killed::run_and_kill;
use super::super::site::*;
use super::scene::Scene;
use super::{Way, limit};

/// A cluster whose migration is killed, resumed and undone.
pub(super) struct Disturbed<'s> {
    scene: &'s dyn Scene,
    torn: Tearing,
    rng: Rng,
    /// The requests of the last completed run.
    requests: u64,
    pub killed: usize,
    /// The number of kills, and of undo runs, for each phase.
    rounds: usize,
    /// The journal of the last run, if that run wrote something and was not killed.
    ended: Option<PathBuf>,
    /// The number of phases that were undone.
    pub undone: usize,
    /// The number of undo runs that were refused.
    pub refused: usize,
}

impl<'s> Disturbed<'s> {
    /// Creates the state at the start, before anything was tried.
    pub(super) fn new(scene: &'s dyn Scene, rounds: usize) -> Self {
        Self {
            scene,
            torn: scene.tearing(),
            rng: Rng::new(33),
            requests: 40,
            killed: 0,
            rounds,
            ended: None,
            undone: 0,
            refused: 0,
        }
    }

    /// Executes the migration, phase by phase. Kills each phase several times at random requests and, once it is
    /// complete, undoes it as often.
    pub(super) fn execute(&mut self, way: &Way, began: Instant) {
        let arguments = [&["migrate"], &AT_ONCE[..], way.arguments, &["--apply", "--yes"]].concat();
        let [mut kills, mut undos]: [BTreeMap<(String, String), usize>; 2] = Default::default();
        while !self.is_complete(way) {
            let status = self.migrate(&[way.arguments, &["-o", "json"]].concat()).json();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let at = (text(&status["from"]["name"]), text(&status["phase"]));
            assert!(began.elapsed() < limit(), "{at:?} after {} kills", self.killed);
            let [killed, undone] =
                [&mut kills, &mut undos].map(|counts| counts.entry(at.clone()).or_default());
            if at.1 == "move" {
                // Some pods have moved already when the undo enables the old pool again.
                if *undone < self.rounds && self.ended.is_some() {
                    *undone += 1;
                    self.undo_last();
                }
                thread::sleep(Duration::from_millis(300));
                continue;
            }

            let at_request = if *killed < self.rounds {
                1 + self.rng.below(self.requests)
            } else {
                u64::MAX
            };
            if self.run(&arguments, at_request) {
                *killed += 1;
            } else if at.1 != "disable" && *undone < self.rounds {
                *undone += 1;
                self.undo_last();
            }
            self.no_blocks_overlap();
        }
    }

    fn migrate(&self, arguments: &[&str]) -> Run {
        self.scene.run_at_once(&["migrate"], arguments)
    }

    /// Runs a command, and kills it at a request. Returns true if it was killed.
    fn run(&mut self, arguments: &[&str], at_request: u64) -> bool {
        let command = self.scene.command_by_proxy(&self.torn, arguments);
        let tear = if self.rng.below(2) == 0 {
            Tear::Drop
        } else {
            Tear::Swallow
        };
        let (mut number, earlier) = (0, self.scene.journals());
        let was_killed = run_and_kill(command, &self.torn, tear, move |_| {
            number += 1;
            number == at_request
        });
        self.killed += usize::from(was_killed);
        let own = self
            .scene
            .journals()
            .pop()
            .filter(|journal| !earlier.contains(journal));
        self.ended = own.filter(|_| !was_killed);
        if !was_killed {
            self.requests = (self.torn.count() as u64).max(10);
        }
        was_killed
    }

    /// Undoes the last completed phase. The undo is refused if pods have blocks in the new pool.
    fn undo_last(&mut self) {
        let Some(journal) = self.ended.take() else { return };
        let undo = self.scene.undo(journal.to_str().unwrap());
        match undo.code {
            0 => self.undone += 1,
            1 => self.refused += 1,
            _ => panic!("{undo:?}"),
        }
    }

    /// True if the pools are those at the end of the migration.
    fn is_complete(&self, way: &Way) -> bool {
        let pools = self.scene.all_pools();
        let [pool] = pools.as_slice() else { return false };
        (&pool["spec"]["cidr"], &pool["spec"]["blockSize"]) == (&way.cidr.into(), &way.block_size.into())
    }

    /// Asserts that blocks do not overlap.
    fn no_blocks_overlap(&self) {
        let [mut blocks, _] = self.scene.cidrs();
        blocks.sort_unstable();
        for pair in blocks.windows(2) {
            assert!(!overlap(pair[0], pair[1]), "{pair:?}");
        }
    }
}
