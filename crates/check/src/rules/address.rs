//! One address with its records and uses, and the findings about it.

use std::net::IpAddr;

use calipam_model::cidr;
use calipam_model::cidr::block_around;
use calipam_model::key::Key;
use calipam_model::snapshot::Source;

use crate::Context;
use crate::code::Code;
use crate::finding::{AddressEvidence, Evidence, Finding, Subject};
use crate::index::{Index, IndexedBlock, Owner, Record, Use};

/// An address that is recorded or in use, and not in a block whose records cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address<'a, 'c, 's> {
    pub address: IpAddr,
    /// The address's records in readable blocks; several where blocks overlap.
    pub records: &'a [Record<'c, 's>],
    pub uses: &'a [Use],
    /// The largest block that contains the address, and all blocks inside of that one.
    pub blocks: &'c [IndexedBlock<'s>],
}

impl<'a, 'c, 's> Address<'a, 'c, 's> {
    /// Returns the records of the address, except those in which it is cooling down.
    pub(crate) fn holding(&self) -> impl Iterator<Item = &'a Record<'c, 's>> + Clone + use<'a, 'c, 's> {
        self.records
            .iter()
            .filter(|record| !record.allocation.attribute.is_cooling())
    }

    /// Collects the evidence about the address: its pool, its users, and its records.
    pub(crate) fn evidence(&self, context: &Context<'_>) -> AddressEvidence {
        let pool = context.index.pools_around(self.address.into()).next();
        AddressEvidence {
            pool: pool.map(|pool| pool.name.clone()),
            owners: context.index.describe_users(self.address, self.uses),
            records: self.records.iter().map(Record::evidence).collect(),
            ..AddressEvidence::default()
        }
    }

    /// Returns the readable blocks that contain the address.
    pub(crate) fn containing_blocks(&self) -> impl Iterator<Item = &'c IndexedBlock<'s>> {
        let address = self.address;
        self.blocks
            .iter()
            .filter(move |block| block.usable.is_some() && cidr::ordinal_of(block.key, address).is_some())
    }
}

/// Makes a finding about an address. `describe` makes its message from the evidence.
pub(crate) fn new_finding(
    context: &Context<'_>,
    code: Code,
    address: &Address<'_, '_, '_>,
    describe: impl FnOnce(&AddressEvidence) -> String,
) -> Finding {
    let evidence = address.evidence(context);
    let message = describe(&evidence);
    let nodes = evidence.nodes();
    Finding::new(
        code,
        Subject::Address(address.address),
        message,
        Evidence::Address(Box::new(evidence)),
    )
    .on_nodes(nodes)
    .depending_on(dependencies(context, address))
}

/// Returns the objects that would have changed if the address had been allocated or released between two list requests:
/// the block and the users. Kubernetes is read with several list requests, so its objects are from different points in
/// time. If only etcd was read, there are no such objects: everything has the same revision, and no Calico operation
/// leaves an address in use unrecorded at any revision.
fn dependencies(context: &Context<'_>, address: &Address<'_, '_, '_>) -> Vec<Key> {
    if !context.snapshot.has_read(Source::Pods) {
        return Vec::new();
    }
    let mut keys: Vec<Key> = Vec::new();
    for block in address.containing_blocks() {
        keys.push(Key::Block(block.key));
    }
    if keys.is_empty() {
        // The block could have been claimed after blocks were listed.
        for pool in context.index.pools_around(address.address.into()) {
            let block = block_around(address.address, pool.block_size);
            keys.extend(block.map(Key::Block));
        }
    }

    for used in address.uses {
        keys.push(key_of(&context.index, used.owner));
    }
    if let Some(node) = context.index.node_of_own_address(address.address) {
        keys.push(Key::Node(node.name.clone()));
    }
    keys
}

/// The key of the object that an owner is.
fn key_of(index: &Index<'_>, owner: Owner) -> Key {
    match owner {
        Owner::Endpoint(position) => index.endpoint(position).key(),
        Owner::Pod(position) => index.snapshot.pods[position as usize].value.key(),
        Owner::Tunnel(position, _) => Key::Node(index.snapshot.nodes[position as usize].value.name.clone()),
        Owner::Service(position) => index.service(position).key(),
    }
}
