//! The `migrate` command.

use calipam_check::{Remedy, list};
use calipam_plan::migrate::{Detour, Leg, Phase, Survey, UserKind};
use calipam_workflow::{MigrateRequest, Migrated, Surveyed};

use super::repair;
use crate::args::{Global, MigrateArgs};
use crate::console::Console;
use crate::exit::{Outcome, Result};
use crate::hints::Reader;
use crate::operator::Person;
use crate::render::migrate::MigrationDocument;
use crate::render::text::{count, joined};
use crate::{connect, hints};

/// Plans the next phase of a migration, carries it out if asked for, and prints it.
pub(super) fn run(args: &MigrateArgs, global: &Global, console: &Console) -> Result<Outcome> {
    let command = if args.apply {
        Some("migrate --apply".to_owned())
    } else {
        None
    };
    let request = MigrateRequest {
        from: args.from.clone(),
        target: args.target(),
        force: args.force,
        eviction: args.eviction(),
        criteria: args.criteria.criteria(),
        intent: args.writing.intent(command),
    };

    let person = Person::new(console, args.writing.yes);
    connect::with_person(global, &person, async |access| {
        let Migrated {
            surveyed,
            repaired,
            was_shown,
        } = calipam_workflow::migrate(access, &request).await?;

        let run = repaired.run.as_ref();
        let document = MigrationDocument::new(&surveyed, &repaired.plan, run, was_shown);
        repair::print(&repaired.plan, run.is_some(), &document, console)?;

        let is_complete = run.is_some_and(|run| run.execution.is_complete());
        // A migration of a file is refused before this point.
        let is_live = true;
        let is_dry_run = !args.apply;
        let outcome = repair::print_outcome(repaired, is_dry_run, is_live, console)?;
        Ok(print_next_step(
            &surveyed,
            args.apply,
            is_complete,
            outcome,
            console,
        ))
    })
}

/// Prints the next step of the migration, by the phase that was planned or carried out. Returns `outcome`, but
/// [`Outcome::Refused`] if `--apply` was used in the phase in which the users of addresses move.
fn print_next_step(
    surveyed: &Surveyed,
    applies: bool,
    is_complete: bool,
    outcome: Outcome,
    console: &Console,
) -> Outcome {
    let Survey { phase, migration, .. } = &surveyed.survey;
    if *phase == Phase::Move {
        print_ways_to_move(surveyed, console);
        // The next phase needs all of them to have moved.
        return if applies { Outcome::Refused } else { outcome };
    }
    if !is_complete {
        return outcome;
    }

    if *phase != Phase::Delete {
        console.hint(&format!("the next phase: {}", apply_from(&migration.old.name)));
        return outcome;
    }
    // The last phase of the first half of a migration by way of a temporary pool is followed by the second half.
    match migration.detour() {
        Some(Detour {
            leg: Leg::There,
            temporary,
            ..
        }) => console.hint(&format!("to move back: {}", apply_from(&temporary.name))),
        _ => console.info("the migration is complete"),
    }
    outcome
}

/// Formats the command that carries out the next phase of a migration from this pool.
fn apply_from(pool: &str) -> String {
    hints::command(&["migrate", "--apply", "--from", pool])
}

/// Prints the ways to move the users of the old pool, and the command that shows which are left.
fn print_ways_to_move(surveyed: &Surveyed, console: &Console) {
    for way in ways_to_move(surveyed) {
        console.hint(&way);
    }
    let old = &surveyed.survey.migration.old.name;
    console.hint(&format!(
        "{} shows what is left",
        hints::command(&["migrate", "--from", old])
    ));
}

/// Returns the ways to move those users of the old pool that are left.
fn ways_to_move(Surveyed { survey, moving }: &Surveyed) -> Vec<String> {
    let mut ways = Vec::new();
    let evict = [
        "migrate",
        "--apply",
        "--from",
        survey.migration.old.name.as_str(),
        "--evict",
    ];
    let users = |kind: UserKind| survey.users.iter().filter(move |user| user.kind == kind);
    let has_users = |kind: UserKind| users(kind).next().is_some();
    let mut can_evict = moving.is_none() && has_users(UserKind::Pod);
    let mut bare_pods = Vec::new();
    if let Some(moving) = moving {
        for group in &moving.workloads {
            if group.can_move(moving.live_migration_moves) {
                can_evict = true;
            } else if group.kind.is_none() {
                bare_pods.push(format!("{}/{}", group.namespace, group.name));
            }
        }
    }
    if can_evict {
        ways.push(format!(
            "restart what uses the pool, or evict its pods with {}",
            hints::command(&evict)
        ));
    }
    if !bare_pods.is_empty() {
        let pods = count(
            bare_pods.len(),
            "pod that no controller recreates",
            "pods that no controller recreates",
        );
        let names = list(&bare_pods);
        ways.push(format!("delete {pods}, and create them again: {names}"));
    }

    if has_users(UserKind::Endpoint) {
        ways.push("restart the workloads of the endpoints in the pool".to_owned());
    }

    let mut tunnels: Vec<String> = users(UserKind::Tunnel).map(|user| user.node.clone()).collect();
    tunnels.dedup();
    if let Some(first) = tunnels.first() {
        let restart = hints::remedy::line(&Remedy::RestartCalicoNode(first.clone()), Reader::Operator);
        ways.push(match tunnels.len() {
            1 => {
                format!("restart calico-node, so that the tunnel of {first} gets another address: {restart}")
            }
            _ => format!(
                "restart calico-node on {}, so that their tunnels get other addresses; on {first}: {restart}",
                list(&tunnels)
            ),
        });
    }

    if has_users(UserKind::Service) {
        ways.push("LoadBalancer services get other addresses when they are created again".to_owned());
    }

    let deleted_nodes: Vec<String> = survey.missing_nodes.iter().cloned().collect();
    if !deleted_nodes.is_empty() {
        let release = hints::command(&["release", "--node", &joined(&deleted_nodes, ",")]);
        let verb = if deleted_nodes.len() == 1 { "does" } else { "do" };
        ways.push(format!(
            "{} {verb} not exist: delete the pods and endpoints that name it, then free what is left with {release}",
            list(&deleted_nodes)
        ));
    }
    ways
}
