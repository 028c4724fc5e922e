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
use comfy_table::CellAlignment::{Left, Right};
use jiff::SignedDuration;

use super::args::ShowArgs;
use super::table::{draw, five_digits, share};
use super::{Call, plain_failure};
use crate::args::address;
use crate::exit::Result;
use crate::render::text::escape;

/// A function that formats a snapshot.
type Print = fn(&Snapshot) -> Result<String>;

pub(super) fn run(args: &ShowArgs, call: Call<'_>) -> Result<()> {
    let address = args.ip.as_deref().filter(|text| !text.is_empty());
    let address = address.map(|text| parse_address(text, call)).transpose()?;
    let (sources, text): (&[Source], Print) = match args {
        ShowArgs {
            show_blocks: true, ..
        } => (&views::sources::BLOCKS, |all| Ok(utilisation(all, true))),
        ShowArgs {
            show_borrowed: true, ..
        } => (&views::sources::BORROWED, |all| Ok(borrowed(all))),
        ShowArgs {
            show_configuration: true,
            ..
        } => (&views::sources::CONFIGURATION, configuration),
        _ => (&views::sources::BLOCKS, |all| Ok(utilisation(all, false))),
    };
    let snapshot = call.with(async |access| match address {
        Some(address) => read_around(access, &Lookup::Address(address)).await,
        None => read_sources(access, sources).await,
    })?;
    call.print(&match address {
        Some(address) => one(&snapshot, address)?,
        None => text(&snapshot)?,
    })?;
    std::mem::forget(snapshot);
    Ok(())
}

/// Parses an address. Like calicoctl, reports an invalid address on stdout.
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

fn sound_blocks(snapshot: &Snapshot) -> impl Iterator<Item = &Block> {
    snapshot
        .blocks
        .iter()
        .filter_map(|block| block.value.content.sound())
        .filter(|block| !block.is_deleted())
}

/// True if an address is known to have cooled down: the allocator and calicoctl treat such an address as free.
fn has_cooled_down(snapshot: &Snapshot, attribute: &AttributeRef<'_>) -> bool {
    let config = snapshot
        .effective_ipam_config()
        .filter(|_| snapshot.has_read(Source::IpamConfig));
    let cooldown = config.map(|config| SignedDuration::from_secs(config.cooldown_seconds));
    cooldown.is_some_and(|cooldown| attribute.has_cooled(snapshot.taken_at, cooldown))
}

fn one(snapshot: &Snapshot, address: IpAddr) -> Result<String> {
    let found = sound_blocks(snapshot).find_map(|block| block.allocation_of(address));
    let not_assigned = || Ok(format!("{address} is not assigned\n"));
    let Some(found) = found else { return not_assigned() };
    let attribute = found.attribute;
    if attribute.is_cooling() {
        return if has_cooled_down(snapshot, &attribute) {
            not_assigned()
        } else {
            Err(plain_failure(format!("IP {address} is currently in cooldown")))
        };
    }
    let handle = attribute
        .clean_handle()
        .map_or("<none>".to_owned(), |handle| handle.to_string());
    let mut text = format!("IP {address} is in use\nHandle ID: {}\n", escape(&handle));
    match owner_attributes("Active Owner Attributes", &attribute.owner()) {
        Some(attributes) => text.push_str(&attributes),
        None => text.push_str("No Active Owner attributes defined\n"),
    }
    if let Some(alternate) = attribute.alternate() {
        text.push_str(&owner_attributes("Alternate Owner Attributes", &alternate).unwrap_or_default());
    }
    Ok(text)
}

/// Formats attributes, sorted by name; `None` if there are none.
fn owner_attributes(title: &str, owner: &OwnerMap<'_>) -> Option<String> {
    let mut pairs: Vec<(String, String)> = owner
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    pairs.sort();
    let lines = pairs
        .iter()
        .map(|(name, value)| format!("  {}: {}\n", escape(name), escape(value)));
    (!pairs.is_empty()).then(|| format!("{title}:\n{}", lines.collect::<String>()))
}

/// Formats pools and, on request, their blocks; blocks without a pool come last.
fn utilisation(snapshot: &Snapshot, with_blocks: bool) -> String {
    let context = Context::new(snapshot, &Options::default());
    let occupancy = Occupancy::new(&context);
    let pools: Vec<IpNet> = snapshot.pools.iter().map(|pool| pool.value.cidr).collect();
    let blocks: Vec<IpNet> = context.index.blocks.iter().map(|block| block.key).collect();
    let overlaps = |pool: &IpNet, block: &IpNet| calipam_model::cidr::overlap(*pool, *block);
    let pool_of = |block: &IpNet| pools.iter().position(|pool| overlaps(pool, block));

    let mut rows = Vec::new();
    let add_blocks = |pool: Option<usize>, rows: &mut Vec<Vec<String>>| {
        for block in blocks
            .iter()
            .filter(|block| with_blocks && pool_of(block) == pool)
        {
            rows.push(row("Block", *block, &occupancy.tally(*block)));
        }
    };
    for (index, pool) in pools.iter().enumerate() {
        rows.push(row("IP Pool", *pool, &occupancy.tally(*pool)));
        add_blocks(Some(index), &mut rows);
    }
    add_blocks(None, &mut rows);

    let columns = [("GROUPING", Left), ("CIDR", Left)];
    let numbers = ["IPS TOTAL", "IPS IN USE", "IPS RESERVED", "IPS FREE"].map(|title| (title, Right));
    draw(&[&columns[..], &numbers].concat(), rows)
}

/// Formats a row. Addresses in corrupt blocks count as in use.
fn row(kind: &str, cidr: IpNet, tally: &Tally) -> Vec<String> {
    let in_use = tally.in_use + tally.cooling + tally.windows_reserved + tally.unknown;
    vec![
        kind.to_owned(),
        cidr.to_string(),
        five_digits(tally.total),
        share(in_use, tally.total),
        share(tally.reserved, tally.total),
        share(tally.free, tally.total),
    ]
}

/// Lists the addresses that nodes hold in blocks of others, as calicoctl does.
fn borrowed(snapshot: &Snapshot) -> String {
    let mut rows = Vec::new();
    let mut unknown = 0;
    for block in sound_blocks(snapshot) {
        let owner = match block.owner() {
            Some(BlockOwner::Host(name) | BlockOwner::Virtual(name)) => name.clone(),
            other => other.map(ToString::to_string).unwrap_or_default(),
        };
        for allocation in block.allocations() {
            let Some(node) = allocation.attribute.get("node").map(|node| node.to_string()) else {
                unknown += 1;
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
    if unknown > 0 {
        text.push_str(&format!(
            "\nNote: found {unknown} IP allocations without an explicit node association. Unable to determine if they \
             are borrowed.\n"
        ));
    }
    text
}

/// Returns the kind and name of an address's holder.
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
