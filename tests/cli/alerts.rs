//! The alerts and the dashboard in `docs/kubernetes`.

use std::collections::BTreeSet;

use calipam_check::Code;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;
use serde_json::{Value, json};

use super::program::{items, on_example};
use super::scheduled::{documents, text};
use super::serve::Server;

/// Returns the alerting rules of the manifests.
pub(super) fn alerts() -> Vec<Value> {
    let objects = ["prometheus.yaml", "cni/prometheus.yaml"]
        .into_iter()
        .flat_map(documents);
    let rules = objects.filter(|object| object["kind"] == "PrometheusRule");
    rules
        .flat_map(|object| items(&object["spec"]["groups"][0]["rules"]).to_vec())
        .collect()
}

/// Reads the dashboard.
pub(super) fn dashboard() -> Value {
    serde_json::from_str(&text("kubernetes/grafana-dashboard.json")).unwrap()
}

/// Collects every `expr` in a document.
pub(super) fn expressions(tree: &Value, found: &mut Vec<String>) {
    match tree {
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| expressions(value, found));
        }
        _ => {}
    }
}

/// Returns the names of calipam's metrics in an expression.
fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    expression
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("calipam_"))
}

/// Returns the values with which an expression compares a label.
fn values<'e>(expression: &'e str, label: &str) -> Vec<&'e str> {
    let after = |operator: &str| {
        expression
            .split(&format!("{label}{operator}\""))
            .skip(1)
            .collect::<Vec<_>>()
    };
    let texts = [after("="), after("=~")].concat();
    texts
        .into_iter()
        .flat_map(|text| text.split('"').next().unwrap().split('|'))
        .collect()
}

#[test]
fn alerts_and_dashboard_use_metrics_that_the_program_prints() {
    let printed = on_example("check -o prometheus").stdout;
    // A server that follows an etcd has additional metrics. One of them has no value in the first hour.
    let etcd = Etcd::of(&Cluster::plain(ClusterSpec::new(32), 1, 1)).unwrap();
    let server = Server::start(&format!("--settle 0 --etcd-endpoints {}", etcd.endpoint()));
    let served = server
        .wait("/metrics", |answer| {
            answer.body.contains("calipam_ippool_assigned_total{")
        })
        .body;
    let names = |text: &str| -> BTreeSet<String> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect()
    };
    let names = &names(&printed) | &names(&served);
    let rules = documents("prometheus.yaml");

    for (tree, at_least) in [(&json!(rules), 7), (&dashboard(), 19)] {
        let mut found = Vec::new();
        expressions(tree, &mut found);
        assert!(found.len() >= at_least, "{found:?}");
        for expression in &found {
            assert!(metrics(expression).count() > 0, "{expression}");
            for metric in metrics(expression) {
                assert!(names.contains(metric), "{metric} in {expression}");
            }
            for code in values(expression, "code") {
                assert!(
                    Code::ALL.iter().any(|known| known.name() == code),
                    "{code} in {expression}"
                );
            }
            for (label, values) in ["state", "severity"].map(|label| (label, values(expression, label))) {
                for value in values {
                    assert!(
                        printed.contains(&format!("{label}=\"{value}\"")),
                        "{value} in {expression}"
                    );
                }
            }
        }
    }
    for alert in alerts() {
        assert!(
            alert["alert"].is_string() && alert["annotations"]["summary"].is_string(),
            "{alert}"
        );
    }
}
