//! The configuration of the allocator.

use calipam_model::config::IpamConfig;
use calipam_testkit::operator::Operator as _;

use super::cluster::Cluster;
use crate::run;

const PATH: &str = "/calico/ipam/v2/config";

#[test]
fn without_a_configuration_nodes_claim_blocks_and_borrow() {
    let config = run(Cluster::new(&[]).allocator().config()).unwrap();
    assert_eq!((config.auto_allocate_blocks, config.strict_affinity), (true, false));
}

#[test]
fn reading_the_configuration_does_not_write_it() {
    let cluster = Cluster::new(&[]);
    run(cluster.allocator().config()).unwrap();
    assert_eq!(cluster.store.value(PATH), None);
}

#[test]
fn a_configuration_that_is_set_is_read_again() {
    let set = |config: &mut IpamConfig| {
        (config.auto_allocate_blocks, config.strict_affinity) = (false, true);
    };
    let with_one = Cluster::new(&[]);
    with_one.affinity_is_strict(false);
    for cluster in [Cluster::new(&[]), with_one] {
        run(cluster.allocator().set_config(set)).unwrap();
        let config = run(cluster.allocator().config()).unwrap();
        assert_eq!((config.auto_allocate_blocks, config.strict_affinity), (false, true));
    }
}

/// Sets a configuration, and expects an error and no write.
fn refused(change: impl FnOnce(&mut IpamConfig), expected: &str) {
    let cluster = Cluster::new(&[]);
    let error = run(cluster.allocator().set_config(change)).unwrap_err().to_string();
    assert_eq!(error, expected);
    assert_eq!(cluster.store.value(PATH), None);
}

#[test]
fn strict_affinity_and_automatic_allocation_cannot_both_be_off() {
    let text = "Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time";
    refused(|config| config.auto_allocate_blocks = false, text);
}

#[test]
fn a_limit_of_blocks_needs_strict_affinity() {
    refused(
        |config| config.max_blocks_per_host = 2,
        "MaxBlocksPerHost requires StrictAffinity to be enabled",
    );
}
