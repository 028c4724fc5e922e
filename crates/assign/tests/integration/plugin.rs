//! What a call of the plugin does around the allocator: in which order it asks its host, and what it takes back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use calipam_assign::plugin::{Add, Added, Del, Failure, Gc, Host, LookedUp, Machine, Plugin, Wanted};
use calipam_assign::{Allocator, Error, MemoryStore, PodName};
use calipam_model::IpNet;
use jiff::Timestamp;

use crate::clients::container;
use crate::world::run;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";
const BLOCKS: &str = "/calico/ipam/v2/assignment/";

/// A cluster with a node and an IPv4 pool of four blocks with four addresses.
fn cluster() -> MemoryStore {
    let store = MemoryStore::new("2026-05-01T10:00:00Z".parse::<Timestamp>().unwrap());
    store.put(&format!("{RESOURCES}/ippools/v4"), r#"{"spec":{"cidr":"10.0.0.0/28","blockSize":30}}"#);
    store.put(&format!("{RESOURCES}/nodes/a"), "{}");
    store
}

/// Notes what it is asked, and gives up what is given less time than `patience`.
struct Noting<'n> {
    asked: &'n RefCell<Vec<&'static str>>,
    patience: Duration,
    looked_up: LookedUp,
    refusal: Option<&'static str>,
}

struct Held<'n>(&'n RefCell<Vec<&'static str>>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().push("unlock");
    }
}

impl<'n> Noting<'n> {
    fn new(asked: &'n RefCell<Vec<&'static str>>) -> Self {
        Self { asked, patience: Duration::ZERO, looked_up: LookedUp::default(), refusal: None }
    }
}

impl<'n> Host for Noting<'n> {
    type Held = Held<'n>;
    type Error = &'static str;

    async fn lock(&self) -> Held<'n> {
        self.asked.borrow_mut().push("lock");
        Held(self.asked)
    }

    async fn within<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        if limit < self.patience { None } else { Some(work.await) }
    }

    async fn look_up(&self) -> Result<LookedUp, &'static str> {
        self.asked.borrow_mut().push("look up");
        self.refusal.map_or_else(|| Ok(self.looked_up.clone()), Err)
    }

    async fn label_affinities(&self) {
        self.asked.borrow_mut().push("label");
    }
}

fn any(handle: &str, v6: bool) -> Add {
    let wanted = Wanted::Any { v4: true, v6, max_blocks_per_host: 0 };
    Add { container: container("a", handle), attributes: BTreeMap::new(), wanted }
}

fn del(handle: &str) -> Del {
    Del { container: container("a", handle), old_handle: "old".into(), previous: Vec::new() }
}

type Outcome<T> = Result<T, Failure<&'static str>>;

/// What a plugin on a host gives that notes what it is asked.
fn add_on(store: &MemoryStore, host: &Noting<'_>, add: &Add) -> Outcome<Added> {
    run(Plugin { allocator: &Allocator::new(store), host }.add(add))
}

fn add(store: &MemoryStore, add: &Add) -> Outcome<Added> {
    add_on(store, &Noting::new(&RefCell::default()), add)
}

fn delete(store: &MemoryStore, del: &Del) -> Outcome<()> {
    run(Plugin { allocator: &Allocator::new(store), host: &Noting::new(&RefCell::default()) }.del(del))
}

fn first(added: Outcome<Added>) -> IpAddr {
    added.unwrap().addresses[0].addr()
}

/// Whether a handle is named in any block.
fn is_allocated(store: &MemoryStore, handle: &str) -> bool {
    let quoted = format!("\"{handle}\"");
    store.values(BLOCKS).iter().any(|(_, value, _)| String::from_utf8_lossy(value).contains(&quoted))
}

#[test]
fn what_is_looked_up_is_known_before_the_lock_is_held() {
    let (store, asked) = (cluster(), RefCell::default());
    add_on(&store, &Noting::new(&asked), &any("h", false)).unwrap();
    assert_eq!(asked.take(), ["look up", "lock", "label", "unlock"]);

    let given = Add { wanted: Wanted::Address("10.0.0.9".parse().unwrap()), ..any("given", false) };
    let added = add_on(&store, &Noting::new(&asked), &given).unwrap();
    assert_eq!(added, Added { addresses: vec!["10.0.0.9/32".parse().unwrap()], is_routed: true });
    assert_eq!(asked.take(), ["lock", "label", "unlock"]);
}

#[test]
fn what_is_looked_up_decides() {
    let (store, asked) = (cluster(), RefCell::default());
    store.put(&format!("{RESOURCES}/ippools/b"), r#"{"spec":{"cidr":"10.9.0.0/28","blockSize":30}}"#);
    let pools_v4: Vec<IpNet> = vec!["10.9.0.0/28".parse().unwrap()];
    let looked_up = LookedUp { pools_v4: pools_v4.clone(), ..LookedUp::default() };
    let address = first(add_on(&store, &Noting { looked_up, ..Noting::new(&asked) }, &any("h", false)));
    assert!(pools_v4[0].contains(&address), "{address}");

    store.take_changes();
    let host = Noting { refusal: Some("no such pool"), ..Noting::new(&asked) };
    let failure = add_on(&store, &host, &any("other", false)).unwrap_err();
    assert!(matches!(failure, Failure::LookUp("no such pool")), "{failure}");
    assert!(store.take_changes().is_empty());
}

#[test]
fn a_family_without_an_address_leaves_nothing_of_the_other() {
    let store = cluster();
    let failure = add(&store, &any("h", true)).unwrap_err();
    assert!(matches!(failure, Failure::Allocator(Error::NoQualifiedPool)), "{failure}");
    assert!(!is_allocated(&store, "h"));
    assert_eq!(store.value("/calico/ipam/v2/handle/h"), None);
}

#[test]
fn a_shortage_says_the_family_and_why() {
    let store = cluster();
    (0..16).for_each(|number| drop(add(&store, &any(&format!("h{number}"), false)).unwrap()));
    let failure = add(&store, &any("late", false)).unwrap_err().to_string();
    let expected = "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; No IPs available in \
                    pools: [10.0.0.0/28]";
    assert_eq!(failure, expected);
}

#[test]
fn what_takes_too_long_is_given_up_and_the_lock_with_it() {
    let (store, asked) = (cluster(), RefCell::default());
    let host = Noting { patience: Duration::from_secs(91), ..Noting::new(&asked) };
    let failure = add_on(&store, &host, &any("h", false)).unwrap_err();
    assert_eq!(failure.to_string(), "the datastore did not finish within 90 s");
    let failure = run(Plugin { allocator: &Allocator::new(&store), host: &host }.del(&del("h"))).unwrap_err();
    assert!(matches!(failure, Failure::TooSlow(limit) if limit == Duration::from_secs(90)));
    assert_eq!(asked.take(), ["look up", "lock", "unlock"]);
}

#[test]
fn del_releases_both_handles_of_a_container_and_can_be_repeated() {
    let store = cluster();
    for handle in ["net.c", "old", "net.other"] {
        add(&store, &any(handle, false)).unwrap();
    }
    for _ in 0..2 {
        delete(&store, &del("net.c")).unwrap();
        assert_eq!(["net.c", "old", "net.other"].map(|h| is_allocated(&store, h)), [false, false, true]);
    }
}

#[test]
fn del_passes_over_a_handle_that_cannot_be_decoded_and_frees_its_addresses() {
    let store = cluster();
    add(&store, &any("net.c", false)).unwrap();
    store.put("/calico/ipam/v2/handle/net.c", "{");
    delete(&store, &del("net.c")).unwrap();
    assert!(!is_allocated(&store, "net.c"));
}

#[test]
fn gc_releases_what_no_living_container_has() {
    let store = cluster();
    for handle in ["net.gone", "net.alive", "other.gone"] {
        let attributes = BTreeMap::from([("node".to_owned(), "a".to_owned())]);
        add(&store, &Add { attributes, ..any(handle, false) }).unwrap();
    }
    let asked = RefCell::default();
    let gc = Gc { node: "a".into(), network: "net".into(), valid: ["alive".to_owned()].into() };
    run(Plugin { allocator: &Allocator::new(&store), host: &Noting::new(&asked) }.gc(&gc)).unwrap();
    let allocated = ["net.gone", "net.alive", "other.gone"].map(|handle| is_allocated(&store, handle));
    assert_eq!((allocated, asked.take()), ([false, true, true], vec!["lock", "unlock"]));
}

/// The pod `name` of a machine.
fn of_machine(name: &str, is_migration_target: bool, is_being_deleted: bool) -> Add {
    let pod = PodName { namespace: "ns".into(), name: name.into() };
    let machine = Machine { handle: "net.vmi.ns.vm".into(), pod, is_migration_target, is_being_deleted };
    let owner = [("pod", name), ("namespace", "ns")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut add = Add { attributes: owner.into(), ..any(name, false) };
    add.container.machine = Some(machine);
    add
}

fn end(store: &MemoryStore, pod: &Add) {
    delete(store, &Del { container: pod.container.clone(), ..del("") }).unwrap();
}

#[test]
fn a_machine_takes_its_address_along_to_the_target_of_a_migration() {
    let store = cluster();
    let target = of_machine("target", true, false);
    let failure = add(&store, &target).unwrap_err();
    assert!(matches!(failure, Failure::NothingToMigrate(_)), "{failure}");

    let source = of_machine("source", false, false);
    let address = first(add(&store, &source));
    let added = add(&store, &target).unwrap();
    assert_eq!(added, Added { addresses: vec![address.into()], is_routed: false });

    // One pod goes, then the other one, and the address with the machine alone.
    end(&store, &source);
    end(&store, &target);
    assert!(is_allocated(&store, "net.vmi.ns.vm"));
    end(&store, &of_machine("target", false, true));
    assert!(!is_allocated(&store, "net.vmi.ns.vm"));
}
