//! What `migrate` prints: where the migration stands, and the plan of its next phase.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_model::IpNet;
use calipam_model::pool::Pool;
use calipam_plan::PlanSummary;
use calipam_plan::migrate::{Difference, Left, NodeCapacity, Phase, Survey, User, UserKind};
use calipam_workflow::{Executed, Group, Moving, Pin, Surveyed};
use serde::Serialize;

use super::document::{Detail, Document};
use super::header;
use super::plan::{FEW, PlanDocument, Shown};
use super::table::{Grid, Page};
use super::text::{count, escape, shell_word, thousands};
use super::wrap::on_page;

/// Where a migration stands.
pub(crate) struct SurveyDocument<'a>(pub &'a Surveyed);

/// The same and the plan of the next phase or, where it was carried out, what became of it.
pub(crate) struct MigrationDocument<'a> {
    pub surveyed: &'a Surveyed,
    pub plan: &'a PlanSummary,
    pub run: Option<&'a Executed>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownPool<'a> {
    name: &'a str,
    cidr: IpNet,
    block_size: u8,
    disabled: bool,
}

impl<'a> From<&'a Pool> for ShownPool<'a> {
    fn from(pool: &'a Pool) -> Self {
        Self { name: &pool.name, cidr: pool.cidr, block_size: pool.block_size, disabled: pool.disabled }
    }
}

#[derive(Serialize)]
struct ShownGroup<'a> {
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    name: &'a str,
    pods: usize,
    budgets: &'a BTreeMap<String, i64>,
    /// What moves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

impl<'a> From<&'a Group> for ShownGroup<'a> {
    fn from(group: &'a Group) -> Self {
        let Group { namespace, kind, name, pods, budgets } = group;
        Self { namespace, kind: kind.as_deref(), name, pods: *pods, budgets, command: command(group) }
    }
}

#[derive(Serialize)]
struct ShownPin<'a> {
    subject: &'a str,
    annotation: &'static str,
    value: &'a str,
}

#[derive(Serialize)]
struct ShownSurvey<'a> {
    from: ShownPool<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<ShownPool<'a>>,
    phase: Phase,
    left: &'a Left,
    capacity: &'a [NodeCapacity],
    users: &'a [User],
    workloads: Vec<ShownGroup<'a>>,
    pins: Vec<ShownPin<'a>>,
    differences: &'a [Difference],
    unread: Vec<String>,
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
        phases(survey, detail, page).write(out)?;
        if !survey.differences.is_empty() {
            writeln!(out)?;
            differences(&survey.differences, detail, page).write(out)?;
        }
        if !survey.capacity.is_empty() {
            writeln!(out)?;
            capacity(&survey.capacity, detail, page).write(out)?;
        }
        if let Some(moving) = moving.as_ref().filter(|moving| !moving.workloads.is_empty()) {
            writeln!(out)?;
            workloads(moving, detail, page).write(out)?;
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

impl<'a> SurveyDocument<'a> {
    fn shown(&self) -> ShownSurvey<'a> {
        let Surveyed { survey, moving } = self.0;
        let groups = moving.iter().flat_map(|moving| &moving.workloads);
        let pins = moving.iter().flat_map(|moving| &moving.pins);
        ShownSurvey {
            from: (&survey.migration.old).into(),
            to: survey.migration.new.as_ref().map(ShownPool::from),
            phase: survey.phase,
            left: &survey.left,
            capacity: &survey.capacity,
            users: &survey.users,
            workloads: groups.map(ShownGroup::from).collect(),
            pins: pins
                .map(|Pin { subject, annotation, value }| ShownPin { subject, annotation, value })
                .collect(),
            differences: &survey.differences,
            unread: notes(self.0),
        }
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

fn workloads(moving: &Moving, detail: Detail, page: Page) -> Grid {
    let mut grid = Grid::new(page, detail, "NAMESPACE  WORKLOAD  >PODS  BUDGETS  RESTARTED BY");
    grid.can_do_without(&["BUDGETS"]);
    for group in &moving.workloads {
        let budgets: Vec<String> =
            group.budgets.iter().map(|(name, allowed)| format!("{name} ({allowed} now)")).collect();
        let kind = group.kind.as_deref().unwrap_or("Pod");
        let way = command(group).unwrap_or_else(|| without_command(group).to_owned());
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
fn command(group: &Group) -> Option<String> {
    let (namespace, name) = (shell_word(&group.namespace), shell_word(&group.name));
    match group.kind.as_deref()? {
        kind @ ("Deployment" | "StatefulSet" | "DaemonSet") => {
            Some(format!("kubectl -n {namespace} rollout restart {}/{name}", kind.to_ascii_lowercase()))
        }
        "VirtualMachineInstance" => Some(format!("virtctl -n {namespace} migrate {name}")),
        _ => None,
    }
}

fn without_command(group: &Group) -> &'static str {
    match group.kind.as_deref() {
        None => "nothing brings it back: delete and create it",
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
    notes
        .push("Not seen: `ipv4_pools` in CNI configurations on nodes, and addresses in manifests".to_owned());
    notes
}
