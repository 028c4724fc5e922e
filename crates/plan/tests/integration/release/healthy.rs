//! Healthy clusters: nothing is released.

use calipam_check::{Options, check};
use calipam_plan::release::Request;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::rounds;

use super::support::plan_on;

#[test]
fn no_mix_of_features_leads_to_a_release() {
    for seed in 0..rounds(24) {
        let mut rng = Rng::new(seed);
        let mut cluster = Cluster::small(ClusterSpec::new(seed));
        let mix: Vec<usize> = (0..Cluster::FEATURES).filter(|_| rng.below(2) == 1).collect();
        mix.iter().for_each(|feature| cluster.add_feature(*feature));

        let snapshot = cluster.snapshot();
        assert_eq!(check(&snapshot, &Options::default()).findings, [], "seed {seed}, features {mix:?}");
        let request = Request { leaked: true, orphan_handles: true, ..Request::default() };
        let plan = plan_on(&snapshot, &request, &[], &Options::default());
        assert!(plan.is_empty() && plan.skipped.is_empty(), "seed {seed}, features {mix:?}: {plan:?}");
    }
}
