//! Runs that are killed, and undone.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{AT_ONCE, Site};

/// Starts a run and kills it some time after it has a journal.
fn kill(site: &Site, arguments: &[&str], pause: Duration) {
    let arguments = [arguments, &AT_ONCE[..]].concat();
    let mut command = site.command(&arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while site.journals().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(pause);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn remove_journals(site: &Site) {
    site.journals().iter().for_each(|journal: &PathBuf| std::fs::remove_file(journal).unwrap());
}

#[test]
fn what_a_killed_release_wrote_is_undone() {
    let site = Site::start();
    let client = site.calico.client();
    for number in 0..30 {
        client.assign("node-1", &format!("default.lost-{number}")).unwrap();
    }
    let before = site.dump();
    for pause in [0, 10, 30, 60] {
        kill(&site, &["release", "--yes", "--leaked"], Duration::from_millis(pause));
        // A journal that was only begun says that nothing was written.
        let undone = site.undo();
        assert_eq!(site.dump(), before, "{undone:?}");
        remove_journals(&site);
    }
    assert_eq!(site.release(&["--leaked"]).code, 0);
    assert_eq!(site.findings(), [""; 0]);
}
