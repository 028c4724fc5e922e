//! No block is created over another one of any size, and all datastores answer queries for overlaps alike.

use std::collections::BTreeSet;

use calipam_assign::{AutoAssign, Entry, Family, Query, Store};
use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_model::key::Key;
use calipam_model::pool::PoolUse;
use calipam_testkit::World as Server;
use calipam_testkit::blocks::TakenBlock;
use calipam_testkit::kube::Flavour;

use crate::world::{World, block_on};

/// Blocks of several sizes, some larger than those of the pools and some smaller.
const BLOCKS: [&str; 16] = [
    "10.7.0.16/28",
    "10.7.0.64/30",
    "10.7.0.77/32",
    "10.7.0.128/26",
    "10.7.1.0/24",
    "10.7.16.0/20",
    "10.7.32.0/23",
    "10.7.33.200/29",
    "fd00:7::10/124",
    "fd00:7::2c/126",
    "fd00:7::3f/128",
    "fd00:7::80/121",
    "fd00:7::1:0/116",
    "fd00:7::1:2000/122",
    "fd00:7::2a00/120",
    "fd00:7:0:0:1::/122",
];

fn cidrs() -> Vec<IpNet> {
    BLOCKS.iter().map(|block| block.parse().unwrap()).collect()
}

fn full(cidr: IpNet) -> TakenBlock {
    TakenBlock {
        cidr,
        taken: 1 << (cidr.max_prefix_len() - cidr.prefix_len()).min(12),
    }
}

fn on_all(test: impl Fn(World)) {
    test(World::etcd());
    test(World::kubernetes(Flavour::Classic));
    test(World::kubernetes(Flavour::Native));
}

fn found(entries: &[Entry]) -> BTreeSet<IpNet> {
    let cidr = |entry: &Entry| match entry.record.key() {
        Key::Block(cidr) => cidr,
        other => panic!("{other} is no block"),
    };
    entries.iter().map(cidr).collect()
}

#[test]
fn queries_for_keys_find_the_right_blocks() {
    on_all(|world| {
        world.put_blocks(&cidrs().into_iter().map(full).collect::<Vec<_>>());
        let mut asked: Vec<IpNet> = cidrs();
        for (pool, sizes) in [("10.7.0.0/23", 23..=32), ("fd00:7::/120", 120..=128)] {
            let pool: IpNet = pool.parse().unwrap();
            asked.extend(sizes.flat_map(|prefix| pool.subnets(prefix).unwrap().step_by(5)));
        }
        asked.extend(
            [
                "10.7.17.0/26",
                "10.7.33.192/26",
                "fd00:7::1:40/122",
                "fd00:7::2a40/122",
            ]
            .map(net),
        );

        block_on(async {
            let allocator = world.allocator().await;
            let store = allocator.store();
            // Few at a time, as allocators ask: a busy API server does not answer a hundred lists within their limit.
            for part in asked.chunks(10) {
                let queries: Vec<Query> = part
                    .iter()
                    .flat_map(|net| [Query::BlockKey(*net), Query::Overlapping(*net)])
                    .collect();
                let answers = store.read(&queries).await.unwrap();
                for (net, answers) in part.iter().zip(answers.chunks(2)) {
                    let is_there = cidrs().contains(net);
                    assert_eq!(
                        found(&answers[0]),
                        is_there.then_some(*net).into_iter().collect(),
                        "{net}"
                    );
                    let overlapping = cidrs().into_iter().filter(|block| cidr::overlap(*block, *net));
                    assert_eq!(found(&answers[1]), overlapping.collect(), "around {net}");
                }
            }
            for family in Family::BOTH {
                let all = match family {
                    Family::V4 => vec![net("10.0.0.0/8")],
                    Family::V6 => vec![net("fd00::/16")],
                };
                let queries = [
                    Query::BlockKeys(all.clone()),
                    Query::BlockRevisions(all),
                    Query::Blocks(family),
                ];
                let answers = store.read(&queries).await.unwrap();
                let all: BTreeSet<IpNet> = cidrs()
                    .into_iter()
                    .filter(|cidr| Family::of(*cidr) == family)
                    .collect();
                assert!(answers.iter().all(|answer| found(answer) == all), "{answers:?}");
                let revisions = |entries: &[Entry]| -> BTreeSet<String> {
                    entries
                        .iter()
                        .map(|entry| format!("{} {}", entry.record.key(), entry.revision))
                        .collect()
                };
                assert_eq!(revisions(&answers[1]), revisions(&answers[2]));
            }
            for pools in [
                vec![net("10.7.16.0/20")],
                vec![net("10.7.0.128/25"), net("10.7.32.0/24")],
            ] {
                let inside = |block: &IpNet| pools.iter().any(|pool| cidr::overlap(*pool, *block));
                let expected: BTreeSet<IpNet> = cidrs().into_iter().filter(inside).collect();
                assert!(!expected.is_empty() && expected.len() < cidrs().len());
                let queries = [
                    Query::BlockKeys(pools.clone()),
                    Query::BlockRevisions(pools.clone()),
                ];
                let answers = store.read(&queries).await.unwrap();
                assert!(
                    answers.iter().all(|answer| found(answer) == expected),
                    "{pools:?}: {answers:?}"
                );
            }
        });
    });
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Lets nodes claim blocks until the pools are exhausted.
#[test]
fn no_block_is_created_over_another() {
    on_all(|world| {
        world.put_blocks(&cidrs().into_iter().map(full).collect::<Vec<_>>());
        block_on(async {
            let allocator = world.allocator().await;
            for (host, count) in [("a", 150), ("b", 150)] {
                let request = AutoAssign {
                    host: host.into(),
                    v4: count,
                    v6: count,
                    handle: Some(format!("net.{host}")),
                    intended_use: Some(PoolUse::Workload),
                    ..AutoAssign::default()
                };
                allocator.auto_assign(&request).await.unwrap();
            }
        });
        let snapshot = world.observe();
        let blocks: Vec<IpNet> = snapshot.blocks.iter().map(|block| block.value.key).collect();
        let free = |pool: &str, prefix: u8| {
            let places = net(pool).subnets(prefix).unwrap();
            places
                .filter(|place| !cidrs().iter().any(|old| cidr::overlap(*old, *place)))
                .count()
        };
        // There is a new block in every free range of the pools, and in no other range.
        assert_eq!(
            blocks.len(),
            BLOCKS.len() + free("10.7.0.0/24", 28) + free("fd00:7::/120", 124)
        );
        for (index, block) in blocks.iter().enumerate() {
            let other = blocks[..index]
                .iter()
                .find(|other| cidr::overlap(**other, *block));
            // Only blocks that existed before the calls may overlap each other.
            assert!(
                other.is_none_or(|other| cidrs().contains(other) && cidrs().contains(block)),
                "{block} {other:?}"
            );
        }
    });
}

/// On Kubernetes, many blocks are read as pages of a list, unless there are too many other blocks between them.
#[test]
fn many_blocks_are_read_like_single_ones() {
    on_all(|world| {
        let places: Vec<IpNet> = net("10.7.0.0/20").subnets(28).unwrap().collect();
        let blocks: Vec<IpNet> = places
            .iter()
            .copied()
            .filter(|place| place.addr().to_string().len() != 9)
            .collect();
        // Other, smaller blocks are between the last blocks.
        let smaller = net("10.7.9.0/24")
            .subnets(31)
            .unwrap()
            .filter(|block| !places.contains(block));
        let all: Vec<TakenBlock> = blocks.iter().copied().chain(smaller).map(full).collect();
        world.put_blocks(&all);
        let is_etcd = matches!(*world, Server::Etcd(_));
        if !is_etcd {
            world.edit(&Key::Block(net("10.7.1.112/28")), |block| {
                block["deleted"] = true.into()
            });
        }

        block_on(async {
            let allocator = world.allocator().await;
            let store = allocator.store();
            let queries: Vec<Query> = places
                .iter()
                .map(|place| Query::Get(Key::Block(*place)))
                .collect();
            let before = store.request_count();
            let together = store.read(&queries).await.unwrap();
            let requests = store.request_count() - before;
            assert!(requests < 40, "{requests} requests for {} blocks", queries.len());
            let is_marked = |place: &IpNet| *place == net("10.7.1.112/28") && !is_etcd;
            for (place, (query, found)) in places.iter().zip(queries.iter().zip(&together)) {
                assert_eq!(
                    found.len() == 1,
                    blocks.contains(place) && !is_marked(place),
                    "{place}"
                );
                let alone = store.read(std::slice::from_ref(query)).await.unwrap();
                let parts = |entry: &Entry| (entry.record.clone(), entry.revision.to_string());
                assert!(found.iter().map(parts).eq(alone[0].iter().map(parts)), "{place}");
            }
        });
    });
}
