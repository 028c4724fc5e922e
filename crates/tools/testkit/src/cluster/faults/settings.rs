//! Settings of the cluster.

use std::net::IpAddr;

use serde_json::json;

use crate::cluster::wire::{Block, key};
use crate::cluster::{Cluster, Form};

pub(super) fn locked(cluster: &mut Cluster) {
    cluster.set_information("datastoreReady", false);
    cluster.expect("datastore-locked", "default");
}

pub(super) fn auto_allocation_off(cluster: &mut Cluster) {
    cluster.change_settings(&json!({"autoAllocateBlocks": false}));
    cluster.expect("auto-allocation-off", "default");
}

/// Empties the allocator's configuration. A field that is absent from an existing value is false in etcd (facts 1.6).
pub(super) fn empty(cluster: &mut Cluster) {
    auto_allocation_off(cluster);
    cluster.change_settings(&json!({"ipCooldownSeconds": null}));
    cluster.put_json(key::IPAM_CONFIG, json!({}));
}

pub(super) fn mismatch(cluster: &mut Cluster) {
    let cooldown = cluster.spec.cooldown_seconds + 30;
    cluster.mirrored_settings()["spec"]["ipCooldownSeconds"] = cooldown.into();
    // In Kubernetes, the two settings are one object.
    cluster.expect_in(&Form::IN_ETCD, "configuration-mismatch", "default");
}

/// Turns on strict affinity. Expects a finding for every address that is used on a node other than the block's owner.
pub(super) fn strict(cluster: &mut Cluster) {
    cluster.change_settings(&json!({"strictAffinity": true}));
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
