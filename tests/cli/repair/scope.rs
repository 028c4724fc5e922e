//! Names of nodes, pools and namespaces narrow a release, and hints do not cover more than the call.

use super::site::*;
use crate::cli::program::items;

/// Creates a healthy cluster with leaked pods on two nodes, in several namespaces.
fn with_leaks() -> (Cluster, Vec<Pod>) {
    let mut cluster = healthy();
    let pods: Vec<Pod> = (0..6).map(|number| leak(&mut cluster, number % 2)).collect();
    let namespaces: BTreeSet<&str> = pods.iter().map(|pod| pod.name.namespace).collect();
    assert!(namespaces.len() > 1, "{namespaces:?}");
    (cluster, pods)
}

fn releases<'p>(pods: impl IntoIterator<Item = &'p Pod>) -> BTreeSet<String> {
    of_pods("release-address", pods)
}

/// Plans a release, and returns changes and skipped objects.
fn planned(site: &Site, targets: &[&str]) -> (BTreeSet<String>, BTreeSet<String>) {
    let run = site.run_at_once(&["release", "--dry-run", "-o", "json"], targets);
    let releases = changes(&run.json())
        .into_iter()
        .filter(|change| change.starts_with("release-address "));
    (releases.collect(), skips(&run.json()))
}

#[test]
fn names_narrow_what_is_released_and_exclude_other_named_objects() {
    let (cluster, pods) = with_leaks();
    let site = Site::of(&cluster);
    let nodes = [0, 1].map(|node: usize| cluster.nodes()[node].name.as_str());
    let (own, all) = (
        |node: &str| releases(pods.iter().filter(|pod| pod.node == node)),
        releases(&pods),
    );
    assert_eq!(planned(&site, &["--leaked"]), (all.clone(), BTreeSet::new()));
    assert_eq!(
        planned(&site, &["--leaked", "--node", nodes[0]]),
        (own(nodes[0]), BTreeSet::new())
    );
    let found = planned(&site, &["--leaked", "--node", nodes[0], "--node", nodes[1]]).0;
    assert_eq!(found, all, "one kind adds up");
    let pattern = format!("{}*", &nodes[0][..nodes[0].len() - 1]);
    assert_eq!(planned(&site, &["--leaked", "--node", &pattern]).0, all);

    for namespace in pods.iter().map(|pod| pod.name.namespace).collect::<BTreeSet<_>>() {
        let of = |pod: &&Pod| pod.name.namespace == namespace;
        assert_eq!(
            planned(&site, &["--leaked", "-n", namespace]).0,
            releases(pods.iter().filter(of))
        );
        let both = |pod: &&Pod| of(pod) && pod.node == nodes[1];
        let found = planned(&site, &["--leaked", "-n", namespace, "--node", nodes[1]]).0;
        assert_eq!(found, releases(pods.iter().filter(both)), "{namespace}");
    }

    // A report narrows a release to its contents. Names of nodes and namespaces narrow it further.
    let report = site.home.path().join("report.json");
    std::fs::write(&report, site.run_at_once(&["check", "-o", "json"], &[]).stdout).unwrap();
    let reported = |more: &[&str]| {
        planned(
            &site,
            &[&["--from-report", report.to_str().unwrap()], more].concat(),
        )
        .0
    };
    assert_eq!(reported(&[]), all);
    assert_eq!(reported(&["--node", nodes[1]]), own(nodes[1]));
    assert_eq!(reported(&["--orphan-handles"]), BTreeSet::new());

    let [first, second] = [&pods[0], &pods[1]];
    let address = second.address().to_string();
    let other_block = first.block().to_string();
    for others in [
        ["--node", &*first.node],
        ["--handle", &first.handle],
        ["--pool", &other_block],
    ] {
        let found = planned(&site, &[&["--ip", &address], &others[..]].concat());
        assert_eq!(
            found,
            (BTreeSet::new(), set([format!("out-of-scope {address}")])),
            "{others:?}"
        );
    }
    assert_eq!(
        planned(&site, &["--handle", &second.handle, "--node", &second.node]).0,
        releases([second])
    );
    // Only one of the two addresses of the pod is in the pool, and a handle is released completely or not at all.
    let pool = second.block().to_string();
    let found = planned(&site, &["--handle", &second.handle, "--pool", &pool]);
    assert_eq!(found.0, BTreeSet::new(), "{found:?}");
    assert!(found.1.contains(&format!("handle-held {address}")), "{found:?}");

    for scope in [["--pool", &*pool], ["--namespace", "default"]] {
        site.release(&scope).refused(2, "specify what to release");
    }

    site.release(&["--leaked", "--node", nodes[0]]).succeeded();
    assert_eq!(
        planned(&site, &["--leaked"]).0,
        own(nodes[1]),
        "no other node lost anything"
    );

    // A namespace that nothing names is an error.
    let known = pods[1].name.namespace;
    let typo = format!("{}x", &known[..known.len() - 1]);
    for command in [vec!["check"], vec!["release", "--leaked"]] {
        let told =
            format!("error: namespace \"{typo}\" not found: no pod, endpoint, service or record names it\n");
        let run = site
            .run(&[&command[..], &["-n", &typo, "--settle", "0"]].concat())
            .refused(1, &told);
        run.says(&format!("hint: did you mean `{known}`?"));
    }
    // The namespace `kube-public` exists in every cluster, even if it has no pods.
    site.run(&["check", "-n", "kube-public", "--settle", "0"])
        .succeeded()
        .prints("No findings");
    site.run(&["check", "--node", "node-O", "--settle", "0"])
        .failed(1, "hint: did you mean `node-");
}

#[test]
fn a_pool_narrows_the_release_of_a_deleted_node() {
    let cluster = healthy().with(Fault::NodeGone, 1);
    let gone = cluster.nodes().last().unwrap().clone();
    let site = Site::of(&cluster);
    let plan = |more: &[&str]| {
        changes(
            &site
                .run_at_once(
                    &["release", "--dry-run", "-o", "json", "--node", &gone.name],
                    more,
                )
                .json(),
        )
    };
    let owned = |plan: &BTreeSet<String>| {
        gone.blocks
            .iter()
            .filter(|block| plan.contains(&format!("set-block-owner {block}")))
            .count()
    };
    let everything = plan(&[]);
    assert_eq!(owned(&everything), 2, "{everything:?}");
    let in_one = plan(&["--pool", &gone.blocks[0].to_string()]);
    assert!(in_one.is_subset(&everything) && owned(&in_one) == 1, "{in_one:?}");
    assert!(
        in_one.contains(&format!("set-block-owner {}", gone.blocks[0])),
        "{in_one:?}"
    );
    // Namespaces and `--leaked` exclude the blocks of the node, since a block has no namespace and is not a leaked
    // address.
    for narrowed in [["-n", "default"].as_slice(), &["--leaked"]] {
        let found = plan(narrowed);
        assert!(owned(&found) == 0, "{found:?}");
        assert!(
            found.iter().all(|change| change.starts_with("release-address ")),
            "{found:?}"
        );
    }
}

#[test]
fn hints_name_no_more_than_the_call() {
    let mut cluster = Cluster::example();
    leak(&mut cluster, 0);
    let site = Site::of(&cluster);
    let all = site.findings(&[]);
    for scope in [
        "--node node-1",
        "--node node-1?",
        "--namespace default",
        "--pool default-ipv4-ippool",
    ] {
        let scope_words: Vec<&str> = scope.split(' ').collect();
        let check = site.run(&[&["check", "--settle", "0", "--grace", "0"], &scope_words[..]].concat());
        let found = site.findings(&scope_words);
        assert!(!found.is_empty() && found.len() < all.len(), "{scope}: {found:?}");
        let hints = check
            .stdout
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|line| line.replace('\'', ""));
        let repairs: Vec<String> = hints
            .filter(|line| line.contains(" release ") || line.contains(" rebuild "))
            .collect();
        assert!(!repairs.is_empty(), "{check:?}");
        for line in repairs {
            let mut words: Vec<&str> = line.split(' ').skip(1).chain(["-o", "json"]).collect();
            words.extend(line.contains(" release ").then_some("--dry-run"));
            let plan = site.run(&[&words[..], &AT_ONCE].concat()).completed();
            if line.contains(" rebuild ") {
                assert!(
                    line.contains(" --block ") || line.ends_with(scope),
                    "{scope}: {line}"
                );
                continue;
            }
            let plan = plan.json();
            let repaired = items(&plan["changes"])
                .iter()
                .flat_map(|change| items(&change["repairs"]));
            for finding in repaired.map(|finding| format!(" {}", finding.as_str().unwrap())) {
                assert!(
                    found.iter().any(|found| found.ends_with(&finding)),
                    "{line}: {finding}"
                );
            }
        }
    }
}
