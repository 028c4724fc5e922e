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
            while client.put(format!("/filler/{number}"), filler.clone(), None).await.is_ok() {
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
            let revision = client.delete("/filler/", Some(all)).await?.header().unwrap().revision();
            client.compact(revision, Some(CompactionOptions::new().with_physical())).await?;
            client.defragment().await?;
            let raised = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await?;
            for alarm in raised.alarms() {
                let mut member = AlarmOptions::new();
                member.with_member(alarm.member_id());
                client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(member)).await?;
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_full_quota_is_named_and_the_run_does_not_count_as_killed() {
    let mut cluster = healthy();
    leak(&mut cluster, 0);
    let etcd = EtcdOptions::new().argument("--quota-backend-bytes=16777216").start().unwrap();
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let site = Site { etcd, home: tempfile::tempdir().unwrap() };
    let ours = |site: &Site| {
        site.dump().into_iter().filter(|(key, _)| key.starts_with("/calico/")).collect::<Entries>()
    };
    let before = ours(&site);
    fill(&site);

    for lock in [&[][..], &["--lock"]] {
        let full = site.release(&[&["--leaked"], lock].concat()).exits(3);
        let said = format!("{}{}", full.stdout, full.stderr);
        let cause = "etcd has no space left: its quota is used up";
        assert!(said.contains(cause) && said.contains("etcdctl defrag"), "{full:?}");
        assert!(!said.contains("undo"), "nothing was written: {full:?}");
        assert_eq!(ours(&site), before);
    }

    make_room(&site);
    let next = site.release(&["--leaked"]).succeeded();
    assert!(!format!("{}{}", next.stdout, next.stderr).contains("killed"), "{next:?}");
    assert_eq!(site.findings(&[]).len(), 0);
}
