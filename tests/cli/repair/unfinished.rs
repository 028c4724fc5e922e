//! Runs that a kill or ctrl-c has stopped: what later commands say about them.

use calipam_repair::journal::Recorded;

use super::killed::run_and_kill;
use super::kubernetes::{self, KubeSite, in_each_group};
use super::site::*;
use crate::cli::program::started;

in_each_group!(later_commands_name_a_killed_run: a_killed_run_is_named, a_killed_run_is_named_in_the_other_group);

/// A release is killed between the writes of one step. The next release and the next check name its journal, until its
/// undo.
fn later_commands_name_a_killed_run(flavour: Flavour) {
    let mut cluster = healthy();
    leak(&mut cluster, 0);
    let site = KubeSite::of(&cluster, flavour);
    let before = site.objects();
    let torn = Tearing::kubernetes(&site.server).unwrap();
    let release = ["release", "--leaked", "--yes", "--grace", "0", "--settle", "0"];
    let mut writes = 0;
    let killed = run_and_kill(
        site.command_by(torn.kubeconfig(), &release),
        &torn,
        Tear::Drop,
        move |seen| {
            let is_record = seen.path.contains("/ipamblocks") || seen.path.contains("/ipamhandles");
            writes += usize::from(is_record && seen.method == "PUT");
            writes > 1
        },
    );
    assert!(killed);
    assert_ne!(kubernetes::values(&site.objects()), kubernetes::values(&before));

    let journal = site.journals()[0].to_str().unwrap().to_owned();
    let undo = format!("hint: `calipam undo {journal}");
    let commands: [&[&str]; 3] = [&["release", "--leaked", "--dry-run"], &["rebuild"], &["check"]];
    for command in commands {
        site.run_at_once(command, &[])
            .says("the run `release --leaked` of ")
            .says(" did not finish: it wrote ")
            .says(&format!("(journal {journal})"))
            .says(&undo);
    }

    // The check of a fleet names the cluster, too, and the undo has the connection of that cluster.
    let fleet = site.home().join("fleet.yaml");
    let server = site.server.kubeconfig().display().to_string();
    std::fs::write(
        &fleet,
        format!("clusters: [{{name: east, kubeconfig: {server:?}}}]"),
    )
    .unwrap();
    let check = [&["check", "--fleet", fleet.to_str().unwrap()], &AT_ONCE[..]].concat();
    let check_fleet = || Run::of(&mut command_in(site.home(), &check));
    check_fleet()
        .says("note: east: the run `release --leaked` of ")
        .says(&format!("hint: east: `calipam undo {journal}"))
        .says(&server);

    site.undo(&journal)
        .exits(1)
        .does_not_say(" did not finish: it wrote ");
    assert_eq!(kubernetes::values(&site.objects()), kubernetes::values(&before));
    for command in commands {
        site.run_at_once(command, &[]).does_not_say("did not finish");
    }
    check_fleet().does_not_say("did not finish");
}

/// The signal arrives while etcd answers, so the run ends by itself.
#[test]
fn ctrl_c_is_acknowledged_at_once_and_listed() {
    let site = many_orphans();
    let before = site.dump();
    let release = [&["release", "--orphan-handles", "--yes"], &AT_ONCE[..]].concat();
    let child = started(&mut site.command(&release));
    wait_for_fewer(&site.etcd, &key::handle(""), handles(&before));
    interrupt(&child);
    let run = Run::ended(child.wait_with_output().unwrap()).exits(130);
    let run = run
        .says("warning: interrupted: the writes that have begun are finished, and no others begin\n")
        .says("hint: to go on, run the command again\n");

    let list = site.run(&["undo", "--list", "-o", "json"]).succeeded().json();
    assert_eq!(list["journals"][0]["state"], "interrupted", "{list}");
    let journal = journal_of(&run);
    assert!(Recorded::read(Path::new(&journal)).unwrap().ended);
    // Nothing is half-done, so a later command has nothing to say about it.
    site.run_at_once(&["release", "--orphan-handles", "--dry-run"], &[])
        .does_not_say("did not finish");
    site.undo_to(&run, &before);
}
