//! Pools that select namespaces.

use std::collections::BTreeMap;

use calipam_assign::AutoAssign;
use serde_json::json;

use super::rows;
use crate::cluster::{Cluster, all_in, net, wants};

type Labels<'l> = &'l [(&'l str, &'l str)];

fn labels(labels: Labels<'_>) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Checks whether a pool with these selectors serves a pod, if the pod's node and namespace have these labels.
fn selected(node_selector: &str, selector: &str, node: Labels<'_>, namespace: Labels<'_>, expected: bool) {
    let cluster = Cluster::new(&[]);
    cluster.node("host-a", node);
    cluster.pool(
        "10.0.0.0/24",
        json!({"nodeSelector": node_selector, "namespaceSelector": selector}),
    );
    let request = AutoAssign {
        namespace_labels: Some(labels(namespace)),
        ..wants("host-a", 1)
    };
    match cluster.auto(&request) {
        Ok(assigned) => assert!(expected && assigned.addresses().count() == 1),
        Err(partly) => {
            let text = "no configured Calico pools for node host-a";
            assert_eq!((expected, partly.error.to_string().as_str()), (false, text));
        }
    }
}

const PRODUCTION: &str = "environment == 'production'";
const FRONTEND: &str = "environment == 'production' && tier == 'frontend'";
const WEST: &str = "zone == 'us-west'";

rows! { selected:
    without_a_selector_every_namespace_is_served("", "", &[], &[], true);
    without_a_selector_labels_do_not_matter("", "", &[], &[("environment", "test")], true);
    the_labels_match("", PRODUCTION, &[], &[("environment", "production")], true);
    the_labels_do_not_match("", PRODUCTION, &[], &[("environment", "development")], false);
    node_and_namespace_match(WEST, PRODUCTION, &[("zone", "us-west")], &[("environment", "production")], true);
    the_node_matches_and_the_namespace_does_not(WEST, PRODUCTION, &[("zone", "us-west")], &[("environment", "development")], false);
    the_namespace_matches_and_the_node_does_not(WEST, PRODUCTION, &[("zone", "us-east")], &[("environment", "production")], false);
    both_conditions_match("", FRONTEND, &[], &[("environment", "production"), ("tier", "frontend")], true);
    one_of_two_conditions_matches("", FRONTEND, &[], &[("environment", "production"), ("tier", "backend")], false);
    a_condition_with_in_matches("", "environment in {'production', 'staging'}", &[], &[("environment", "staging")], true);
    a_condition_with_has_matches("", "has(environment)", &[], &[("environment", "any")], true);
    a_label_is_missing("", PRODUCTION, &[], &[("team", "backend")], false);
    the_namespace_has_no_labels("", PRODUCTION, &[], &[], false);
    a_value_with_dashes_and_dots_matches("", "version == 'v1.2.3-beta'", &[], &[("version", "v1.2.3-beta")], true);
}

#[test]
fn pools_that_match_and_pools_without_a_selector_serve() {
    let cluster = Cluster::new(&[]);
    for (cidr, selector) in [
        ("10.0.0.0/30", PRODUCTION),
        ("10.1.0.0/30", "environment == 'development'"),
        ("10.2.0.0/30", ""),
    ] {
        cluster.pool(cidr, json!({"blockSize": 30, "namespaceSelector": selector}));
    }
    let namespace_labels = Some(labels(&[("environment", "production")]));
    let given = cluster.addresses(&AutoAssign {
        namespace_labels,
        ..wants("host-a", 12)
    });
    assert_eq!(given.len(), 8);
    assert!(
        all_in(&given[..4], "10.0.0.0/30") && all_in(&given[4..], "10.2.0.0/30"),
        "{given:?}"
    );
}

/// Expects an error, since a pool whose selector cannot be parsed is not skipped.
fn unreadable(selector: &str, says: &str) {
    let cluster = Cluster::new(&[]);
    cluster.pool("10.0.0.0/24", json!({"namespaceSelector": selector}));
    let error = cluster.refusal(&wants("host-a", 1));
    assert_eq!(error, says);
}

rows! { unreadable:
    a_selector_that_is_no_selector_is_an_error("invalid selector syntax [", "expected operator after label \"invalid\"");
    a_selector_with_an_unknown_operator_is_an_error("environment === 'production'", "expected ==");
}

#[test]
fn a_requested_pool_need_not_select_the_namespace() {
    let cluster = Cluster::new(&[]);
    cluster.pool("10.0.0.0/24", json!({"namespaceSelector": PRODUCTION}));
    let request = AutoAssign {
        pools_v4: vec![net("10.0.0.0/24")],
        namespace_labels: Some(labels(&[("environment", "development")])),
        ..wants("host-a", 1)
    };
    assert!(all_in(&cluster.addresses(&request), "10.0.0.0/24"));
    // Labels that are not known match no selector.
    assert_eq!(
        cluster.refusal(&wants("host-a", 1)),
        "no configured Calico pools for node host-a"
    );
}
