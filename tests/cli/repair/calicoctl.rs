//! The program under the name `calicoctl`: it prints what the real tool printed in recorded runs, with the same exit
//! codes and report file.

use std::os::unix::fs::symlink;

use super::site::*;
use crate::cli::program::command;

const HELD: &str = "/calico/ipam/v2/assignment/ipv4/block/10.7.0.0-30";

/// Creates a healthy cluster with a pool of two blocks, and an address with the handle `h1`.
fn site() -> Site {
    let site = Site::unconfigured();
    site.put_pool(
        "p",
        &json!({"cidr": "10.7.0.0/29", "blockSize": 30, "ipipMode": "Never", "vxlanMode": "Never"}),
    );
    let block = json!({"cidr": "10.7.0.0/30", "affinity": "host:a", "allocations": [null, 0, null, null],
        "unallocated": [0, 2, 3], "attributes": [{"handle_id": "h1", "secondary": {"node": "a", "z": "1"}}],
        "sequenceNumber": 7, "sequenceNumberForAllocation": {"1": 5}, "deleted": false});
    site.put(HELD, block.to_string());
    site.put(
        "/calico/ipam/v2/handle/h1",
        r#"{"block":{"10.7.0.0/30":1},"deleted":false}"#,
    );
    site
}

fn calicoctl(site: &Site, arguments: &str) -> Run {
    let program = site.home.path().join("calicoctl");
    if !program.exists() {
        symlink(crate::cli::PROGRAM, &program).unwrap();
    }
    let mut command = command(&program);
    command
        .args(arguments.split_whitespace())
        .env("ETCD_ENDPOINTS", site.etcd.endpoint());
    Run::of(command.env("XDG_STATE_HOME", site.home()).stdin(Stdio::null()))
}

/// Recorded runs of the real tool, each with its arguments, exit code and stdout. Failures were printed on stderr.
const RECORDED: [(&str, i32, &str); 13] = [
    (
        "ipam configure --strictaffinity=true",
        0,
        "Successfully set StrictAffinity to: true\n",
    ),
    (
        "ipam configure --max-blocks-per-host=2",
        0,
        "Successfully set MaxBlocksPerHost to: 2\n",
    ),
    (
        "ipam configure --strictaffinity=false",
        1,
        "error: MaxBlocksPerHost requires StrictAffinity to be enabled\n",
    ),
    (
        "ipam configure --ip-cooldown-seconds=0",
        0,
        "Successfully set IPCooldownSeconds to: 0\n",
    ),
    (
        "ipam split 2 --name=p",
        1,
        "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order split the IP pools\n",
    ),
    ("datastore migrate lock", 0, "Datastore locked.\n"),
    (
        "ipam split 3 --name=p",
        1,
        "error splitting the CIDR 10.7.0.0/29 into 3 CIDRs: number to split CIDR into is not a valid power of 2: 3\n",
    ),
    (
        "ipam split 2 --name=p",
        0,
        "IP Pool p was successfully split into 2 smaller pools.Created split-p-0 with CIDR 10.7.0.0/30.\n\
         Created split-p-1 with CIDR 10.7.0.4/30.\nPlease refer to the documentation for final steps.",
    ),
    ("datastore migrate unlock", 0, "Datastore unlocked.\n"),
    (
        "ipam show --ip=10.7.0.1",
        0,
        "IP 10.7.0.1 is in use\nHandle ID: h1\nActive Owner Attributes:\n  node: a\n  z: 1\n",
    ),
    (
        "ipam release --ip=10.7.0.1",
        0,
        "Successfully released IP address 10.7.0.1\n",
    ),
    (
        "ipam release --ip=10.7.0.1",
        1,
        "IP address 10.7.0.1 is not assigned\n",
    ),
    ("ipam show --ip=10.7.0.1", 0, "10.7.0.1 is not assigned\n"),
];

#[test]
fn commands_print_what_calicoctl_printed() {
    let site = site();
    for (arguments, code, recorded) in RECORDED {
        let run = calicoctl(&site, arguments).exits(code);
        assert_eq!(run.stdout, if code == 0 { recorded } else { "" }, "{arguments}");
        assert!(
            code == 0 || run.stderr.starts_with(recorded),
            "{arguments} {run:?}"
        );
        if arguments.contains("split 3") {
            let pool = site.json(&key::pool("p"));
            assert_eq!(
                pool["spec"]["disabled"],
                Value::Null,
                "calicoctl leaves it disabled"
            );
        }
    }
    let expected = json!({"auto_allocate_blocks": true, "kubeVirtVMAddressPersistence": "Enabled",
        "maxBlocksPerHost": 2, "strict_affinity": true});
    assert_eq!(site.json(CONFIG), expected);
    assert_eq!(site.json(HELD)["unallocated"], json!([0, 2, 3, 1]));
    assert_eq!(site.value("/calico/ipam/v2/handle/h1"), None);
    assert_eq!(site.json(INFORMATION)["spec"]["datastoreReady"], true);
}

/// Scripts read the first lines even without a cluster, and compare versions.
#[test]
fn version_prints_the_lines_of_calicoctl() {
    let site = site();
    let client = format!(
        "Client Version:    v3.33.0\nGit commit:        calipam-{}\n",
        env!("CARGO_PKG_VERSION")
    );
    let spec = |spec: Value| {
        let mut information = site.json(INFORMATION);
        information["spec"] = spec;
        site.put(INFORMATION, information.to_string());
    };
    spec(json!({"calicoVersion": "v3.32.1", "clusterType": "k8s,bgp\u{1b}[31m"}));
    let lines = "Cluster Version:   v3.32.1\nCluster Type:      k8s,bgp\\u{1b}[31m\n";
    assert_eq!(
        calicoctl(&site, "version --allow-version-mismatch").stdout,
        format!("{client}{lines}")
    );
    spec(json!({}));
    let run = calicoctl(&site, "version");
    let unknown = format!("{client}Cluster Version:   unknown\nCluster Type:      unknown\n");
    assert_eq!((run.code, run.stdout, run.stderr.as_str()), (0, unknown, ""));

    site.delete(INFORMATION);
    for (more, says) in [
        ("", "Unable to retrieve Cluster Version or Type: "),
        (" --config /no/such/file", "error: "),
    ] {
        let run = calicoctl(&site, &format!("version{more}")).says(more.trim_start_matches(" --config "));
        assert_eq!((run.code, &run.stdout), (1, &client), "{run:?}");
        assert!(run.stderr.starts_with(says), "{run:?}");
    }
}

#[test]
fn refusals_have_the_words_and_code_of_calicoctl() {
    let site = site();
    let before = site.dump();
    for (arguments, says) in [
        (
            "configure",
            "at least one configuration option must be specified\n",
        ),
        (
            "configure --strictaffinity=maybe",
            "invalid value. Use true or false to set strictaffinity\n",
        ),
        (
            "configure --max-blocks-per-host=x",
            "invalid value for maxblockhost. Use a valid number\n",
        ),
        (
            "configure --kubevirt-ip-persistence=on",
            "invalid value for --kubevirt-ip-persistence. Use Enabled or Disabled\n",
        ),
        (
            "split 2",
            "no name or CIDR provided. Provide a name or CIDR to denote the IP pool to split\n",
        ),
        (
            "split two --name=p",
            "error reading number to split IP pools into. two is not a valid number: strconv.Atoi: parsing \"two\": invalid \
             syntax\n",
        ),
        ("frobnicate", "error: "),
    ] {
        calicoctl(&site, &format!("ipam {arguments}"))
            .exits(1)
            .prints_nothing()
            .says_first(says);
    }
    // calicoctl prints these errors on stdout.
    for (command, address) in [("show", "10.7.0"), ("release", "nonsense")] {
        let run = calicoctl(&site, &format!("ipam {command} --ip={address}")).exits(1);
        assert_eq!(
            run.stdout,
            format!("Error executing command: invalid IP address specified: {address}\n")
        );
    }
    assert_eq!(site.dump(), before);
    assert_eq!(
        calicoctl(&site, "ipam release").code,
        0,
        "with neither address nor report nothing is done"
    );
    assert_eq!(calicoctl(&site, "ipam --help").code, 0);
}

#[test]
fn tables_have_the_columns_of_calicoctl() {
    let site = site();
    let show = calicoctl(&site, "ipam show --show-blocks");
    let lines: Vec<Vec<&str>> = show
        .stdout
        .lines()
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    assert_eq!(
        lines[1],
        [
            "",
            "GROUPING",
            "CIDR",
            "IPS TOTAL",
            "IPS IN USE",
            "IPS RESERVED",
            "IPS FREE",
            ""
        ]
    );
    let pool = [
        "",
        "IP Pool",
        "10.7.0.0/29",
        "8",
        "1 (12%)",
        "0 (0%)",
        "7 (88%)",
        "",
    ];
    let at = lines
        .iter()
        .position(|line| *line == pool)
        .unwrap_or_else(|| panic!("{show:?}"));
    assert_eq!(
        lines[at + 1],
        [
            "",
            "Block",
            "10.7.0.0/30",
            "4",
            "1 (25%)",
            "0 (0%)",
            "3 (75%)",
            ""
        ]
    );
    assert!(!calicoctl(&site, "ipam show").stdout.contains("Block"));

    let configuration = calicoctl(&site, "ipam show --show-configuration=true").stdout;
    assert!(
        configuration.contains("| PROPERTY                     | VALUE   |\n"),
        "{configuration}"
    );
    assert!(
        configuration.contains("| StrictAffinity               | false   |\n"),
        "{configuration}"
    );

    let cidr = "10.7.0.0/30".parse().unwrap();
    site.change_block(cidr, |block| block.affinity = Some("host:b".into()));
    let borrowed = calicoctl(&site, "ipam show --show-borrowed").stdout;
    let row = borrowed
        .lines()
        .find(|line| line.contains("10.7.0.1 "))
        .unwrap_or_else(|| panic!("{borrowed}"));
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!(cells, ["", "10.7.0.1", "a", "10.7.0.0/30", "b", "", "", ""]);

    // After the cooldown, an address counts as free, although the block still records it.
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    site.change_block(cidr, |block| block.cool(&["10.7.0.1".parse().unwrap()], &now));
    site.put(
        CONFIG,
        r#"{"auto_allocate_blocks":true,"ipCooldownSeconds":3600}"#,
    );
    calicoctl(&site, "ipam show --ip=10.7.0.1").refused(1, "is currently in cooldown");
    site.change_block(cidr, |block| {
        let released = |record: &mut Attribute| record.released_at = Some("2026-01-01T00:00:00Z".into());
        block.attributes.iter_mut().for_each(released);
    });
    let cooled = calicoctl(&site, "ipam show --ip=10.7.0.1");
    assert_eq!(
        (cooled.code, cooled.stdout.as_str()),
        (0, "10.7.0.1 is not assigned\n"),
        "{cooled:?}"
    );
}

#[test]
fn only_unused_addresses_are_released_and_a_check_has_the_lines_and_the_report_of_calicoctl() {
    let mut cluster = healthy();
    let pod = leak(&mut cluster, 0);
    let used = cluster.add_pod_on(0).address();
    cluster.inject(Fault::OrphanHandle, 1);
    let site = Site::of(&cluster);
    let before = site.dump();
    let run = calicoctl(&site, &format!("ipam release --ip={used}"))
        .exits(1)
        .prints_nothing();
    assert!(
        run.stderr
            .starts_with(&format!("error: IP address {used} is not released: ")),
        "{run:?}"
    );
    assert!(run.stderr.contains("calicoctl would have released it"), "{run:?}");
    assert_eq!(site.dump(), before);

    calicoctl(&site, "datastore migrate lock").succeeded();
    let file = site.home.path().join("report.json");
    // Problems are no failure.
    let check = calicoctl(
        &site,
        &format!("ipam check --show-problem-ips -o {}", file.display()),
    )
    .exits(0);
    let lines: Vec<&str> = check.stdout.lines().collect();
    let leaked = pod.address();
    assert_eq!(lines[0], "Checking IPAM for inconsistencies...");
    let number = pod.addresses.len();
    for begin in [
        format!("  {leaked} leaked; attrs Main:"),
        format!("Found {number} IPs that are allocated in IPAM but not actually in use."),
        "Found 1 handles with no matching IPs (and ".to_owned(),
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(&begin)),
            "{begin}: {check:?}"
        );
    }
    assert_eq!(
        *lines.last().unwrap(),
        format!("Check complete; found {} problems.", number + 1)
    );

    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["datastoreLocked"], true);
    let element = &report["allocations"][leaked.to_string()][0];
    assert_eq!(
        (&element["inUse"], &element["owners"]),
        (&json!(false), &Value::Null),
        "{element}"
    );
    assert!(element["sequenceNumber"].is_u64());
    let all = report["allocations"].as_object().unwrap().values();
    let unused = all
        .flat_map(|list| list.as_array().unwrap())
        .filter(|element| element["inUse"] == false);
    assert_eq!(unused.count(), number);
    assert_eq!(report["leakedHandles"].as_array().unwrap().len(), 1);
    assert_eq!(report["leakedHandles"][0]["UID"], Value::Null);

    // The report is an hour older than the second check, which finds the same.
    let hour = Duration::from_secs(3600);
    let written = std::fs::File::options().append(true).open(&file).unwrap();
    written.set_modified(std::time::SystemTime::now() - hour).unwrap();
    let run = calicoctl(&site, &format!("ipam release --from-report={}", file.display())).succeeded();
    let expected = format!(
        "Releasing {number} old IPs...\nReleased {number} IPs successfully\nDeleting 1 handles...\n\
         Key: '.' = Deleted OK; 'x' = skip, handle missing/changed.\n.\nReleased 1 handles; 0 skipped; 0 errors.\n\
         You may now unlock the data store.\n"
    );
    assert_eq!(run.stdout, expected);
    assert!(!recorded(&site.dump()).contains_key(&leaked));
    assert_eq!(site.undo(&journal_of(&run)).code, 0);
    assert!(recorded(&site.dump()).contains_key(&leaked));
    assert!(site.dump().contains_key(&key::handle(&pod.handle)));

    calicoctl(&site, "datastore migrate unlock").succeeded();
    let run = calicoctl(&site, &format!("ipam release --from-report={}", file.display())).exits(1);
    assert!(
        run.stderr.starts_with("the provided reports are all stale"),
        "{run:?}"
    );
}
