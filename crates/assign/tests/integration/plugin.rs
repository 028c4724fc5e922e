//! The plugin's operations around the allocator: the order of calls to the host, and cleanup after failures.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use calipam_assign::plugin::{
    Add, Added, Container, Del, Failure, Gc, Host, Lookup, Machine, Plugin, Wanted,
};
use calipam_assign::{Allocator, Error, PodName};
use calipam_model::IpNet;
use calipam_testkit::memory::MemoryStore;

use crate::cluster::{Cluster, RESOURCES};
use crate::run;

const BLOCKS: &str = "/calico/ipam/v2/assignment/";

/// A cluster with one node, and an IPv4 pool with room for four blocks of four addresses.
fn cluster() -> MemoryStore {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/28", 30)]);
    cluster.node("a", &[]);
    cluster.store
}

/// A host that records calls, and gives up work whose time limit is below `patience`.
struct Recorder<'n> {
    calls: &'n RefCell<Vec<&'static str>>,
    patience: Duration,
    lookup: Lookup,
    refusal: Option<&'static str>,
}

struct LockGuard<'n>(&'n RefCell<Vec<&'static str>>);

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().push("unlock");
    }
}

impl<'n> Recorder<'n> {
    fn new(calls: &'n RefCell<Vec<&'static str>>) -> Self {
        Self {
            calls,
            patience: Duration::ZERO,
            lookup: Lookup::default(),
            refusal: None,
        }
    }
}

impl<'n> Host for Recorder<'n> {
    type LockGuard = LockGuard<'n>;
    type Error = &'static str;

    async fn lock(&self) -> LockGuard<'n> {
        self.calls.borrow_mut().push("lock");
        LockGuard(self.calls)
    }

    async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        if limit < self.patience {
            None
        } else {
            Some(work.await)
        }
    }

    async fn look_up(&self) -> Result<Lookup, &'static str> {
        self.calls.borrow_mut().push("look up");
        self.refusal.map_or_else(|| Ok(self.lookup.clone()), Err)
    }

    async fn label_affinities(&self) {
        self.calls.borrow_mut().push("label");
    }
}

fn container(node: &str, handle: &str) -> Container {
    Container {
        node: node.to_owned(),
        handle: handle.to_owned(),
        machine: None,
    }
}

fn any(handle: &str, v6: bool) -> Add {
    let wanted = Wanted::Any {
        v4: true,
        v6,
        max_blocks_per_host: 0,
    };
    Add {
        container: container("a", handle),
        attributes: BTreeMap::new(),
        wanted,
    }
}

fn del(handle: &str) -> Del {
    Del {
        container: container("a", handle),
        old_handle: "old".into(),
        previous: Vec::new(),
    }
}

type Outcome<T> = Result<T, Failure<&'static str>>;

fn add_on(store: &MemoryStore, host: &Recorder<'_>, add: &Add) -> Outcome<Added> {
    run(Plugin {
        allocator: &Allocator::new(store),
        host,
    }
    .add(add))
}

fn add(store: &MemoryStore, add: &Add) -> Outcome<Added> {
    add_on(store, &Recorder::new(&RefCell::default()), add)
}

fn delete(store: &MemoryStore, del: &Del) -> Outcome<()> {
    run(Plugin {
        allocator: &Allocator::new(store),
        host: &Recorder::new(&RefCell::default()),
    }
    .del(del))
}

fn first(added: Outcome<Added>) -> IpAddr {
    added.unwrap().addresses[0].addr()
}

/// True if any block names the handle.
fn is_allocated(store: &MemoryStore, handle: &str) -> bool {
    let quoted = format!("\"{handle}\"");
    store
        .values(BLOCKS)
        .iter()
        .any(|(_, value, _)| String::from_utf8_lossy(value).contains(&quoted))
}

#[test]
fn the_lookup_comes_before_the_lock() {
    let (store, calls) = (cluster(), RefCell::default());
    add_on(&store, &Recorder::new(&calls), &any("h", false)).unwrap();
    assert_eq!(calls.take(), ["look up", "lock", "label", "unlock"]);

    let given = Add {
        wanted: Wanted::Address("10.0.0.9".parse().unwrap()),
        ..any("given", false)
    };
    let added = add_on(&store, &Recorder::new(&calls), &given).unwrap();
    assert_eq!(
        added,
        Added {
            addresses: vec!["10.0.0.9/32".parse().unwrap()],
            is_routed: true
        }
    );
    assert_eq!(calls.take(), ["lock", "label", "unlock"]);
}

#[test]
fn the_lookup_selects_the_pools_or_refuses_the_pod() {
    let (store, calls) = (cluster(), RefCell::default());
    store.put(
        &format!("{RESOURCES}/ippools/b"),
        r#"{"spec":{"cidr":"10.9.0.0/28","blockSize":30}}"#,
    );
    let pools_v4: Vec<IpNet> = vec!["10.9.0.0/28".parse().unwrap()];
    let lookup = Lookup {
        pools_v4: pools_v4.clone(),
        ..Lookup::default()
    };
    let address = first(add_on(
        &store,
        &Recorder {
            lookup,
            ..Recorder::new(&calls)
        },
        &any("h", false),
    ));
    assert!(pools_v4[0].contains(&address), "{address}");

    store.take_changes();
    let host = Recorder {
        refusal: Some("no such pool"),
        ..Recorder::new(&calls)
    };
    let failure = add_on(&store, &host, &any("other", false)).unwrap_err();
    assert!(matches!(failure, Failure::LookUp("no such pool")), "{failure}");
    assert!(store.take_changes().is_empty());
}

#[test]
fn a_failed_family_releases_the_other() {
    let store = cluster();
    let failure = add(&store, &any("h", true)).unwrap_err();
    assert!(
        matches!(failure, Failure::Allocator(Error::NoQualifiedPool)),
        "{failure}"
    );
    assert!(!is_allocated(&store, "h"));
    assert_eq!(store.value("/calico/ipam/v2/handle/h"), None);
}

#[test]
fn a_shortage_has_family_and_reason() {
    let store = cluster();
    (0..16).for_each(|number| drop(add(&store, &any(&format!("h{number}"), false)).unwrap()));
    let failure = add(&store, &any("late", false)).unwrap_err().to_string();
    let expected = "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; No IPs available in \
                    pools: [10.0.0.0/28]";
    assert_eq!(failure, expected);
}

#[test]
fn a_slow_operation_is_given_up_with_its_lock() {
    let (store, calls) = (cluster(), RefCell::default());
    let host = Recorder {
        patience: Duration::from_secs(91),
        ..Recorder::new(&calls)
    };
    let failure = add_on(&store, &host, &any("h", false)).unwrap_err();
    assert_eq!(failure.to_string(), "the datastore did not finish within 60 s");
    let failure = run(Plugin {
        allocator: &Allocator::new(&store),
        host: &host,
    }
    .del(&del("h")))
    .unwrap_err();
    assert!(matches!(failure, Failure::TooSlow(limit) if limit == Duration::from_secs(60)));
    assert_eq!(calls.take(), ["look up", "lock", "unlock"]);
}

#[test]
fn del_releases_both_handles_of_a_container_and_can_be_repeated() {
    let store = cluster();
    for handle in ["net.c", "old", "net.other"] {
        add(&store, &any(handle, false)).unwrap();
    }
    for _ in 0..2 {
        delete(&store, &del("net.c")).unwrap();
        assert_eq!(
            ["net.c", "old", "net.other"].map(|h| is_allocated(&store, h)),
            [false, false, true]
        );
    }
    // A handle that cannot be decoded is passed over, and its addresses are freed.
    store.put("/calico/ipam/v2/handle/net.other", "{");
    delete(&store, &del("net.other")).unwrap();
    assert!(!is_allocated(&store, "net.other"));
}

#[test]
fn gc_releases_the_addresses_of_removed_containers() {
    let store = cluster();
    for handle in ["net.gone", "net.alive", "other.gone"] {
        let attributes = BTreeMap::from([("node".to_owned(), "a".to_owned())]);
        add(
            &store,
            &Add {
                attributes,
                ..any(handle, false)
            },
        )
        .unwrap();
    }
    let calls = RefCell::default();
    let gc = Gc {
        node: "a".into(),
        network: "net".into(),
        valid: ["alive".to_owned()].into(),
    };
    run(Plugin {
        allocator: &Allocator::new(&store),
        host: &Recorder::new(&calls),
    }
    .gc(&gc))
    .unwrap();
    let allocated = ["net.gone", "net.alive", "other.gone"].map(|handle| is_allocated(&store, handle));
    assert_eq!(
        (allocated, calls.take()),
        ([false, true, true], vec!["lock", "unlock"])
    );
}

/// An ADD for the pod `name` of a virtual machine.
fn machine_pod(name: &str, is_migration_target: bool, is_being_deleted: bool) -> Add {
    let pod = PodName {
        namespace: "ns".into(),
        name: name.into(),
    };
    let machine = Machine {
        handle: "net.vmi.ns.vm".into(),
        pod,
        is_migration_target,
        is_being_deleted,
    };
    let owner = [("pod", name), ("namespace", "ns")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut add = Add {
        attributes: owner.into(),
        ..any(name, false)
    };
    add.container.machine = Some(machine);
    add
}

fn end(store: &MemoryStore, pod: &Add) {
    delete(
        store,
        &Del {
            container: pod.container.clone(),
            ..del("")
        },
    )
    .unwrap();
}

#[test]
fn a_machine_keeps_its_address_in_a_migration() {
    let store = cluster();
    let target = machine_pod("target", true, false);
    let failure = add(&store, &target).unwrap_err();
    assert!(matches!(failure, Failure::NothingToMigrate(_)), "{failure}");

    let source = machine_pod("source", false, false);
    let address = first(add(&store, &source));
    let added = add(&store, &target).unwrap();
    assert_eq!(
        added,
        Added {
            addresses: vec![address.into()],
            is_routed: false
        }
    );

    // First the source pod ends, then the target pod. The address is released only when the machine is deleted.
    end(&store, &source);
    end(&store, &target);
    assert!(is_allocated(&store, "net.vmi.ns.vm"));
    end(&store, &machine_pod("target", false, true));
    assert!(!is_allocated(&store, "net.vmi.ns.vm"));
}
