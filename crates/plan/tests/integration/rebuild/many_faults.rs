//! Several faults in one cluster.

use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};

use super::judge::rebuild_all;

#[test]
fn all_faults_together() {
    for seed in 0..calipam_testkit::rounds(3) {
        let cluster = Cluster::all_faults(ClusterSpec::new(seed), 1);
        let rebuilt = rebuild_all("all faults", &cluster);
        let totals = rebuilt.plan.totals();
        assert!(
            totals.addresses > 50 && totals.blocks > 30 && totals.handles > 50,
            "{totals:?}"
        );
        assert!(rebuilt.later.findings.len() * 2 < rebuilt.report.findings.len());
    }
    rebuild_all(
        "all faults, IPv4 only",
        &Cluster::all_faults(ClusterSpec::new(9).v4_only(), 1),
    );
    rebuild_all(
        "all faults, 3 each",
        &Cluster::all_faults(ClusterSpec::new(11).wide(), 3),
    );
}

#[test]
fn any_set_of_faults() {
    let together: Vec<Fault> = Fault::ALL
        .iter()
        .copied()
        .filter(|fault| !fault.stands_alone())
        .collect();
    let mut rng = Rng::new(2024);
    for round in 0..calipam_testkit::rounds(60) {
        let mut chosen: Vec<Fault> = (0..2 + rng.below(6)).map(|_| *rng.pick(&together)).collect();
        // Faults that depend on the whole cluster come last.
        chosen.sort();
        let mut cluster = Cluster::plain(ClusterSpec::new(round), 2, 3);
        chosen
            .iter()
            .for_each(|fault| cluster.inject(*fault, 1 + rng.below(2) as usize));
        let names: Vec<&str> = chosen.iter().map(|fault| fault.name()).collect();
        rebuild_all(&names.join(" + "), &cluster);
    }
}
