//! Settings of the cluster.

use std::net::IpAddr;

use crate::cluster::wire::{Block, IpamSettings, key};
use crate::cluster::{Cluster, Form};

pub(super) fn locked(cluster: &mut Cluster) {
    cluster.put_ready(false);
    cluster.expect("datastore-locked", "default");
}

pub(super) fn auto_allocation_off(cluster: &mut Cluster) {
    cluster.settings.auto_allocate_blocks = false;
    cluster.mirrored.auto_allocate_blocks = false;
    cluster.put_settings();
    cluster.expect("auto-allocation-off", "default");
}

/// Empties the allocator's configuration. A field that is absent from an existing value is false in etcd (facts 1.6).
pub(super) fn empty(cluster: &mut Cluster) {
    cluster.mirrored =
        IpamSettings { auto_allocate_blocks: false, cooldown_seconds: 0, ..IpamSettings::default() };
    cluster.put_settings();
    cluster.put_raw(key::IPAM_CONFIG, "{}");
    cluster.expect("auto-allocation-off", "default");
}

pub(super) fn mismatch(cluster: &mut Cluster) {
    cluster.mirrored.cooldown_seconds += 30;
    cluster.put_settings();
    // In Kubernetes, the two settings are one object.
    cluster.expect_in(&Form::IN_ETCD, "configuration-mismatch", "default");
}

/// Turns on strict affinity. Expects a finding for every address that is used on a node other than the block's owner.
pub(super) fn strict(cluster: &mut Cluster) {
    cluster.settings.strict_affinity = true;
    cluster.mirrored.strict_affinity = true;
    cluster.put_settings();
    let borrowed: Vec<IpAddr> = cluster.blocks().flat_map(borrowed).collect();
    for address in borrowed {
        cluster.expect("borrowed-under-strict-affinity", address);
    }
}

fn borrowed(block: &Block) -> Vec<IpAddr> {
    let Some(host) = block.affinity.as_deref().and_then(|a| a.strip_prefix("host:")) else {
        return Vec::new();
    };
    // A machine keeps its address when it migrates.
    let elsewhere = block.records().filter(|(_, record)| {
        record.get("node").is_some_and(|node| node != host) && record.get("vmi-name").is_none()
    });
    elsewhere.map(|(address, _)| address).collect()
}
