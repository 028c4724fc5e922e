//! `migrate` and its undo leave an enabled pool for all users, even after changes of other clients.

use calipam_testkit::cluster::wire::affinity;

use super::migrate::{NEW, OLD, TO, begin, cluster, copy_pool, leave, migrate, phase, pool, resume};
use super::site::*;

/// Phases must be undone in reverse order. Otherwise, the cluster would have no pool, or users would have no addresses.
#[test]
fn an_undo_leaves_an_enabled_pool_with_room_for_all_users() {
    let last = "no pool of its family would be enabled";
    let refused = |site: &Site, run: &Run, says: &str| {
        let before = site.dump();
        site.undo(&journal_of(run)).exits(1).prints(says);
        assert_eq!(site.dump(), before);
    };
    let site = Site::of(&cluster());
    let created = begin(&site);
    let disabled = resume(&site, "disable");
    refused(&site, &created, last);
    let enabled = site.undo(&journal_of(&disabled)).succeeded();
    site.undo(&journal_of(&created)).succeeded();
    refused(&site, &enabled, last);

    // Migrates to an existing pool.
    copy_pool(&site, OLD, "closed", "10.98.0.0/16", true);
    let opened = migrate(&site, &["--from", OLD, "--to", "closed", "--apply", "--yes"]);
    resume(&site, "disable");
    refused(&site, &opened, last);

    let site = Site::of(&cluster());
    let narrow = ["--from", OLD, "--to-cidr", "10.99.0.0/30", "--block-size", "30"];
    let go_on = [&narrow[..], &["--apply", "--yes", "--force"]].concat();
    assert_eq!(migrate(&site, &go_on).code, 0);
    let enabled = site.undo(&journal_of(&migrate(&site, &go_on).succeeded()));
    refused(&site, &enabled, "of 12 users, first on node-");
}

/// Another client has deleted the only pool that could replace the old one.
#[test]
fn a_migration_without_a_pool_to_go_to_begins_again() {
    let site = Site::of(&cluster());
    begin(&site);
    resume(&site, "disable");
    leave(&site);
    resume(&site, "clean-up");
    site.delete(&key::pool(NEW));
    let before = site.dump();
    assert_eq!(phase(&site)["phase"], "create");
    migrate(&site, &["--apply", "--from", OLD, "--yes"]).failed(1, "no other enabled pool of its family");
    assert_eq!(site.dump(), before);
}

#[test]
fn a_pool_does_not_come_back_over_blocks_of_another_size() {
    let site = Site::of(&cluster());
    let stray = key::affinity("host", "node-1", "10.244.9.0/28".parse().unwrap());
    let refused = |run: &Run| {
        site.put(&stray, affinity("confirmed"));
        let before = site.dump();
        site.undo(&journal_of(run))
            .exits(1)
            .prints("the block 10.244.9.0/28 still exists");
        assert_eq!(site.dump(), before);
        site.delete(&stray);
    };
    begin(&site);
    refused(&resume(&site, "disable"));
    leave(&site);
    resume(&site, "clean-up");
    let deleted = resume(&site, "delete");
    refused(&deleted);
    assert_eq!(site.undo(&journal_of(&deleted)).code, 0);
}

/// Another client changes the pools while the question is open.
#[test]
fn each_phase_is_checked_again_after_the_question() {
    let site = Site::of(&cluster());
    let asked = |arguments: &[&str], meanwhile: &dyn Fn(), says: &str| {
        let migrate = [&["migrate"], &AT_ONCE[..], arguments].concat();
        site.asked_while("[y/N] ", &migrate, "y\n", meanwhile)
            .exits(1)
            .shows_wrapped(says);
    };
    let first = [&TO[..], &["--apply"]].concat();
    let other = || drop(copy_pool(&site, OLD, "other", "10.99.128.0/17", false));
    asked(&first, &other, "overlaps 10.99.128.0/17");
    site.delete(&key::pool("other"));
    let stray = key::affinity("host", "node-1", "10.99.9.0/28".parse().unwrap());
    asked(
        &first,
        &|| site.put(&stray, affinity("confirmed")),
        "the block 10.99.9.0/28 still exists",
    );
    site.delete(&stray);
    assert_eq!(pool(&site, NEW), Value::Null);
    begin(&site);

    let resume_it = ["--apply", "--from", OLD];
    let disable_new = || drop(copy_pool(&site, NEW, NEW, "10.99.0.0/16", true));
    for meanwhile in [&disable_new as &dyn Fn(), &|| site.delete(&key::pool(NEW))] {
        asked(&resume_it, meanwhile, "the next phase is create, not disable");
        assert_ne!(pool(&site, OLD)["spec"]["disabled"], true);
        copy_pool(&site, OLD, NEW, "10.99.0.0/16", false);
    }
    resume(&site, "disable");
    leave(&site);
    let cleaned = resume(&site, "clean-up");
    asked(
        &resume_it,
        &|| assert_eq!(site.undo(&journal_of(&cleaned)).code, 0),
        "is no longer empty",
    );
    assert_ne!(pool(&site, OLD), Value::Null);
}
