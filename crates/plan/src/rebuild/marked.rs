//! Blocks whose deletion stopped half-way and that still record addresses, as earlier versions of this program left them:
//! they wrote the mark alone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_check::claim::Claim;
use calipam_check::{Code, Options, Subject, check};
use calipam_model::IpNet;
use calipam_model::block::{Block, BlockContent};
use calipam_model::edit::Precondition;
use calipam_model::key::Key;
use calipam_model::snapshot::{StoredBlock, Versioned};

use super::request::Scope;
use crate::basis::Basis;
use crate::basis::preconditions::Preconditions;
use crate::release::may_release::unknown_owner;

/// What is known of such blocks. To Calico they do not exist, so that nothing says of their addresses whether they leaked:
/// they are checked as if the mark was not there.
#[derive(Default)]
pub(super) struct MarkedBlocks {
    /// That nothing uses these any more, by block.
    unused: BTreeMap<IpNet, Vec<(Key, Precondition)>>,
    /// An address that is in use, or may be, by block.
    used: BTreeMap<IpNet, IpAddr>,
}

impl MarkedBlocks {
    /// Checks them. If there are any, the snapshot is copied and checked once more.
    pub(super) fn new(basis: &Basis<'_>, scope: &Scope<'_>) -> Self {
        let is_wanted = |block: &&Versioned<StoredBlock>| {
            let content = &block.value.content;
            let found = basis.finding(Code::HalfDeleted, &Subject::Block(block.value.key)).is_some();
            let records = content.sound().is_some_and(|sound| !sound.is_empty());
            content.is_deleted() && found && records && scope.has_block(block.value.key, content.owner())
        };
        let wanted: Vec<IpNet> =
            basis.snapshot.blocks.iter().filter(is_wanted).map(|block| block.value.key).collect();
        let mut marked = Self::default();
        if wanted.is_empty() {
            return marked;
        }

        let mut revived = basis.snapshot.clone();
        for block in revived.blocks.iter_mut().filter(|block| wanted.contains(&block.value.key)) {
            if let BlockContent::Sound(block) = &mut block.value.content {
                block.unmark();
            }
        }
        let options =
            Options { grace: Some(basis.context.grace), pool_threshold: basis.context.pool_threshold };
        let report = check(&revived, &options);
        let revived_basis = Basis::new(&revived, &report, &options);
        let blocks = revived.blocks.iter().filter(|block| wanted.contains(&block.value.key));
        for block in blocks.filter_map(|block| block.value.content.sound()) {
            marked.check(&revived_basis, block);
        }
        marked
    }

    fn check(&mut self, basis: &Basis<'_>, block: &Block) {
        let mut leaks = Vec::new();
        for allocation in block.allocations() {
            if matches!(Claim::of(&allocation.attribute), Claim::Cooling | Claim::WindowsReserved) {
                continue;
            }
            let leak = basis.finding(Code::LeakedAddress, &Subject::Address(allocation.address));
            match leak.filter(|leak| unknown_owner(leak).is_none()) {
                Some(leak) => leaks.push(leak),
                None => {
                    self.used.insert(block.cidr(), allocation.address);
                    return;
                }
            }
        }

        let preconditions = Preconditions::new(basis.snapshot, leaks.iter().copied());
        let mut evidence: Vec<(Key, Precondition)> = Vec::new();
        for ground in leaks.iter().flat_map(|leak| preconditions.of(leak)) {
            if !evidence.contains(&ground) {
                evidence.push(ground);
            }
        }

        self.unused.insert(block.cidr(), evidence);
    }

    /// What has to be true for the deletion of the block to be finished; `None` if it must stay.
    pub(super) fn unused(&self, cidr: IpNet) -> Option<&[(Key, Precondition)]> {
        self.unused.get(&cidr).map(Vec::as_slice)
    }

    /// An address of the block that is in use, or may be.
    pub(super) fn used(&self, cidr: IpNet) -> Option<IpAddr> {
        self.used.get(&cidr).copied()
    }
}
