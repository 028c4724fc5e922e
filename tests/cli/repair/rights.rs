//! The roles of `docs/kubernetes/rbac.yaml` on a real API server. Each role has all permissions that its commands need,
//! and the error about a missing permission names it.

use calipam_testkit::kube::{create, service_account_token};
use serde::Deserialize;

use super::kubernetes::{KubeSite, in_each_group};
use super::site::*;
use super::split::add_pool;
use crate::cli::program::root;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// The repairs, with `--lock` where it exists.
const REPAIRS: [&[&str]; 4] = [
    &[
        "release",
        "--leaked",
        "--orphan-handles",
        "--grace",
        "0",
        "--settle",
        "0",
        "--lock",
    ],
    &["rebuild", "--apply", "--grace", "0", "--settle", "0", "--lock"],
    &["split", "2", "--name", "p"],
    &["configure", "--strict-affinity", "true", "--lock"],
];

/// Returns a role of the documentation.
fn role(name: &str) -> Value {
    let text = std::fs::read_to_string(root().join("docs/kubernetes/rbac.yaml")).unwrap();
    let documents = serde_yaml::Deserializer::from_str(&text).map(|d| Value::deserialize(d).unwrap());
    let is_it = |object: &Value| object["kind"] == "ClusterRole" && object["metadata"]["name"] == name;
    documents.into_iter().find(is_it).expect(name)
}

/// A cluster with faults for each repair, and two service accounts: one that reads, and one that repairs.
struct Rights {
    site: KubeSite,
}

impl Rights {
    fn new(flavour: Flavour) -> Self {
        let mut cluster = healthy();
        for fault in [Fault::LeakedNoOwner, Fault::OrphanHandle, Fault::MissingHandle] {
            cluster.inject(fault, 2);
        }
        let site = KubeSite::of(&cluster, flavour);
        add_pool(&site, flavour);
        create(
            &site.server,
            ROLES,
            &[role("calipam-reader"), role("calipam-repairer")],
        )
        .unwrap();
        let rights = Self { site };
        rights.account("reader", &["calipam-reader"]);
        rights.account("repairer", &["calipam-reader", "calipam-repairer"]);
        rights.wait_until("reader", "list", "ipamblocks", true);
        rights.wait_until("repairer", "list", "ipamblocks", true);
        rights.wait_until("repairer", "update", "clusterinformations", true);
        rights
    }

    /// Creates a service account that has only these roles, and its kubeconfig.
    fn account(&self, name: &str, roles: &[&str]) {
        let server = &self.site.server;
        let token = service_account_token(server, name).unwrap();
        let admin = std::fs::read_to_string(server.kubeconfig()).unwrap();
        assert!(admin.contains(server.token()));
        std::fs::write(self.kubeconfig(name), admin.replace(server.token(), &token)).unwrap();
        let binding = |role: &&str| {
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": format!("{role}-{name}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]})
        };
        create(server, BINDINGS, &roles.iter().map(binding).collect::<Vec<_>>()).unwrap();
    }

    fn kubeconfig(&self, account: &str) -> PathBuf {
        self.site.home().join(account)
    }

    fn run(&self, account: &str, arguments: &[&str]) -> Run {
        Run::of(self.site.command_by(self.kubeconfig(account), arguments))
    }

    /// Waits until a change in the permissions of an account takes effect.
    fn wait_until(&self, account: &str, verb: &str, resource: &str, allowed: bool) {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": format!("system:serviceaccount:default:{account}"),
                "resourceAttributes": {"group": self.site.flavour.group(), "resource": resource, "verb": verb}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let begin = Instant::now();
        loop {
            let response = self
                .site
                .server
                .request("POST", path, &review.to_string())
                .unwrap();
            let answer: Value = serde_json::from_str(&response.body).unwrap();
            if answer["status"]["allowed"] == allowed {
                return;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "{account} {verb} {resource}: {answer}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Removes a permission of the repairer, or restores all of them.
    fn without(&self, missing: Option<(&str, &str)>) {
        let mut role = role("calipam-repairer");
        if let Some((resource, verb)) = missing {
            // Splits the rules by resource, so that the other verbs and resources keep their permissions.
            let mut apart = Vec::new();
            for rule in role["rules"].as_array().unwrap() {
                for one in rule["resources"].as_array().unwrap() {
                    let mut rule = rule.clone();
                    rule["resources"] = json!([one]);
                    rule["verbs"]
                        .as_array_mut()
                        .unwrap()
                        .retain(|other| one != resource || other != verb);
                    apart.push(rule);
                }
            }
            apart.retain(|rule| rule["verbs"] != json!([]));
            role["rules"] = apart.into();
        }
        let path = format!("{ROLES}/calipam-repairer");
        let response = self.site.server.request("PUT", &path, &role.to_string()).unwrap();
        assert_eq!(response.status, 200, "{}", response.body);
    }

    /// Returns the objects that a repair can change.
    fn objects(&self) -> Vec<Value> {
        let kinds = [
            "ipamblocks",
            "ipamhandles",
            "blockaffinities",
            "ippools",
            "clusterinformations",
        ];
        kinds
            .iter()
            .flat_map(|kind| self.site.list(kind).into_values())
            .collect()
    }
}

fn roles_are_enough_and_not_too_much(flavour: Flavour) {
    let rights = Rights::new(flavour);

    // The reader gets the same report as an administrator.
    let at_once = ["check", "-o", "json", "--settle", "0", "--grace", "0"];
    let (seen, all) = (rights.run("reader", &at_once), rights.site.run(&at_once));
    assert_eq!(
        (seen.code, seen.json()["findings"].clone()),
        (1, all.json()["findings"].clone())
    );
    assert_eq!(rights.run("reader", &["show", "-o", "json"]).code, 0);
    let export = rights.site.home().join("export.jsonl");
    assert_eq!(
        rights.run("reader", &["export", export.to_str().unwrap()]).code,
        0
    );

    // A repair by the reader changes nothing. An error names the missing permissions before the first write.
    let before = rights.objects();
    for repair in REPAIRS {
        let run = rights.run("reader", &[repair, &["--yes"]].concat());
        run.failed(3, "\nhint: add this to a ClusterRole of the user");
    }
    assert_eq!(rights.objects(), before);

    // If one permission of the role is missing, a repair names it. Together, the permissions that are named in this way
    // are exactly the role.
    let role = role("calipam-repairer");
    let list = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).unwrap();
    let mut tried = 0;
    for rule in role["rules"].as_array().unwrap() {
        for resource in list(&rule["resources"]) {
            let repair = match resource.as_str() {
                "ippools" => REPAIRS[2],
                "ipamconfigs" | "ipamconfigurations" if resource != flavour.ipam_config().0 => continue,
                "ipamconfigs" | "ipamconfigurations" => REPAIRS[3],
                _ => REPAIRS[0],
            };
            for verb in list(&rule["verbs"]) {
                rights.without(Some((&resource, &verb)));
                rights.wait_until("repairer", &verb, &resource, false);
                let group = flavour.group();
                let hint =
                    format!("\n- {{apiGroups: [\"{group}\"], resources: [\"{resource}\"], verbs: [{verb}]}}");
                rights
                    .run("repairer", &[repair, &["--yes"]].concat())
                    .failed(3, &hint);
                tried += 1;
            }
        }
    }
    assert_eq!(tried, 3 * 3 + 3 + 3 + 1);
    assert_eq!(rights.objects(), before);
    rights.without(None);
    rights.wait_until("repairer", "update", "clusterinformations", true);

    // With the complete role, each repair and its undo work.
    for repair in REPAIRS {
        let run = rights.run("repairer", &[repair, &["--yes"]].concat()).succeeded();
        rights
            .run("repairer", &["undo", &journal_of(&run), "--yes"])
            .succeeded();
    }
}

in_each_group!(
    roles_are_enough_and_not_too_much: roles_are_enough_and_not_too_much_classic,
    roles_are_enough_and_not_too_much_native
);
