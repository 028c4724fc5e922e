//! An etcd with an exhausted quota.

use calipam_testkit::servers::EtcdOptions;
use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions, DeleteOptions};

use super::site::*;

/// Fills the quota, so that etcd raises its alarm and refuses writes.
fn fill(site: &Site) {
    site.etcd
        .with_client(async |mut client| {
            let filler = vec![b'x'; 1 << 20];
            let mut number = 0;
            while client
                .put(format!("/filler/{number}"), filler.clone(), None)
                .await
                .is_ok()
            {
                number += 1;
                assert!(number < 1000, "the quota has no end");
            }
            Ok(())
        })
        .unwrap();
}

/// Frees space as an operator would.
fn make_room(site: &Site) {
    site.etcd
        .with_client(async |mut client| {
            let all = DeleteOptions::new().with_prefix();
            let revision = client
                .delete("/filler/", Some(all))
                .await?
                .header()
                .unwrap()
                .revision();
            client
                .compact(revision, Some(CompactionOptions::new().with_physical()))
                .await?;
            client.defragment().await?;
            let raised = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await?;
            for alarm in raised.alarms() {
                let mut member = AlarmOptions::new();
                member.with_member(alarm.member_id());
                client
                    .alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(member))
                    .await?;
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_full_quota_is_named_and_the_run_does_not_count_as_killed() {
    let mut cluster = healthy();
    leak(&mut cluster, 0);
    let etcd = EtcdOptions::new()
        .argument("--quota-backend-bytes=16777216")
        .start()
        .unwrap();
    let site = Site::with(&cluster, etcd);
    let ours = || site.etcd.entries_below("/calico/").unwrap();
    let before = ours();
    fill(&site);

    for lock in [&[][..], &["--lock"]] {
        let said = site
            .release(&[&["--leaked"], lock].concat())
            .exits(3)
            .transcript();
        let cause = "etcd has no space left: its quota is used up";
        assert!(said.contains(cause) && said.contains("etcdctl defrag"), "{said}");
        assert!(!said.contains("undo"), "nothing was written: {said}");
        assert_eq!(ours(), before);
    }

    make_room(&site);
    let next = site.release(&["--leaked"]).succeeded().transcript();
    assert!(!next.contains("killed"), "{next}");
    assert_eq!(site.findings(&[]).len(), 0);
}
