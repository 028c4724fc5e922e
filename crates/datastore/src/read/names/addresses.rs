//! Suggests allocated addresses. If there are many blocks, suggests their networks first, step by step: `10.`,
//! `10.244.`, `10.244.7.`, then the addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calipam_assign::{Family, blocks_around};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;

use super::page::select_few;
use crate::error::Result;

/// Maximum number of blocks to read in order to suggest their addresses.
const MAX_READ_BLOCKS: usize = 16;

/// A live cluster's blocks.
pub(crate) trait Blocks {
    /// The CIDRs of a family's blocks that begin with `begin`, compared as strings; only some if there are many.
    async fn some_blocks(&self, begin: &str, family: Family) -> Result<BTreeSet<String>>;
    /// The distinct prefixes of the blocks' IPv4 addresses, up to the next dot after `begin`.
    async fn networks(&self, begin: &str) -> Result<Vec<String>>;
    /// The allocated addresses in the given blocks.
    async fn allocated(&self, blocks: BTreeSet<Key>) -> Result<BTreeSet<String>>;
}

/// The addresses that begin with `begin`, or their networks if there are too many.
pub(crate) async fn names(blocks: &impl Blocks, begin: &str) -> Result<BTreeSet<String>> {
    if begin.contains(':') {
        return allocated_in_blocks(blocks, begin, begin, Family::V6).await;
    }
    let network = match begin.rfind('.') {
        Some(last_dot) => &begin[..=last_dot],
        None => "",
    };
    let found = blocks.some_blocks(network, Family::V4).await?;

    // A network of /24 is the last step, even with many blocks.
    let is_last_step = network.matches('.').count() == 3;
    if found.len() <= MAX_READ_BLOCKS || is_last_step {
        let mut names = allocated_in_blocks(blocks, network, begin, Family::V4).await?;
        if begin.is_empty() {
            let any = "";
            names.extend(allocated_in_blocks(blocks, any, any, Family::V6).await?);
        }
        return Ok(select_few(names, begin));
    }

    let mut networks: BTreeSet<String> = blocks.networks(network).await?.into_iter().collect();
    networks.retain(|network| network.starts_with(begin));
    if begin.is_empty() {
        for block in blocks.some_blocks("", Family::V6).await? {
            networks.extend(address_of_cidr(&block));
        }
    }
    Ok(networks)
}

/// The allocated addresses that begin with `begin`, from the blocks whose CIDR begins with the text `network` and the
/// blocks that start at a lower address but can contain such addresses. If there are too many IPv6 blocks to read,
/// returns the first address of each instead, so that the user can type more of it.
async fn allocated_in_blocks(
    blocks: &impl Blocks,
    network: &str,
    begin: &str,
    family: Family,
) -> Result<BTreeSet<String>> {
    let cidrs = blocks.some_blocks(network, family).await?;
    if family == Family::V6 && cidrs.len() > MAX_READ_BLOCKS {
        return Ok(cidrs.iter().filter_map(|cidr| address_of_cidr(cidr)).collect());
    }

    let mut keys: BTreeSet<Key> = BTreeSet::new();
    for cidr in &cidrs {
        if let Ok(block) = cidr.parse() {
            keys.insert(Key::Block(block));
        }
    }
    // The text of a block's CIDR need not begin like the addresses in it: 10.0.0.0/23 contains 10.0.1.5.
    if let Some(lowest) = lowest_address(begin, network) {
        keys.extend(blocks_around(lowest).map(Key::Block));
    }
    let mut addresses = blocks.allocated(keys).await?;
    addresses.retain(|address| address.starts_with(begin));
    Ok(select_few(addresses, begin))
}

/// The lowest address in an IPv4 `network`, or the lowest IPv6 address that begins with `begin`; `None` if the text is
/// too short for that.
fn lowest_address(begin: &str, network: &str) -> Option<IpAddr> {
    if !begin.contains(':') {
        let address: Ipv4Addr = format!("{network}0").parse().ok()?;
        return Some(address.into());
    }
    // `begin` may be a whole address, end with a colon, or end within a group.
    let completions = [
        begin.to_owned(),
        format!("{begin}0"),
        format!("{}::", begin.trim_end_matches(':')),
    ];
    for text in completions {
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Some(address.into());
        }
    }
    None
}

/// The address in a block's CIDR, which is the block's first.
fn address_of_cidr(cidr: &str) -> Option<String> {
    let (address, _) = cidr.split_once('/')?;
    Some(address.to_owned())
}

/// The allocated addresses in a snapshot.
pub(crate) fn allocated(snapshot: &Snapshot) -> BTreeSet<String> {
    let mut addresses = BTreeSet::new();
    for stored in &snapshot.blocks {
        let Some(block) = stored.value.content.sound() else {
            continue;
        };
        for allocation in block.allocations() {
            addresses.insert(allocation.address.to_string());
        }
    }
    addresses
}
