//! All blocks of a family, as the search for another block looks at them: at few of many.

use std::collections::HashMap;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use crate::record::Record;
use crate::store::Entry;

/// All blocks of a family at one moment.
pub trait Listed: Send + Sync {
    /// What there is under the CIDR of a block.
    fn find(&self, cidr: IpNet) -> Found<'_>;

    /// The blocks whose prefix length is another one, sound or not.
    fn of_other_size(&self, prefix: u8) -> Vec<IpNet>;

    /// The sound blocks, in any order.
    fn sound(&self) -> Box<dyn Iterator<Item = &Versioned<Arc<Block>>> + '_>;
}

/// What there is under the CIDR of a block.
#[derive(Debug)]
pub enum Found<'l> {
    Nothing,
    /// A block of which no more is known.
    Undecodable,
    Sound(&'l Versioned<Arc<Block>>),
}

/// The blocks of an answer.
pub(crate) struct Answer {
    sound: Vec<Versioned<Arc<Block>>>,
    /// Where each stands in `sound`; `None` for those that cannot be decoded.
    places: HashMap<IpNet, Option<usize>, foldhash::fast::FixedState>,
}

impl Answer {
    pub(crate) fn new(found: Vec<Entry>) -> Self {
        let mut places = HashMap::with_capacity_and_hasher(found.len(), Default::default());
        let mut sound = Vec::with_capacity(found.len());
        for entry in found {
            match entry.record {
                Record::Block(value) => {
                    places.insert(value.cidr(), Some(sound.len()));
                    sound.push(Versioned { value, revision: entry.revision });
                }
                Record::Undecodable { key: Key::Block(cidr), .. } => {
                    places.insert(cidr, None);
                }
                _ => {}
            }
        }
        Self { sound, places }
    }
}

impl Listed for Answer {
    fn find(&self, cidr: IpNet) -> Found<'_> {
        match self.places.get(&cidr) {
            None => Found::Nothing,
            Some(place) => {
                place.and_then(|place| self.sound.get(place)).map_or(Found::Undecodable, Found::Sound)
            }
        }
    }

    fn of_other_size(&self, prefix: u8) -> Vec<IpNet> {
        self.places.keys().copied().filter(|net| net.prefix_len() != prefix).collect()
    }

    fn sound(&self) -> Box<dyn Iterator<Item = &Versioned<Arc<Block>>> + '_> {
        Box::new(self.sound.iter())
    }
}
