//! Killed runs and their undo.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::Site;
use crate::cli::program::{AT_ONCE, Runs};

/// Starts a run, waits until it has a journal, and kills it after a pause.
fn kill(site: &Site, arguments: &[&str], pause: Duration) {
    let arguments = [arguments, &AT_ONCE[..]].concat();
    let mut command = site.command(&arguments);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while site.journals().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(pause);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn remove_journals(site: &Site) {
    site.journals()
        .iter()
        .for_each(|journal: &PathBuf| std::fs::remove_file(journal).unwrap());
}

#[test]
fn the_writes_of_a_killed_release_are_undone() {
    let Some(site) = Site::start() else { return };
    let client = site.calico.client;
    for number in 0..30 {
        client
            .assign("node-1", &format!("default.lost-{number}"))
            .unwrap();
    }
    let before = site.dump();
    for pause in [0, 10, 30, 60] {
        kill(
            &site,
            &["release", "--yes", "--leaked"],
            Duration::from_millis(pause),
        );
        // If the journal has no entries, nothing was written.
        site.undo_to(&before);
        remove_journals(&site);
    }
    site.release(&["--leaked"]).succeeded();
    site.is_healthy();
}

/// Blocks are claimed in the order of Calico 2.x, so that every block has its affinity at any time.
#[test]
fn a_killed_rebuild_leaves_what_a_claim_can_leave_and_is_undone() {
    let Some(site) = Site::start() else { return };
    let client = site.calico.client;
    let blocks = 4..16;
    for third in blocks.clone() {
        for last in [7, 9] {
            let pod = format!("default.p-{third}-{last}");
            client
                .set_endpoint("node-1", &pod, &[&format!("192.168.{third}.{last}")])
                .unwrap();
        }
    }
    let before = site.dump();
    let mut claimed = Vec::new();
    // Makes at least five runs, each killed later than the one before, and continues until one has claimed a block: on a
    // busy machine that can take many seconds.
    let mut pause = Duration::from_millis(10);
    for round in 0.. {
        if round >= 5 && !claimed.is_empty() {
            break;
        }
        assert!(pause < Duration::from_secs(60), "no run came as far as a block");
        pause = pause * 3 / 2;
        kill(&site, &["rebuild", "--endpoints-only", "--apply", "--yes"], pause);
        let left = site.dump();
        for third in blocks.clone() {
            let name = format!("192.168.{third}.0-26");
            let block = left.get(&format!("/calico/ipam/v2/assignment/ipv4/block/{name}"));
            let affinity = left.get(&format!("/calico/ipam/v2/host/node-1/ipv4/block/{name}"));
            let Some(block) = block else { continue };
            assert_eq!(affinity, Some(&json!({})), "{name}");
            for address in [7, 9] {
                assert!(
                    block["allocations"][address].is_u64(),
                    "an address in use is free: {block}"
                );
            }
            claimed.push(third);
        }
        site.undo_to(&before);
        remove_journals(&site);
    }
    site.rebuild(&["--apply", "--yes"]).succeeded();
    site.is_healthy();
}
