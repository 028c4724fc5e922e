//! What `migrate` prints: where the migration stands, and the plan of its next phase.

mod shown;

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_model::pool::Pool;
use calipam_plan::PlanSummary;
use calipam_plan::migrate::{Detour, Difference, Left, Leg, NodeCapacity, Phase, Survey, User, UserKind};
use calipam_workflow::{Estimate, Executed, Group, Moving, Surveyed};
use jiff::Unit;
use serde::Serialize;

use self::shown::ShownSurvey;
use super::document::{Detail, Document};
use super::header;
use super::plan::{FEW, PlanDocument, Shown};
use super::table::{Grid, Page};
use super::text::{count, escape, shell_word, thousands};
use super::wrap::on_page;

/// Where a migration stands.
pub(crate) struct SurveyDocument<'a>(pub &'a Surveyed);

/// The same and the plan of the next phase or, if it was carried out, what became of it.
pub(crate) struct MigrationDocument<'a> {
    pub surveyed: &'a Surveyed,
    pub plan: &'a PlanSummary,
    pub run: Option<&'a Executed>,
}

#[derive(Serialize)]
struct ShownMigration<'a> {
    #[serde(flatten)]
    survey: ShownSurvey<'a>,
    #[serde(flatten)]
    plan: Shown<'a>,
}

const KIND: &str = "MigrationPlan";

impl Document for SurveyDocument<'_> {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let Surveyed { survey, moving } = self.0;
        writeln!(out, "{}\n", on_page(&escape(&heading(survey)), 0, page))?;
        if let Some(detour) = survey.migration.detour() {
            writeln!(out, "{}\n", on_page(&escape(&there_and_back(detour)), 0, page))?;
        }
        phases(survey, detail, page).write(out)?;
        if !survey.differences.is_empty() {
            writeln!(out)?;
            differences(&survey.differences, detail, page).write(out)?;
        }
        if !survey.capacity.is_empty() {
            writeln!(out)?;
            capacity(&survey.capacity, detail, page).write(out)?;
        }
        if let Some(Detour { successor, .. }) = survey.migration.detour()
            && !survey.capacity_back.is_empty()
        {
            let back = format!("Back in {}, with blocks of /{}:", successor.cidr, successor.block_size);
            writeln!(out, "\n{back}\n")?;
            capacity(&survey.capacity_back, detail, page).write(out)?;
        }
        if let Some(moving) = moving.as_ref().filter(|moving| !moving.workloads.is_empty()) {
            writeln!(out)?;
            workloads(moving, detail, page).write(out)?;
            if let Some(estimate) = &moving.estimate {
                writeln!(out, "\n{}", on_page(&how_long(estimate), 0, page))?;
            }
        } else if survey.phase == Phase::Move {
            writeln!(out)?;
            users(&survey.users, detail, page).write(out)?;
        }
        if let Some(moving) = moving.as_ref().filter(|moving| !moving.pins.is_empty()) {
            writeln!(out)?;
            pins(moving, detail, page).write(out)?;
        }
        writeln!(out)?;
        for line in notes(self.0) {
            writeln!(out, "{}", on_page(&escape(&line), 0, page))?;
        }
        Ok(())
    }

    fn schema(&self) -> impl Serialize {
        self.shown()
    }
}

impl Document for MigrationDocument<'_> {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let Self { surveyed, plan, run } = *self;
        let document = PlanDocument { plan, run };
        if run.is_some() {
            return document.text(detail, page, out);
        }
        writeln!(out, "{}\n", on_page(&header::cluster(&plan.cluster), 0, page))?;
        SurveyDocument(surveyed).text(detail, page, out)?;
        match surveyed.survey.phase {
            Phase::Move => Ok(()),
            _ => document.body(detail, page, out),
        }
    }

    fn schema(&self) -> impl Serialize {
        let survey = SurveyDocument(self.surveyed).shown();
        ShownMigration { survey, plan: PlanDocument { plan: self.plan, run: self.run }.shown() }
    }
}

/// `Migration from pool a (10.7.0.0/16, blocks of /26) to b (10.8.0.0/16, blocks of /28)`.
fn heading(survey: &Survey) -> String {
    let pool = |pool: &Pool| format!("{} ({}, blocks of /{})", pool.name, pool.cidr, pool.block_size);
    let to = survey.migration.new.as_ref().map(|new| format!(" to {}", pool(new))).unwrap_or_default();
    format!("Migration from pool {}{to}", pool(&survey.migration.old))
}

/// Which half of the way through a temporary pool it is, and why that is the way.
fn there_and_back(Detour { leg, temporary, successor }: Detour<'_>) -> String {
    let (temporary, name, size) = (&temporary.name, &successor.name, successor.block_size);
    match leg {
        Leg::There => format!(
            "This is the first half: to the temporary pool {temporary}. Once {name} is empty, it is deleted and created again with blocks of /{size}; then everything moves back. Blocks of two sizes in one CIDR would overlap, and addresses could be assigned twice."
        ),
        Leg::Back => format!(
            "This is the second half: back to {name}, with blocks of /{size}. At the end the temporary pool {temporary} is deleted."
        ),
    }
}

fn phases(survey: &Survey, detail: Detail, page: Page) -> Grid {
    let mut grid = Grid::new(page, detail, "PHASE  STATE  LEFT");
    let Left { blocks, affinities, in_use, named, leaked, others } = &survey.left;
    for phase in Phase::ALL {
        let state = match phase.cmp(&survey.phase) {
            std::cmp::Ordering::Less => "done",
            std::cmp::Ordering::Equal => "next",
            std::cmp::Ordering::Greater => "-",
        };
        let parts: Vec<(usize, &str, &str)> = match phase {
            Phase::Move => vec![
                (*in_use, "address in use", "addresses in use"),
                (*named, "address named", "addresses named"),
            ],
            Phase::CleanUp => vec![
                (*blocks, "block", "blocks"),
                (*affinities, "affinity", "affinities"),
                (*leaked, "leaked address", "leaked addresses"),
                (*others, "other address", "other addresses"),
            ],
            _ => Vec::new(),
        };
        let parts = parts.into_iter().filter(|(number, ..)| *number > 0);
        let left: Vec<String> = parts.map(|(number, one, many)| count(number, one, many)).collect();
        grid.row([phase.to_string(), state.to_owned(), left.join(", ")]);
    }
    grid
}

fn differences(differences: &[Difference], detail: Detail, page: Page) -> Grid {
    let mut grid = Grid::new(page, detail, "SETTING  OLD POOL  NEW POOL");
    differences.iter().for_each(|Difference { setting, from, to }| grid.row([setting, &**from, &**to]));
    grid
}

/// Node by node, those without room first.
fn capacity(capacity: &[NodeCapacity], detail: Detail, page: Page) -> Grid {
    let mut grid = Grid::new(page, detail, "NODE  >NEEDS  >FOUND  >NEW BLOCKS  REASON");
    let mut nodes: Vec<&NodeCapacity> = capacity.iter().collect();
    nodes.sort_by_key(|node| node.found >= node.needed);
    if detail == Detail::Short && nodes.len() > FEW {
        let sum = |of: fn(&NodeCapacity) -> usize| thousands(capacity.iter().map(of).sum::<usize>());
        let all = count(nodes.len(), "node", "nodes");
        let sums =
            [sum(|node| node.needed as usize), sum(|node| node.found as usize), sum(|node| node.new_blocks)];
        let [needed, found, blocks] = sums;
        grid.row([all, needed, found, blocks, String::new()]);
        nodes.retain(|node| node.found < node.needed);
        nodes.truncate(FEW);
    }
    for node in nodes {
        let reason = node.reason.clone().unwrap_or_default();
        let numbers = [node.needed as usize, node.found as usize, node.new_blocks].map(thousands);
        let [needed, found, blocks] = numbers;
        grid.row([node.node.clone(), needed, found, blocks, reason]);
    }
    grid
}

/// How long the eviction takes, and what that rests on.
fn how_long(Estimate { pods, not_moved, batch, each, total }: &Estimate) -> String {
    let (all, total) = (count(*pods, "pod", "pods"), total.round(Unit::Second).unwrap_or(*total));
    if *not_moved > 0 {
        let left = thousands(*not_moved);
        return format!(
            "Evicting {all}, {batch} at a time, would stop after {total:#}: simulated with this cluster's blocks, {left} of them do not move, because a batch finds no free addresses"
        );
    }
    let each = each.round(Unit::Second).unwrap_or(*each);
    format!(
        "Evicting {all}, {batch} at a time, takes about {total:#}: simulated with this cluster's blocks, and with how long the pods took at their last start, half of them {each:#} or less. Waiting for disruption budgets comes on top"
    )
}

fn workloads(moving: &Moving, detail: Detail, page: Page) -> Grid {
    let mut grid = Grid::new(page, detail, "NAMESPACE  WORKLOAD  >PODS  BUDGETS  RESTARTED BY");
    grid.can_do_without(&["BUDGETS"]);
    for group in &moving.workloads {
        let budgets: Vec<String> =
            group.budgets.iter().map(|(name, allowed)| format!("{name} ({allowed} now)")).collect();
        let kind = group.kind.as_deref().unwrap_or("Pod");
        let way = command(group, moving).unwrap_or_else(|| without_command(group).to_owned());
        grid.row([
            group.namespace.clone(),
            format!("{kind}/{}", group.name),
            thousands(group.pods),
            budgets.join(", "),
            way,
        ]);
    }
    grid
}

/// What restarts a workload, as far as one command does.
fn command(group: &Group, moving: &Moving) -> Option<String> {
    let (namespace, name) = (shell_word(&group.namespace), shell_word(&group.name));
    match group.kind.as_deref()? {
        kind @ ("Deployment" | "StatefulSet" | "DaemonSet") => {
            Some(format!("kubectl -n {namespace} rollout restart {}/{name}", kind.to_ascii_lowercase()))
        }
        "VirtualMachineInstance" if moving.live_migration_moves => {
            Some(format!("virtctl -n {namespace} migrate {name}"))
        }
        _ => None,
    }
}

fn without_command(group: &Group) -> &'static str {
    match group.kind.as_deref() {
        None => "no controller recreates it: delete and create it",
        Some("VirtualMachineInstance") => "it keeps its address, also in a live migration: docs/migrate.md",
        Some("Job") => "ends by itself",
        Some("Node") => "static: restart it on its node",
        Some(_) => "delete its pods one by one, or --evict",
    }
}

/// Without Kubernetes: who uses addresses, or how many on each node.
fn users(users: &[User], detail: Detail, page: Page) -> Grid {
    if detail == Detail::Full || users.len() <= FEW {
        let mut grid = Grid::new(page, detail, "ADDRESS  USED BY  NODE");
        for user in users {
            let name = format!("{} {}", kind(user.kind), user.name);
            grid.row([user.address.to_string(), name, user.node.clone()]);
        }
        return grid;
    }
    let mut nodes: BTreeMap<(&str, UserKind), usize> = BTreeMap::new();
    users.iter().for_each(|user| *nodes.entry((&user.node, user.kind)).or_default() += 1);
    let mut grid = Grid::new(page, detail, "NODE  USED BY  >USERS");
    for ((node, of), number) in nodes {
        grid.row([node.to_owned(), kind(of).to_owned(), thousands(number)]);
    }
    grid
}

fn kind(kind: UserKind) -> &'static str {
    match kind {
        UserKind::Pod => "pod",
        UserKind::Endpoint => "endpoint",
        UserKind::Tunnel => "tunnel",
        UserKind::Service => "service",
    }
}

fn pins(moving: &Moving, detail: Detail, page: Page) -> Grid {
    let mut grid = Grid::new(page, detail, "ASKS FOR THE OLD POOL  ANNOTATION  VALUE");
    for pin in &moving.pins {
        grid.row([&*pin.subject, pin.annotation, &*pin.value]);
    }
    grid
}

/// What was not read, and cannot be.
fn notes(surveyed: &Surveyed) -> Vec<String> {
    let mut notes = match &surveyed.moving {
        Some(moving) => moving.unread.clone(),
        None => vec![
            "Kubernetes was not asked: controllers, disruption budgets and annotations are not known"
                .to_owned(),
        ],
    };
    notes.push(
        "Not checked: `ipv4_pools` in CNI configurations on nodes, and addresses in manifests".to_owned(),
    );
    notes
}
