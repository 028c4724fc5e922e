//! `rebuild`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use calipam_check::Options;
use calipam_datastore::Datastore;
use calipam_model::snapshot::Snapshot;
use calipam_plan::Plan;
use calipam_plan::rebuild::{self, Request};

use super::repair::{Looks, carry_out, outcome, plan, will_ask};
use super::selection;
use crate::args::{Global, RebuildArgs};
use crate::exit::{Failure, Outcome};
use crate::output::Console;
use crate::render::plan::Shown;
use crate::render::text::{count, quoted};
use crate::{connect, render};

/// Looks, plans, shows the plan and, with `--apply`, asks and writes.
///
/// # Errors
/// Where something cannot be read or written, or nobody agrees.
pub fn run(args: &RebuildArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        let looks = Looks {
            options: Options { grace: args.judgement.grace, ..Options::default() },
            settle: args.judgement.settling.settle,
            for_real: args.apply && datastore.is_live(),
            reported: &|snapshot| may_apply(args, &datastore, snapshot).map(|()| Vec::new()),
            planner: &|basis, sightings, cooldown| {
                Ok(rebuild::plan(basis, &request(args, basis.snapshot)?, sightings, cooldown))
            },
            planned: &|snapshot, plan| write_files(args, snapshot, plan, console),
        };
        let plan = plan(&datastore, &looks, console).await?;
        finish(&datastore, plan, args, console).await
    })
}

async fn finish(
    datastore: &Datastore,
    plan: Plan,
    args: &RebuildArgs,
    console: &Console,
) -> Result<Outcome, Failure> {
    let skipped = !plan.skipped.is_empty();
    let shown = Shown::of(&plan);
    if plan.is_empty() || !args.apply || !datastore.is_live() {
        render::plan::print(&shown, None, console)?;
        render::plan::why_not_written(&shown, true, datastore.is_live(), console);
        return Ok(if skipped { Outcome::Refused } else { Outcome::Clean });
    }
    render::plan::preview(&shown, will_ask(&args.writing), console)?;
    let done = carry_out(datastore, plan, "rebuild --apply", &args.writing, console).await?;
    render::plan::print(&shown, Some(&done), console)?;
    outcome(done, skipped, console)
}

fn request(args: &RebuildArgs, snapshot: &Snapshot) -> Result<Request, Failure> {
    args.nodes.iter().try_for_each(|node| selection::known_node(snapshot, node))?;
    let pools = args.pools.iter().map(|name| selection::pool(snapshot, name)).collect::<Result<_, _>>()?;
    Ok(Request {
        pools,
        nodes: args.nodes.clone(),
        blocks: args.blocks.iter().map(|cidr| cidr.trunc()).collect(),
        endpoints_only: args.endpoints_only,
    })
}

/// After an etcd was restored from a backup, its endpoints are as old as its blocks: only pods tell what runs.
fn may_apply(args: &RebuildArgs, datastore: &Datastore, snapshot: &Snapshot) -> Result<(), Failure> {
    if !args.apply || args.endpoints_only || !datastore.is_live() || !rebuild::needs_endpoints_only(snapshot)
    {
        return Ok(());
    }
    Err(Failure::Refused {
        message: "no pods were read, and the endpoints in etcd may be as old as the blocks".into(),
        hint: Some(
            "give a `--kubeconfig`, so that pods decide; or take the endpoints for the truth with `--endpoints-only`"
                .into(),
        ),
    })
}

/// Writes each block before and after into a file of its own.
fn write_files(
    args: &RebuildArgs,
    snapshot: &Snapshot,
    plan: &Plan,
    console: &Console,
) -> Result<(), Failure> {
    let Some(directory) = &args.output_dir else { return Ok(()) };
    let failed = |doing: String| move |error| Failure::Io { doing, error };
    fs::create_dir_all(directory).map_err(failed(format!("create {}", quoted(directory))))?;
    let files =
        rebuild::block_files(snapshot, plan, snapshot.taken_at).map_err(|error| Failure::Refused {
            message: format!("the plan was tried in memory and refused: {error}"),
            hint: Some("nothing was changed; please report this: it is a mistake in calipam".into()),
        })?;
    for file in &files {
        let path = directory.join(&file.name);
        let content = BTreeMap::from([("before", &file.before), ("after", &file.after)]);
        let mut text = serde_json::to_vec_pretty(&content).unwrap_or_default();
        text.push(b'\n');
        write_new(&path, &text).map_err(failed(format!("write {}", quoted(&path))))?;
    }
    console.verbose(&format!("{} in {}", count(files.len(), "file", "files"), quoted(directory)));
    Ok(())
}

/// Writes a file as a whole: whoever reads it never sees half of it.
fn write_new(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let part = path.with_extension("json.part");
    fs::write(&part, text)?;
    fs::rename(&part, path)
}
