//! A release of all leaks changes nothing else, and can be undone completely.

use calipam_testkit::servers::{EtcdVersion, Tool, left_out};

use super::site::*;

/// Returns the keys that a plan may change: the objects that it names, and the block and handle of each address.
fn named(plan: &Value, before: &Entries) -> Vec<String> {
    let mut keys = Vec::new();
    for change in plan["changes"].as_array().unwrap() {
        let subject = change["subject"]["name"].as_str().unwrap();
        match change["action"].as_str().unwrap() {
            "release-address" => {
                let address = subject.parse().unwrap();
                let blocks = before.iter().filter(|(key, _)| key.contains("/assignment/"));
                let blocks = blocks.filter_map(|(key, (raw, _))| Some((key, Block::read(raw)?)));
                for (key, mut block) in blocks.filter(|(_, block)| block.cidr.contains(&address)) {
                    keys.push(key.clone());
                    let held = block.records().any(|(recorded, _)| recorded == address);
                    let handle = held.then(|| block.record_mut(address).handle.clone()).flatten();
                    keys.extend(handle.map(|id| key::handle(&id)));
                }
            }
            "delete-handle" | "set-handle-counts" => keys.push(key::handle(subject)),
            other => panic!("a release of leaked addresses does not {other}"),
        }
    }
    keys
}

#[test]
fn all_leaks_are_released_and_restored() {
    all_goes_and_comes_back(EtcdVersion::default());
}

#[test]
fn all_leaks_are_released_and_restored_on_an_older_etcd() {
    if !left_out(&[Tool::OldEtcd]) {
        all_goes_and_comes_back(EtcdVersion::V3_4);
    }
}

fn all_goes_and_comes_back(version: EtcdVersion) {
    let cluster = Cluster::all_faults(ClusterSpec::new(21).at(Timestamp::now()).wide(), 1);
    let site = Site::with(&cluster, Etcd::start_version(version).unwrap());
    let before = site.dump();
    let says = "hint: `calipam release --leaked --orphan-handles --dry-run --grace 0 --settle 0";
    let short = site
        .release(&["--leaked", "--orphan-handles", "--dry-run"])
        .says(says);
    let run = site.release(&["--leaked", "--orphan-handles", "-o", "json"]);
    let plan = run.json();
    let after = site.dump();
    assert_eq!(run.code, 1, "what is skipped is not done: {}", run.stderr);
    assert!(changes(&plan).len() > 30, "{:?}", changes(&plan));
    assert_eq!(plan["execution"]["conflicts"], json!([]));

    let named = named(&plan, &before);
    let strays: Vec<_> = differing(&before, &after)
        .into_iter()
        .filter(|key| !named.contains(key))
        .collect();
    assert_eq!(strays, Vec::<String>::new());
    let released = subjects(&changes(&plan), "release-address ");
    let mut expected = recorded(&before);
    for address in &released {
        assert!(expected.remove(&address.parse().unwrap()).is_some(), "{address}");
    }
    assert_eq!(recorded(&after), expected);

    let skipped: Vec<String> = skips(&plan)
        .iter()
        .map(|line| line.split_once(' ').unwrap().1.to_owned())
        .collect();
    // Leaked addresses with an unknown owner have a lower severity, and are kept.
    let leaks = cluster
        .truth()
        .iter()
        .filter(|f| f.code == "leaked-address" && f.severity.is_none());
    let leaks = leaks
        .map(|f| f.subject)
        .chain(cluster.young.iter().map(ToString::to_string));
    let leaks: BTreeSet<String> = leaks.filter(|s| !skipped.contains(s)).collect();
    assert_eq!(released, leaks);
    let count = format!(
        "\nACTION           COUNT  FOR EXAMPLE\nrelease-address {:>6}  10.128",
        released.len()
    );
    short.prints(&count);

    for finding in site.findings(&[]) {
        let subject = finding.rsplit(' ').next().unwrap().to_owned();
        let may_stay = !finding.starts_with("error leaked-address") && !finding.contains(" orphan-handle ");
        assert!(may_stay || skipped.contains(&subject), "{finding}");
    }

    site.undo_to(&site.undo_to(&run, &before), &after);
    assert_eq!(site.journals().len(), 3);
}

/// With `--quiet`, as in cron, a run prints nothing if it changes nothing. Otherwise, it prints its journal.
#[test]
fn without_anything_to_do_nothing_is_written_and_a_quiet_run_prints_nothing() {
    let site = Site::healthy();
    let before = site.dump();
    site.release(&["--leaked", "--orphan-handles"])
        .succeeded()
        .prints("\nNothing to do\n");
    let quiet = |site: &Site, arguments: &[&str]| site.run(&[arguments, &["--settle", "0", "-q"]].concat());
    for arguments in [&["check"][..], &["release", "--leaked", "--yes"], &["rebuild"]] {
        quiet(&site, arguments)
            .succeeded()
            .prints_nothing()
            .says_nothing();
        let json = quiet(&site, &[arguments, &["-o", "json"]].concat());
        assert!(
            json.stdout.starts_with('{'),
            "a document is printed at any rate: {json:?}"
        );
    }
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));

    let (site, _) = Site::leaky();
    quiet(&site, &["check", "--grace", "0"]).prints("leaked-address");
    let run = quiet(&site, &["release", "--leaked", "--yes", "--grace", "0"]).succeeded();
    let journal = site.journals().pop().unwrap();
    assert!(
        run.stderr
            .ends_with(&format!("\njournal: {}\n", journal.display())),
        "{run:?}"
    );
}

#[test]
fn later_changes_of_other_clients_are_not_undone() {
    let mut cluster = healthy();
    let [first, second] = [leak(&mut cluster, 0), leak(&mut cluster, 1)];
    let site = Site::of(&cluster);
    let before = site.dump();
    let run = site.release(&["--leaked"]).succeeded();
    site.change_block(first.block(), |block| block.sequence += 1);
    let changed = site.dump();

    let dry = site.run(&["undo", &journal_of(&run), "--dry-run"]);
    assert_eq!(site.dump(), changed, "{dry:?}");
    let told = format!("block {} has changed since the run", first.block());
    site.undo(&journal_of(&run))
        .failed(1, &told)
        .says("warning: not undone: ");
    // The dry run has printed the same message.
    assert!(
        dry.code == 1 && dry.stdout.contains("REASON") && dry.stdout.contains(&told),
        "{dry:?}"
    );
    let back = site.dump();
    // The pod has one handle in two blocks. The handle and both blocks are written together.
    let blocks: Vec<String> = second
        .addresses
        .iter()
        .map(|(_, block)| key::block(*block))
        .collect();
    let expected = set(blocks.iter().chain([&key::handle(&second.handle)]));
    assert_eq!(differing(&changed, &back), expected);
    for key in &blocks {
        assert_eq!(values(&back)[key.as_str()], values(&before)[key.as_str()]);
    }
}

#[test]
fn a_short_grace_period_is_warned_of_and_an_undo_that_finds_everything_as_it_was_says_so() {
    let (site, _) = Site::leaky();
    // With a grace period shorter than a CNI operation, the address of a starting pod looks unused.
    for (grace, is_short) in [("0", true), ("9s", true), ("10s", false)] {
        let dry = &["rebuild", "--dry-run"];
        for command in [&["release", "--leaked", "--dry-run"][..], &["rebuild"], dry] {
            let run = site.run(&[command, &["--grace", grace, "--settle", "0"]].concat());
            let warned = run.stderr.contains("shorter than a CNI operation");
            assert!(run.code < 2 && warned == is_short, "{grace}: {run:?}");
        }
    }
    let run = site.release(&["--leaked"]);
    site.undo(&journal_of(&run)).succeeded();
    let (before, journals) = (site.dump(), site.journals());
    for more in ["--yes", "--dry-run"] {
        let again = site.run(&["undo", &journal_of(&run), more]);
        again
            .succeeded()
            .prints("everything is as it was before that run");
    }
    assert_eq!((site.dump(), site.journals()), (before, journals));
}

/// Whenever one run writes a step, the other run gets a conflict or has nothing left to do.
#[test]
fn two_runs_at_once_do_no_harm() {
    let mut cluster = Cluster::plain(*healthy().spec(), 60, 1);
    (0..60).for_each(|node| drop(leak(&mut cluster, node)));
    let site = Site::of(&cluster);
    let before = site.dump();
    let runs = thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| site.release(&["--leaked"])));
        both.map(|run| run.join().unwrap())
    });
    for run in &runs {
        assert!(
            run.code == 0 || run.code == 1 && run.stderr.contains("not done: "),
            "{run:?}"
        );
    }
    assert_eq!(
        (site.findings(&[]), site.journals().len() <= 2),
        (BTreeSet::new(), true)
    );
    assert_eq!(recorded(&site.dump()).len(), recorded(&before).len() - 120);
}
