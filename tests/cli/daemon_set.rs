//! The DaemonSet of the plugin's installer: `docs/kubernetes/cni`.

use serde_json::json;

use super::scheduled::{PLUGIN, documents};

#[test]
fn the_daemon_set_of_the_plugin_fits_its_installer() {
    let [account, role, binding] = &documents("cni/rbac.yaml")[..] else { panic!("three objects") };
    assert_eq!(role["rules"], json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]));
    assert_eq!(binding["subjects"][0]["name"], account["metadata"]["name"]);
    let [set] = &documents("cni/daemonset.yaml")[..] else { panic!("one object") };
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    assert_eq!(set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], 1);

    let container = &pod["containers"][0];
    let kustomization = &documents("cni/kustomization.yaml")[0];
    let image = kustomization["images"][0]["name"].as_str().unwrap();
    assert_eq!(container["image"], format!("{image}:latest"));
    assert_eq!(kustomization["resources"], json!(PLUGIN.map(|name| name.trim_start_matches("cni/"))));
    // Each folder in the arguments is mounted, and is the folder of the same path on the node.
    let args: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    let mounts = container["volumeMounts"].as_array().unwrap();
    let volumes = pod["volumes"].as_array().unwrap();
    for (option, writes) in [("--bin-dir=", false), ("--conf-dir=", true)] {
        let folder = args.iter().find_map(|arg| arg.strip_prefix(option)).unwrap();
        let mount = mounts.iter().find(|mount| mount["mountPath"] == folder).unwrap();
        assert_eq!(mount.get("readOnly"), writes.then_some(&json!(true)));
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert!(folder.ends_with(volume["hostPath"]["path"].as_str().unwrap()), "{folder}");
    }
    let port = container["ports"][0]["containerPort"].to_string();
    assert!(args.iter().any(|arg| arg.starts_with("--listen=") && arg.ends_with(&format!(":{port}"))));
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/healthz");
}
