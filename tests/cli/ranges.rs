//! Look-ups and completion take as long in a large cluster as in a small one. etcd counts all keys of a range for its
//! answer, whatever the limit, so what counts is the ranges that they read.

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::{Asked, AskedRange, Etcd};
use etcd_client::GetOptions;

use super::completion::suggested;
use super::program::{calipam, on_etcd};

/// Enough blocks and nodes that a few stand for all of them.
const NODES: u32 = 600;
const PODS_OF_EACH: usize = 4;

/// Returns the number of keys in a range.
fn keys(etcd: &Etcd, range: &AskedRange) -> i64 {
    let counted = etcd.with_client(async |mut client| {
        let options = GetOptions::new().with_range(range.end.as_str()).with_count_only();
        client.get(range.start.as_str(), Some(options)).await
    });
    counted.unwrap().count()
}

#[test]
fn no_look_up_reads_a_range_that_grows_with_the_cluster() {
    let cluster = Cluster::plain(
        ClusterSpec::new(47).at(jiff::Timestamp::now()).wide(),
        NODES,
        PODS_OF_EACH,
    );
    let etcd = Etcd::of(&cluster).unwrap();
    let asked = Asked::of(&etcd).unwrap();
    let held = on_etcd(&etcd, "show --node node-1* -o json");
    let (address, handle) = (
        &held.column("addresses", "address")[0],
        &held.column("addresses", "handle")[0],
    );

    for line in [
        format!("show {address} --quick"),
        format!("show --ip {address} --quick -o json"),
        "show 192.0.2.7 --quick".to_owned(),
        format!("show --handle {handle} --quick"),
    ] {
        let run = calipam(&format!("{line} --etcd-endpoints {}", asked.url()));
        assert!([0, 1].contains(&run.code), "{run:?}");
        let ranges = asked.take();
        let unbounded: Vec<_> = ranges.iter().filter(|range| !range.is_bounded()).collect();
        assert!(
            !ranges.is_empty() && unbounded.is_empty(),
            "{line}: {unbounded:#?}"
        );
    }

    // An ID that is not there could be the beginning of one, which is searched as completion does: among the keys of
    // blocks, nodes and affinities (one of each family), but not of all handles or endpoints.
    let most = 2 * i64::from(NODES) + 50;
    let large = |ranges: &[AskedRange]| -> Vec<AskedRange> {
        ranges
            .iter()
            .filter(|range| keys(&etcd, range) > most)
            .cloned()
            .collect()
    };
    calipam(&format!(
        "show --handle no-such-handle --quick --etcd-endpoints {}",
        asked.url()
    ))
    .exits(1);
    let ranges = asked.take();
    assert!(
        !ranges.is_empty() && large(&ranges).is_empty(),
        "{:#?}",
        large(&ranges)
    );

    for line in [
        "check --node ",
        "check --namespace ",
        "rebuild --block ",
        "rebuild --pool ",
        "show --ip ",
        "show --handle ",
        "show --handle k8s",
        &format!("show --handle {}", &handle[..handle.len() - 2]),
    ] {
        let names = suggested(&format!("--etcd-endpoints {} {line}", asked.url()));
        let ranges = asked.take();
        assert!(!names.is_empty() && !ranges.is_empty(), "{line}: {ranges:?}");
        assert!(large(&ranges).is_empty(), "{line}: {:#?}", large(&ranges));
    }
}
