//! `undo` creates nothing that overlaps later objects. It refuses the complete step instead.

use super::kubernetes::{KubeSite, in_each_group};
use super::site::*;

/// Creates an empty block of a node.
fn block(cidr: &str, node: &str) -> (IpNet, Vec<u8>) {
    let cidr: IpNet = cidr.parse().unwrap();
    (
        cidr,
        Block::new(cidr, Some(format!("host:{node}")), None, 1).value(),
    )
}

/// Undoes a run after a block was created, and expects a refusal that names the block. Without the block, the undo
/// succeeds.
fn refused(site: &Site, journal: &str, (cidr, value): (IpNet, Vec<u8>), reason: &str) {
    let path = key::block(cidr);
    site.put(&path, value);
    let before = site.dump();
    site.undo(journal)
        .exits(1)
        .prints(reason)
        .prints(&format!("block {cidr}"));
    assert_eq!(site.dump(), before);
    site.delete(&path);
    site.undo(journal).succeeded();
}

#[test]
fn a_deleted_block_does_not_come_back_over_a_block_of_another_size() {
    let (site, pod) = Site::leaky();
    // The block has no owner and no other addresses, so it is deleted with its last address.
    let (address, cidr) = pod.addresses[0];
    site.change_block(cidr, |block| {
        let record = block.record_mut(address).clone();
        let mut alone = Block::new(cidr, None, None, block.sequence);
        alone.take_ordinal(block.ordinal(address), record);
        *block = alone;
    });
    site.delete(&key::affinity("host", &pod.node, cidr));
    site.put(CONFIG, r#"{"auto_allocate_blocks":true}"#);
    let run = site.release(&["--handle", &pod.handle]).succeeded();
    assert_eq!(site.value(&key::block(cidr)), None, "{run:?}");

    let part = cidr.subnets(28).unwrap().nth(1).unwrap().to_string();
    refused(&site, &journal_of(&run), block(&part, "node-2"), "would overlap");
}

#[test]
fn a_deleted_affinity_does_not_come_back_for_a_block_that_was_created_since() {
    let cluster = healthy().with(Fault::AffinityPendingWithoutBlock, 1);
    let site = Site::of(&cluster);
    let before = site.dump();
    let rebuild = ["rebuild", "--apply", "--yes", "--endpoints-only", "-o", "json"];
    let run = site.run_at_once(&rebuild, &[]).succeeded();
    let after = site.dump();
    let gone = before
        .keys()
        .find(|key| key.contains("/host/") && !after.contains_key(*key))
        .unwrap();
    let cidr = &gone.rsplit('/').next().unwrap().replacen('-', "/", 1);
    refused(
        &site,
        &journal_of(&run),
        block(cidr, "node-2"),
        "was created since the run",
    );

    // Repeats the test with a block of another size.
    let site = Site::of(&cluster);
    let run = site.run_at_once(&rebuild, &[]);
    let part = cidr
        .parse::<IpNet>()
        .unwrap()
        .subnets(28)
        .unwrap()
        .next()
        .unwrap()
        .to_string();
    refused(&site, &journal_of(&run), block(&part, "node-2"), "would overlap");
}

#[test]
fn two_runs_over_one_block_are_undone_the_newer_one_first() {
    let mut cluster = healthy();
    let pods = [leak(&mut cluster, 0), leak(&mut cluster, 0)];
    let (_, cidr) = pods[0].addresses[0];
    assert_eq!(cidr, pods[1].addresses[0].1);
    let site = Site::of(&cluster);
    let before = site.dump();
    // The older journal is outside the default folder.
    let older = site.home.path().join("older.journal").display().to_string();
    site.release(&["--handle", &pods[0].handle, "--journal", &older])
        .succeeded();
    let newer = journal_of(&site.release(&["--handle", &pods[1].handle]));

    site.undo(&older).exits(1).prints("has changed since the run");
    site.undo(&newer).succeeded();
    site.run(&["undo", &older, "--dry-run"]).succeeded();
    site.undo(&older).succeeded();
    assert_eq!(values(&site.dump()), values(&before));

    // Repeats the test, but between the two undo runs, another client writes the value that is already stored.
    let [older, newer] = pods.map(|pod| journal_of(&site.release(&["--handle", &pod.handle])));
    site.undo(&newer).succeeded();
    site.put(&key::block(cidr), site.value(&key::block(cidr)).unwrap());
    let between = site.dump();
    site.undo(&older).exits(1).prints("has changed since the run");
    assert_eq!(site.dump(), between);
}

fn two_runs_over_one_block_are_undone(flavour: Flavour) {
    let mut cluster = healthy();
    let pods = [leak(&mut cluster, 0), leak(&mut cluster, 0)];
    let site = KubeSite::of(&cluster, flavour);
    let before = site.objects();
    let [older, newer] = pods.map(|pod| site.release(&["--handle", &pod.handle]).succeeded());
    site.undo(&journal_of(&newer)).succeeded();
    site.undo_to(&older, &before);
}

in_each_group!(two_runs_over_one_block_are_undone: on_kubernetes_classic, on_kubernetes_native);
