//! Random sequences of block operations keep every rule in facts 3.1. The tests compare the block's JSON with a plain
//! list of the expected results, since the block's own methods would prove nothing.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockContent, BlockOwner, BlockUpdate};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::Value;

/// One block update.
#[derive(Clone, Debug)]
enum Operation {
    Assign {
        ordinal: u32,
        owner: u8,
    },
    AutoAssign {
        count: usize,
        owner: u8,
        reserved: Vec<u32>,
    },
    Release(Vec<u32>),
    Cool(Vec<u32>),
    CollectCooled {
        seconds: i64,
    },
    SetAttribute {
        ordinal: u32,
        owner: u8,
    },
    SetOwner(u8),
    ClearOwner,
    Touch,
    Nothing,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let ordinal = 0..20_u32;
    let some = prop::collection::vec(0..20_u32, 0..5);
    let one = prop_oneof![
        (ordinal.clone(), 0..5_u8).prop_map(|(ordinal, owner)| Operation::Assign { ordinal, owner }),
        (0..6_usize, 0..5_u8, some.clone()).prop_map(|(count, owner, reserved)| Operation::AutoAssign {
            count,
            owner,
            reserved
        }),
        some.clone().prop_map(Operation::Release),
        some.prop_map(Operation::Cool),
        (0..100_i64).prop_map(|seconds| Operation::CollectCooled { seconds }),
        (ordinal, 0..5_u8).prop_map(|(ordinal, owner)| Operation::SetAttribute { ordinal, owner }),
        (0..3_u8).prop_map(Operation::SetOwner),
        Just(Operation::ClearOwner),
        Just(Operation::Touch),
        Just(Operation::Nothing),
    ];
    prop::collection::vec(one, 0..60)
}

fn start() -> Timestamp {
    "2026-05-01T10:00:00Z".parse().unwrap()
}

/// The expected state of an ordinal.
#[derive(Clone, Debug, PartialEq)]
enum Slot {
    Owner(u8),
    Cooling(Timestamp),
    Windows,
}

/// The expected state of a block, computed without the block's arithmetic.
struct Expected {
    size: u32,
    held: BTreeMap<u32, (Slot, Option<u64>)>,
    free: Vec<u32>,
    owner: Option<String>,
    sequence: u64,
}

impl Expected {
    fn new(size: u32, windows: bool, sequence: u64) -> Self {
        let is_reserved = |o: &u32| windows && (*o < 3 || *o == size - 1);
        let held = (0..size)
            .filter(is_reserved)
            .map(|o| (o, (Slot::Windows, None)))
            .collect();
        let free = (0..size).filter(|o| !is_reserved(o)).collect();
        Self {
            size,
            held,
            free,
            owner: None,
            sequence,
        }
    }

    /// Applies an operation. If anything changed, the sequence number rises by one.
    fn apply(&mut self, operation: &Operation, now: Timestamp) {
        let changed = match operation {
            Operation::Assign { ordinal, owner } => {
                let free = self.free.iter().position(|o| o == ordinal);
                free.map(|at| self.free.remove(at))
                    .is_some_and(|o| self.hold(o, Slot::Owner(*owner)))
            }
            Operation::AutoAssign {
                count,
                owner,
                reserved,
            } => {
                let open = self.free.iter().copied().filter(|o| !reserved.contains(o));
                let taken: Vec<u32> = open.take(*count).collect();
                self.free.retain(|o| !taken.contains(o));
                taken
                    .iter()
                    .fold(false, |_, o| self.hold(*o, Slot::Owner(*owner)))
            }
            Operation::Release(ordinals) => self.release(ordinals.iter().copied().collect()),
            Operation::Cool(ordinals) => {
                let cooled: BTreeSet<u32> = ordinals.iter().copied().filter(|o| self.can_cool(*o)).collect();
                cooled
                    .iter()
                    .fold(false, |_, o| self.hold(*o, Slot::Cooling(now)))
            }
            Operation::CollectCooled { seconds } => {
                let limit = SignedDuration::from_secs(*seconds);
                let over = |h: &Slot| matches!(h, Slot::Cooling(at) if now.duration_since(*at) > limit);
                let expired = self
                    .held
                    .iter()
                    .filter(|(_, (h, _))| over(h))
                    .map(|(o, _)| *o)
                    .collect();
                self.release(expired)
            }
            Operation::SetAttribute { ordinal, owner } => {
                self.held.contains_key(ordinal) && self.hold(*ordinal, Slot::Owner(*owner))
            }
            Operation::SetOwner(node) => {
                self.owner = Some(format!("host:node-{node}"));
                true
            }
            Operation::ClearOwner => {
                self.owner = None;
                true
            }
            Operation::Touch => true,
            Operation::Nothing => false,
        };
        self.sequence += u64::from(changed);
    }

    fn hold(&mut self, ordinal: u32, held: Slot) -> bool {
        self.held.insert(ordinal, (held, Some(self.sequence)));
        true
    }

    fn can_cool(&self, ordinal: u32) -> bool {
        self.held
            .get(&ordinal)
            .is_some_and(|(held, _)| !matches!(held, Slot::Cooling(_)))
    }

    fn release(&mut self, ordinals: BTreeSet<u32>) -> bool {
        let freed: Vec<u32> = ordinals
            .into_iter()
            .filter(|o| self.held.remove(o).is_some())
            .collect();
        self.free.extend(&freed);
        !freed.is_empty()
    }

    /// Compares the expected state with the block's JSON.
    fn compare(&self, printed: &Value) -> Result<(), TestCaseError> {
        let allocations = printed["allocations"].as_array().unwrap();
        let none = Vec::new();
        let attributes = printed["attributes"].as_array().unwrap_or(&none);
        prop_assert_eq!(allocations.len(), self.size as usize);
        let expected = &self.free.iter().map(|o| (*o).into()).collect::<Vec<Value>>();
        prop_assert_eq!(printed["unallocated"].as_array().unwrap(), expected);
        prop_assert_eq!(printed["sequenceNumber"].as_u64(), Some(self.sequence));
        prop_assert_eq!(printed["affinity"].as_str(), self.owner.as_deref());
        prop_assert_eq!(printed.get("affinity_claim_time").is_some(), self.owner.is_some());
        let mut used = BTreeSet::new();
        let mut numbers = serde_json::Map::new();
        for (ordinal, index) in (0..self.size).zip(allocations) {
            let Some((held, number)) = self.held.get(&ordinal) else {
                prop_assert!(index.is_null(), "ordinal {} must be free", ordinal);
                continue;
            };
            let index = index.as_u64().unwrap() as usize;
            used.insert(index);
            prop_assert_eq!(&attributes[index], &json_of(held));
            if let Some(number) = number {
                numbers.insert(ordinal.to_string(), (*number).into());
            }
        }
        prop_assert_eq!(used, (0..attributes.len()).collect(), "every record is used");
        prop_assert_eq!(
            printed["sequenceNumberForAllocation"].as_object().unwrap(),
            &numbers
        );
        Ok(())
    }
}

fn json_of(held: &Slot) -> Value {
    match held {
        Slot::Owner(0) => serde_json::json!({}),
        Slot::Owner(owner) => serde_json::json!({"handle_id": format!("net.{owner}"),
            "secondary": {"node": "node-1", "pod": format!("pod-{owner}")}}),
        Slot::Cooling(at) => serde_json::json!({"releasedAt": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}),
        Slot::Windows => serde_json::json!({"handle_id": "windows-reserved-ipam-handle",
            "secondary": {"note": "windows host rsvd"}}),
    }
}

fn record(owner: u8) -> Attribute {
    if owner == 0 {
        return Attribute::default();
    }
    let pod = format!("pod-{owner}");
    Attribute::new(
        Some(&format!("net.{owner}")),
        [("node", "node-1"), ("pod", pod.as_str())],
    )
}

fn perform(block: &mut Block, operation: &Operation, now: Timestamp) {
    let cidr = block.cidr();
    block.update(|edit| match operation {
        // The result is ignored, since comparing the block shows whether the ordinal was free.
        Operation::Assign { ordinal, owner } => drop(edit.assign(*ordinal, &record(*owner))),
        Operation::AutoAssign {
            count,
            owner,
            reserved,
        } => {
            let is_reserved =
                |a| calipam_model::cidr::ordinal_of(cidr, a).is_some_and(|o| reserved.contains(&o));
            drop(edit.auto_assign(*count, &record(*owner), is_reserved));
        }
        Operation::Release(ordinals) => drop(edit.release(ordinals)),
        Operation::Cool(ordinals) => drop(edit.cool(ordinals, now)),
        Operation::CollectCooled { seconds } => {
            drop(edit.collect_cooled(now, SignedDuration::from_secs(*seconds)));
        }
        Operation::SetAttribute { ordinal, owner } => drop(edit.set_attribute(*ordinal, &record(*owner))),
        Operation::SetOwner(node) => edit.set_owner(BlockOwner::Host(format!("node-{node}")), now),
        Operation::ClearOwner => edit.clear_owner(),
        Operation::Touch => edit.touch(),
        Operation::Nothing => {}
    });
}

fn run(cidr: &str, windows: bool, operations: &[Operation]) -> Result<(), TestCaseError> {
    let cidr: IpNet = cidr.parse().unwrap();
    let mut block = if windows {
        Block::new_windows(cidr, None, start())
    } else {
        Block::new(cidr, None, start())
    }
    .unwrap();
    let mut expected = Expected::new(block.size(), windows, start().as_nanosecond() as u64);
    for (second, operation) in (1..).zip(operations) {
        let now = start() + SignedDuration::from_secs(second);
        perform(&mut block, operation, now);
        expected.apply(operation, now);
        let printed = serde_json::to_vec(&block).unwrap();
        expected.compare(&serde_json::from_slice(&printed).unwrap())?;
        match BlockContent::parse(&printed).unwrap() {
            BlockContent::Sound(read) => prop_assert_eq!(&*read, &block),
            BlockContent::Corrupt(broken) => {
                return Err(TestCaseError::fail(format!(
                    "{operation:?}: {:?}",
                    broken.problems
                )));
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn blocks_stay_sound(operations in operations()) {
        run("10.244.1.0/28", false, &operations)?;
        // A block of a Windows node.
        run("10.244.1.0/28", true, &operations)?;
        run("fd00:10:244::40/124", false, &operations)?;
    }
}

fn small_block() -> Block {
    Block::new("10.244.1.0/30".parse().unwrap(), None, start()).unwrap()
}

#[test]
fn attributes_are_null_until_the_first_assignment() {
    let mut block = small_block();
    let mut records = |change: &dyn Fn(&mut BlockUpdate<'_>)| {
        let read = BlockContent::parse(&serde_json::to_vec(&block).unwrap()).unwrap();
        block = read.sound().unwrap().clone();
        block.update(|edit| change(edit));
        serde_json::to_value(&block).unwrap()["attributes"].clone()
    };
    assert_eq!(records(&|edit| edit.touch()), Value::Null);
    assert_eq!(
        records(&|edit| edit.assign(1, &record(0)).unwrap()),
        serde_json::json!([{}])
    );
    assert_eq!(records(&|edit| drop(edit.release(&[1]))), serde_json::json!([]));
    assert_eq!(records(&|edit| edit.touch()), serde_json::json!([]));
}

#[test]
fn a_release_by_handle_into_cooldown_keeps_the_sequence_numbers() {
    let mut block = small_block();
    block.update(|edit| edit.auto_assign(2, &record(1), |_| false));
    let number = block.sequence_of(0);
    block.update(|edit| edit.cool_by_handle(&[0], start()));
    block.update(|edit| edit.cool(&[1], start()));
    assert_eq!(block.sequence_of(0), number);
    assert!(block.sequence_of(1) > number && block.allocations().all(|held| held.attribute.is_cooling()));
}

#[test]
fn editing_a_record_changes_all_its_ordinals_but_no_sequence_number() {
    let mut block = small_block();
    block.update(|edit| edit.auto_assign(2, &record(1), |_| false));
    block.update(|edit| edit.assign(3, &record(2))).unwrap();
    let numbers = [0, 1, 3].map(|ordinal| block.sequence_of(ordinal));
    block
        .update(|edit| edit.edit_record(1, |record| record.owner = None))
        .unwrap();
    let owners = [0, 1, 3].map(|o| {
        block
            .allocation(o)
            .unwrap()
            .attribute
            .to_attribute()
            .owner
            .is_some()
    });
    assert_eq!(owners, [false, false, true]);
    assert_eq!(numbers, [0, 1, 3].map(|ordinal| block.sequence_of(ordinal)));
    assert!(block.update(|edit| edit.edit_record(2, |_| {})).is_err());
}

#[test]
fn addresses_are_reassigned_in_the_order_of_release() {
    let mut block = small_block();
    block.update(|edit| edit.auto_assign(4, &record(1), |_| false));
    for ordinal in [2, 0, 3] {
        block.update(|edit| edit.release(&[ordinal]));
    }
    assert_eq!(block.free(), [2, 0, 3]);
    let taken = block.update(|edit| edit.auto_assign(2, &record(2), |_| false));
    assert_eq!(taken, [2, 0]);
}

#[test]
fn a_restored_block_follows_the_one_it_replaces_and_only_what_changes_gets_a_new_number() {
    let mut block = small_block();
    block.update(|edit| edit.assign(0, &record(1))).unwrap();
    block.update(|edit| edit.assign(1, &record(2))).unwrap();
    let mut now = block.clone();
    now.update(|edit| edit.release(&[0]));
    now.update(|edit| edit.assign(0, &record(3))).unwrap();
    let (latest, kept) = (now.sequence(), block.sequence_of(1));

    block.restore(Some(&now));
    assert_eq!(block.sequence(), latest + 1);
    assert_eq!(block.allocation(0).unwrap().attribute.to_attribute(), record(1));
    assert_eq!((block.sequence_of(0), block.sequence_of(1)), (latest, kept));
}

#[test]
fn windows_blocks_have_room_for_the_reserved_ordinals() {
    let block = |cidr: &str| Block::new_windows(cidr.parse().unwrap(), None, start());
    assert!(block("10.244.1.0/31").is_none() && block("10.244.1.0/32").is_none());
    assert!(block("10.244.1.0/30").unwrap().free().is_empty());
    assert_eq!(block("10.244.1.0/29").unwrap().free(), [3, 4, 5, 6]);
}

#[test]
fn only_a_node_is_a_host() {
    assert_eq!(BlockOwner::parse("host:node-1").host(), Some("node-1"));
    assert!(
        ["virtual:lb", "node-1", "ipip:node-1"]
            .map(BlockOwner::parse)
            .iter()
            .all(|o| o.host().is_none())
    );
}

#[test]
fn own_strict_affinity_round_trips() {
    let mut block = small_block();
    for strict in [None, Some(false), Some(true)] {
        block.set_own_strict_affinity(strict);
        let read = BlockContent::parse(&serde_json::to_vec(&block).unwrap()).unwrap();
        assert_eq!(read.sound().unwrap().own_strict_affinity(), strict);
    }
}
