//! States that users reported to Calico, rebuilt with data of our own: on lists of kubectl, on an API server and on etcd.

mod pools;
mod requests;
mod sandboxes;

use calipam_testkit::kube::{Flavour, Kinds, lease};
use serde_json::json;

use super::cases::no_pool_selects_a_node;
use super::lists::Lists;
use crate::cli::kube_cluster::connection;
use crate::cli::program::{self, Run, calipam};

/// The rules about addresses and requests. The states have no handle objects.
const RULES: &str = "node-without-addresses,pod-without-address,pool-nearly-full,pool-smaller-than-block,leaked-address,duplicate-address,owner-mismatch,unallocated-in-use,unrecorded-address,overlapping-pools,undecodable-object";

/// The ID of a container.
const SANDBOX: &str = "408373c78a71aea9a5dc80108dae9185a9faa6402c5b959b98e817ac7e398308";

/// A state with the expected findings, except information, and commands with exit code and a part of the output.
struct Case {
    name: &'static str,
    lists: Lists,
    findings: &'static [&'static str],
    answers: &'static [(&'static str, i32, &'static str)],
    /// The places besides lists.
    also_on: &'static [Place],
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Kubernetes,
    /// An etcd with pods from Kubernetes.
    Etcd,
}

impl Case {
    /// Lists what differs from the expectation.
    fn failures(&self, place: &str, run: impl Fn(&str) -> Run) -> Vec<String> {
        let report = run(&format!("check --rule {RULES} -o json --settle 0")).json();
        let found: Vec<String> = program::findings(&report, &["severity", "code", "name"]);
        let found: Vec<&String> = found
            .iter()
            .filter(|finding| !finding.starts_with("info "))
            .collect();
        let mut failures = Vec::new();
        if found != self.findings {
            failures.push(format!(
                "{}, {place}: {found:?}, expected {:?}",
                self.name, self.findings
            ));
        }
        for (line, code, says) in self.answers {
            let run = run(line);
            if run.code != *code || !run.stdout.contains(says) {
                failures.push(format!("{}, {place}: {says:?} is not in {run:?}", self.name));
            }
        }
        failures
    }
}

fn cases() -> Vec<Case> {
    vec![
        sandboxes::fixed_address_of_an_earlier_sandbox(),
        sandboxes::fixed_address_that_the_plugin_releases(),
        sandboxes::blank_annotations_of_running_pods(),
        sandboxes::addresses_without_a_record_of_their_own(),
        pools::pool_smaller_than_a_block(),
        pools::pool_with_an_impossible_block_size(),
        requests::pods_with_one_of_two_families(),
        requests::one_family_by_annotation(),
        pools::pool_that_is_not_allocatable(),
        pools::pool_for_some_pods_that_others_fill("v3.24.1"),
        pools::pool_for_some_pods_that_others_fill("v3.31.2"),
        requests::annotations_that_cannot_be_read(),
        pools::pods_after_a_reboot(),
        pools::pools_that_the_configuration_could_name(),
        requests::pods_of_another_plugin(),
        requests::floating_addresses(),
        requests::addresses_without_ipam("Pending"),
        requests::addresses_without_ipam("Running"),
        requests::names_of_no_pool(),
    ]
}

#[test]
fn each_case_wherever_the_data_is() {
    let server = lease(Kinds::Calico(Flavour::Classic)).unwrap();
    let kubernetes = |line: &str| calipam(&format!("{line} {}", connection(&server)));
    let kubeconfig = server.kubeconfig();
    let etcd = format!(
        "--etcd-endpoints {} --kubeconfig {}",
        server.etcd().endpoint(),
        kubeconfig.display()
    );
    let mut failures = Vec::new();
    for case in cases() {
        failures.extend(case.failures("lists", |line| case.lists.run(line)));
        if !case.also_on.is_empty() {
            case.lists.write_to(&server);
        }
        for place in case.also_on {
            failures.extend(match place {
                Place::Kubernetes => case.failures("API server", kubernetes),
                Place::Etcd => case.failures("etcd", |line| calipam(&format!("{line} {etcd}"))),
            });
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Everybody who counts addresses sees an outage: `check`, `explain`, `show` and the metrics.
#[test]
fn a_selector_that_matches_no_node_is_an_outage_everywhere() {
    let mut lists = no_pool_selects_a_node(false);
    lists.edit_each("IPPool", |pool| {
        pool["spec"]["nodeSelector"] = "zone == 'c'".into()
    });
    lists
        .run("check")
        .exits(1)
        .prints("critical  2 nodes get no further address: no pool selects the node");
    lists
        .run("explain --node n1")
        .exits(1)
        .prints("no pool selects the node");
    lists
        .run("show")
        .prints("zone-a: only pods that name the pool can get 3,838 of its 65,534 free addresses");
    lists
        .run("check -o prometheus")
        .prints("calipam_ippool_allocatable{cidr=\"10.50.0.0/16\",ippool=\"zone-a\"} 0")
        .prints("calipam_nodes_without_addresses 2");
}

/// Pods with the annotations of the Kubernetes datastore, beside an etcd that holds pools only.
#[test]
fn an_etcd_that_is_not_the_clusters() {
    let server = lease(Kinds::Calico(Flavour::Classic)).unwrap();
    let mut lists = Lists::of_pool("default", "192.168.0.0/16", json!({}));
    lists.block("10.244.1.0/26", "n1", 2);
    lists.edit_each("Pod", |pod| {
        pod["metadata"]["annotations"]["cni.projectcalico.org/containerID"] = SANDBOX.into();
    });
    lists.stuck("shop/new", "n1");
    lists.write_to(&server);
    server
        .etcd()
        .with_client(async |mut client| {
            let prefix = Some(etcd_client::DeleteOptions::new().with_prefix());
            for range in ["/calico/ipam/", "/calico/resources/v3/projectcalico.org/nodes/"] {
                client.delete(range, prefix.clone()).await?;
            }
            Ok(())
        })
        .unwrap();
    let kubeconfig = server.kubeconfig();
    let etcd = format!(
        "--etcd-endpoints {} --kubeconfig {}",
        server.etcd().endpoint(),
        kubeconfig.display()
    );
    let run = |line: &str| calipam(&format!("{line} {etcd}"));
    run("check --settle 0")
        .exits(3)
        .says("is not the cluster that uses this etcd")
        .says("or `--datastore kubernetes` if Calico keeps its data there");
}
