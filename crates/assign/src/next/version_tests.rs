//! Answers that depend on the version of Calico, or on the plugin of the node.

use calipam_model::snapshot::DatastoreKind;
use calipam_testkit::values;

use super::tests::World;
use super::{NextAddress, Outlook, Reason};
use crate::family::Family;

const CONFIGURATION: &str = r#"{"auto_allocate_blocks":true}"#;
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

fn set_version(world: &mut World, version: &str) {
    world.put(
        &format!("{RESOURCES}/clusterinformations/default"),
        &format!(r#"{{"spec":{{"calicoVersion":"{version}","datastoreReady":true}}}}"#),
    );
}

/// Only the newest Calico looks at the use of the pool of a given address.
#[test]
fn a_given_address_in_a_pool_for_tunnels_depends_on_the_version() {
    for (version, is_given) in [("v3.32.1", true), ("v3.34.0", false)] {
        let mut world = World::new(CONFIGURATION, &[("n1", 1)]);
        world.pool(
            "small",
            r#""cidr":"10.0.0.0/28","blockSize":30,"allowedUses":["Tunnel"]"#,
        );
        set_version(&mut world, version);
        let outlook = Outlook::new(&world.0).unwrap();
        let answer = outlook.next_named("n1", "10.0.0.2".parse().unwrap(), None, &[]);
        assert_eq!(answer.outcome.is_ok(), is_given, "{version}");
    }
}

/// Calico before 3.34 dies when it prints that it ignores an entry.
#[test]
fn a_reservation_that_is_no_cidr_refuses_every_automatic_address_of_older_versions() {
    for (version, crashes) in [("v3.32.1", true), ("v3.34.0", false)] {
        let mut world = World::new(CONFIGURATION, &[("n1", 1)]);
        world.put(
            &format!("{RESOURCES}/ipreservations/typo"),
            r#"{"spec":{"reservedCIDRs":["10.0.0.0/33"]}}"#,
        );
        set_version(&mut world, version);
        let refusal = world.refusal("n1", Family::V4).unwrap();
        let reason = refusal.map(|refused| refused.reason.clone());
        let expected = crashes.then(|| Reason::MalformedReservation("typo".to_owned()));
        assert_eq!(reason, expected, "{version}");

        // A given address does not depend on reservations.
        let outlook = Outlook::new(&world.0).unwrap();
        let address = "10.0.0.2".parse().unwrap();
        assert!(outlook.next_named("n1", address, None, &[]).outcome.is_ok());
    }
}

/// Calico stops at an affinity whose deletion was broken off, and the kubelet has to try again. calipam's plugin goes on.
#[test]
fn the_answer_is_that_of_the_plugin_that_was_installed() {
    for (installed, fails_once) in [
        (None, true),
        (Some("v3.32.1"), true),
        (Some("calipam 0.1.0"), false),
    ] {
        let mut world = World::new(CONFIGURATION, &[("n2", 4), ("n2", 4), ("n2", 4)]);
        world.0.datastore = DatastoreKind::Kubernetes;
        let key = values::affinity_key("host/n1", "10.0.0.12/30");
        world.put(&key, r#"{"state":"pendingDeletion","deleted":true}"#);
        for node in &mut world.0.nodes {
            node.value.plugin = installed.map(str::to_owned);
        }
        let outlook = Outlook::new(&world.0).unwrap();
        let answer = outlook.next(&NextAddress::new("n1", Family::V4, &[]));
        assert_eq!(answer.outcome.unwrap().address.to_string(), "10.0.0.12");
        assert_eq!(answer.first.is_some(), fails_once, "{installed:?}");
    }
}
