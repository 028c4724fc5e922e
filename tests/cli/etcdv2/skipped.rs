//! The cases that the rebuild scripts of Calico 2.0 skipped (facts 6.6). They are rebuilt here, or skipped with a
//! reason.

use std::net::Ipv4Addr;

use calipam_testkit::calico2::{block_key, endpoint_key, handle_key};
use serde_json::{Value, json};

use super::{FIRST, SECOND, Site};
use crate::cli::program::Runs;

/// Another block of the first host.
const THIRD: Ipv4Addr = Ipv4Addr::new(192, 168, 3, 0);

/// Plans a rebuild, and lists the objects that it skips as `reason subject`.
fn skipped(site: &Site) -> Vec<String> {
    let document = site.rebuild(&["-o", "json"]).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let line = |s: &Value| [&s["reason"], &s["subject"]["name"]].map(text).join(" ");
    document["skipped"].as_array().unwrap().iter().map(line).collect()
}

#[test]
fn cases_that_the_scripts_skipped_have_a_reason() {
    let Some(site) = Site::start() else { return };
    let client = site.calico.client;
    assert_eq!(skipped(&site), [""; 0]);
    let tunnel = |host: &str| format!("/calico/v1/host/{host}/config/IpInIpTunnelAddr");

    client.delete(&tunnel("node-1")).unwrap();
    assert_eq!(skipped(&site), ["tunnel-address-not-set 192.168.1.0"]);
    // A host's tunnel address is in the other host's block: first that of node-1, above its own block, and then that of
    // node-2, below its own block.
    client.set(&tunnel("node-1"), "192.168.2.9").unwrap();
    let reasons = [
        "tunnel-address-too-high 192.168.1.0",
        "tunnel-address-too-high 192.168.2.9",
    ];
    assert_eq!(skipped(&site), reasons);
    client.set(&tunnel("node-1"), "192.168.1.0").unwrap();
    client.set(&tunnel("node-2"), "192.168.1.9").unwrap();
    let reasons = [
        "tunnel-address-too-low 192.168.1.9",
        "tunnel-address-too-low 192.168.2.0",
    ];
    assert_eq!(skipped(&site), reasons);

    // As `calicoctl delete node` of Calico 2.x did.
    client.delete("/calico/v1/host/node-2").unwrap();
    assert_eq!(skipped(&site), ["node-unknown 192.168.2.0"]);
}

#[test]
fn a_block_without_affinity_and_one_apart_from_the_tunnel_are_rebuilt() {
    let Some(site) = Site::start() else { return };
    let client = site.calico.client;
    let mut block = client.json(&block_key(SECOND)).unwrap();
    block.as_object_mut().unwrap().remove("affinity");
    client.set(&block_key(SECOND), &block.to_string()).unwrap();
    client
        .delete("/calico/ipam/v2/host/node-2/ipv4/block/192.168.2.0-26")
        .unwrap();
    client.add_block("node-1", THIRD).unwrap();
    for (host, pod, address) in [
        ("node-2", "default.of-ownerless", "192.168.2.40"),
        ("node-1", "default.of-first", "192.168.1.40"),
        ("node-1", "default.of-third", "192.168.3.40"),
    ] {
        client.set_endpoint(host, pod, &[address]).unwrap();
    }

    let output = site.home.path().join("output");
    site.rebuild(&["--apply", "--yes", "--output-dir", output.to_str().unwrap()])
        .succeeded();
    for (block, pod) in [
        (SECOND, "default.of-ownerless"),
        (FIRST, "default.of-first"),
        (THIRD, "default.of-third"),
    ] {
        let value = client.json(&block_key(block)).unwrap();
        let index = value["allocations"][40]
            .as_u64()
            .unwrap_or_else(|| panic!("{value}"));
        assert_eq!(value["attributes"][index as usize]["handle_id"], pod, "{value}");
    }
    // Both blocks of the host are in its file.
    let text = std::fs::read_to_string(output.join("node-1.json")).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    site.is_healthy();
}

#[test]
fn a_handle_that_leaks_in_two_blocks_takes_one_run() {
    let Some(site) = Site::start() else { return };
    let client = site.calico.client;
    let before = site.dump();
    for host in ["node-1", "node-2"] {
        client.assign(host, "default.twice").unwrap();
        client.start_pod(host, "default.moved").unwrap();
        client.delete(&endpoint_key(host, "default.moved")).unwrap();
    }
    let count = json!({"block": {"192.168.1.0/26": 1, "192.168.2.0/26": 1}});
    assert_eq!(client.json(&handle_key("default.twice")).unwrap(), count);
    let leaked = site.dump();
    site.release(&["--leaked"]).succeeded();
    site.is_healthy();
    for handle in ["default.twice", "default.moved"] {
        assert!(client.get(&handle_key(handle)).unwrap().is_none(), "{handle}");
    }
    site.undo_to(&leaked);
    // A rebuild also frees the leaked addresses.
    // The exit code may be 1, since the plan also reports that the handle is shared.
    site.rebuild(&["--apply", "--yes"]).completed();
    site.is_healthy();
    let after = site.dump();
    let handles = [&before, &after].map(|dump| dump.keys().filter(|key| key.contains("/handle/")));
    let [before, after] = handles.map(|keys| keys.collect::<Vec<_>>());
    assert_eq!(after, before);
}
