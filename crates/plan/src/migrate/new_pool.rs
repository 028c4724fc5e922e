//! The new pool of a migration: made of the old one if it does not exist, and refused if it cannot take its users.

use calipam_model::IpNet;
use calipam_model::cidr::{is_v4, overlap, resource_name};
use calipam_model::handle::is_storable_id;
use calipam_model::hint::{Call, Hint};
use calipam_model::names::MAX_OBJECT_NAME;
use calipam_model::pool::Pool;
use calipam_model::snapshot::{DatastoreKind, Snapshot};

use super::pools::{block_in_the_way, of_another_size};
use crate::range;
use crate::refusal::{Refused, Result, require_copyable};

/// Returns the pool to create: the old one with another name, CIDR and block size.
pub(super) fn made_of(
    snapshot: &Snapshot,
    old: &Pool,
    cidr: IpNet,
    block_size: u8,
    name: Option<&str>,
) -> Result<Pool> {
    if cidr == old.cidr {
        return Err(same_cidr_refusal(old, block_size));
    }
    require_block_size(cidr, block_size)?;
    require_copyable(old)?;

    let name = if let Some(stated) = name {
        stated.to_owned()
    } else if let Some(successor) = &old.temporary_for
        && successor.cidr == cidr
    {
        // A temporary pool names the pool that follows it.
        successor.name.clone()
    } else {
        name_of(old, cidr)
    };
    // The name may come from an annotation, which can contain anything.
    if !is_storable_id(&name, DatastoreKind::Kubernetes) || name.contains(|c: char| c.is_ascii_uppercase()) {
        let message = format!(
            "{name:?} cannot be a pool name: only lower-case letters, digits, `-` and `.` are allowed"
        );
        return Err(Refused::new(message).hint("name the new pool with --to-name"));
    }
    if snapshot.pools.iter().any(|pool| pool.value.name == name) {
        return Err(Refused::new(format!(
            "the pool {name} already exists, with another CIDR"
        )));
    }
    Ok(Pool {
        name,
        cidr,
        spelling: None,
        block_size,
        disabled: false,
        not_allocatable: None,
        created: None,
        temporary_for: None,
        ..old.clone()
    })
}

/// The refusal of a new pool with the CIDR of the old one: two pools cannot have the same CIDR, and one pool cannot
/// have blocks of two sizes.
pub(super) fn same_cidr_refusal(old: &Pool, block_size: u8) -> Refused {
    let Pool { name, cidr, .. } = old;
    let message = format!(
        "{cidr} is the CIDR of the pool {name} itself: blocks of /{block_size} can only be created there once its present blocks are gone"
    );
    let hint = format!(
        "move its users to a temporary pool and back: {{}}, where OTHER-CIDR is free and has room for all of them; or, if \
         one half of {cidr} has room, split the pool, and move from half to half (docs/migrate.md)"
    );
    let size = block_size.to_string();
    let through = Call::to([
        "migrate",
        "--from",
        name,
        "--block-size",
        &size,
        "--via",
        "OTHER-CIDR",
    ]);
    Refused::new(message).hint(Hint::new(hint, [through]))
}

fn smaller_than_block(cidr: IpNet, block_size: u8) -> Refused {
    Refused::new(format!("{cidr} is smaller than one block of /{block_size}"))
}

/// Refuses a range that something else in the cluster uses, or that no pool can have.
pub(super) fn require_free_range(snapshot: &Snapshot, cidr: IpNet) -> Result<()> {
    let hint = "name a range that nothing else uses, in this cluster or around it";
    range::require_free(snapshot, cidr).map_err(|refused| refused.hint(hint))
}

/// Refuses block sizes that Calico does not accept (facts section 8), or that do not fit into the CIDR.
pub(super) fn require_block_size(cidr: IpNet, size: u8) -> Result<()> {
    let sizes = if is_v4(cidr) { 20..=32 } else { 116..=128 };
    if !sizes.contains(&size) {
        let (least, most) = sizes.into_inner();
        let message = format!("Calico does not allow blocks of /{size}, only /{least} to /{most}");
        return Err(Refused::new(message));
    }
    if size < cidr.prefix_len() {
        return Err(smaller_than_block(cidr, size));
    }
    Ok(())
}

/// Returns a name such as `<old pool>-10-9-0-0-16`. If the old pool's name ends in its own CIDR in this form, that
/// ending is removed.
pub(super) fn name_of(old: &Pool, cidr: IpNet) -> String {
    let old_suffix = suffix_of(old.cidr);
    let base = old.name.strip_suffix(&old_suffix).unwrap_or(&old.name);
    let suffix = suffix_of(cidr);
    let longest_base = MAX_OBJECT_NAME.saturating_sub(suffix.len());
    let end = base.floor_char_boundary(longest_base);
    format!("{}{suffix}", &base[..end])
}

/// Formats a CIDR as the end of a pool's name, such as `-10-9-0-0-16`.
fn suffix_of(cidr: IpNet) -> String {
    format!("-{}", resource_name(cidr))
}

/// Refuses a new pool that cannot take the users of the old one: the old pool itself, a pool of the other family, an
/// unusable pool, a pool that overlaps other pools, nodes or services, or a pool that contains blocks of another size.
pub(super) fn require_suitable(snapshot: &Snapshot, old: &Pool, new: &Pool) -> Result<()> {
    if new.name == old.name {
        let message = format!("{} is both the old and the new pool", old.name);
        return Err(Refused::new(message));
    }
    if is_v4(new.cidr) != is_v4(old.cidr) {
        let message = format!("{} and {} are from different IP families", old.cidr, new.cidr);
        return Err(Refused::new(message));
    }

    // Calico also marks a disabled pool as not allocatable.
    if !new.is_enabled() && (new.deleting || !new.disabled) {
        let message = format!(
            "the new pool {} is being deleted, or Calico says that nothing can be allocated from it",
            new.name
        );
        return Err(Refused::new(message).hint(
            "its condition Allocatable says why; if it was only just enabled, wait a moment, or name another pool",
        ));
    }
    if new.is_smaller_than_block() {
        return Err(smaller_than_block(new.cidr, new.block_size));
    }

    require_no_overlap(snapshot, new, new.cidr)?;
    require_free_range(snapshot, new.cidr)?;
    match of_another_size(snapshot, new).next() {
        Some(block) => Err(block_in_the_way(block, new)),
        None => Ok(()),
    }
}

/// Refuses a CIDR that overlaps a pool other than `pool`.
pub(super) fn require_no_overlap(snapshot: &Snapshot, pool: &Pool, cidr: IpNet) -> Result<()> {
    for other in snapshot.pools.iter().map(|stored| &stored.value) {
        if other.name != pool.name && overlap(other.cidr, cidr) {
            let message = format!("{cidr} overlaps {}, the pool {}", other.cidr, other.name);
            return Err(Refused::new(message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_cut_between_characters() {
        let new = "10.9.0.0/16".parse().unwrap();
        for character in ["a", "ä"] {
            let old_name = character.repeat(MAX_OBJECT_NAME);
            let old = Pool::parse(&old_name, br#"{"spec":{"cidr":"10.8.0.0/16"}}"#).unwrap();
            let name = name_of(&old.value, new);
            assert!(name.ends_with(&format!("{character}-10-9-0-0-16")), "{name}");
            assert!(name.len() <= MAX_OBJECT_NAME, "{name}");
        }
    }
}
