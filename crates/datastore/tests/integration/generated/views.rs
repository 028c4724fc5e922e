//! A view computed from only the sources that it needs equals the same view computed from all sources.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::Scope;
use calipam_check::views::{self, sources};
use calipam_check::{Code, Subject};
use calipam_datastore::Datastore;
use calipam_datastore::read::{Extent, Lookup};
use calipam_model::snapshot::{Coverage, DatastoreKind, Snapshot, Source, WhySkipped};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::datastore::{self, observe, open, quiet};
use calipam_testkit::servers::Etcd;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::open_file;

/// A view: its name, the sources that it needs, and its output for a snapshot.
type View = (&'static str, &'static [Source], fn(&Snapshot) -> Value);

const VIEWS: [View; 5] = [
    ("pools", &sources::POOLS, |snapshot| json!(views::pools(snapshot))),
    ("blocks", &sources::BLOCKS, |snapshot| {
        json!(views::blocks(snapshot))
    }),
    ("nodes", &sources::NODES, |snapshot| json!(views::nodes(snapshot))),
    ("borrowed", &sources::BORROWED, |snapshot| {
        json!(views::borrowed(snapshot, &Scope::default()))
    }),
    ("configuration", &sources::CONFIGURATION, |snapshot| {
        json!(views::configuration(snapshot))
    }),
];

pub(super) async fn views_agree(store: &Datastore) {
    let whole = observe(store).await;
    for (name, sources, view) in VIEWS {
        let extent = Extent::Sources(sources.iter().copied().collect());
        let mut narrow = store.observe_extent(&extent, &quiet()).await.unwrap();
        // The cooldown of an address may end between the two reads.
        narrow.taken_at = whole.taken_at;
        assert_eq!(view(&narrow), view(&whole), "{name} of {}", store.location());

        let unread = Coverage::Skipped(WhySkipped::NotNeeded);
        assert_eq!(narrow.coverage[&Source::Handles], unread, "{name}");
        let users = match narrow.datastore {
            DatastoreKind::Kubernetes => Source::Pods,
            DatastoreKind::Etcd | DatastoreKind::EtcdV2 => Source::Endpoints,
        };
        assert_eq!(narrow.coverage[&users], unread, "{name}");
        let read = [
            narrow.handles.len(),
            narrow.endpoints.len(),
            narrow.pods.len(),
            narrow.services.len(),
        ];
        assert_eq!(read, [0; 4], "{name}");
        // No rule checks data that was not read.
        let report = calipam_check::check(&narrow, &calipam_check::Options::default());
        let known = calipam_check::check(&whole, &calipam_check::Options::default());
        for finding in &report.findings {
            let is_known = |other: &&calipam_check::Finding| other.key_ref() == finding.key_ref();
            assert!(
                known.findings.iter().any(|other| is_known(&other)),
                "{name}: {finding:?}"
            );
        }
    }
    addresses_agree(store, &whole).await;
}

/// For the addresses of all findings and a sample of the recorded addresses, `show --ip` has no finding that a check of
/// everything does not have. If it has fewer findings, it reports that it read only a part.
async fn addresses_agree(store: &Datastore, whole: &Snapshot) {
    let known = calipam_check::check(whole, &calipam_check::Options::default()).findings;
    let of_address = |address: IpAddr| {
        let about = known
            .iter()
            .filter(move |finding| finding.subject == Subject::Address(address));
        about.map(|finding| finding.code).collect::<BTreeSet<Code>>()
    };
    let wrong = known.iter().filter_map(|finding| match &finding.subject {
        Subject::Address(address) => Some(*address),
        _ => None,
    });
    let sound = whole
        .blocks
        .iter()
        .filter_map(|block| block.value.content.sound());
    let recorded = sound
        .flat_map(|block| block.allocations())
        .map(|allocation| allocation.address)
        .step_by(29);
    let addresses: BTreeSet<IpAddr> = wrong.chain(recorded).collect();

    let mut clashes = Vec::new();
    for address in addresses {
        let narrow = store.lookup(&Lookup::Address(address)).await.unwrap();
        let view = views::address(&narrow, address);
        let about_it = view
            .findings
            .iter()
            .filter(|f| f.subject == Subject::Address(address));
        let found: BTreeSet<Code> = about_it.map(|finding| finding.code).collect();

        let expected = of_address(address);
        assert!(
            found.is_subset(&expected),
            "{address}: {found:?} {expected:?} at {}",
            store.location()
        );
        assert!(
            found == expected || !view.partly_read.is_empty(),
            "{address}: {found:?} {expected:?}"
        );
        if expected.contains(&Code::DuplicateAddress) {
            let is_seen = found.contains(&Code::DuplicateAddress);
            clashes.push(is_seen);
            // An API server finds all pods with the address. In etcd, only a node's pods in the namespaces that the
            // records name are found.
            assert!(
                is_seen || narrow.datastore == DatastoreKind::Etcd,
                "{address} at {}",
                store.location()
            );
        }
        assert_eq!(view.partly_read.is_empty(), !store.is_live(), "{address}");
    }
    assert!(clashes.contains(&true), "{clashes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_needs_no_more_than_it_says() {
    let cluster = Cluster::all_faults(ClusterSpec::new(5).at(Timestamp::now()), 1);
    let etcd = Etcd::of(&cluster).unwrap();
    let live = open(datastore::etcd(etcd.endpoint())).await;
    views_agree(&live).await;

    let folder = TempDir::new().unwrap();
    let (export, saved) = (
        folder.path().join("export.jsonl.zst"),
        folder.path().join("snapshot.db"),
    );
    live.export(&export, &quiet()).await.unwrap();
    views_agree(&open_file(&export).await.unwrap()).await;
    etcd.save_snapshot(&saved).unwrap();
    views_agree(&open_file(&saved).await.unwrap()).await;
}
