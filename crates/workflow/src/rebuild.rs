//! `rebuild`: rebuilds the records of a cluster from the workloads that are running there.

use std::collections::{BTreeMap, HashSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::edit::Edit;
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use calipam_model::words::{count, quoted};
use calipam_plan::rebuild::{self, BlockFile, Request};
use calipam_plan::{Basis, FailedTrial, Plan, Refused};

use crate::check::{CheckResult, Criteria, read_and_check};
use crate::failure::{Failure, Result};
use crate::operator::{Access, Event, Operator};
use crate::run::{Intent, Run};
use crate::scope::{Names, is_known_block, unknown_block};
use crate::second_read::{Part, warn_of_short_grace, write_in_parts};
use crate::write::Repaired;

/// A request to rebuild records. If it names no pools, nodes or blocks, it is for the whole cluster.
#[derive(Clone, Debug)]
pub struct RebuildRequest {
    /// The request without its scope, which comes from `names`.
    pub wanted: Request,
    pub names: Names,
    /// The directory for files with the old and the new content of each block.
    pub output_dir: Option<PathBuf>,
    pub criteria: Criteria,
    pub intent: Intent,
}

/// Reads the cluster, plans, shows the plan, asks the operator, and writes the records.
pub async fn rebuild(access: Access<'_>, request: &RebuildRequest) -> Result<Repaired> {
    let criteria = &request.criteria;
    let mut run = Run::new(access, &request.intent);
    if let Some(directory) = &request.output_dir {
        refuse_link(directory)?;
    }
    let seen = read_and_check(access, criteria).await?;

    // In an etcd that was restored from a backup, endpoints are as old as blocks: only pods show what is running.
    if !request.wanted.endpoints_only && rebuild::needs_endpoints_only(&seen.snapshot) {
        run.refuse(pods_not_read())?;
    }
    run.refuse_doubtful(&seen.snapshot)?;

    let scope = Request {
        scope: request.names.scope(&[&seen.snapshot])?,
        blocks: request.wanted.blocks.iter().map(IpNet::trunc).collect(),
        ..request.wanted.clone()
    };
    warn_of_short_grace(&seen.snapshot, criteria, access.operator);
    let plan = |basis: &Basis<'_>| rebuild::plan(basis, &scope);
    let try_part = |seen: CheckResult, plan: Plan, part: Part| {
        let directory = match (&request.output_dir, part) {
            (Some(directory), Part::First) => Some(directory.clone()),
            // The files of the first part stay as they are.
            (Some(directory), Part::Rest) => Some(directory.join(REST)),
            (None, _) => None,
        };
        try_with_files(request, &scope, seen, plan, directory, access.operator)
    };
    let reports = Vec::new();
    write_in_parts(run, criteria, seen, reports, plan, try_part).await
}

/// The refusal if no pods were read. After a restore of etcd, its endpoints are as old as the blocks, so only pods show
/// what is running.
fn pods_not_read() -> Refused {
    let message = "no pods were read, and the endpoints in etcd can be as old as the blocks";
    Refused::new(message).hint(Hint::new(
        "pass a kubeconfig, so that pods are compared: {}; or trust the workload endpoints with {}",
        [
            Call::connected(["--kubeconfig", "FILE"]),
            Call::again_with(["--endpoints-only"]),
        ],
    ))
}

/// The subdirectory for the files of blocks that are written after the wait.
const REST: &str = "second";

/// Returns the plan without the steps that fail in memory. Writes the old and the new content of each changed block
/// into the directory.
fn try_with_files(
    request: &RebuildRequest,
    scope: &Request,
    seen: CheckResult,
    plan: Plan,
    directory: Option<PathBuf>,
    operator: &dyn Operator,
) -> Result<Plan> {
    for cidr in &scope.blocks {
        require_known_block(*cidr, &seen.snapshot, &plan)?;
    }
    let Some(directory) = directory else {
        return Ok(seen.try_plan(plan, &request.criteria)?);
    };

    // The trial consumes the snapshot, from which the files are made. An error of the trial is returned first.
    let files = rebuild::block_files(&seen.snapshot, &plan, seen.snapshot.taken_at);
    let by_host = seen.snapshot.datastore == DatastoreKind::EtcdV2;
    let plan = seen.try_plan(plan, &request.criteria)?;
    let files = files.map_err(FailedTrial::from)?;
    let written = write_files(&directory, &files, &plan, by_host)?;
    operator.tell(Event::Detail(format!(
        "{} in {}",
        count(written, "file", "files"),
        quoted(&directory)
    )));
    Ok(plan)
}

/// Returns an error if the user has named a block that does not exist, probably a mistake. A missing block that the plan
/// would create, or has skipped, is accepted. So is a block that cannot be decoded.
fn require_known_block(cidr: IpNet, snapshot: &Snapshot, plan: &Plan) -> Result<()> {
    if is_known_block(&[snapshot], cidr) {
        return Ok(());
    }
    let changed = plan.changes().map(|change| &change.subject);
    let skipped = plan.skipped.iter().map(|skipped| &skipped.subject);
    // A subject can be an address of the block.
    let mut networks = changed.chain(skipped).filter_map(|subject| subject.network());
    if networks.any(|network| overlap(network, cidr)) {
        return Ok(());
    }
    Err(unknown_block(cidr))
}

/// Refuses a directory that is a symbolic link, so that files are not written elsewhere.
fn refuse_link(directory: &Path) -> Result<()> {
    if fs::symlink_metadata(directory).is_ok_and(|metadata| metadata.is_symlink()) {
        let error = io::Error::new(io::ErrorKind::NotADirectory, "it is a link");
        return Err(Failure::io_at("create", directory)(error));
    }
    Ok(())
}

/// Writes the old and the new content of a block.
fn write_block_file(directory: &Path, file: &BlockFile) -> Result<()> {
    let path = directory.join(&file.name);
    let content = BTreeMap::from([("before", &file.before), ("after", &file.after)]);
    let mut text = serde_json::to_vec_pretty(&content).unwrap_or_default();
    text.push(b'\n');
    write_new(&path, &text).map_err(Failure::io_at("write", &path))
}

/// Writes a file with the old and the new content for each block that the plan changes. Returns the number of files.
/// With `by_host`, also writes a file for each host with the new content of its blocks.
fn write_files(directory: &Path, files: &[BlockFile], plan: &Plan, by_host: bool) -> Result<usize> {
    refuse_link(directory)?;
    fs::create_dir_all(directory).map_err(Failure::io_at("create", directory))?;
    let mut changed: HashSet<Key> = HashSet::new();
    for action in &plan.actions {
        changed.extend(action.step.edits().map(Edit::key));
    }
    let is_changed = |file: &&BlockFile| changed.contains(&Key::Block(file.cidr));
    let files: Vec<BlockFile> = files.iter().filter(is_changed).cloned().collect();

    for file in &files {
        write_block_file(directory, file)?;
    }
    let hosts = if by_host {
        rebuild::host_files(&files)
    } else {
        BTreeMap::new()
    };
    for (name, text) in &hosts {
        let path = directory.join(name);
        write_new(&path, text.as_bytes()).map_err(Failure::io_at("write", &path))?;
    }
    Ok(files.len() + hosts.len())
}

/// Writes a new file. An existing file or link stays unchanged. Readers never see a half-written file.
fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let part = path.with_extension("json.part");
    let mut file = fs::File::create_new(&part)?;
    let written = file.write_all(text).and_then(|()| fs::hard_link(&part, path));
    // Nothing is left of a file that could not be written, so that the next run can write it.
    fs::remove_file(&part)?;
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_or_link_that_is_there_stays_as_it_is() {
        let folder = std::env::temp_dir().join(format!("calipam-block-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (new, target, link) = (
            folder.join("new.json"),
            folder.join("target"),
            folder.join("link.json"),
        );
        write_new(&new, b"first").unwrap();
        assert_eq!(
            write_new(&new, b"second").unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read(&new).unwrap(), b"first");

        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(write_new(&link, b"third").is_err() && !target.exists());
        std::os::unix::fs::symlink(&target, folder.join("part.json.part")).unwrap();
        assert!(write_new(&folder.join("part.json"), b"fourth").is_err() && !target.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
