//! calipam's writing commands, as a person runs them. They run the code of `workflow` and `repair` on a datastore and
//! files that the explorer controls.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use calipam_check::Options;
use calipam_datastore::Datastore;
use calipam_datastore::write::{Consent, Question};
use calipam_model::config::IpamSetting;
use calipam_plan::migrate::Target;
use calipam_plan::{assign as plan_assign, rebuild as plan_rebuild, release as plan_release};
use calipam_repair::journal::Recorded;
use calipam_workflow::{
    Access, Activity, AssignRequest, ConfigureRequest, Criteria, Event, Executed, Failure, Intent, Meter,
    MigrateRequest, Names, Operator, Pending, PoolName, Proposal, RebuildRequest, ReleaseRequest, Repaired,
    SplitRequest, Writing, assign, configure, migrate, rebuild, release, split, undo,
};
use jiff::SignedDuration;

use super::{Actor, Task};
use crate::world::{Footprint, OneDisk, Phase, World, etcd, kubernetes};

/// A command, or a step of someone else between two commands.
#[derive(Clone, Debug)]
pub enum Command {
    /// `release --leaked`.
    Release,
    /// `release --ip`.
    ReleaseAddress(IpAddr),
    Rebuild,
    /// `assign --ip` with an address, a node and a handle.
    Assign(IpAddr, &'static str, &'static str),
    Split(&'static str),
    Configure(IpamSetting),
    /// The next phase of a migration away from the pool `pool`. With a block size, the migration ends in the same pool
    /// with blocks of this size, and the CIDR is that of a temporary pool. Otherwise it ends in a pool with this CIDR.
    Migrate(&'static str, Option<u8>),
    /// A step of someone else, who creates a key and may delete another one.
    Others {
        create: (&'static str, &'static str),
        delete: Option<&'static str>,
    },
    /// `undo` of the last command.
    Undo,
}

/// Creates a person who runs commands one after another. After a kill, they run `after_kill` instead.
pub fn calipam(locks: bool, commands: &[Command], after_kill: &[Command]) -> Actor {
    let name = format!("{:?}", commands[0]);
    let commands = [commands.to_vec(), after_kill.to_vec()];
    let person = Actor::going_on(name, move |world, actor, is_killed| {
        Session { world, actor, locks }.run(commands[usize::from(is_killed)].clone())
    });
    Actor {
        is_process: true,
        ..person
    }
}

/// Creates a person who runs a command, and runs it again after a kill.
pub fn again(command: Command) -> Actor {
    calipam(
        false,
        std::slice::from_ref(&command),
        std::slice::from_ref(&command),
    )
}

/// Creates a person who runs a command and undoes it, also after a kill.
pub fn undone(command: Command) -> Actor {
    calipam(false, &[command, Command::Undo], &[Command::Undo])
}

/// A person at a terminal of a machine with its own journals.
struct Session {
    world: Arc<World>,
    actor: usize,
    /// True if the commands lock the datastore while they write.
    locks: bool,
}

impl Session {
    async fn run(self, commands: Vec<Command>) {
        if self.locks {
            self.world.audit().locking.insert(self.actor);
        }
        let datastore = self.open().await;
        for (number, command) in commands.iter().enumerate() {
            match command {
                Command::Undo => self.undo(&datastore).await,
                Command::Others { create, delete } => self.others(*create, *delete).await,
                command => self.write(&datastore, command, number > 0).await,
            }
        }
    }

    async fn open(&self) -> Datastore {
        if self.world.is_kubernetes() {
            kubernetes::open(&self.world, self.actor)
        } else {
            etcd::open(&self.world, self.actor).await
        }
    }

    /// Begins a run with its own journal.
    fn begin(&self, phase: Phase) -> (PathBuf, Intent) {
        let (journal, folder) = self.world.files.next_journal(self.actor);
        self.world.audit().begin(self.actor, phase);
        let writing = Writing {
            command: "explored".into(),
            lock: self.locks,
            journal: Some(journal.clone()),
            disk: Some(Arc::new(OneDisk::new(&self.world, self.actor))),
        };
        (
            journal,
            Intent {
                writing: Some(writing),
                max_changes: None,
                journals: Some(folder),
            },
        )
    }

    /// Carries out a command, which `is_repeated` if an earlier one may have done everything.
    async fn write(&self, datastore: &Datastore, command: &Command, is_repeated: bool) {
        let (journal, intent) = self.begin(Phase::Repairs);
        self.world.audit().journals.insert(self.actor, journal);
        // If the run is incomplete, the next command has to complete it.
        let why = match self
            .carry_out(Access::new(datastore, self), command, intent)
            .await
        {
            Ok(Repaired { run: Some(run), .. }) if run.execution.is_complete() => return,
            // A migration can proceed only after the users of the pool have moved.
            Ok(Repaired { run: None, .. }) if matches!(command, Command::Migrate(..)) => return,
            // There may be nothing left to clean up.
            Ok(Repaired { run: None, .. }) if self.world.is_free || is_repeated => return,
            Ok(Repaired { run, .. }) => format!("{:?}", run.map(|run| run.execution)),
            Err(error) => error.to_string(),
        };
        if self.world.audit().is_undisturbed() {
            self.world
                .truth
                .violated(format!("{command:?} was not disturbed, but is incomplete: {why}"));
        }
    }

    /// Undoes the last command, and checks that a complete undo restores the state before the command.
    async fn undo(&self, datastore: &Datastore) {
        let journal = self.world.audit().journals.get(&self.actor).cloned();
        let Some(journal) = journal else { return };
        let Ok(recorded) = Recorded::read(&journal) else {
            return;
        };
        let (_, intent) = self.begin(Phase::Undoes);
        let Ok(undone) = undo(Access::new(datastore, self), &journal, recorded, None, &intent).await else {
            return;
        };
        let is_complete = |run: &Executed| run.execution.is_complete();
        if undone.plan.skipped().is_empty()
            && undone.run.as_ref().is_none_or(is_complete)
            && let Some(path) = self.world.audit().first_unrestored(self.actor)
        {
            let what = format!("the undo is complete, and {path} is not as it was before the run");
            self.world.truth.violated(what);
        }
    }

    async fn others(&self, (key, value): (&'static str, &'static str), delete: Option<&'static str>) {
        let Self { world, actor, .. } = self;
        let footprint = delete
            .into_iter()
            .fold(Footprint::default().write(key), Footprint::write);
        let is_done = world
            .turn(*actor, format!("others create {key}"), footprint)
            .answered()
            .await;
        if is_done.is_ok() && delete.is_none_or(|other| world.data.remove(other)) {
            world.data.put(key, value);
            world
                .audit()
                .of_others
                .extend(delete.into_iter().chain([key]).map(str::to_owned));
        }
    }

    async fn carry_out(
        &self,
        access: Access<'_>,
        command: &Command,
        intent: Intent,
    ) -> Result<Repaired, Failure> {
        // The command reads the cluster twice in quick succession.
        let options = Options {
            grace: Some(SignedDuration::from_nanos(1)),
            ..Options::default()
        };
        let criteria = Criteria {
            options,
            recheck_after: SignedDuration::ZERO,
        };
        let names = Names::default();
        match command {
            Command::Release | Command::ReleaseAddress(_) => {
                let targets = match command {
                    Command::ReleaseAddress(address) => plan_release::Request {
                        addresses: vec![*address],
                        ..Default::default()
                    },
                    _ => plan_release::Request {
                        leaked: true,
                        orphan_handles: true,
                        ..Default::default()
                    },
                };
                let reports = Vec::new();
                let lock = self.locks;
                let request = ReleaseRequest {
                    targets,
                    names,
                    reports,
                    criteria,
                    lock,
                    intent,
                };
                release(access, &request).await
            }
            Command::Rebuild => {
                let wanted = plan_rebuild::Request {
                    endpoints_only: true,
                    ..Default::default()
                };
                let request = RebuildRequest {
                    wanted,
                    names,
                    output_dir: None,
                    criteria,
                    intent,
                };
                rebuild(access, &request).await
            }
            Command::Assign(address, node, handle) => {
                let wanted = plan_assign::Request {
                    node: (*node).to_owned(),
                    addresses: vec![*address],
                    handle: Some((*handle).to_owned()),
                    ..Default::default()
                };
                let request = AssignRequest {
                    wanted,
                    pools: Vec::new(),
                    criteria,
                    intent,
                };
                assign(access, &request).await
            }
            Command::Split(pool) => {
                let pool = PoolName::Name((*pool).to_owned());
                let parts = 2;
                let needs_lock = false;
                let disables_first = false;
                let request = SplitRequest {
                    pool,
                    parts,
                    needs_lock,
                    disables_first,
                    intent,
                };
                split(access, &request).await
            }
            Command::Configure(setting) => {
                let request = ConfigureRequest {
                    settings: vec![*setting],
                    predicts_effects: false,
                    intent,
                };
                configure(access, &request).await
            }
            Command::Migrate(cidr, size) => {
                let cidr = cidr.parse().map_err(|_| Failure::declined())?;
                let target = match *size {
                    Some(block_size) => Target::SameNetwork {
                        block_size,
                        via: Some(cidr),
                    },
                    None => Target::Network {
                        cidr,
                        block_size: None,
                        name: None,
                    },
                };
                let from = Some("pool".to_owned());
                let force = false;
                let eviction = None;
                let request = MigrateRequest {
                    from,
                    target,
                    force,
                    eviction,
                    criteria,
                    intent,
                };
                migrate(access, &request).await.map(|migrated| migrated.repaired)
            }
            Command::Undo | Command::Others { .. } => Err(Failure::declined()),
        }
    }
}

/// Rebuilds everything in a world without other actors.
///
/// # Errors
/// Returns an error if the rebuild fails or is incomplete.
pub(crate) fn rebuild_all(world: &Arc<World>) -> Result<(), String> {
    world.audit().is_alone = true;
    let session = Session {
        world: Arc::clone(world),
        actor: 0,
        locks: false,
    };
    let has_ended = Task::new(Box::pin(session.run(vec![Command::Rebuild])), true).resume();
    match world.truth.take_violations().pop() {
        Some(violation) => Err(violation),
        None if has_ended => Ok(()),
        None => Err("the rebuild does not end".to_owned()),
    }
}

/// The person agrees to everything, and waits for the end of the grace period before the second read.
impl Operator for Session {
    fn tell(&self, _: Event<'_>) {}

    fn start(&self, activity: Activity) -> Arc<dyn Meter> {
        if activity == Activity::WaitingForSecondRead {
            self.world.wait_for_grace(self.actor);
        }
        Arc::new(Unwatched)
    }

    fn show(&self, _: Proposal<'_>) -> Result<(), Failure> {
        Ok(())
    }

    fn can_agree(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn ask(&self, question: Question) -> Pending<'_, Result<Option<Consent>, Failure>> {
        Box::pin(async { Ok(Consent::from_answer(question, "yes")) })
    }
}

struct Unwatched;

impl Meter for Unwatched {
    fn set(&self, _: u64, _: u64) {}

    fn end(&self) {}
}
