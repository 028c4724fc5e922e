//! `show` against a pull of the kinds that the view is made of.

use calipam_bench::{check, child};
use calipam_testkit::servers::KubeApiserver;

use super::floor::{Floor, Kinds, pull};
use super::{RUNS, collect_garbage};

/// The views, and what they are made of.
const VIEWS: [(&[&str], Kinds); 5] = [
    (
        &["show"],
        Kinds {
            core: &["nodes"],
            calico: &[&[
                "ipamblocks",
                "blockaffinities",
                "ippools",
                "ipreservations",
                "ipamconfigs",
                "clusterinformations",
            ]],
        },
    ),
    (
        &["show", "--blocks"],
        Kinds { core: &[], calico: &[&["ipamblocks", "ippools", "ipreservations", "clusterinformations"]] },
    ),
    (
        &["show", "--nodes"],
        Kinds {
            core: &["nodes"],
            calico: &[&["ipamblocks", "blockaffinities", "ippools", "ipamconfigs", "clusterinformations"]],
        },
    ),
    (
        &["show", "--borrowed"],
        Kinds { core: &[], calico: &[&["ipamblocks", "ippools", "clusterinformations"]] },
    ),
    (
        &["show", "--configuration"],
        Kinds {
            core: &[],
            calico: &[&["ipamconfigs", "kubecontrollersconfigurations", "clusterinformations"]],
        },
    ),
];

/// One line of the table.
pub struct View {
    command: String,
    floor: Floor,
    measured: child::Measured,
}

pub fn measure(program: &str, server: &KubeApiserver, connection: &[&str]) -> Result<Vec<View>, String> {
    let mut views = Vec::new();
    for (command, kinds) in &VIEWS {
        let (mut floors, mut runs) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            collect_garbage(server)?;
            floors.push(pull(server, kinds)?);
            collect_garbage(server)?;
            runs.push(check::run(program, command, connection)?);
        }
        let floor = floors.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let floor = floor.ok_or("nothing was measured")?;
        views.push(View { command: command.join(" "), floor, measured: child::best(runs)? });
    }
    Ok(views)
}

pub fn print<'r>(rows: impl Iterator<Item = (usize, &'r [View])>) {
    println!("| pods | command | bytes pulled | floor | time | ratio | peak memory |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for (pods, views) in rows {
        for View { command, floor, measured } in views {
            println!(
                "| {pods} | `{command}` | {:.0} MB | {:.2} s | {:.2} s | {:.2} | {:.0} MiB |",
                floor.bytes as f64 / 1e6,
                floor.seconds,
                measured.seconds,
                measured.seconds / floor.seconds,
                measured.peak_mib,
            );
        }
    }
}
