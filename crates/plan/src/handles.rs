//! Which addresses some handles hold, and which objects stand for them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::Allocation;
use calipam_model::edit::{Edit, HandleEdit, Held, Unit};
use calipam_model::handle::Handle;
pub(crate) use calipam_model::handle::clean_id as clean;
use calipam_model::snapshot::Versioned;
use calipam_model::text::Text;

use crate::basis::Basis;

/// Most blocks that the deletion or creation of a handle compares; a transaction takes 128 comparisons.
pub(crate) const MOST_NAMED: usize = 64;

/// One allocation as a planner sees it.
#[derive(Clone, Debug)]
pub(crate) struct Allocated {
    /// The block that records it.
    pub block: IpNet,
    pub address: IpAddr,
    /// The guard of its release.
    pub held: Held,
}

impl Allocated {
    /// The allocation of a sound block.
    pub fn new(block: IpNet, allocation: &Allocation<'_>) -> Self {
        let held = Held {
            ordinal: allocation.ordinal,
            record: allocation.attribute.to_attribute(),
            sequence: allocation.sequence,
        };
        Self { block, address: allocation.address, held }
    }

    /// The ID of its handle, as Calico compares it.
    pub fn handle(&self) -> Option<String> {
        let handle = self.held.record.handle.as_deref().filter(|id| !id.is_empty())?;
        Some(clean(handle).to_owned())
    }

    /// What is released together: all addresses of its handle in the block.
    pub fn unit(&self) -> Unit {
        self.handle().map_or(Unit::Address(self.address), Unit::Handle)
    }
}

/// What is stored and recorded under some handles.
pub(crate) struct Holdings<'s> {
    /// By clean ID: every allocation of sound blocks.
    allocated: HashMap<String, Vec<Allocated>>,
    /// By clean ID: objects, those with a carriage return in their own ID included.
    objects: HashMap<String, Vec<&'s Versioned<Handle>>>,
}

impl<'s> Holdings<'s> {
    /// Looks up all that is known of `handles`, clean IDs. Two passes over the snapshot, however many they are.
    pub fn new(basis: &Basis<'s>, handles: &HashSet<String>) -> Self {
        let packed: HashMap<Vec<u8>, &String> =
            handles.iter().map(|id| (Text::new(id).as_ref().packed().to_vec(), id)).collect();
        let mut holdings = Self { allocated: HashMap::new(), objects: HashMap::new() };
        if packed.is_empty() {
            return holdings;
        }
        for block in &basis.context.index.blocks {
            let Some(sound) = block.sound else { continue };
            for (ordinal, handle) in sound.handles() {
                let Some(id) = packed.get(handle.cut_at_carriage_return().packed()) else { continue };
                let Some(allocation) = sound.allocation(ordinal) else { continue };
                let held = holdings.allocated.entry((*id).clone()).or_default();
                held.push(Allocated::new(block.key, &allocation));
            }
        }
        for object in basis.snapshot.handles.iter().filter(|h| !h.value.is_deleted()) {
            let id = object.value.id().cut_at_carriage_return();
            if let Some(id) = packed.get(id.packed()) {
                holdings.objects.entry((*id).clone()).or_default().push(object);
            }
        }
        holdings
    }

    /// Every allocation under the handle.
    pub fn allocated(&self, id: &str) -> &[Allocated] {
        self.allocated.get(id).map_or(&[], Vec::as_slice)
    }

    /// The objects that stand for the handle.
    pub fn objects(&self, id: &str) -> &[&'s Versioned<Handle>] {
        self.objects.get(id).map_or(&[], Vec::as_slice)
    }

    /// How many addresses of each block are recorded under the handle.
    pub fn counts(&self, id: &str) -> BTreeMap<IpNet, i64> {
        self.allocated(id).iter().fold(BTreeMap::new(), |mut counts, allocated| {
            *counts.entry(allocated.block).or_default() += 1;
            counts
        })
    }

    /// Edits that make every object of the handle say what the blocks record, where it does not.
    pub fn corrections(&self, id: &str) -> Vec<Edit> {
        let counts = self.counts(id);
        let correct = |object: &&&Versioned<Handle>| {
            let claimed: BTreeMap<IpNet, i64> = object.value.blocks().collect();
            claimed != counts
        };
        let correction = |object: &&Versioned<Handle>| {
            let mut all: BTreeMap<IpNet, i64> = object.value.blocks().map(|(cidr, _)| (cidr, 0)).collect();
            all.extend(&counts);
            let edit = HandleEdit::Counts(object.revision.clone(), all.into_iter().collect());
            Edit::Handle(object.value.id().to_string(), edit)
        };
        self.objects(id).iter().filter(correct).map(correction).collect()
    }
}
