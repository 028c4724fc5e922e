//! The `ipam show` command.

use std::net::IpAddr;

use calipam_check::occupancy::{Occupancy, Tally};
use calipam_check::{Context, Options, views};
use calipam_datastore::read::Lookup;
use calipam_model::IpNet;
use calipam_model::attributes::{AttributeRef, OwnerMap};
use calipam_model::block::{Block, BlockOwner};
use calipam_model::config::IpamSetting;
use calipam_model::snapshot::{Snapshot, Source};
use calipam_workflow::{read_around, read_sources};
use comfy_table::CellAlignment::{self, Left, Right};
use jiff::SignedDuration;

use super::args::ShowArgs;
use super::table::{draw, five_digits, share};
use super::{Call, plain_failure};
use crate::args::address;
use crate::exit::Result;
use crate::render::text::escape;

/// A function that formats a snapshot.
type Format = fn(&Snapshot) -> Result<String>;

/// Prints what the options ask for: an address, blocks, borrowed addresses, the configuration, or the pools.
pub(super) fn run(args: &ShowArgs, call: Call<'_>) -> Result<()> {
    if let Some(text) = args.ip.as_deref().filter(|text| !text.is_empty()) {
        let address = parse_address(text, call)?;
        let lookup = Lookup::Address(address);
        let snapshot = call.with(async |access| read_around(access, &lookup).await)?;
        return call.print(&address_text(&snapshot, address)?);
    }

    let (sources, format) = view(args);
    let snapshot = call.with(async |access| read_sources(access, sources).await)?;
    call.print(&format(&snapshot)?)?;
    // The program ends here: to free a large snapshot would only take time.
    std::mem::forget(snapshot);
    Ok(())
}

/// Returns the view that the options ask for: the sources that it needs, and the function that formats it. Of several
/// options, calicoctl heeds the first of these.
fn view(args: &ShowArgs) -> (&'static [Source], Format) {
    if args.show_blocks {
        return (&views::sources::BLOCKS, |all| {
            Ok(utilisation(all, Rows::PoolsAndBlocks))
        });
    }
    if args.show_borrowed {
        return (&views::sources::BORROWED, |all| Ok(borrowed(all)));
    }
    if args.show_configuration {
        return (&views::sources::CONFIGURATION, configuration);
    }
    (&views::sources::BLOCKS, |all| Ok(utilisation(all, Rows::Pools)))
}

/// Parses an address. Like calicoctl, reports an invalid address on stdout; the failure then has no text of its own.
pub(super) fn parse_address(text: &str, call: Call<'_>) -> Result<IpAddr> {
    if let Ok(address) = address(text) {
        return Ok(address);
    }
    call.print(&format!(
        "Error executing command: invalid IP address specified: {}\n",
        escape(text)
    ))?;
    Err(plain_failure(""))
}

/// Returns the blocks that are not corrupt, and not marked as deleted.
fn sound_blocks(snapshot: &Snapshot) -> impl Iterator<Item = &Block> {
    snapshot
        .blocks
        .iter()
        .filter_map(|block| block.value.content.sound())
        .filter(|block| !block.is_deleted())
}

/// True if an address in cooldown is known to have cooled down: the allocator and calicoctl treat it as free. False if
/// the configuration, which has the duration of the cooldown, was not read or cannot be decoded.
fn has_cooled_down(snapshot: &Snapshot, attribute: &AttributeRef<'_>) -> bool {
    if !snapshot.has_read(Source::IpamConfig) {
        return false;
    }
    let Some(config) = snapshot.effective_ipam_config() else {
        return false;
    };
    let cooldown = SignedDuration::from_secs(config.cooldown_seconds);
    attribute.has_cooled(snapshot.taken_at, cooldown)
}

/// Formats the allocation of an address. An address in cooldown is an error, as in calicoctl.
fn address_text(snapshot: &Snapshot, address: IpAddr) -> Result<String> {
    let not_assigned = format!("{address} is not assigned\n");
    let Some(allocation) = sound_blocks(snapshot).find_map(|block| block.allocation_of(address)) else {
        return Ok(not_assigned);
    };
    let attribute = allocation.attribute;
    if !attribute.is_cooling() {
        return Ok(format!("IP {address} is in use\n{}", holder_text(&attribute)));
    }
    if has_cooled_down(snapshot, &attribute) {
        return Ok(not_assigned);
    }
    Err(plain_failure(format!("IP {address} is currently in cooldown")))
}

/// Formats the handle and the attributes of an address.
fn holder_text(attribute: &AttributeRef<'_>) -> String {
    let handle = match attribute.clean_handle() {
        Some(handle) => handle.to_string(),
        None => "<none>".to_owned(),
    };
    let mut text = format!("Handle ID: {}\n", escape(&handle));
    match owner_attributes("Active Owner Attributes", &attribute.owner()) {
        Some(attributes) => text.push_str(&attributes),
        None => text.push_str("No Active Owner attributes defined\n"),
    }
    if let Some(alternate) = attribute.alternate() {
        text.push_str(&owner_attributes("Alternate Owner Attributes", &alternate).unwrap_or_default());
    }
    text
}

/// Formats attributes, sorted by name; `None` if there are none.
fn owner_attributes(title: &str, owner: &OwnerMap<'_>) -> Option<String> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (name, value) in owner.iter() {
        pairs.push((name.to_string(), value.to_string()));
    }
    if pairs.is_empty() {
        return None;
    }

    pairs.sort();
    let mut text = format!("{title}:\n");
    for (name, value) in &pairs {
        text.push_str(&format!("  {}: {}\n", escape(name), escape(value)));
    }
    Some(text)
}

/// The rows of the table of pools.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Pools,
    PoolsAndBlocks,
}

/// The columns of the table of pools and blocks.
const UTILISATION: [(&str, CellAlignment); 6] = [
    ("GROUPING", Left),
    ("CIDR", Left),
    ("IPS TOTAL", Right),
    ("IPS IN USE", Right),
    ("IPS RESERVED", Right),
    ("IPS FREE", Right),
];

/// Formats a table with a row for each pool and, if `wanted`, for each of its blocks. Blocks without a pool come last.
fn utilisation(snapshot: &Snapshot, wanted: Rows) -> String {
    let context = Context::new(snapshot, &Options::default());
    let occupancy = Occupancy::new(&context);
    let pools: Vec<IpNet> = snapshot.pools.iter().map(|pool| pool.value.cidr).collect();

    let mut blocks: Vec<IpNet> = Vec::new();
    if wanted == Rows::PoolsAndBlocks {
        blocks.extend(context.index.blocks.iter().map(|block| block.key));
    }
    let (blocks_of_pools, blocks_without_pool) = group_by_pool(&blocks, &pools);

    let mut rows = Vec::new();
    for (pool, blocks) in pools.iter().zip(blocks_of_pools) {
        rows.push(row("IP Pool", *pool, &occupancy.tally(*pool)));
        for block in blocks {
            rows.push(row("Block", block, &occupancy.tally(block)));
        }
    }
    for block in blocks_without_pool {
        rows.push(row("Block", block, &occupancy.tally(block)));
    }

    draw(&UTILISATION, rows)
}

/// Returns the blocks of each pool, and those without one. A block belongs to the first pool that overlaps it.
fn group_by_pool(blocks: &[IpNet], pools: &[IpNet]) -> (Vec<Vec<IpNet>>, Vec<IpNet>) {
    let mut blocks_of_pools = vec![Vec::new(); pools.len()];
    let mut blocks_without_pool = Vec::new();
    for block in blocks {
        let overlaps = |pool: &IpNet| calipam_model::cidr::overlap(*pool, *block);
        match pools.iter().position(overlaps) {
            Some(pool) => blocks_of_pools[pool].push(*block),
            None => blocks_without_pool.push(*block),
        }
    }
    (blocks_of_pools, blocks_without_pool)
}

/// Formats the row of a pool or a block. Addresses in corrupt blocks count as in use. As in calicoctl, an address that
/// is in use and in a reservation counts as both.
fn row(kind: &str, cidr: IpNet, tally: &Tally) -> Vec<String> {
    let in_use = tally.in_use + tally.cooling + tally.windows_reserved + tally.unknown;
    vec![
        kind.to_owned(),
        cidr.to_string(),
        five_digits(tally.total),
        share(in_use, tally.total),
        share(tally.total - tally.usable, tally.total),
        share(tally.free, tally.total),
    ]
}

/// Lists the addresses that nodes hold in blocks of others, as calicoctl does.
fn borrowed(snapshot: &Snapshot) -> String {
    let mut rows = Vec::new();
    let mut without_node = 0;
    for block in sound_blocks(snapshot) {
        let owner = match block.owner() {
            Some(BlockOwner::Host(name) | BlockOwner::Virtual(name)) => name.clone(),
            other => other.map(ToString::to_string).unwrap_or_default(),
        };
        for allocation in block.allocations() {
            let Some(node) = allocation.attribute.get("node").map(|node| node.to_string()) else {
                without_node += 1;
                continue;
            };
            if node == owner {
                continue;
            }
            let (kind, holder) = holder(&allocation.attribute);
            let cells = [
                allocation.address.to_string(),
                node,
                block.cidr().to_string(),
                owner.clone(),
                kind,
                holder,
            ];
            rows.push(cells.map(|cell| escape(&cell).into_owned()).to_vec());
        }
    }

    let columns = [
        "IP",
        "BORROWING-NODE",
        "BLOCK",
        "BLOCK OWNER",
        "TYPE",
        "ALLOCATED-TO",
    ];
    let mut text = draw(&columns.map(|title| (title, Left)), rows);
    if without_node > 0 {
        text.push_str(&format!(
            "\nNote: found {without_node} IP allocations without an explicit node association. Unable to determine if they \
             are borrowed.\n"
        ));
    }
    text
}

/// Returns the kind and name of an address's holder: a virtual machine, a pod, or what `type` says, such as a tunnel,
/// which has no name.
fn holder(attribute: &AttributeRef<'_>) -> (String, String) {
    let text = |name: &str| attribute.get(name).map(|text| text.to_string());
    let within = |name: String| format!("{}/{name}", text("namespace").unwrap_or_default());
    if let Some(machine) = text("vmi-name") {
        return ("vmi".to_owned(), within(machine));
    }
    match text("pod") {
        Some(pod) => ("pod".to_owned(), within(pod)),
        None => (text("type").unwrap_or_default(), String::new()),
    }
}

/// Formats the settings under their Go names. For KubeVirt, calicoctl prints a memory address, but calipam prints the
/// setting.
fn configuration(snapshot: &Snapshot) -> Result<String> {
    let config = snapshot.effective_ipam_config();
    let config = config.ok_or_else(|| plain_failure("error: the stored configuration cannot be decoded"))?;
    let settings = [
        IpamSetting::StrictAffinity(config.strict_affinity),
        IpamSetting::AutoAllocateBlocks(config.auto_allocate_blocks),
        IpamSetting::MaxBlocksPerHost(config.max_blocks_per_host),
        IpamSetting::Kubevirt(config.kubevirt_persistence.unwrap_or(true)),
        IpamSetting::Cooldown(config.cooldown_seconds),
    ];
    let rows = settings.map(|setting| vec![setting.name().to_owned(), setting.to_string()]);
    Ok(draw(&[("PROPERTY", Left), ("VALUE", Left)], rows))
}
