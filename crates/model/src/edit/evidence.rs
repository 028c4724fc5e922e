//! Preconditions of a write.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;

use crate::block::{BlockContent, BlockOwner};
use crate::key::Key;
use crate::node::Node;
use crate::pod::Pod;
use crate::service::Service;
use crate::stored::Revision;
use crate::writable::Object;

/// A precondition of a write about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// There is no object.
    Absent,
    /// The object is this version.
    At(Revision),
    /// The number of addresses that the block records under this handle is in the range; a missing block has none. The
    /// block can have any version, but must not change after the executor has read it.
    Records(String, RangeInclusive<usize>),
    /// No block within the key's CIDR was created after this etcd revision. The key is a block's, but its CIDR can have
    /// any size. Other datastores cannot check this.
    NoBlockSince(i64),
    /// The object matches. The executor replaces this with the version that it has just read.
    Matches(Condition),
}

/// Preconditions in the order in which they were added, without duplicates.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    list: Vec<(Key, Precondition)>,
    /// The places of the preconditions by key, once there are more than [`SEARCHED`].
    places: Option<HashMap<Key, Vec<usize>>>,
}

/// The number of preconditions that are searched one by one. Most parts have two, but a handle can have a hundred
/// thousand.
const SEARCHED: usize = 16;

impl Evidence {
    /// Adds a precondition if it is missing.
    pub fn require(&mut self, ground: (Key, Precondition)) {
        if self.list.len() < SEARCHED {
            if !self.list.contains(&ground) {
                self.list.push(ground);
            }
            return;
        }

        // A long list is searched by key.
        let places = self.places.get_or_insert_with(|| {
            let mut places: HashMap<Key, Vec<usize>> = HashMap::new();
            for (place, (key, _)) in self.list.iter().enumerate() {
                places.entry(key.clone()).or_default().push(place);
            }
            places
        });
        let (key, precondition) = ground;
        let places_of_key = places.entry(key.clone()).or_default();
        let is_required = places_of_key
            .iter()
            .any(|place| self.list[*place].1 == precondition);
        if !is_required {
            places_of_key.push(self.list.len());
            self.list.push((key, precondition));
        }
    }

    /// The preconditions, which can be replaced.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Precondition)> {
        self.list
            .iter_mut()
            .map(|(key, precondition)| (&*key, precondition))
    }

    /// Frees memory that only further preconditions would need.
    pub fn shrink_to_fit(&mut self) {
        self.list.shrink_to_fit();
        self.places = None;
    }
}

impl Deref for Evidence {
    type Target = [(Key, Precondition)];

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl From<Vec<(Key, Precondition)>> for Evidence {
    fn from(list: Vec<(Key, Precondition)>) -> Self {
        list.into_iter().collect()
    }
}

impl FromIterator<(Key, Precondition)> for Evidence {
    fn from_iter<I: IntoIterator<Item = (Key, Precondition)>>(grounds: I) -> Self {
        let mut evidence = Self::default();
        evidence.extend(grounds);
        evidence
    }
}

impl Extend<(Key, Precondition)> for Evidence {
    fn extend<I: IntoIterator<Item = (Key, Precondition)>>(&mut self, grounds: I) {
        let grounds = grounds.into_iter();
        // A plan can have a million steps, most of them with one or two preconditions.
        if self.list.is_empty() {
            self.list.reserve_exact(grounds.size_hint().0);
        }
        for ground in grounds {
            self.require(ground);
        }
    }
}

impl IntoIterator for Evidence {
    type Item = (Key, Precondition);
    type IntoIter = std::vec::IntoIter<(Key, Precondition)>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'e> IntoIterator for &'e Evidence {
    type Item = &'e (Key, Precondition);
    type IntoIter = std::slice::Iter<'e, (Key, Precondition)>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

/// A requirement for an object whose other fields may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The block has this owner and this claim time.
    OwnedSince(BlockOwner, Option<String>),
    /// There is no block, or it has another owner or none.
    NotOwnedBy(BlockOwner),
    /// The object has this UID and uses the same addresses in the same state. The user is behind an `Arc`, since
    /// thousands of addresses can depend on it.
    SameUser(String, Arc<User>),
    /// The object exists, in any state. If UID and user are given, another pod with the same name counts only if it
    /// uses one of the same addresses.
    StillThere(Option<(String, Arc<User>)>),
}

/// An object that uses addresses, without the data that often changes, such as heartbeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    Node(Node),
    Pod(Pod),
    Service(Service),
}

/// The object that was read for a key.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    Nothing,
    Object(&'a Object),
    /// The object's UID, and its data about addresses.
    User(&'a str, &'a User),
    /// An object that cannot be decoded, or of which only the version is known.
    Unknown,
}

impl User {
    /// True if both use the same addresses in the same state. Other fields of pods may differ.
    fn is_equivalent_to(&self, other: &Self) -> bool {
        if let Self::Pod(pod) = self
            && let Self::Pod(other_pod) = other
        {
            return pod.uses_the_same(other_pod);
        }
        self == other
    }

    /// True unless both are pods that share no address.
    fn may_use_the_same(&self, other: &Self) -> bool {
        if let Self::Pod(pod) = self
            && let Self::Pod(other_pod) = other
        {
            let other_addresses: Vec<IpAddr> = other_pod.addresses().collect();
            return pod.addresses().any(|address| other_addresses.contains(&address));
        }
        true
    }
}

impl Condition {
    /// True if the object that was read meets the condition.
    pub fn holds(&self, found: Found<'_>) -> bool {
        match self {
            Self::OwnedSince(owner, claim_time) => match found {
                Found::Object(Object::Block(BlockContent::Sound(block))) => {
                    !block.is_deleted()
                        && block.owner() == Some(owner)
                        && block.claim_time() == claim_time.as_deref()
                }
                _ => false,
            },
            Self::NotOwnedBy(owner) => match found {
                Found::Nothing => true,
                Found::Object(Object::Block(BlockContent::Sound(block))) => {
                    block.is_deleted() || block.owner() != Some(owner)
                }
                _ => false,
            },
            Self::SameUser(uid, user) => match found {
                Found::User(found_uid, found_user) => found_uid == uid && user.is_equivalent_to(found_user),
                _ => false,
            },
            // An object that cannot be compared is still there.
            Self::StillThere(expected) => match (found, expected) {
                (Found::Nothing, _) => false,
                (Found::User(found_uid, found_user), Some((uid, user))) => {
                    found_uid == uid || user.may_use_the_same(found_user)
                }
                _ => true,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_precondition_is_kept_once_in_its_order() {
        let ground = |number: u32| {
            let expect = Precondition::At(Revision::Etcd((number % 200).into()));
            (Key::Node((number % 100).to_string()), expect)
        };
        let mut evidence = Evidence::default();
        (0..1_000).for_each(|number| evidence.require(ground(number)));
        assert_eq!(evidence.to_vec(), (0..200).map(ground).collect::<Vec<_>>());
        evidence.shrink_to_fit();
        evidence.require(ground(7));
        assert_eq!(evidence.len(), 200);
    }
    use crate::pod::PodParts;

    fn pod(parts: &PodParts<'_>) -> User {
        User::Pod(
            Pod::new(&PodParts {
                namespace: "default",
                name: "web",
                ..parts.clone()
            })
            .0,
        )
    }

    #[test]
    fn same_user_compares_uid_phase_and_addresses_of_a_pod() {
        let running = PodParts {
            node: "n",
            phase: "Running",
            cni_ip: Some("10.0.0.1/32"),
            ..PodParts::default()
        };
        let says = Condition::SameUser("u".into(), Arc::new(pod(&running)));
        let holds = |uid: &str, parts: PodParts<'_>| says.holds(Found::User(uid, &pod(&parts)));
        assert!(holds("u", running.clone()));
        assert!(holds(
            "u",
            PodParts {
                ready: true,
                deleting: true,
                ..running.clone()
            }
        ));
        assert!(!holds("v", running.clone()));
        assert!(!holds(
            "u",
            PodParts {
                phase: "Succeeded",
                ..running.clone()
            }
        ));
        assert!(!holds(
            "u",
            PodParts {
                phase: "Pending",
                ..running.clone()
            }
        ));
        assert!(!holds(
            "u",
            PodParts {
                cni_ip: Some("10.0.0.2/32"),
                ..running.clone()
            }
        ));
        assert!(!holds(
            "u",
            PodParts {
                container_id: "c",
                ..running
            }
        ));
        assert!(!says.holds(Found::Nothing) && !says.holds(Found::Unknown));
    }

    #[test]
    fn a_pod_is_gone_if_its_namesake_uses_other_addresses() {
        let running = PodParts {
            node: "n",
            phase: "Running",
            cni_ip: Some("10.0.0.1/32"),
            ..PodParts::default()
        };
        let there = Condition::StillThere(Some(("u".into(), Arc::new(pod(&running)))));
        let holds = |uid: &str, parts: PodParts<'_>| there.holds(Found::User(uid, &pod(&parts)));
        assert!(holds("u", running.clone()) && holds("v", running.clone()));
        let other = PodParts {
            cni_ip: Some("10.0.0.2/32"),
            ..running
        };
        assert!(holds("u", other.clone()) && !holds("v", other));
        assert!(!there.holds(Found::Nothing) && there.holds(Found::Unknown));
        assert!(Condition::StillThere(None).holds(Found::Unknown));
        assert!(!Condition::StillThere(None).holds(Found::Nothing));
    }
}
