//! `show` compared with reading the kinds of the view.

use calipam_testkit::servers::KubeApiserver;

use super::floor::{Kinds, pull};
use super::{RUNS, collect_garbage};
use crate::views::View;
use crate::{Failed, check};

/// The views and their kinds.
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

pub(super) fn measure(
    program: &str,
    server: &KubeApiserver,
    connection: &[&str],
) -> Result<Vec<View>, Failed> {
    let mut views = Vec::new();
    for (command, kinds) in &VIEWS {
        let (mut floors, mut runs) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            collect_garbage(server)?;
            floors.push(pull(server, kinds.each())?);
            collect_garbage(server)?;
            runs.push(check::run(program, command, connection)?);
        }
        let floor = floors.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let floor = floor.ok_or("nothing was measured")?;
        views.push(View::new(command, floor.bytes, floor.seconds, runs)?);
    }
    Ok(views)
}
