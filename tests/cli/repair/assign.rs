//! `assign`: assignments, refusals, and the explanations of `explain`.

use super::site::*;

/// Runs `assign` and agrees to everything.
pub(super) fn assign(site: &Site, arguments: &[&str]) -> Run {
    site.run(&[&["assign", "--yes", "-o", "json"], arguments].concat())
}

/// Returns the addresses that a plan assigns.
pub(super) fn assigned(plan: &Value) -> BTreeSet<String> {
    subjects(&changes(plan), "assign-address ")
}

/// Returns the findings that a check has for addresses whose user is unknown.
pub(super) fn unused(addresses: &BTreeSet<String>) -> BTreeSet<String> {
    addresses
        .iter()
        .map(|address| format!("warning leaked-address {address}"))
        .collect()
}

/// The first node of a healthy cluster.
const NODE: &str = "node-1";

/// Returns the addresses that blocks record for a handle.
fn held_by(site: &Site, handle: &str) -> BTreeSet<String> {
    let records = recorded(&site.dump());
    let held = records
        .iter()
        .filter(|(_, other)| other.as_deref() == Some(handle));
    held.map(|(address, _)| address.to_string()).collect()
}

#[test]
fn an_assignment_is_recorded_checked_and_undone() {
    let cluster = healthy();
    let free = cluster.spec().spare_block_v4(0);
    let named = free.hosts().nth(4).unwrap().to_string();
    let site = Site::of(&cluster);
    let before = site.dump();
    let owned = ["--handle", "printer", "--attribute", "note=a <b> & \"c\""];

    let plan = assign(&site, &[&["--count", "2", "--node", NODE], &owned[..]].concat())
        .succeeded()
        .json();
    assert_eq!(
        (&plan["kind"], assigned(&plan).len()),
        (&"AssignPlan".into(), 2),
        "{plan}"
    );
    assert!(changes(&plan).contains("create-handle printer"), "{plan}");

    // The block of this address does not exist yet.
    let run = assign(&site, &[&["--ip", &named, "--node", NODE], &owned[..]].concat()).succeeded();
    let run =
        run.says("note: the next check reports assigned addresses that nobody uses as `leaked-address`");
    let more = run.json();
    let expected = [
        format!("assign-address {named}"),
        format!("create-block {free}"),
        format!("create-affinity {NODE}/{free}"),
        "set-handle-counts printer".to_owned(),
    ];
    assert_eq!(changes(&more), set(expected));

    let now = recorded(&site.dump());
    for address in assigned(&plan).into_iter().chain(assigned(&more)) {
        assert_eq!(now[&address.parse().unwrap()].as_deref(), Some("printer"));
    }
    let bare = assign(&site, &["--count", "1", "--node", NODE]).succeeded();
    // The users of these addresses are unknown, but nothing else is wrong. `release --leaked` does not release them.
    let all: BTreeSet<String> = [&plan, &more, &bare.json()]
        .into_iter()
        .flat_map(assigned)
        .collect();
    assert_eq!(site.findings(&[]), unused(&all));
    let leaked = site.release(&["--leaked"]);
    assert!(
        leaked.code == 0 && recorded(&site.dump()).len() == now.len() + 1,
        "{leaked:?}"
    );

    // An undo restores the data, byte for byte except for sequence numbers. A handle is deleted with its addresses.
    for run in [&bare, &run] {
        site.undo(&journal_of(run)).succeeded();
    }
    site.release(&["--handle", "printer"]).succeeded();
    assert_eq!(recorded(&site.dump()), recorded(&before));
    let again = assign(&site, &[&["--ip", &named, "--node", NODE], &owned[..]].concat()).succeeded();
    let free_again = site.dump();
    site.undo(&journal_of(&again)).succeeded();
    assert_ne!(values(&site.dump()), values(&free_again));
    let keys = |entries: &Entries| entries.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&site.dump()), keys(&before));

    let untouched = site.dump();
    site.undo_to(
        &assign(&site, &[&["--count", "2", "--node", NODE], &owned[..]].concat()),
        &untouched,
    );
}

#[test]
fn a_refused_assignment_and_one_for_another_cluster_or_a_file_change_nothing() {
    let mut cluster = healthy();
    let pod = cluster.add_pod_on(0);
    let unrecorded = cluster.add_pod_on(0);
    for (address, block) in &unrecorded.addresses {
        cluster.free(*address, *block);
        cluster.count(&unrecorded.handle, *block, -1);
    }
    let (taken, used) = (pod.address().to_string(), unrecorded.address().to_string());
    let site = Site::of(&cluster);
    site.put_pool("closed", &json!({"cidr": "172.30.0.0/24", "disabled": true}));
    let before = site.dump();

    let cases: [(&[&str], i32, &[&str]); 12] = [
        (&["--ip", "192.0.2.1"], 1, &["outside-pools", "is in no pool"]),
        (
            &["--ip", "172.30.0.9"],
            1,
            &["outside-pools", "closed (172.30.0.0/24)", "it is disabled"],
        ),
        (
            &["--ip", &taken],
            1,
            &["already-assigned", &pod.handle, &pod.name.pod, "uses it"],
        ),
        (
            &["--ip", &used],
            1,
            &["in-use", &unrecorded.name.pod, "no block records it"],
        ),
        (
            &["--count", "1", "--pool", "nowhere"],
            1,
            &["pool \"nowhere\" not found", "lists the pools"],
        ),
        (
            &["--count", "1", "--pool", "10.9.0.0/16"],
            1,
            &["nothing is in 10.9.0.0/16", "lists the pools"],
        ),
        (&["--count", "1", "--handle", "a/b"], 1, &["handle-not-storable"]),
        (&["--count", "1", "--handle", ""], 1, &["handle-not-storable"]),
        (&["--count", "1", "--attribute", "novalue"], 2, &["KEY=VALUE"]),
        (
            &["--count", "1", "--attribute", "a=1", "--attribute", "a=2"],
            2,
            &["more than once"],
        ),
        (&["--count", "0"], 2, &["--count"]),
        (
            &["--count", "5", "--max-changes", "4"],
            1,
            &["more than the limit of 4"],
        ),
    ];
    for (arguments, code, says) in cases {
        let run = site
            .run(&[&["assign", "--yes", "--node", NODE], arguments].concat())
            .exits(code);
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(
            says.iter().all(|text| said.contains(text)),
            "{arguments:?} {says:?} {run:?}"
        );
        assert_eq!(site.dump(), before, "{arguments:?}");
    }
    let run = site
        .run(&["assign", "--yes", "--node", "no\u{1b}[2Jnode", "--count", "1"])
        .failed(1, "not found");
    assert!(!run.stderr.contains('\u{1b}'), "{run:?}");
    site.run(&["assign", "--node", NODE, "--count", "1"])
        .failed(2, "stdin is not a terminal");
    site.run(&["assign", "--node", NODE, "--count", "1", "--dry-run"])
        .succeeded()
        .prints("assign-address");
    assert_eq!(site.dump(), before);

    // Another cluster, and a file.
    let information = site.value(INFORMATION).unwrap();
    let assign_one = ["assign", "--count", "1", "--node", NODE];
    let asked = site.asked_while("[y/N] ", &assign_one, "y\n", || site.become_another_cluster());
    asked.exits(1).shows("cluster");
    site.put(INFORMATION, information);
    assert_eq!(values(&site.dump()), values(&before));
    let file = site.home.path().join("cluster.jsonl");
    let file = file.to_str().unwrap();
    site.run(&["export", file]).succeeded();
    let offline = |more| site.run(&[&assign_one[..], &["-d", file, more]].concat());
    offline("--yes").failed(2, "hint: ");
    offline("--dry-run").prints("assign-address");
    site.run(&["explain", "--node", NODE, "-d", file])
        .prints(" gets 10.");

    // An address in use is not chosen automatically either. Only `--force` assigns it.
    let all = assign(&site, &["--node", NODE, "--count", "60", "--dry-run"]).json();
    assert!(
        assigned(&all).len() == 60 && !assigned(&all).contains(&used),
        "{all}"
    );
    let forced = assign(
        &site,
        &[
            "--node",
            NODE,
            "--ip",
            &used,
            "--handle",
            &unrecorded.handle,
            "--force",
        ],
    );
    assert_eq!(
        (forced.code, assigned(&forced.json())),
        (0, set([&used])),
        "{forced:?}"
    );
    let warnings = forced.json()["warnings"].to_string();
    assert!(warnings.contains("assigning anyway"), "{warnings}");
}

#[test]
fn pools_that_the_allocator_does_not_use_need_force_and_overlapping_ones_are_planned_as_they_are_used() {
    let site = Site::healthy();
    let pool = |name: &str, spec: Value| site.put_pool(name, &spec);
    pool(
        "tunnels",
        json!({"cidr": "10.9.0.0/28", "blockSize": 30, "allowedUses": ["Tunnel"]}),
    );
    pool(
        "others",
        json!({"cidr": "10.9.1.0/28", "blockSize": 30, "nodeSelector": "zone == 'x'"}),
    );
    pool(
        "off",
        json!({"cidr": "10.9.2.0/28", "blockSize": 30, "disabled": true}),
    );
    pool(
        "mixed",
        json!({"cidr": "10.9.3.0/28", "blockSize": 30, "nodeSelector": "all()"}),
    );
    let block = "10.9.3.0/30".parse().unwrap();
    let of_services = Block::new(block, Some("virtual:load-balancer".into()), None, 1);
    site.put(&key::block(block), of_services.value());
    site.put(
        &key::affinity("virtual", "load-balancer", block),
        r#"{"state":"confirmed","deleted":false}"#,
    );

    for (address, says) in [
        ("10.9.0.1", "do not include Workload"),
        ("10.9.3.1", "for LoadBalancer services"),
    ] {
        let before = site.dump();
        let refused = assign(&site, &["--ip", address, "--node", NODE]);
        assert_eq!(
            (refused.code, skips(&refused.json())),
            (1, set([format!("needs-decision {address}")]))
        );
        assert!(
            refused.stdout.contains(says) && site.dump() == before,
            "{refused:?}"
        );
        let forced = assign(&site, &["--ip", address, "--node", NODE, "--force"]);
        assert_eq!(
            (forced.code, assigned(&forced.json())),
            (0, set([address])),
            "{forced:?}"
        );
        assert!(forced.json()["warnings"].to_string().contains(says), "{forced:?}");
    }
    let others = assign(&site, &["--ip", "10.9.1.1", "--node", NODE]);
    assert_eq!(
        (others.code, assigned(&others.json())),
        (0, set(["10.9.1.1"])),
        "{others:?}"
    );
    assert!(
        others.json()["warnings"]
            .to_string()
            .contains("does not select the node"),
        "{others:?}"
    );

    for (pool, says) in [
        ("off", "pool off (10.9.2.0/28): it is disabled"),
        ("10.9.9.0/28", "nothing is in 10.9.9.0/28"),
    ] {
        assign(&site, &["--count", "1", "--pool", pool, "--node", NODE])
            .exits(1)
            .prints(says);
    }

    // Like Calico's allocator, `assign` assigns addresses in overlapping pools. The plan names the consequences.
    site.put_pool("inner", &json!({"cidr": "172.30.0.0/24", "blockSize": 26}));
    site.put_pool("outer", &json!({"cidr": "172.30.0.0/16", "blockSize": 28}));
    let overlapping = || site.findings(&["--rule", "overlapping-pools"]).len();
    assert!(overlapping() > 0);
    for pool in ["outer", "inner"] {
        let wanted = ["--count", "2", "--node", NODE, "--pool", pool];
        let foretold = assigned(&assign(&site, &[&wanted[..], &["--dry-run"]].concat()).json());
        assert_eq!(foretold.len(), 2, "{foretold:?}");

        let run = assign(&site, &[&wanted[..], &["--handle", pool]].concat()).succeeded();
        assert_eq!(assigned(&run.json()), foretold);
    }
    assert!(overlapping() > 0 && site.findings(&["--rule", "overlapping-blocks"]).is_empty());
}

#[test]
fn a_full_pool_gives_what_it_has_and_a_reserved_address_can_be_named() {
    let site = Site::healthy();
    let tiny =
        json!({"cidr": "172.30.0.0/30", "blockSize": 30, "assignmentMode": "Manual", "vxlanMode": "Never"});
    site.put_pool("tiny", &tiny);
    let reservation = json!({"kind": "IPReservation", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "kept"}, "spec": {"reservedCIDRs": ["172.30.0.1/32"]}});
    site.put(&key::resource("ipreservations", "kept"), reservation.to_string());
    let owned = ["--node", NODE, "--handle", "vpn", "--attribute", "use=vpn"];

    let plan = assign(&site, &[&owned[..], &["--count", "6", "--pool", "tiny"]].concat())
        .exits(1)
        .json();
    assert_eq!(assigned(&plan), set(["172.30.0.0", "172.30.0.2", "172.30.0.3"]));
    assert_eq!(skips(&plan), set([format!("not-available {NODE}")]));
    let says = "3 of 6 addresses cannot be assigned: ";
    assert!(plan["skipped"][0]["detail"].as_str().unwrap().starts_with(says));

    let named = assign(&site, &[&owned[..], &["--ip", "172.30.0.1"]].concat()).succeeded();
    assert!(
        named.json()["warnings"]
            .to_string()
            .contains("is reserved by kept"),
        "{named:?}"
    );
    assert_eq!(
        recorded(&site.dump())[&"172.30.0.1".parse().unwrap()].as_deref(),
        Some("vpn")
    );
    let mut found = site.findings(&[]);
    found.retain(|line| !line.contains("pool-nearly-full"));
    assert_eq!(
        found,
        unused(&set(["172.30.0.0", "172.30.0.1", "172.30.0.2", "172.30.0.3"]))
    );
}

#[test]
fn an_explanation_names_each_pool_and_what_decided() {
    let site = Site::healthy();
    for (name, spec) in [
        ("closed", json!({"cidr": "172.30.1.0/24", "disabled": true})),
        (
            "elsewhere",
            json!({"cidr": "172.30.2.0/24", "nodeSelector": "zone == 'b'"}),
        ),
        (
            "manual",
            json!({"cidr": "172.30.3.0/24", "assignmentMode": "Manual"}),
        ),
        (
            "services",
            json!({"cidr": "172.30.4.0/24", "allowedUses": ["LoadBalancer"]}),
        ),
        (
            "team",
            json!({"cidr": "172.30.5.0/24", "namespaceSelector": "team == 'a'"}),
        ),
    ] {
        site.put_pool(name, &spec);
    }
    site.run(&[
        "configure",
        "--yes",
        "--strict-affinity=true",
        "--max-blocks-per-host=1",
    ])
    .succeeded();
    let before = site.dump();

    let explained = site
        .run(&["explain", "--node", NODE, "-o", "json"])
        .succeeded()
        .json();
    let decisions = explained["families"][0]["decisions"].as_array().unwrap();
    let line = |decision: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        [&decision["step"], &decision["detail"], &decision["keys"][0]]
            .map(text)
            .join(" ")
    };
    let lines: Vec<String> = decisions.iter().map(line).collect();
    let request = format!("request 1 IPv4 address requested {}", key::node(NODE));
    for (pool, reason) in [
        ("closed", "it is disabled"),
        (
            "elsewhere",
            "its nodeSelector does not select the node: zone == 'b'",
        ),
        (
            "manual",
            "its assignmentMode is Manual: it must be requested by name",
        ),
        ("services", "its allowedUses do not include Workload"),
        (
            "team",
            "its namespaceSelector does not select the namespace: team == 'a'",
        ),
    ] {
        let expected = format!("pool {pool}: skipped, {reason} {}", key::pool(pool));
        assert!(
            lines.contains(&request) && lines.contains(&expected),
            "{expected}: {lines:#?}"
        );
    }
    let own = healthy().nodes()[0].blocks[0].to_string();
    for step in ["own-block", "assign"] {
        let is_it = |d: &Value| d["step"] == step && d["subject"]["name"] == own;
        assert!(decisions.iter().any(is_it), "{step}: {lines:#?}");
    }
    let table = site.run(&["explain", "--node", NODE, "-o", "wide"]);
    assert!(
        table.stdout.starts_with(&format!("the next pod on {NODE} gets ")),
        "{table:?}"
    );
    assert!(table.stdout.contains("elsewhere: skipped"), "{table:?}");
    assert_eq!(site.dump(), before, "an explanation writes nothing");
}

#[test]
fn an_address_that_another_run_has_assigned_is_kept() {
    let site = Site::healthy();
    let slow = ["assign", "--count", "2", "--node", NODE, "--handle", "slow"];
    let quick = [
        "--count",
        "1",
        "--node",
        NODE,
        "--handle",
        "quick",
        "--attribute",
        "a=b",
    ];
    let mut others = BTreeSet::new();
    let shown = site.asked_while("[y/N] ", &slow, "y\n", || {
        others = assigned(&assign(&site, &quick).json())
    });
    shown.exits(1).shows("not done: ").shows("already allocated");
    assert_eq!(
        (held_by(&site, "slow"), held_by(&site, "quick")),
        (BTreeSet::new(), others.clone())
    );
    assert_eq!(site.findings(&[]), unused(&others));
}

#[test]
fn an_address_that_a_pod_uses_by_the_time_of_the_answer_is_not_assigned() {
    let mut cluster = healthy();
    let pod = cluster.add_pod_on(0);
    let endpoint = String::from_utf8(cluster.remove(&pod.endpoint).value()).unwrap();
    let free = cluster
        .spec()
        .spare_block_v4(0)
        .hosts()
        .nth(4)
        .unwrap()
        .to_string();
    let site = Site::of(&cluster);
    let mut before = None;
    let shown = site.asked_while(
        "[y/N] ",
        &["assign", "--ip", &free, "--node", &pod.node],
        "y\n",
        || {
            site.put(&pod.endpoint, endpoint.replace(&pod.address().to_string(), &free));
            before = Some(site.dump());
        },
    );
    shown
        .exits(1)
        .shows(&format!("{free} is used by"))
        .shows("nothing was changed");
    assert_eq!((Some(site.dump()), site.journals().len()), (before, 0));
}

#[test]
fn many_at_once_never_get_the_same_address() {
    let site = Site::healthy();
    let handles = [0, 1, 2, 3, 4].map(|number| format!("h{number}"));
    let ended = thread::scope(|scope| {
        let begun = handles.each_ref().map(|handle| {
            let arguments = [
                "--count",
                "3",
                "--node",
                NODE,
                "--handle",
                handle,
                "--attribute",
                "a=b",
            ];
            let site = &site;
            scope.spawn(move || assign(site, &arguments))
        });
        begun.map(|run| run.join().unwrap())
    });
    let (mut served, mut all) = (0, BTreeSet::new());
    for (handle, run) in handles.iter().zip(ended) {
        let got = held_by(&site, handle);
        match run.code {
            0 => assert_eq!(got, assigned(&run.json())),
            1 => assert!(got.is_empty() && run.stderr.contains("not done: "), "{run:?}"),
            _ => panic!("{run:?}"),
        }
        served += usize::from(run.code == 0);
        all.extend(got);
    }
    assert_eq!(all.len(), 3 * served);
    assert!(served > 0);
    assert_eq!(site.findings(&[]), unused(&all));
}

/// Loses the answers to some of the last requests of a run, which are its writes, or drops the requests themselves.
#[test]
fn a_lost_answer_is_found_out() {
    let site = Site::healthy();
    let torn = Tearing::etcd(&site.etcd).unwrap();
    let run = |handle: &str| {
        let words = [
            "assign",
            "--yes",
            "-o",
            "json",
            "--count",
            "1",
            "--node",
            NODE,
            "--attribute",
            "a=b",
        ];
        Run::of(site.command_through(&torn, &[&words[..], &["--handle", handle]].concat())).succeeded()
    };
    torn.plan(|_| Tear::Pass);
    let mut all = assigned(&run("first").json());
    let requests = torn.count();
    for (number, tear) in [
        (1, Tear::Swallow),
        (2, Tear::Swallow),
        (3, Tear::Drop),
        (1, Tear::Drop),
    ] {
        torn.tear_at(requests.saturating_sub(number), tear);
        let handle = format!("torn-{number}-{tear:?}");
        run(&handle);
        let got = held_by(&site, &handle);
        assert_eq!(got.len(), 1, "{number} {got:?}");
        all.extend(got);
    }
    assert_eq!(site.findings(&[]), unused(&all));
}
