//! Plans of `split`, which replaces a pool with several smaller ones (facts 7.7). Blocks stay as they are: Calico
//! matches them with pools by CIDR.
//!
//! calicoctl disables the pool before it checks whether it can be split. Here everything is checked first, and the pool
//! is disabled only on request, to make the same writes as calicoctl. The parts overlap the pool for a moment, without
//! harm: the same blocks belong to both.

use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::digest::sha256_hex;
use calipam_model::document::Document;
use calipam_model::edit::{Edit, PoolEdit};
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use calipam_model::time::format_seconds;
use calipam_model::writable::Object;

use crate::plan::{Action, Change, Plan, PlanKind, Verb};
use crate::range;
use crate::refusal::{Refused, Result, require_copyable};

/// The largest number of parts: each is an object that every node watches.
pub const MOST_PARTS: u32 = 4096;

/// A reason not to split a pool. The command of calicoctl's form prints some of them in its own way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitRefusal {
    /// The number of parts is not a power of two above 1.
    #[error(transparent)]
    NotPowerOfTwo(Refused),
    /// The request needs a locked datastore, but the datastore is not locked.
    #[error(transparent)]
    NotLocked(Refused),
    #[error(transparent)]
    Other(#[from] Refused),
}

impl From<SplitRefusal> for Refused {
    fn from(refusal: SplitRefusal) -> Self {
        match refusal {
            SplitRefusal::NotPowerOfTwo(refused)
            | SplitRefusal::NotLocked(refused)
            | SplitRefusal::Other(refused) => refused,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Split {
    pub parts: u32,
    /// True if the pool is disabled first, in a step of its own, as calicoctl does.
    pub disables_first: bool,
}

/// Plans to split a pool. `stored` is its document in the datastore.
pub fn plan(snapshot: &Snapshot, pool: &Pool, stored: &Document, split: Split) -> Result<Plan, SplitRefusal> {
    if pool.deleting {
        return Err(Refused::new(format!("the pool {} is being deleted", pool.name)).into());
    }
    if let Some(finalizer) = stored.finalizers().first() {
        // Calico's pool controller would first release the affinities of all blocks.
        let message = format!(
            "the pool {} has the finalizer {finalizer}: if it were deleted now, Calico would release its blocks' \
             affinities, and keep the pool until all blocks are gone",
            pool.name
        );
        let hint = "disable the pool (`disabled: true`), wait until the finalizer is gone, split it, and enable the parts";
        return Err(Refused::new(message).hint(hint).into());
    }

    require_copyable(pool)?;
    let cidrs = parts_of(pool, split.parts)?;
    require_blocks_fit(snapshot, pool.cidr, cidrs[0])?;
    range::require_free(snapshot, pool.cidr)
        .map_err(|refused| refused.hint("move its users to a pool with another range, with `migrate`"))?;
    let reason = format!("split of pool {}", pool.name);
    let mut actions = Vec::new();
    let mut old = stored.clone();
    if split.disables_first && !pool.disabled {
        let disable = Edit::Pool(pool.name.clone(), PoolEdit::SetDisabled(stored.clone(), true));
        let detail = format!("{}, before its parts are created", pool.name);
        let changes = vec![change(Verb::DisablePool, pool.cidr, detail)];
        actions.push(Action::new(reason.clone(), vec![disable], changes));
        old.set_disabled(true);
    }

    let mut edits = Vec::new();
    let mut changes = Vec::new();
    for (index, cidr) in cidrs.into_iter().enumerate() {
        let name = part_name(&pool.name, index);
        if snapshot.pools.iter().any(|other| other.value.name == name) {
            let hint = "if an earlier attempt left it behind, undo that attempt; {} names its journal";
            let refused = Refused::new(format!("the pool {name} already exists"));
            return Err(refused
                .hint(Hint::new(hint, [Call::elsewhere(["undo", "--list"])]))
                .into());
        }
        let mut part = stored.child(&name, [("cidr", cidr.to_string().into())]);
        identify(&mut part, snapshot, &name);
        changes.push(change(
            Verb::CreatePool,
            cidr,
            format!("{name}, part of {}", pool.name),
        ));
        edits.push(Edit::Create(Key::Pool(name), Box::new(Object::Pool(part))));
    }
    // The pool is deleted last, so that every address is in a pool at any time.
    edits.push(Edit::Pool(pool.name.clone(), PoolEdit::Delete(old)));
    changes.push(change(
        Verb::DeletePool,
        pool.cidr,
        format!("{}; its blocks are kept", pool.name),
    ));
    actions.push(Action::new(reason, edits, changes));

    let mut warnings: Vec<Hint> = Vec::new();
    if pool.disabled {
        let warning = format!(
            "the pool {} is disabled, and so are its parts; calicoctl would enable them",
            pool.name
        );
        warnings.push(warning.into());
    }
    Ok(Plan {
        warnings,
        ..Plan::new(PlanKind::Split, snapshot, actions)
    })
}

fn change(action: Verb, cidr: IpNet, detail: String) -> Change {
    Change::new(action, Subject::Pool(cidr), detail, &[])
}

/// Returns the CIDRs of the parts, lowest first; at least two.
fn parts_of(pool: &Pool, parts: u32) -> Result<Vec<IpNet>, SplitRefusal> {
    let cidr = pool.cidr;
    // calicoctl's message.
    let failed = |why: String| format!("error splitting the CIDR {cidr} into {parts} CIDRs: {why}");
    if parts < 2 || !parts.is_power_of_two() {
        let why = format!("number to split CIDR into is not a valid power of 2: {parts}");
        let refused = Refused::new(failed(why)).hint("2, 4, 8 and so on are possible");
        return Err(SplitRefusal::NotPowerOfTwo(refused));
    }

    let fewer = "split it into fewer parts";
    if parts > MOST_PARTS {
        return Err(Refused::new(failed(format!("that is more than {MOST_PARTS}")))
            .hint(fewer)
            .into());
    }
    let prefix_len = u32::from(cidr.prefix_len()) + parts.ilog2();
    let prefix_len = u8::try_from(prefix_len).ok();
    let Some(subnets) = prefix_len.and_then(|prefix_len| cidr.subnets(prefix_len).ok()) else {
        let why = format!("the CIDR {cidr} is not large enough to be split into {parts} parts");
        return Err(Refused::new(failed(why)).hint(fewer).into());
    };

    let cidrs: Vec<IpNet> = subnets.collect();
    if let Some(part) = cidrs.first()
        && part.prefix_len() > pool.block_size
    {
        let message = format!(
            "a part such as {part} would be smaller than the pool's blocks, which are /{}",
            pool.block_size
        );
        return Err(Refused::new(message).hint(fewer).into());
    }
    Ok(cidrs)
}

/// Refuses blocks that span several parts, and would be in no pool. A pool whose block size was changed can have some.
fn require_blocks_fit(snapshot: &Snapshot, pool: IpNet, part: IpNet) -> Result<()> {
    let spans = |block: &IpNet| overlap(*block, pool) && block.prefix_len() < part.prefix_len();
    let Some(block) = snapshot.block_cidrs().find(spans) else {
        return Ok(());
    };
    let message = format!("the block {block} is larger than a part such as {part}, and would be in no pool");
    Err(Refused::new(message).hint(
        "the block dates from before the pool's block size was changed; split into fewer parts, or wait until it is gone",
    ))
}

/// Returns `split-<pool>-<index>`, as calicoctl names parts. The pool's name is cut if it is too long for a part, since
/// names have at most 253 characters.
fn part_name(pool: &str, index: usize) -> String {
    let end = format!("-{index}");
    let longest = 253 - "split-".len() - end.len();
    format!("split-{}{end}", pool.get(..longest).unwrap_or(pool))
}

/// Gives a new pool in etcd a UID and a creation time. Kubernetes does that by itself.
pub(crate) fn identify(pool: &mut Document, snapshot: &Snapshot, name: &str) {
    if snapshot.datastore == DatastoreKind::Etcd {
        pool.identify(&uid(snapshot, name), &format_seconds(snapshot.taken_at));
    }
}

/// Creates a unique UID from the cluster, the time and the name.
fn uid(snapshot: &Snapshot, name: &str) -> String {
    let guid = snapshot.guid();
    let hex = sha256_hex(format!("{guid} {} {name}", snapshot.taken_at));
    // Version 8 of RFC 9562 is for UIDs that an application computes; the variant is that of the RFC.
    format!(
        "{}-{}-8{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..32]
    )
}

#[cfg(test)]
mod tests {
    use super::part_name;

    #[test]
    fn names_of_parts_fit() {
        assert_eq!(part_name("pool", 17), "split-pool-17");
        for index in [0, 4095] {
            let name = part_name(&"p".repeat(253), index);
            assert!(
                name.len() == 253 && name.ends_with(&format!("-{index}")),
                "{name}"
            );
        }
    }
}
