//! The configuration of the allocator.

use calipam_model::config::IpamConfig;
use calipam_testkit::operator::set_config;

use crate::cluster::Cluster;
use crate::run;

const PATH: &str = "/calico/ipam/v2/config";

#[test]
fn without_a_configuration_nodes_claim_blocks_and_borrow_and_none_is_written() {
    let cluster = Cluster::new(&[]);
    let config = run(cluster.allocator().config()).unwrap();
    assert_eq!(
        (config.auto_allocate_blocks, config.strict_affinity),
        (true, false)
    );
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
        run(set_config(&cluster.allocator(), set)).unwrap();
        let config = run(cluster.allocator().config()).unwrap();
        assert_eq!(
            (config.auto_allocate_blocks, config.strict_affinity),
            (false, true)
        );
    }
}

/// Sets a configuration, and expects an error and no write.
fn refused(change: impl FnOnce(&mut IpamConfig), expected: &str) {
    let cluster = Cluster::new(&[]);
    let error = run(set_config(&cluster.allocator(), change))
        .unwrap_err()
        .to_string();
    assert_eq!(error, expected);
    assert_eq!(cluster.store.value(PATH), None);
}

#[test]
fn settings_that_exclude_each_other_are_refused() {
    let text = "Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time";
    refused(|config| config.auto_allocate_blocks = false, text);
    let text = "MaxBlocksPerHost requires StrictAffinity to be enabled";
    refused(|config| config.max_blocks_per_host = 2, text);
}
