//! The output of `migrate`: the state of the migration, and the plan of its next phase.

mod shown;

use calipam_model::pool::Pool;
use calipam_plan::PlanSummary;
use calipam_plan::migrate::{Detour, Difference, Leftovers, Leg, NodeCapacity, Phase, Survey, User};
use calipam_workflow::{Estimate, Executed, Group, Moving, Pin, Surveyed};
use jiff::Unit;
use serde::Serialize;

pub(crate) use self::shown::SurveyDocument;
use super::column::{HIDDEN_FIRST, left, right};
use super::document::Document;
use super::header;
use super::output::Text;
use super::plan::PlanDocument;
use super::table::{FEW, Grid};
use super::text::{count, joined, shell_word, thousands};
use crate::hints::with_kubectls_options;

/// The state of a migration, with the plan of the next phase or, if it was executed, the result.
#[derive(Serialize)]
pub(crate) struct MigrationDocument<'a> {
    #[serde(flatten)]
    survey: SurveyDocument<'a>,
    #[serde(flatten)]
    plan: PlanDocument<'a>,
    /// True if an earlier state was shown already, so that only what is left is of interest.
    #[serde(skip)]
    was_shown: bool,
}

impl<'a> MigrationDocument<'a> {
    /// Shows a migration with its plan, or with the run that carried it out.
    pub(crate) fn new(
        surveyed: &'a Surveyed,
        plan: &'a PlanSummary,
        run: Option<&'a Executed>,
        was_shown: bool,
    ) -> Self {
        Self {
            survey: SurveyDocument::new(surveyed),
            plan: PlanDocument::new(plan, run),
            was_shown,
        }
    }
}

const KIND: &str = "MigrationPlan";

impl Document for SurveyDocument<'_> {
    const KIND: &'static str = KIND;

    /// Writes the survey of a migration.
    fn text(&self, out: &mut Text) {
        let Surveyed { survey, moving } = self.surveyed;
        let wide = out.page.wide;
        out.line(heading(survey));
        out.blank();
        if let Some(detour) = survey.migration.detour() {
            out.line(describe_detour(detour));
            out.blank();
        }
        out.section(phases(survey));
        out.section(differences(&survey.differences));
        out.section(capacity(&survey.capacity, wide));
        add_capacity_back(survey, out);
        // The workloads take the place of the users, if Kubernetes was read.
        if let Some(moving) = moving
            && !moving.workloads.is_empty()
        {
            add_workloads(moving, out);
        } else if survey.phase == Phase::Move {
            out.grid(users(&survey.users, wide));
            out.blank();
        }
        out.section(pins(self.pins));
        out.lines(&self.unread);
    }
}

/// Writes the capacity of the pool that replaces a temporary one; nothing for a migration without one.
fn add_capacity_back(survey: &Survey, out: &mut Text) {
    let Some(Detour { successor, .. }) = survey.migration.detour() else {
        return;
    };
    if survey.capacity_back.is_empty() {
        return;
    }
    out.line(format!(
        "After the move back to {}, with blocks of /{}:",
        successor.cidr, successor.block_size
    ));
    out.blank();
    out.section(capacity(&survey.capacity_back, out.page.wide));
}

/// Writes the workloads to move, with the time or the extent of an eviction.
fn add_workloads(moving: &Moving, out: &mut Text) {
    out.section(workloads(moving, out.page.wide));
    if let Some(estimate) = &moving.estimate {
        out.line(eviction_time(estimate));
        out.blank();
    } else if moving.evictable > 0 {
        let pods = count(moving.evictable, "pod", "pods");
        out.line(format!("An eviction moves {pods}"));
        out.blank();
    }
}

impl Document for MigrationDocument<'_> {
    const KIND: &'static str = KIND;

    /// Writes the survey and the plan, except for what was shown before.
    fn text(&self, out: &mut Text) {
        let Self {
            survey,
            plan,
            was_shown,
        } = self;
        // The operator has seen the survey and the plan before agreeing to the run.
        if plan.execution.is_some() {
            return plan.text(out);
        }
        if *was_shown {
            return out.section(phases(&survey.surveyed.survey));
        }
        out.line(header::cluster(plan.cluster));
        out.blank();
        survey.text(out);
        if survey.phase != Phase::Move {
            plan.body(out);
        }
    }
}

/// Formats `Migration from pool a (10.7.0.0/16, blocks of /26) to b (10.8.0.0/16, blocks of /28)`.
fn heading(survey: &Survey) -> String {
    let describe = |pool: &Pool| format!("{} ({}, blocks of /{})", pool.name, pool.cidr, pool.block_size);
    let from = describe(&survey.migration.old);
    match &survey.migration.new {
        Some(new) => format!("Migration from pool {from} to {}", describe(new)),
        None => format!("Migration from pool {from}"),
    }
}

/// Explains the two halves of a migration with a temporary pool, and names the current one.
fn describe_detour(
    Detour {
        leg,
        temporary,
        successor,
    }: Detour<'_>,
) -> String {
    let temporary = &temporary.name;
    let name = &successor.name;
    let size = successor.block_size;
    match leg {
        Leg::There => format!(
            "This is the first half: to the temporary pool {temporary}. Once {name} is empty, it is deleted and created again with blocks of /{size}; then everything moves back. Blocks of two sizes in one CIDR would overlap, and addresses could be assigned twice."
        ),
        Leg::Back => format!(
            "This is the second half: back to {name}, with blocks of /{size}. At the end the temporary pool {temporary} is deleted."
        ),
    }
}

/// Creates a table with the state of each phase, and the work that is left in it.
fn phases(survey: &Survey) -> Grid {
    // The phases are in order, so all before the current one are done.
    let state = |phase: Phase| {
        if phase < survey.phase {
            "done"
        } else if phase == survey.phase {
            "next"
        } else {
            "-"
        }
    };
    let columns = vec![
        left("PHASE", |phase| phase),
        left("STATE", state),
        left("LEFT", |phase| remaining_work(&survey.leftovers, phase)),
    ];
    Grid::fixed(Phase::ALL, columns)
}

/// Formats the work that is left in a phase, such as `12 addresses in use`; empty if none is, or for a phase whose work
/// is not counted.
fn remaining_work(left: &Leftovers, phase: Phase) -> String {
    let Leftovers {
        blocks,
        affinities,
        in_use,
        named,
        leaked,
        others,
    } = *left;
    let numbers: &[(usize, &str, &str)] = match phase {
        Phase::Move => &[
            (in_use, "address in use", "addresses in use"),
            (named, "address named", "addresses named"),
        ],
        Phase::CleanUp => &[
            (blocks, "block", "blocks"),
            (affinities, "affinity", "affinities"),
            (leaked, "leaked address", "leaked addresses"),
            (others, "other address", "other addresses"),
        ],
        Phase::Create | Phase::Disable | Phase::Delete => &[],
    };
    let mut parts = Vec::new();
    for (number, singular, plural) in numbers {
        if *number > 0 {
            parts.push(count(*number, singular, plural));
        }
    }
    parts.join(", ")
}

/// Creates a table of the settings in which the pools differ.
fn differences(differences: &[Difference]) -> Grid {
    let columns = vec![
        left("SETTING", |difference: &Difference| difference.setting),
        left("OLD POOL", |difference: &Difference| &difference.from),
        left("NEW POOL", |difference: &Difference| &difference.to),
    ];
    Grid::fixed(differences, columns)
}

/// Creates a table with a row for each node. Nodes for which too few addresses were found come first. If there are many
/// nodes, a short table contains the sums, and at most a few of the nodes with too few addresses.
fn capacity(capacity: &[NodeCapacity], wide: bool) -> Grid {
    let has_enough = |node: &NodeCapacity| node.found >= node.needed;
    let mut nodes: Vec<NodeCapacity> = capacity.to_vec();
    // False comes before true. Otherwise the nodes keep their order.
    nodes.sort_by_key(has_enough);
    if !wide && nodes.len() > FEW {
        nodes.retain(|node| !has_enough(node));
        nodes.truncate(FEW);
        nodes.insert(0, sum_of_nodes(capacity));
    }
    let columns = vec![
        left("NODE", |node: &NodeCapacity| &node.node),
        right("NEEDS", |node: &NodeCapacity| thousands(node.needed)),
        right("FOUND", |node: &NodeCapacity| thousands(node.found)),
        right("NEW BLOCKS", |node: &NodeCapacity| thousands(node.new_blocks)),
        left("REASON", |node: &NodeCapacity| {
            node.reason.as_deref().unwrap_or_default()
        }),
    ];
    Grid::new(wide, &nodes, columns)
}

/// Adds up the numbers of all nodes. The row is named by their number, such as `40 nodes`.
fn sum_of_nodes(capacity: &[NodeCapacity]) -> NodeCapacity {
    NodeCapacity {
        node: count(capacity.len(), "node", "nodes"),
        needed: capacity.iter().map(|node| node.needed).sum(),
        found: capacity.iter().map(|node| node.found).sum(),
        new_blocks: capacity.iter().map(|node| node.new_blocks).sum(),
        reason: None,
    }
}

/// Formats the time that the eviction takes, and the basis of the estimate.
fn eviction_time(
    Estimate {
        pods,
        not_moved,
        batch,
        each,
        total,
    }: &Estimate,
) -> String {
    // Times in a simulation have microseconds.
    let pods = count(*pods, "pod", "pods");
    let total = total.round(Unit::Second).unwrap_or(*total);
    if *not_moved > 0 {
        let not_moved = thousands(*not_moved);
        return format!(
            "Evicting {pods}, {batch} at a time, would stop after {total:#}. In a simulation with this cluster's blocks, {not_moved} of them do not move, because a batch finds no free addresses"
        );
    }
    let each = each.round(Unit::Second).unwrap_or(*each);
    format!(
        "Evicting {pods}, {batch} at a time, takes about {total:#}, without waits for disruption budgets. The estimate is a simulation with this cluster's blocks and the pods' last start times; half of them started within {each:#}"
    )
}

/// A row of the table of workloads.
struct Row {
    namespace: String,
    workload: String,
    pods: usize,
    budgets: String,
    restarted_by: String,
}

impl Row {
    /// Creates the row of a workload, with the command that moves its pods, or how they move without one.
    fn of_group(group: &Group, moving: &Moving) -> Self {
        let budgets = group
            .budgets
            .iter()
            .map(|(name, allowed)| format!("{name} ({allowed} now)"));
        Self {
            namespace: group.namespace.clone(),
            workload: format!("{}/{}", group.kind.as_deref().unwrap_or("Pod"), group.name),
            pods: group.pods,
            budgets: joined(budgets, ", "),
            restarted_by: command(group, moving).unwrap_or_else(|| without_command(group).to_owned()),
        }
    }

    /// Creates one row for many pods without a controller. It names only the first of them.
    fn of_bare_pods(bare: &[&Group]) -> Self {
        let namespace = common_namespace(bare);
        let mut names = Vec::new();
        for group in bare.iter().take(BARE_PODS_NAMED) {
            if namespace.is_some() {
                names.push(group.name.clone());
            } else {
                names.push(format!("{}/{}", group.namespace, group.name));
            }
        }
        let names = names.join(", ");
        Self {
            namespace: namespace.unwrap_or("-").to_owned(),
            workload: format!("pods without a controller: {names}, …"),
            pods: bare.iter().map(|group| group.pods).sum(),
            budgets: String::new(),
            restarted_by: "no controller recreates them: delete them and create them again".to_owned(),
        }
    }
}

/// Returns the namespace of all groups; `None` if they are in several.
fn common_namespace<'a>(groups: &[&'a Group]) -> Option<&'a str> {
    let namespace = groups.first()?.namespace.as_str();
    let is_common = groups.iter().all(|group| group.namespace == namespace);
    is_common.then_some(namespace)
}

/// The number of pods without a controller that are named in one row. If there are not more, each has its own row.
const BARE_PODS_NAMED: usize = 3;

/// Creates a table of the workloads to restart. Unless the table is wide, many pods without a controller share one row.
fn workloads(moving: &Moving, wide: bool) -> Grid {
    let mut rows = Vec::new();
    let mut bare_pods: Vec<&Group> = Vec::new();
    for group in &moving.workloads {
        if group.kind.is_none() && !wide {
            bare_pods.push(group);
        } else {
            rows.push(Row::of_group(group, moving));
        }
    }
    // Last, since each of them needs work by hand.
    if bare_pods.len() > BARE_PODS_NAMED {
        rows.push(Row::of_bare_pods(&bare_pods));
    } else {
        for pod in bare_pods {
            rows.push(Row::of_group(pod, moving));
        }
    }

    let columns = vec![
        left("NAMESPACE", |row: &Row| &row.namespace),
        left("WORKLOAD", |row: &Row| &row.workload),
        right("PODS", |row: &Row| thousands(row.pods)),
        left("BUDGETS", |row: &Row| &row.budgets).hidden(HIDDEN_FIRST),
        left("RESTARTED BY", |row: &Row| &row.restarted_by),
    ];
    Grid::fixed(&rows, columns)
}

/// Returns the command that moves the pods of a workload; `None` if no single command does.
fn command(group: &Group, moving: &Moving) -> Option<String> {
    let namespace = shell_word(&group.namespace);
    let name = shell_word(&group.name);
    let line = match group.kind.as_deref()? {
        // kubectl restarts no other kinds.
        kind @ ("Deployment" | "StatefulSet" | "DaemonSet") => {
            let kind = kind.to_ascii_lowercase();
            format!("kubectl -n {namespace} rollout restart {kind}/{name}")
        }
        "VirtualMachineInstance" if moving.live_migration_moves => {
            format!("virtctl -n {namespace} migrate {name}")
        }
        _ => return None,
    };
    Some(with_kubectls_options(&line))
}

/// Explains how a workload moves that no command restarts.
fn without_command(group: &Group) -> &'static str {
    match group.kind.as_deref() {
        None => "no controller recreates it: delete it and create it again",
        Some("VirtualMachineInstance") => {
            "it keeps its address, even in a live migration: see docs/migrate.md"
        }
        Some("Job") => "it ends by itself",
        Some("Node") => "static: restart it on its node",
        Some(_) => "delete its pods one by one, or use --evict",
    }
}

/// Creates the table of the users of addresses. If there are many, a short table has a row for each node and kind of
/// user, with the number of users and the name of one of them.
fn users<'a>(users: &'a [User], wide: bool) -> Grid {
    let columns = vec![
        left("ADDRESS", |user: &User| user.address),
        left("USED BY", |user: &User| format!("{} {}", user.kind, user.name)),
        left("USED BY", |user: &User| user.kind).only_in_short_form(),
        left("NODE", |user: &User| &user.node).in_both_forms(),
    ];
    let kind_of_row = |user: &'a User| (&user.node, user.kind);
    let example = |user: &'a User| &user.name;
    Grid::short(wide, FEW, users, columns, kind_of_row, example)
}

/// Creates a table of the annotations that name the old pool.
fn pins(pins: &[Pin]) -> Grid {
    let columns = vec![
        left("ASKS FOR THE OLD POOL", |pin: &Pin| &pin.subject),
        left("ANNOTATION", |pin: &Pin| pin.annotation),
        left("VALUE", |pin: &Pin| &pin.value),
    ];
    Grid::fixed(pins, columns)
}

/// Returns notes about data that was not read.
fn notes(surveyed: &Surveyed) -> Vec<String> {
    let mut notes = match &surveyed.moving {
        Some(moving) => moving.unread.clone(),
        None => vec![
            "Kubernetes was not read: controllers, disruption budgets and annotations are not known"
                .to_owned(),
        ],
    };
    notes.push(
        "Not checked: `ipv4_pools` in CNI configurations on nodes, and addresses in manifests".to_owned(),
    );
    notes
}
