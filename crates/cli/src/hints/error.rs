//! Hints for errors.

use calipam_plan::configure::ConfigureRefusal;
use calipam_plan::migrate::MigrateRefusal;
use calipam_plan::release::ReportError;
use calipam_plan::split::SplitRefusal;
use calipam_repair::journal::JournalError;
use calipam_repair::{LockAction, RepairError};
use calipam_workflow::{Error, EvictError, NoConsent, NotFound};

use super::{again, command, command_elsewhere, connected, datastore, dry_run, with_journal};
use crate::render::text::escape;

/// What to do about an error, if there is something to say.
pub(crate) fn error(error: &Error) -> Option<String> {
    let hint = match error {
        Error::Datastore(error) | Error::Repair(RepairError::Datastore(error)) => {
            return datastore::hint(error);
        }
        Error::Repair(error) => return repair(error),
        Error::Io { .. }
        | Error::TakenSince(_)
        | Error::NoConsent(NoConsent::Declined | NoConsent::Failed(_)) => return None,
        Error::EmptyArchive(folder) => {
            let folder = folder.to_string_lossy();
            return Some(format!("{} adds one", command(&["export", "--archive", &folder])));
        }
        Error::OneState(folder) => {
            let folder = folder.to_string_lossy();
            return Some(format!("{} records every change", command(&["record", &folder])));
        }
        Error::BeforeArchive { .. } => {
            "name a later time, or a file: nothing is known from before the first export"
        }
        Error::ArchiveOfAnother { .. } => "name the archive of this cluster",
        Error::TwoClusters { .. } => {
            return Some(format!(
                "name two states of the same cluster, or compare them anyway: {}",
                again(&["--force"], &[])
            ));
        }
        Error::UnknownNode(unknown) => {
            let list = command(&["show", "--nodes"]);
            return Some(format!("{}{list} lists nodes and what they hold", did_you_mean(unknown)));
        }
        Error::UnknownPool(unknown) => {
            let list = command(&["show"]);
            return Some(format!(
                "{}{list} lists the pools; a CIDR is accepted as well",
                did_you_mean(unknown)
            ));
        }
        Error::NoNodeSelected => {
            "labels are those of Calico's nodes: `calicoctl get nodes -o yaml` or `kubectl get nodes --show-labels`"
        }
        Error::UnknownNetwork(_) => return Some(format!("{} lists the pools", command(&["show"]))),
        Error::UnknownNamespace(unknown) => {
            return Some(format!(
                "{}namespaces in which nothing has an address are not known",
                did_you_mean(unknown)
            ));
        }
        Error::AmbiguousHandle { ids, .. } => return Some(candidates(ids)),
        Error::UnknownBlock(_) => {
            return Some(format!("{} lists the blocks", command(&["show", "--blocks"])));
        }
        Error::NothingInCommon { .. } => {
            return Some(format!("{} lists blocks with pool and node", command(&["show", "--blocks"])));
        }
        Error::NoReport { .. } => {
            let check = command(&["check", "-o", "json"]);
            return Some(format!("write one with {check} or `calicoctl ipam check --output FILE`"));
        }
        Error::UnusableReport { objection, .. } => return Some(report(objection)),
        Error::Split(refusal) => return split(refusal),
        Error::Configure(refusal) => return configure(refusal),
        Error::Migrate(refusal) => return migrate(refusal),
        Error::Evict(error) => return evict(error),
        Error::SettingNotKept { .. } => "install the custom resource definitions of the Calico that runs",
        Error::SeveralPools { .. } => {
            return Some(format!("name the pool: {}", again(&["--name", "NAME"], &["name", "cidr"])));
        }
        Error::NotLocked => {
            "lock it with `calicoctl datastore migrate lock`; `calipam split` locks it by itself"
        }
        Error::DoubtfulKubernetes(_) => {
            return Some(format!(
                "name the context of the cluster that uses this etcd: {}; if it is this one, name it as well. Or read etcd alone, without \
                 a kubeconfig",
                connected(&["--kubeconfig", "FILE", "--context", "NAME"], &[])
            ));
        }
        Error::PodsNotRead => {
            return Some(format!(
                "pass a kubeconfig, so that pods are compared: {}; or trust the workload endpoints with {}",
                connected(&["--kubeconfig", "FILE"], &[]),
                again(&["--endpoints-only"], &[])
            ));
        }
        Error::Trial(_) => {
            "nothing was changed; retry, and report it if it happens again: this is a bug in calipam"
        }
        Error::TooManyChanges { changes, .. } => {
            let larger = ["--max-changes", &changes.to_string()];
            return Some(format!(
                "review the plan with {}, then allow it with {}",
                dry_run(),
                again(&larger, &["max_changes"])
            ));
        }
        Error::NoJournalDirectory => {
            let named =
                with_journal().map(|call| format!("name a file with {call}, or ")).unwrap_or_default();
            return Some(format!("{named}set HOME or XDG_STATE_HOME to an absolute path"));
        }
        Error::NotLive("release --yes" | "rebuild --apply") => {
            return Some(format!("plan on it with {}", dry_run()));
        }
        Error::NotLive(_) => "connect to the cluster itself",
        Error::NoConsent(NoConsent::NoTerminal) => {
            return Some(format!("use {}; {} only shows the plan", again(&["--yes"], &[]), dry_run()));
        }
    };
    Some(hint.to_owned())
}

fn did_you_mean(unknown: &NotFound) -> String {
    unknown.nearest.as_ref().map(|name| format!("did you mean `{}`? ", escape(name))).unwrap_or_default()
}

/// What to do about a pool that cannot be split.
fn split(refusal: &SplitRefusal) -> Option<String> {
    let hint = match refusal {
        SplitRefusal::NotPowerOfTwo { .. } => "2, 4, 8 and so on are possible",
        SplitRefusal::TooManyParts { .. } | SplitRefusal::SmallerThanBlock { .. } => {
            "split it into fewer parts"
        }
        SplitRefusal::BlockTooLarge { .. } => {
            "the block dates from before the pool's block size was changed; split into fewer parts, or wait until it is gone"
        }
        SplitRefusal::NameTaken(_) => {
            let list = command_elsewhere(&["undo", "--list"]);
            return Some(format!(
                "if an earlier attempt left it behind, undo that; {list} names its journal"
            ));
        }
        SplitRefusal::Finalizer { .. } => {
            "disable the pool (`disabled: true`), wait until the finalizer is gone, split it, and enable the parts"
        }
        SplitRefusal::Range(_) => "move its users to a pool of another range, with `migrate`",
        SplitRefusal::NamespaceSelectorOfTunnels(_) => {
            "set its allowedUses to Workload alone, or remove the namespaceSelector"
        }
        SplitRefusal::BeingDeleted(_) => return None,
    };
    Some(hint.to_owned())
}

/// What to do about settings that are refused.
fn configure(refusal: &ConfigureRefusal) -> Option<String> {
    let hint = match refusal {
        ConfigureRefusal::NeedsAutoAllocation => {
            format!(
                "set this with it: {}",
                again(&["--auto-allocate-blocks", "true"], &["auto_allocate_blocks"])
            )
        }
        ConfigureRefusal::LimitNeedsStrictAffinity => {
            let (strict, limit) = (["--strict-affinity", "true"], ["--max-blocks-per-host", "0"]);
            format!(
                "set strict affinity, too, {}; or no limit, {}",
                again(&strict, &["strict_affinity"]),
                again(&limit, &["max_blocks_per_host"])
            )
        }
        ConfigureRefusal::Nothing
        | ConfigureRefusal::OutOfRange { .. }
        | ConfigureRefusal::Undecodable(_) => return None,
    };
    Some(hint)
}

/// What to do about a pool that is not migrated.
fn migrate(refusal: &MigrateRefusal) -> Option<String> {
    let hint = match refusal {
        MigrateRefusal::NoSuchPool(_) => format!("{} lists the pools; --to-cidr creates one", command(&["show"])),
        MigrateRefusal::NoneBegun => "name the pool to leave with --from".to_owned(),
        MigrateRefusal::SeveralBegun(_) => "name one of them with --from".to_owned(),
        MigrateRefusal::SameCidr { pool, cidr, block_size } => {
            let size = block_size.to_string();
            let through = ["migrate", "--from", pool, "--block-size", &size, "--via", "OTHER-CIDR"];
            format!(
                "its users move to a temporary pool and back: {}, where OTHER-CIDR is free, and has room for all of them; or, where one \
                 half of {cidr} has, split it, and move from half to half (docs/migrate.md)",
                command(&through)
            )
        }
        MigrateRefusal::OtherBegun { temporary, .. } => format!(
            "continue with {}; or abandon it, while the old pool still exists: {}",
            command(&["migrate", "resume", "--from", temporary]),
            command(&["migrate", "--from", temporary, "--to", "OLD-POOL"])
        ),
        MigrateRefusal::NotTemporary { .. } => {
            "name a CIDR that no pool has; or move to that pool permanently, with --to".to_owned()
        }
        MigrateRefusal::NoRoomBack { .. } => format!(
            "name another block size, or fix the given reason; {} continues anyway",
            again(&["--force"], &[])
        ),
        MigrateRefusal::BlockInTheWay { block, .. } => format!(
            "Calico assigns addresses twice where blocks overlap; {} shows what {block} holds",
            command(&["show", "--block", &block.to_string()])
        ),
        MigrateRefusal::Range(_) => "name a range that nothing else has, in this cluster or next to it".to_owned(),
        MigrateRefusal::OtherBlockSize { .. } => {
            "a pool has one block size; name another CIDR, or omit --block-size".to_owned()
        }
        MigrateRefusal::NewPoolUnusable(_) => {
            "its condition Allocatable says why; if it was only just enabled, wait a moment; or name another pool".to_owned()
        }
        MigrateRefusal::NoRoom { .. } => format!(
            "name a larger pool; the table shows each node, and {} continues anyway",
            again(&["--force"], &[])
        ),
        MigrateRefusal::LastPool(_) | MigrateRefusal::NoOtherPool(_) => {
            "create or enable another pool first, with --to-cidr or --to".to_owned()
        }
        MigrateRefusal::NoLongerEmpty(pool) | MigrateRefusal::PhaseHasChanged { pool, .. } => {
            format!("{} shows what it contains now", command(&["migrate", "status", "--from", pool]))
        }
        MigrateRefusal::Finalizer { pool, .. } => format!(
            "nothing is left in it: `kubectl delete ippools.projectcalico.org {}` lets Calico delete it",
            escape(pool)
        ),
        MigrateRefusal::ManagedBy { .. } => {
            "change spec.calicoNetwork.ipPools of its resource Installation: it creates, disables and deletes pools there".to_owned()
        }
        MigrateRefusal::NamespaceSelectorOfTunnels(_) => {
            "set its allowedUses to Workload alone, or remove the namespaceSelector".to_owned()
        }
        MigrateRefusal::OtherName { .. } => "omit --to-name: the pool exists".to_owned(),
        MigrateRefusal::NoName(_) => "name the new pool with --to-name".to_owned(),
        MigrateRefusal::SamePool(_)
        | MigrateRefusal::OtherFamily { .. }
        | MigrateRefusal::NoBlockSize { .. }
        | MigrateRefusal::SameBlockSize { .. }
        | MigrateRefusal::SmallerThanBlock { .. }
        | MigrateRefusal::Overlaps { .. }
        | MigrateRefusal::NameTaken(_)
        | MigrateRefusal::BeingDeleted(_) => return None,
    };
    Some(hint)
}

/// What to do where pods are not evicted any more.
fn evict(error: &EvictError) -> Option<String> {
    Some(match error {
        EvictError::NoKubernetes => {
            format!("pass a kubeconfig: {}", connected(&["--kubeconfig", "FILE"], &[]))
        }
        EvictError::NotReady { .. } => {
            format!("once its pods are ready, {} continues", again(&[], &[]))
        }
        EvictError::AddressOfOldPool { .. } => format!(
            "an annotation or the configuration of the CNI plugin may ask for the pool: {} shows annotations",
            command(&["migrate", "status"])
        ),
        EvictError::Budgets { .. } => {
            "`kubectl get poddisruptionbudgets -A` shows what they allow".to_owned()
        }
        EvictError::NotEnded { .. } => format!(
            "is their node down? `kubectl get nodes` shows it; once they are gone, {} goes on",
            again(&[], &[])
        ),
    })
}

/// Handles that are named at most.
const CANDIDATES: usize = 10;

/// The handles that can be meant, one per line.
fn candidates(ids: &[String]) -> String {
    let mut lines = vec!["use a longer prefix of one of these IDs:".to_owned()];
    lines.extend(ids.iter().take(CANDIDATES).map(|id| format!("  {}", escape(id))));
    if ids.len() > CANDIDATES {
        lines.push("  …".to_owned());
    }
    lines.join("\n")
}

/// What to do about an objection to a report.
fn report(objection: &ReportError) -> String {
    let force = || again(&["--force"], &[]);
    match objection {
        ReportError::OtherCluster { .. } | ReportError::NoReport(_) => {
            "connect to the cluster that it is about".to_owned()
        }
        ReportError::NotLocked => format!(
            "{} locks the datastore during the release; {} releases without the lock",
            again(&["--lock"], &[]),
            force()
        ),
        ReportError::Stale => format!(
            "write a new one; or ignore this with {}: what it lists is released only if it is unused now",
            force()
        ),
        ReportError::OtherVersion { .. } => {
            format!("ignore this with {}: what it lists is released only if it is unused now", force())
        }
    }
}

pub(crate) fn repair(error: &RepairError) -> Option<String> {
    let hint = match error {
        RepairError::Datastore(error) => return datastore::hint(error),
        RepairError::Journal(error) => return Some(journal(error)),
        RepairError::OtherCluster { .. } => {
            let show = command(&["show", "--configuration"]);
            return Some(format!("connect to the cluster that it was made for; {show} prints the GUID"));
        }
        RepairError::StrangeKey { .. } => "use an unchanged copy of the journal",
        RepairError::NotAgreed { .. } => "retry, and confirm the new plan",
        RepairError::Lock { action: LockAction::Restore, .. } => {
            "`calicoctl datastore migrate unlock` unlocks it; while it is locked no pod starts or stops"
        }
        RepairError::Lock { .. } => {
            return Some(format!(
                "wait for the other run; or run without the lock, since every write checks that nothing has changed: {}",
                again(&[], &["lock"])
            ));
        }
    };
    Some(hint.to_owned())
}

fn journal(error: &JournalError) -> String {
    let hint = match error {
        JournalError::Write { .. } => {
            let place =
                with_journal().unwrap_or_else(|| "XDG_STATE_HOME names the folder above it".to_owned());
            return format!(
                "nothing is written to the datastore without a journal; choose a place for it: {place}"
            );
        }
        JournalError::Read { .. } | JournalError::NoJournal { .. } => {
            return format!(
                "name the journal that the repair printed; {} lists them",
                command_elsewhere(&["undo", "--list"])
            );
        }
        JournalError::Alive { .. } => "wait until it has ended, or stop it",
        JournalError::OtherFormat { .. } => {
            "use the version of calipam that wrote it: `zstdcat JOURNAL | head -1` names it"
        }
        JournalError::Line { .. } => {
            "the file was changed after it was written; use an unchanged copy of it: nothing is undone from a damaged journal"
        }
    };
    hint.to_owned()
}
