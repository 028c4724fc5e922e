//! Answers to requests for addresses, on hand-made snapshots.

use calipam_model::key::RESOURCE_PREFIX;
use calipam_model::pod::Namespace;
use calipam_model::snapshot::{ALLOCATION_SOURCES, DatastoreKind, Revision, Snapshot};
use calipam_testkit::values;
use serde_json::Value;

use super::*;

/// A snapshot with the nodes n1 and n2, and a pool of four blocks of four addresses. Each block is given as its owner
/// and its number of taken addresses.
pub(super) struct World(pub(super) Snapshot);

impl World {
    pub(super) fn new(config: &str, blocks: &[(&str, usize)]) -> Self {
        let taken_at = "2026-05-01T12:00:00Z".parse().unwrap();
        let mut world = Self(Snapshot {
            taken_at,
            ..Snapshot::default()
        });
        world.0.mark_read(ALLOCATION_SOURCES);
        world.put("/calico/ipam/v2/config", config);
        world.pool("small", r#""cidr":"10.0.0.0/28","blockSize":30"#);
        world.node("n1", "linux").node("n2", "linux");
        for (at, (owner, taken)) in blocks.iter().enumerate() {
            world.block(&format!("10.0.0.{}", 4 * at), owner, *taken, "{}");
        }
        world
    }

    pub(super) fn put(&mut self, path: &str, value: &str) -> &mut Self {
        self.0.add_entry(path.as_bytes(), value.as_bytes(), 7);
        self
    }

    pub(super) fn pool(&mut self, name: &str, spec: &str) -> &mut Self {
        self.0.pools.retain(|pool| pool.value.name != name);
        self.put(
            &format!("{RESOURCE_PREFIX}ippools/{name}"),
            &format!(r#"{{"spec":{{{spec}}}}}"#),
        )
    }

    fn node(&mut self, name: &str, system: &str) -> &mut Self {
        let labels =
            format!(r#"{{"metadata":{{"labels":{{"name":"{name}","kubernetes.io/os":"{system}"}}}}}}"#);
        self.put(&format!("{RESOURCE_PREFIX}nodes/{name}"), &labels)
    }

    /// Adds a node's block, which is a /30 or, for IPv6, a /126. Its first `taken` addresses are allocated with
    /// `record`.
    pub(super) fn block(&mut self, base: &str, owner: &str, taken: usize, record: &str) -> &mut Self {
        let cidr = format!("{base}/{}", if base.contains(':') { 126 } else { 30 });
        let record: Value = serde_json::from_str(record).unwrap();
        let block = values::block(&cidr, format!("host:{owner}"), vec![record; taken]);
        self.put(&values::block_key(&cidr), &block.to_string());
        self.put(
            &values::affinity_key(&format!("host/{owner}"), &cidr),
            r#"{"state":"confirmed"}"#,
        )
    }

    fn known(&self) -> Result<Option<Arc<Refused>>, NotKnown> {
        self.refusal("n1", Family::V4)
    }

    pub(super) fn refusal(&self, node: &str, family: Family) -> Result<Option<Arc<Refused>>, NotKnown> {
        let outlook = Outlook::new(&self.0).unwrap();
        let node = self
            .0
            .nodes
            .iter()
            .find(|stored| stored.value.name == node)
            .unwrap();
        let found = outlook.refusal(&node.value, family, &[]);
        assert_eq!(outlook.refusal(&node.value, family, &[]), found, "remembered");
        found
    }

    /// The reason why n1 gets no IPv4 address; `None` if it gets one.
    fn reason(&self) -> Option<Reason> {
        self.known().unwrap().map(|refused| refused.reason.clone())
    }

    fn source(&self, pools: &[&str]) -> AddressSource {
        let pools: Vec<IpNet> = pools.iter().map(|pool| pool.parse().unwrap()).collect();
        self.given(&pools).source
    }

    /// The address that n1 gets from one of these pools.
    fn given(&self, pools: &[IpNet]) -> Given {
        let request = NextAddress::new("n1", Family::V4, pools);
        Outlook::new(&self.0).unwrap().next(&request).outcome.unwrap()
    }

    fn without_affinity(&mut self, node: &str) -> &mut Self {
        self.0
            .affinities
            .retain(|affinity| affinity.value.key.node != node);
        self
    }
}

const OPEN: &str = r#"{"auto_allocate_blocks":true}"#;
const STRICT: &str = r#"{"auto_allocate_blocks":true,"strict_affinity":true}"#;
const FULL: [(&str, usize); 4] = [("n1", 4), ("n2", 4), ("n2", 4), ("n2", 4)];
const ONE_FREE: [(&str, usize); 4] = [("n1", 4), ("n2", 4), ("n2", 4), ("n2", 3)];

#[test]
fn an_address_comes_from_an_own_new_borrowed_or_reclaimed_block() {
    assert_eq!(
        World::new(STRICT, &[("n1", 3)]).source(&[]),
        AddressSource::OwnBlock
    );
    assert_eq!(
        World::new(STRICT, &[("n1", 4)]).source(&[]),
        AddressSource::NewBlock
    );
    assert_eq!(World::new(OPEN, &ONE_FREE).source(&[]), AddressSource::Borrowed);
    let empty = [("n1", 4), ("n2", 4), ("n2", 4), ("n2", 0)];
    assert_eq!(World::new(STRICT, &empty).source(&[]), AddressSource::Reclaimed);
    for blocks in [&[("n1", 3)][..], &[("n1", 4)], &empty, &[]] {
        assert_eq!(World::new(STRICT, blocks).reason(), None, "{blocks:?}");
    }
    assert_eq!(World::new(OPEN, &ONE_FREE).reason(), None);
    for (version, reason) in [("v3.31.7", Some(Reason::StrictAffinity)), ("v3.32.0", None)] {
        let mut world = World::new(STRICT, &empty);
        let key = format!("{RESOURCE_PREFIX}clusterinformations/default");
        world.put(&key, &format!(r#"{{"spec":{{"calicoVersion":"{version}"}}}}"#));
        assert_eq!(
            world.reason(),
            reason,
            "{version}: an empty block is taken over or not"
        );
    }
}

/// The search of n1 begins at the third block of the pool, as Calico's does.
#[test]
fn blocks_are_searched_in_the_order_of_calico() {
    let given = |world: &World| {
        let given = world.given(&[]);
        (given.source, given.address.to_string())
    };
    let claimed = given(&World::new(STRICT, &[("n1", 4)]));
    assert_eq!(claimed, (AddressSource::NewBlock, "10.0.0.8".to_owned()));

    let mut own_first = World::new(STRICT, &[]);
    own_first.block("10.0.0.8", "n1", 1, "{}").without_affinity("n1");
    assert_eq!(
        given(&own_first),
        (AddressSource::OwnBlock, "10.0.0.9".to_owned())
    );
    let mut own_last = World::new(STRICT, &[]);
    own_last.block("10.0.0.4", "n1", 1, "{}").without_affinity("n1");
    assert_eq!(
        given(&own_last),
        (AddressSource::NewBlock, "10.0.0.8".to_owned()),
        "a vacant place is first"
    );

    let two_empty = World::new(STRICT, &[("n2", 0), ("n1", 4), ("n2", 4), ("n2", 0)]);
    assert_eq!(
        given(&two_empty),
        (AddressSource::Reclaimed, "10.0.0.12".to_owned())
    );
    let two_free = World::new(OPEN, &[("n2", 3), ("n1", 4), ("n2", 4), ("n2", 3)]);
    assert_eq!(
        given(&two_free),
        (AddressSource::Borrowed, "10.0.0.15".to_owned())
    );
}

#[test]
fn a_block_without_affinity_is_of_use_to_its_node_alone() {
    let mut world = World::new(STRICT, &[("n1", 3), ("n2", 4), ("n2", 4), ("n2", 4)]);
    world.without_affinity("n1");
    assert_eq!(
        world.refusal("n2", Family::V4).unwrap().unwrap().reason,
        Reason::StrictAffinity
    );
    assert_eq!(world.reason(), None);
    assert_eq!(world.source(&[]), AddressSource::OwnBlock);

    // An affinity without labels is not listed, so it is as if it did not exist.
    let mut world = World::new(STRICT, &[("n1", 3), ("n2", 4), ("n2", 4), ("n2", 4)]);
    world.0.datastore = DatastoreKind::Kubernetes;
    let key = format!("{RESOURCE_PREFIX}clusterinformations/default");
    world.put(&key, r#"{"spec":{"calicoVersion":"v3.33.0"}}"#);
    for affinity in &mut world.0.affinities {
        affinity.revision = Revision::Kubernetes(Box::default());
    }
    let outlook = Outlook::new(&world.0).unwrap();
    let mut refused = Vec::new();
    for node in ["n2", "n1"] {
        let node = world
            .0
            .nodes
            .iter()
            .find(|stored| stored.value.name == node)
            .unwrap();
        refused.push(outlook.refusal(&node.value, Family::V4, &[]).unwrap().is_some());
    }
    assert_eq!(refused, [true, false], "n2 and n1 are asked for separately");
}

/// Calico looks for an empty block in the whole pool before it borrows.
#[test]
fn the_last_empty_block_of_a_large_pool_is_taken_before_an_address_is_borrowed() {
    let mut world = World::new(OPEN, &[]);
    world.pool("small", r#""cidr":"10.0.0.0/24","blockSize":30"#);
    for at in 0..64 {
        let taken = if at == 0 { 0 } else { 3 };
        world.block(&format!("10.0.0.{}", 4 * at), "n2", taken, "{}");
    }
    assert_eq!(world.source(&[]), AddressSource::Reclaimed);
    let key = format!("{RESOURCE_PREFIX}clusterinformations/default");
    world.put(&key, r#"{"spec":{"calicoVersion":"v3.31.0"}}"#);
    assert_eq!(world.source(&[]), AddressSource::Borrowed);
}

#[test]
fn full_strict_and_limited() {
    assert_eq!(
        World::new(STRICT, &ONE_FREE).reason(),
        Some(Reason::StrictAffinity)
    );
    for config in [STRICT, OPEN] {
        let world = World::new(config, &FULL);
        assert_eq!(world.reason(), Some(Reason::Exhausted(None)));
        let refused = world.known().unwrap().unwrap();
        assert_eq!(refused.serving, ["small"]);
        assert!(
            refused
                .calico
                .contains("Assigned 0 out of 1 requested IPv4 addresses"),
            "{refused:?}"
        );
    }
    let limited = r#"{"auto_allocate_blocks":true,"strict_affinity":true,"maxBlocksPerHost":1}"#;
    let world = World::new(limited, &[("n1", 4)]);
    assert_eq!(world.reason(), Some(Reason::BlockLimit { held: 1, limit: 1 }));
    let expected = "cannot allocate new block due to per host block limit";
    assert_eq!(world.known().unwrap().unwrap().calico, expected);
    assert_eq!(World::new(limited, &[("n1", 3)]).reason(), None);
    // An affinity for the block of another node does not count. One without a block does, and the block is created.
    let mut world = World::new(limited, &[("n2", 4)]);
    world.put("/calico/ipam/v2/host/n1/ipv4/block/10.0.0.0-30", "{}");
    assert_eq!(world.reason(), None);
    world.put(
        "/calico/ipam/v2/host/n2/ipv4/block/10.0.0.12-30",
        r#"{"state":"pending"}"#,
    );
    assert_eq!(world.refusal("n2", Family::V4), Ok(None));
    assert_eq!(
        World::new("{}", &[("n1", 4)]).reason(),
        Some(Reason::NoAutoAllocation)
    );
}

#[test]
fn pools_that_do_not_serve() {
    for (change, reason) in [
        (r#""disabled":true"#, Reason::NoneEnabled),
        (r#""assignmentMode":"Manual""#, Reason::NoneAutomatic),
        (r#""allowedUses":["Tunnel"]"#, Reason::NoneForWorkloads),
        (r#""nodeSelector":"name == 'n2'""#, Reason::NoneSelectsNode),
    ] {
        let mut world = World::new(STRICT, &[("n1", 3)]);
        world.pool(
            "small",
            &format!(r#""cidr":"10.0.0.0/28","blockSize":30,{change}"#),
        );
        assert_eq!(world.reason(), Some(reason), "{change}");
        assert_eq!(
            world.refusal("n1", Family::V6).unwrap().unwrap().reason,
            Reason::NoPool
        );
        if change.contains("elector") || change.contains("Manual") {
            assert_eq!(world.source(&["10.0.0.0/28"]), AddressSource::OwnBlock, "by name");
        }
    }
    let mut some = World::new(STRICT, &[("n1", 3)]);
    some.pool(
        "small",
        r#""cidr":"10.0.0.0/28","blockSize":30,"namespaceSelector":"has(team)""#,
    );
    assert_eq!(some.reason(), None, "pods of some namespaces get an address");
    let refusal_in = |world: &World, namespace: &str| {
        let outlook = Outlook::new(&world.0).unwrap();
        let found = outlook.refusal_in(namespace, &world.0.nodes[0].value, Family::V4);
        found.map(|refused| refused.map(|refused| refused.reason.clone()))
    };
    assert_eq!(
        refusal_in(&some, "shop"),
        Err(NotKnown),
        "its labels were not read"
    );
    let label = |(name, label): (&str, &str)| {
        let labels = [(label.to_owned(), String::new())].into();
        (
            name.to_owned(),
            Namespace {
                labels,
                ..Namespace::default()
            },
        )
    };
    some.0.namespaces = Some(
        [("shop", "team"), ("tools", "zone")]
            .into_iter()
            .map(label)
            .collect(),
    );
    assert_eq!((some.reason(), refusal_in(&some, "shop")), (None, Ok(None)));
    assert_eq!(refusal_in(&some, "tools"), Ok(Some(Reason::NoneSelectsNamespace)));
    some.0.namespaces.as_mut().unwrap().remove("shop");
    assert_eq!(
        some.reason(),
        Some(Reason::NoneSelectsNamespace),
        "no namespace has the label"
    );
    let mut broken = World::new(STRICT, &[("n1", 3)]);
    broken.pool("other", r#""cidr":"10.1.0.0/16","nodeSelector":"zone ==""#);
    let refused = broken.known().unwrap().unwrap();
    assert_eq!(refused.reason, Reason::BrokenSelector("other".to_owned()));
    assert_eq!(refused.calico, "expected string", "Calico's words");
}

#[test]
fn a_windows_node_has_one_block() {
    let windows = |config: &str, blocks: &[(&str, usize)]| {
        let mut world = World::new(config, &[]);
        world.pool("small", r#""cidr":"10.0.0.0/24","blockSize":29"#);
        world.0.nodes.clear();
        world.node("n1", "windows").node("n2", "linux");
        for (at, (owner, taken)) in blocks.iter().enumerate() {
            world.block(&format!("10.0.0.{}", 8 * at), owner, *taken, "{}");
        }
        world
    };
    assert_eq!(windows(STRICT, &[]).reason(), None);
    // Blocks of any size count toward the limit of one block.
    assert_eq!(windows(STRICT, &[("n1", 4)]).reason(), Some(Reason::SingleBlock));
    assert_eq!(
        windows(STRICT, &[("n1", 4), ("n1", 4)]).reason(),
        None,
        "it has had a second one"
    );
    let known = |blocks: &[(&str, usize)], single_block| {
        let world = windows(STRICT, blocks);
        let configuration = CniConfiguration {
            single_block: Some(single_block),
            ..CniConfiguration::default()
        };
        let outlook = Outlook::new(&world.0).unwrap().configured(&configuration);
        let answer = outlook.next(&NextAddress::new("n1", Family::V4, &[]));
        answer.outcome.err().map(|refused| refused.reason)
    };
    assert_eq!(known(&[("n1", 4)], false), None);
    assert_eq!(
        known(&[("n1", 4), ("n1", 4)], true),
        Some(Reason::SingleBlock),
        "the setting counts, not what the node has had"
    );
    let mut both = windows(STRICT, &[("n1", 4)]);
    both.block("fd00::", "n1", 4, "{}");
    assert_eq!(
        both.reason(),
        Some(Reason::SingleBlock),
        "it has one of each family"
    );
    assert_eq!(
        windows(OPEN, &[]).reason(),
        Some(Reason::WindowsNeedsStrictAffinity)
    );
    // Calico's plugin reserves nothing in a block that it makes for an address that the pod names.
    let world = windows(STRICT, &[]);
    let outlook = Outlook::new(&world.0).unwrap();
    let named = outlook.next_named("n1", "10.0.0.8".parse().unwrap(), None, &[]);
    assert!(named.outcome.is_ok(), "{:?}", named.outcome);
    // Calico's allocator dies if it makes a block that has fewer addresses than Windows reserves.
    let mut tiny = windows(STRICT, &[]);
    tiny.pool(
        "small",
        r#""cidr":"10.0.0.0/24","blockSize":29,"assignmentMode":"Manual""#,
    );
    tiny.pool("tiny", r#""cidr":"10.1.0.0/28","blockSize":31"#);
    let outlook = Outlook::new(&tiny.0).unwrap();
    let answer = outlook.next(&NextAddress::new("n1", Family::V4, &[]));
    let refused = answer.outcome.unwrap_err();
    assert_eq!(refused.reason, Reason::BlocksTooSmall);
    assert_eq!(
        refused.calico,
        r#"netplugin failed: "panic: runtime error: slice bounds out of range [3:1]…"#
    );
    let mut small = World::new(STRICT, &[]);
    small.0.nodes.clear();
    small.node("n1", "windows");
    assert_eq!(small.reason(), Some(Reason::BlocksTooSmall));
}

#[test]
fn cooldown_and_reservations() {
    let mut cooling = World::new(r#"{"auto_allocate_blocks":true,"ipCooldownSeconds":1200}"#, &FULL);
    cooling
        .0
        .blocks
        .retain(|block| block.value.key.to_string() != "10.0.0.12/30");
    cooling
        .0
        .affinities
        .retain(|affinity| affinity.value.key.cidr.to_string() != "10.0.0.12/30");
    cooling.block("10.0.0.12", "n2", 4, r#"{"releasedAt":"2026-05-01T11:50:00Z"}"#);
    let Some(Reason::Exhausted(Some(cools))) = cooling.reason() else {
        panic!("{:?}", cooling.reason())
    };
    let says = "4 addresses are cooling down, the first until 2026-05-01T12:10:00Z, the last until 2026-05-01T12:10:00Z";
    assert_eq!(cools.to_string(), says);
    cooling.0.taken_at = cools.last + jiff::SignedDuration::from_secs(1);
    assert_eq!(cooling.reason(), None, "they are free by then");

    let mut reserved = World::new(STRICT, &[("n1", 3), ("n2", 4), ("n2", 4)]);
    assert_eq!(reserved.reason(), None);
    let reservation = r#"{"spec":{"reservedCIDRs":["10.0.0.3","10.0.0.12/30"]}}"#;
    reserved.put(&format!("{RESOURCE_PREFIX}ipreservations/kept"), reservation);
    assert_eq!(reserved.reason(), Some(Reason::Exhausted(None)));
}

#[test]
fn ipv6_has_blocks_of_its_own() {
    let mut world = World::new(STRICT, &[("n1", 3)]);
    world.pool("six", r#""cidr":"fd00::/125","blockSize":126"#);
    world
        .block("fd00::", "n1", 4, "{}")
        .block("fd00::4", "n2", 4, "{}");
    assert_eq!(world.reason(), None);
    let refused = world.refusal("n1", Family::V6).unwrap().unwrap();
    assert_eq!(
        (&refused.reason, &refused.serving[..]),
        (&Reason::Exhausted(None), &["six".to_owned()][..])
    );
}

#[test]
fn the_answer_is_unknown_if_an_affinity_cannot_be_decoded() {
    let mut world = World::new(STRICT, &[("n1", 4), ("n2", 4), ("n2", 4)]);
    assert_eq!(world.reason(), None, "the fourth block");
    // The node has a pending affinity, whose block does not exist yet.
    world.pool("small", r#""cidr":"10.0.0.0/28","blockSize":30"#);
    world.put(
        "/calico/ipam/v2/host/n1/ipv4/block/10.0.0.12-30",
        r#"{"state":"pending"}"#,
    );
    assert_eq!(
        (world.reason(), world.refusal("n2", Family::V4).unwrap()),
        (None, None)
    );
    world.put("/calico/ipam/v2/host/n1/ipv4/block/10.0.0.8-30", "[]");
    assert_eq!(world.known(), Err(NotKnown), "an affinity that cannot be decoded");
}

/// Calico reads the configuration first, so a block with free addresses does not help.
#[test]
fn a_configuration_that_cannot_be_decoded_refuses_every_request() {
    let world = World::new(r#"{"strict_affinity":"true"}"#, &[("n1", 1)]);
    assert_eq!(world.reason(), Some(Reason::BrokenConfiguration));
    let outlook = Outlook::new(&world.0).unwrap();
    let address = "10.0.0.2".parse().unwrap();
    let named = outlook.next_named("n1", address, None, &[]).outcome.unwrap_err();
    assert_eq!(named.reason, Reason::BrokenConfiguration);
    let path = "failed to parse datastore entry key=/calico/ipam/v2/config; value=";
    assert!(named.calico.starts_with(path), "{}", named.calico);

    let pool = &world.0.pools[0].value;
    assert_eq!(outlook.allocatable(pool, 15).addresses, None);
}

#[test]
fn a_named_address_is_given_or_refused_with_a_reason() {
    let world = World::new(STRICT, &[("n1", 3), ("n2", 3)]);
    let outlook = Outlook::new(&world.0).unwrap();
    let named = |address: &str| {
        let outcome = outlook
            .next_named("n1", address.parse().unwrap(), None, &[])
            .outcome;
        outcome
            .map(|given| given.source)
            .map_err(|refused| refused.reason)
    };
    assert_eq!(named("10.0.0.3"), Ok(AddressSource::OwnBlock));
    assert_eq!(named("10.0.0.9"), Ok(AddressSource::NewBlock));
    assert_eq!(named("10.0.0.0"), Err(Reason::Taken("10.0.0.0".parse().unwrap())));
    assert_eq!(
        named("10.0.0.7"),
        Err(Reason::ForeignBlock("10.0.0.4/30".parse().unwrap()))
    );
    assert_eq!(
        named("10.9.0.0"),
        Err(Reason::OutsidePools("10.9.0.0".parse().unwrap()))
    );
}

#[test]
fn a_pool_with_impossible_blocks_is_used_until_a_block_is_needed() {
    let impossible = Reason::ImpossibleBlocks {
        pool: "small".to_owned(),
        block_size: 33,
    };
    let crash = "netplugin failed: \"fatal error: runtime: out of memory…";
    let with_impossible = |blocks: &[(&str, usize)]| {
        let mut world = World::new(OPEN, blocks);
        world.pool("small", r#""cidr":"10.0.0.0/28","blockSize":33"#);
        world
    };

    let mut world = with_impossible(&[]);
    let refused = world.known().unwrap().unwrap();
    assert_eq!(
        (&refused.reason, refused.calico.as_str()),
        (&impossible, "cannot find a qualified ippool")
    );

    world.pool("zz", r#""cidr":"10.1.0.0/28","blockSize":30"#);
    let refused = world.known().unwrap().unwrap();
    assert_eq!(
        (&refused.reason, refused.calico.as_str()),
        (&impossible, crash),
        "the pool comes before the other one"
    );
    let outlook = Outlook::new(&world.0).unwrap();
    let named = outlook.next(&NextAddress::new(
        "n1",
        Family::V4,
        &["10.0.0.0/28".parse().unwrap()],
    ));
    let refused = named.outcome.unwrap_err();
    assert_eq!(
        (&refused.reason, refused.calico.as_str()),
        (
            &impossible,
            "the given pool (10.0.0.0/28) does not exist, or is not enabled"
        )
    );

    let mut with_room = with_impossible(&[("n1", 1)]);
    with_room.pool("zz", r#""cidr":"10.1.0.0/28","blockSize":30"#);
    assert_eq!(
        with_room.reason(),
        None,
        "the node's block in the pool has free addresses"
    );
}

#[test]
fn calico_names_a_full_pool_as_it_is_stored() {
    let mut world = World::new(OPEN, &[]);
    world.pool("six", r#""cidr":"FD00::/126","blockSize":126"#);
    world.block("fd00::", "n1", 4, "{}");
    let refused = world.refusal("n1", Family::V6).unwrap().unwrap();
    let expected = "failed to request IPv6 addresses: Assigned 0 out of 1 requested IPv6 addresses; No IPs available in pools: [FD00::/126]";
    assert_eq!(refused.calico, expected);
}
