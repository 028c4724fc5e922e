//! An address with a second owner on another node and in another namespace. The keys of etcd do not show which
//! endpoints use the address.

use calipam_testkit::cluster::wire::Tunnel;

use super::site::*;

#[test]
fn a_second_owner_is_found_anywhere_and_its_restart_is_recommended() {
    let mut cluster = healthy();
    let (recorded, other) = (cluster.add_pod_on(0), cluster.add_pod_on(2));
    let address = recorded.address();
    cluster.add_address(&other.endpoint, address);
    let site = Site::of(&cluster);

    let (name, pod) = (
        format!("{}/{}", other.name.namespace, other.name.pod),
        &other.name.pod,
    );
    let view = site
        .run(&["show", "--ip", &address.to_string(), "-o", "json"])
        .json();
    let owners = view["owners"]
        .as_array()
        .unwrap()
        .iter()
        .map(|owner| owner["pod"].clone());
    assert!(
        owners.collect::<Vec<_>>().contains(&name.as_str().into()),
        "{view}"
    );
    let finding = &view["findings"][0];
    let whose = format!("{}/{}", recorded.name.namespace, recorded.name.pod);
    assert_eq!(finding["code"], "duplicate-address");
    let message = finding["message"].as_str().unwrap();
    assert!(
        message.ends_with(&format!(", and recorded for {whose}")),
        "{finding}"
    );
    let restart = format!("kubectl delete pod --namespace {} {pod}", other.name.namespace);
    assert_eq!(finding["repair"], *restart);
    site.run(&["check", "--settle", "0"]).prints(&format!(
        "for another owner: `{restart}` (cannot be tried in advance)\n"
    ));
    // The history reads only the endpoints that records name, as look-ups do.
    site.run(&["history", "--ip", &address.to_string()])
        .prints(&format!("pod {whose} on "));
}

/// Returns the command for a restart that a check recommends for the only duplicate address.
fn restart(cluster: &Cluster) -> String {
    let site = Site::of(cluster);
    let report = site
        .run(&[
            "check",
            "-o",
            "json",
            "--settle",
            "0",
            "--rule",
            "duplicate-address",
        ])
        .json();
    report["findings"][0]["repair"].as_str().unwrap().to_owned()
}

#[test]
fn the_unrecorded_one_of_a_pod_and_a_tunnel_is_restarted() {
    let mut cluster = healthy();
    let (pod, node) = (cluster.add_pod_on(0), cluster.add_pod_on(1).node);
    let mut of_pod = cluster.clone();
    of_pod.set_tunnel(&node, Tunnel::Ipip, &pod.address().to_string());
    let selected = "kubectl delete pod --all-namespaces --selector k8s-app=calico-node";
    assert_eq!(
        restart(&of_pod),
        format!("{selected} --field-selector spec.nodeName={node}")
    );

    let tunnel = cluster.tunnel(&node, Tunnel::Ipip).unwrap();
    cluster.add_address(&pod.endpoint, tunnel);
    let named = format!("--namespace {} {}", pod.name.namespace, pod.name.pod);
    assert_eq!(restart(&cluster), format!("kubectl delete pod {named}"));
}

/// The address is recorded for neither of two pods, so one of them has to take another one.
#[test]
fn one_of_two_users_without_a_record_is_restarted() {
    let cluster = healthy().with(Fault::DuplicateUnrecorded, 1);
    let restart = restart(&cluster);
    assert!(
        restart.starts_with("kubectl delete pod --namespace "),
        "{restart}"
    );
    let why = "give one of the users another address, since this one is recorded for none of them";
    Site::of(&cluster)
        .run(&["check", "--settle", "0"])
        .prints(&format!("{why}: `{restart}` (cannot be tried in advance)"));
}
