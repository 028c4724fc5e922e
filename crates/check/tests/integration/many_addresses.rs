//! A pod or an endpoint that names thousands of addresses. Anyone who may create a pod can annotate it with so many
//! addresses. The time and output of a check must grow with the number of addresses, not with its square.

use std::net::IpAddr;
use std::sync::Arc;

use calipam_check::{AddressEvidence, Code, Evidence, Options, Report, check, drop_changed, suspects};
use calipam_model::pod::{Pod, PodParts};
use calipam_model::snapshot::{Revision, Snapshot, Source, Versioned};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::values;
use serde_json::{Value, json};

/// The maximum number of an owner's addresses that a finding about one of them lists.
const LISTED: usize = 16;

fn at(position: usize) -> String {
    format!("10.244.{}.{}", 64 + position / 256, position % 256)
}

/// A cluster with an endpoint of the pod `big` that names `count` addresses, none of which has a record.
fn endpoint_with(count: usize) -> Cluster {
    let mut cluster = Cluster::plain(ClusterSpec::new(5), 2, 2);
    let addresses: Vec<String> = (0..count).map(|position| at(position) + "/32").collect();
    let spec = json!({"node": "node-1", "orchestrator": "k8s", "pod": "big", "endpoint": "eth0",
        "containerID": "x".repeat(10_000), "ipNetworks": addresses});
    let key = "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--1-k8s-big-eth0";
    cluster.put_raw(key, json!({"spec": spec}).to_string());
    cluster
}

/// The cluster from [`endpoint_with`], with as many records of the pod for other addresses.
fn endpoint_and_records_with(count: usize) -> Cluster {
    let mut cluster = endpoint_with(count);
    let record = json!({"handle_id": "k8s-pod-network.0123456789abcdef", "secondary": {"namespace": "default",
        "pod": "big", "node": "node-1", "timestamp": "2020-01-01 10:00:00 +0000 UTC"}});
    for block in 0..count / 64 {
        let cidr = format!("10.244.{}.{}/26", 128 + block / 4, block % 4 * 64);
        let value = values::block(&cidr, "host:node-1", vec![record.clone(); 64]);
        cluster.put_raw(values::block_key(&cidr), value.to_string());
    }
    cluster
}

fn of_addresses(report: &Report, code: Code) -> Vec<&AddressEvidence> {
    let of_code = report.findings.iter().filter(|finding| finding.code == code);
    let evidence = of_code.map(|finding| match &finding.evidence {
        Evidence::Address(evidence) => &**evidence,
        other => panic!("{other:?}"),
    });
    evidence.collect()
}

fn size(report: &Report) -> usize {
    report
        .findings
        .iter()
        .map(|finding| serde_json::to_vec(finding).unwrap().len())
        .sum()
}

#[test]
fn twice_the_addresses_make_a_report_of_twice_the_size() {
    let checked = |count| check(&endpoint_and_records_with(count).snapshot(), &Options::default());
    let (half, whole) = (checked(512), checked(1024));
    for code in [Code::UnallocatedInUse, Code::LeakedAddress] {
        let found = of_addresses(&whole, code);
        assert_eq!(found.len(), 1024, "{code}");

        // All findings share one description of the owner, which lists only a few of its addresses.
        let owner = &found[0].owners[0];
        assert!(
            found
                .iter()
                .all(|evidence| Arc::ptr_eq(&evidence.owners[0], owner)),
            "{code}"
        );
        assert_eq!(
            (owner.fields.len(), owner.further_fields),
            (LISTED, 1024 - LISTED)
        );
        assert!(owner.container_id.len() < 1000);
        assert_eq!(
            serde_json::to_value(&**owner).unwrap()["furtherFields"],
            1024 - LISTED
        );
    }
    let (half, whole) = (size(&half), size(&whole));
    assert!(
        whole < half * 22 / 10,
        "{half} bytes for 512 addresses, {whole} for 1024"
    );
}

#[test]
fn an_owner_with_few_addresses_is_shown_with_all_of_them() {
    let report = check(&endpoint_with(LISTED).snapshot(), &Options::default());
    let found = of_addresses(&report, Code::UnallocatedInUse);
    let owner: Value = serde_json::to_value(&*found[0].owners[0]).unwrap();
    assert_eq!(owner["fields"].as_array().map(Vec::len), Some(LISTED));
    assert_eq!(owner.get("furtherFields"), None);
}

/// A snapshot of a small cluster with a pod whose annotations name `count` addresses.
fn pod_with(count: usize) -> Snapshot {
    let mut snapshot = Cluster::plain(ClusterSpec::new(5), 2, 2).snapshot();
    let addresses: Vec<String> = (0..count).map(at).collect();
    let (ips, networks) = (
        addresses.join(","),
        json!([{"ips": addresses, "default": true}]).to_string(),
    );
    let parts = PodParts {
        namespace: "default",
        name: "big",
        node: "node-1",
        phase: "Running",
        ready: true,
        cni_ips: Some(&ips),
        network_status: Some(&networks),
        ..PodParts::default()
    };
    let (value, defects) = Pod::new(&parts);
    assert_eq!((defects.len(), value.evidence().len()), (0, count));
    snapshot.mark_read([Source::Pods]);
    snapshot.endpoints.clear();
    snapshot.pods.push(Versioned {
        value,
        revision: Revision::Etcd(7),
    });
    snapshot
}

#[test]
fn findings_of_one_pod_settle_together() {
    let first = pod_with(1000);
    let unchanged = {
        let mut report = check(&first, &Options::default());
        assert!(suspects(&report).len() > 10);
        drop_changed(&mut report, &first, &first);
        report
    };
    assert_eq!(of_addresses(&unchanged, Code::UnallocatedInUse).len(), 1000);

    let mut report = unchanged;
    drop_changed(&mut report, &first, &pod_with(999));
    assert_eq!(
        of_addresses(&report, Code::UnallocatedInUse).len(),
        0,
        "the pod has changed"
    );
    let named: Vec<IpAddr> = first.pods[0].value.addresses().collect();
    assert_eq!((named[0].to_string(), named.len()), (at(0), 1000));
}
