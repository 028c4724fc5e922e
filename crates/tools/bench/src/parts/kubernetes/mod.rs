//! `calipam check` and `calipam show` on the Kubernetes datastore compared with the floor.

mod floor;
mod views;

use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::kube::{Flavour, install};
use calipam_testkit::servers::KubeApiserver;

use crate::kubernetes::seed;
use crate::views::{self as of_views, View};
use crate::{Failed, check, child};

/// Runs of each measurement; the best one counts, since disturbances only ever make a run slower.
const RUNS: usize = 5;

/// Time limit until the API server has a million keys in its caches.
const CACHES: Duration = Duration::from_secs(900);

/// Pause while the API server is behind.
const PAUSE: Duration = Duration::from_secs(3);

/// Answers to one request differ by fewer bytes than this unless one is cut off.
const CUT: u64 = 1_000;

/// One line of the table.
struct Row {
    seeded: seed::Seeded,
    floor: floor::Floor,
    check: child::Measured,
    /// Processor time of the API server in the best check.
    server_seconds: f64,
    views: Vec<View>,
}

/// Measures each size and prints the tables.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| measure(program, size), print)
}

fn measure(program: &str, pods: usize) -> Result<Row, Failed> {
    let (server, seeded) = seeded(pods)?;
    let kubeconfig = server.kubeconfig().display().to_string();
    let connection = ["--datastore", "kubernetes", "--kubeconfig", &kubeconfig];
    // Floor and check take turns, so that a disturbance of the machine affects both.
    let (mut floors, mut checks, mut memory) = (Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..RUNS {
        collect_garbage(&server)?;
        let floor = floor::pull(&server, floor::ALL.each())?;
        collect_garbage(&server)?;
        let used = server.processor_seconds();
        let check = check::check(program, &connection)?;
        let server_seconds = server.processor_seconds() - used;
        eprintln!(
            "floor {:.2} s (API server {:.2} s of processor time), check {:.2} s ({server_seconds:.2} s)",
            floor.seconds, floor.server_seconds, check.seconds
        );
        memory = memory.max(check.peak_mib);
        floors.push(floor);
        checks.push((check, server_seconds));
    }
    let most = floors.iter().map(|floor| floor.bytes).max().unwrap_or_default();
    if floors.iter().any(|floor| floor.bytes + CUT < most) {
        return Err("the API server broke off one of its answers".into());
    }
    let floor = floors.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let best = checks.into_iter().min_by(|(a, _), (b, _)| a.seconds.total_cmp(&b.seconds));
    let ((check, server_seconds), floor) = best.zip(floor).ok_or("nothing was measured")?;
    let views = views::measure(program, &server, &connection)?;
    Ok(Row { seeded, floor, check: child::Measured { peak_mib: memory, ..check }, server_seconds, views })
}

/// Starts an API server with a healthy cluster of a number of pods, all of it in its caches.
pub(super) fn seeded(pods: usize) -> Result<(KubeApiserver, seed::Seeded), Failed> {
    let server = KubeApiserver::start()?;
    install(&server, Flavour::Classic)?;
    let start = Instant::now();
    let seeded = seed::seed(&server, pods)?;
    let (json, stored) = seeded.pod_bytes;
    eprintln!(
        "{} pods of {json} bytes in JSON, {stored} in protobuf, on {} nodes: seeded in {:.1} s",
        seeded.pods,
        seeded.nodes,
        start.elapsed().as_secs_f64()
    );
    wait_for_caches(&server)?;
    eprintln!("all of it in the API server's caches after {:.1} s", start.elapsed().as_secs_f64());
    Ok((server, seeded))
}

/// Makes the API server collect its garbage. A collection costs it as much as all lists together, and with a heap of
/// this size one is due about every second run: it could always hit the checks, or always the floor.
pub(super) fn collect_garbage(server: &KubeApiserver) -> Result<(), Failed> {
    Ok(server.pull("/debug/pprof/heap?gc=1", "*/*").map(drop)?)
}

/// Waits until the API server has everything in its caches: it watches its etcd, and refuses lists while it is behind.
/// The kinds are requested one after another, since a finished list would keep it from catching up with the others.
fn wait_for_caches(server: &KubeApiserver) -> Result<(), Failed> {
    let start = Instant::now();
    for kind in floor::ALL.each() {
        while let Err(error) = floor::pull(server, [kind.clone()]) {
            if start.elapsed() > CACHES {
                return Err(error);
            }
            eprintln!("{}: not in the caches after {:.1} s: {error}", kind.0, start.elapsed().as_secs_f64());
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn print(rows: &[Row]) {
    println!("| pods | bytes pulled | floor | API server | check | API server | ratio | peak memory |");
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    for Row { seeded, floor, check, server_seconds, .. } in rows {
        println!(
            "| {} | {:.0} MB | {:.2} s | {:.2} s | {:.2} s | {server_seconds:.2} s | {:.2} | {:.0} MiB |",
            seeded.pods,
            floor.bytes as f64 / 1e6,
            floor.seconds,
            floor.server_seconds,
            check.seconds,
            check.seconds / floor.seconds,
            check.peak_mib,
        );
    }
    println!();
    of_views::print("pods", rows.iter().map(|row| (row.seeded.pods, row.views.as_slice())));
}
