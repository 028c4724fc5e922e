//! The stored blocks, including those that cannot be checked.

use calipam_model::IpNet;

use super::{Index, IndexedBlock};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'c, 's> {
    pub key: IpNet,
    /// `None` if the value cannot be decoded.
    pub block: Option<&'c IndexedBlock<'s>>,
}

impl<'s> Index<'s> {
    /// Returns all stored blocks that are not marked deleted, ascending by CIDR, without duplicates.
    pub(crate) fn stored(&self) -> Vec<Stored<'_, 's>> {
        let read = self.blocks.iter().map(|block| Stored {
            key: block.key,
            block: Some(block),
        });
        let broken = self
            .snapshot
            .hidden_blocks()
            .map(|key| Stored { key, block: None });

        let mut stored: Vec<Stored<'_, '_>> = read.chain(broken).collect();
        stored.sort_by_key(|block| (block.key, block.block.is_none()));
        stored.dedup_by_key(|block| block.key);
        stored
    }
}
