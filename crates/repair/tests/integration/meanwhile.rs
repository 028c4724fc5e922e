//! Every object of a plan is changed in turn between plan and execution, on every datastore. A change that breaks the
//! guards of an address keeps that address; other changes do no harm.

use calipam_check::check;
use calipam_model::edit::{Precondition, Step};
use calipam_model::key::Key;
use calipam_plan::{Basis, release};
use calipam_repair::Conflict;
use calipam_testkit::World;
use calipam_testkit::kube::Flavour;
use serde_json::json;

use crate::cluster::{Site, judgement, sound};
use crate::kubernetes::{put_block, put_information};

/// The state of the two addresses of a case after the run.
struct Outcome {
    /// The ordinals that are free.
    free: &'static [u32],
    /// The ordinals whose release was refused.
    refused: &'static [u32],
    /// The ordinals whose handles are kept, because they count an address.
    kept: &'static [u32],
}

const FREED: Outcome = Outcome {
    free: &[0, 1],
    refused: &[],
    kept: &[],
};
const FIRST_STAYS: Outcome = Outcome {
    free: &[1],
    refused: &[0],
    kept: &[0],
};
const BOTH_STAY: Outcome = Outcome {
    free: &[],
    refused: &[0, 1],
    kept: &[0, 1],
};

/// A change, its outcome, and how it is made. For each change, there is a block with two leaked addresses, of which the
/// change affects the first.
type Case = (&'static str, Outcome, fn(&World, &Objects<'_>));

/// The objects of a case.
struct Objects<'s> {
    block: Key,
    /// The handle of the first address.
    handle: Key,
    /// A node that the release of the first address expects to be unchanged.
    witness: Key,
    step: &'s Step,
}

const GREW: &str = "the handle also counts addresses in another block";
const CASES: [Case; 13] = [
    ("nothing", FREED, |_, _| {}),
    (
        "the first address has the same record and another sequence number",
        FIRST_STAYS,
        |world, on| {
            world.edit(&on.block, |b| b["sequenceNumberForAllocation"]["0"] = 9.into());
        },
    ),
    (
        "the first address has another record",
        FIRST_STAYS,
        |world, on| {
            let other = json!({"handle_id": "net.other", "secondary": {"pod": "other"}});
            world.edit(&on.block, |b| b["attributes"][0] = other);
        },
    ),
    (
        "the first address is free already",
        Outcome {
            free: &[0, 1],
            ..FIRST_STAYS
        },
        |world, on| {
            world.edit(&on.block, |b| {
                b["allocations"] = json!([null, 0, null, null]);
                b["unallocated"] = json!([2, 3, 0]);
                b["attributes"] = json!([b["attributes"][1].clone()]);
            });
        },
    ),
    (
        "an address outside of the plan was assigned",
        FREED,
        |world, on| {
            world.edit(&on.block, |b| {
                b["allocations"] = json!([0, 1, 1, null]);
                b["unallocated"] = json!([3]);
            });
        },
    ),
    ("the block is corrupt", BOTH_STAY, |world, on| {
        world.edit(&on.block, |b| b["allocations"] = json!([7, 1, null, null]));
    }),
    ("the block is gone", BOTH_STAY, |world, on| {
        world.delete(&on.block)
    }),
    (GREW, Outcome { kept: &[0], ..FREED }, |world, on| {
        world.edit(&on.handle, |h| h["block"]["10.9.9.0/30"] = 2.into());
    }),
    ("the handle is gone", FREED, |world, on| world.delete(&on.handle)),
    (
        "the endpoint or pod in the record of the first address exists",
        FIRST_STAYS,
        |world, on| {
            let is_workload = |key: &Key| matches!(key, Key::Endpoint { .. } | Key::Pod { .. });
            let containers = json!([{"name": "c", "image": "i"}]);
            world.create(
                &absent(on.step, is_workload),
                &json!({"spec": {"containers": containers}}),
            );
        },
    ),
    ("the deleted node exists again", BOTH_STAY, |world, on| {
        world.create(
            &absent(on.step, |key| matches!(key, Key::Node(_))),
            &json!({"spec": {}}),
        );
    }),
    (
        "the node of the evidence was written",
        FIRST_STAYS,
        |world, on| {
            world.edit(&on.witness, |node| node["metadata"]["labels"] = json!({"a": "b"}));
        },
    ),
    ("the node of the evidence is gone", FIRST_STAYS, |world, on| {
        world.delete(&on.witness)
    }),
];

/// Creates the objects of all cases. The addresses belong to deleted nodes.
fn seed(world: &World) {
    put_information(world);
    for case in 0..CASES.len() {
        world.create(&Key::Node(witness(case)), &json!({"spec": {}}));
        put_block(world, &cidr(case), Some("host:other"), |n| {
            let owner = json!({
                "namespace": "default", "node": format!("node-{case}"), "pod": format!("pod-{case}-{n}"),
            });
            json!({"handle_id": id(case, n as u32), "secondary": owner})
        });
    }
}

fn cidr(case: usize) -> String {
    format!("10.0.{case}.0/30")
}

fn id(case: usize, ordinal: u32) -> String {
    format!("net.{case}-{ordinal}")
}

fn witness(case: usize) -> String {
    format!("witness-{case}")
}

/// The object that `wanted` accepts, and that must be absent for the release of the first address.
fn absent(step: &Step, wanted: fn(&Key) -> bool) -> Key {
    let evidence = &step.parts[0].evidence;
    let found = evidence
        .iter()
        .find(|(key, expect)| *expect == Precondition::Absent && wanted(key));
    found.unwrap_or_else(|| panic!("{evidence:?}")).0.clone()
}

async fn every_object_in_turn(world: World) {
    seed(&world);
    let site = Site::open(world.overrides()).await;
    let snapshot = site.observe().await;
    let report = check(&snapshot, &judgement());
    let all = release::Request {
        leaked: true,
        ..release::Request::default()
    };
    let mut steps = release::plan(&Basis::new(&snapshot, &report, &judgement()), &all)
        .divide()
        .1;
    assert_eq!(steps.len(), CASES.len(), "{steps:?}");
    for (case, step) in steps.iter_mut().enumerate() {
        let block = Key::Block(cidr(case).parse().unwrap());
        assert_eq!(step.parts[0].edits[0].key(), block);
        let node = snapshot
            .nodes
            .iter()
            .find(|node| node.value.name == witness(case))
            .unwrap();
        let unchanged = Precondition::At(node.revision.clone());
        step.parts[0]
            .evidence
            .require((Key::Node(witness(case)), unchanged));
        let (handle, witness) = (Key::Handle(id(case, 0)), Key::Node(witness(case)));
        CASES[case].2(
            &world,
            &Objects {
                block,
                handle,
                witness,
                step,
            },
        );
    }
    let execution = site.run_as("run", steps).await;
    assert!(
        execution.failure.is_none() && !execution.is_complete(),
        "{execution:?}"
    );

    let after = site.observe().await;
    for (case, (what, Outcome { free, refused, kept }, _)) in CASES.iter().enumerate() {
        let block = sound(&after).find(|block| block.cidr().to_string() == cidr(case));
        let is_free = |n: &u32| block.is_some_and(|block| block.allocation(*n).is_none());
        let found: Vec<u32> = [0, 1].into_iter().filter(is_free).collect();
        assert_eq!(found, *free, "{what}: {execution:?}");
        let conflicts: Vec<&Conflict> = execution.conflicts.iter().filter(|c| c.step == case).collect();
        let first = format!("10.0.{case}.0");
        match refused {
            [] => assert!(conflicts.is_empty(), "{what}: {conflicts:?}"),
            [0] => {
                let [only] = conflicts[..] else {
                    panic!("{what}: {conflicts:?}")
                };
                assert_eq!(
                    only.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
                    [&*first]
                );
                assert!(only.what.contains(&first), "{only:?}");
                let told = if what.contains("of the evidence") {
                    "witness"
                } else {
                    &*first
                };
                assert!(only.reason.contains(told), "{only:?}");
            }
            _ => assert!(!conflicts.is_empty(), "{what}"),
        }
        let handle = |n: u32| {
            after
                .handles
                .iter()
                .find(|handle| handle.value.id() == *id(case, n))
        };
        let handles: Vec<u32> = [0, 1].into_iter().filter(|n| handle(*n).is_some()).collect();
        assert_eq!(handles, *kept, "{what}");
        if *what == GREW {
            let counts: Vec<_> = handle(0).unwrap().value.blocks().collect();
            assert_eq!(counts, [("10.9.9.0/30".parse().unwrap(), 2)]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_in_turn_on_etcd() {
    every_object_in_turn(World::etcd()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_in_turn_on_kubernetes() {
    for flavour in [Flavour::Classic, Flavour::Native] {
        every_object_in_turn(World::kubernetes(flavour)).await;
    }
}
