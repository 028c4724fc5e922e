//! States in which Calico's own CNI plugins were called, each with what they did (`tests/golden/README.md`). The answers
//! of `explain --pod` and the findings of `check` must foretell it.

use std::fmt::Write as _;

use calipam_assign::AddressSource;
use calipam_check::views::{Asking, Explanation, FamilyAnswer, RequestState, explain};
use calipam_check::{Code, Context, Options, Subject};
use calipam_files::objects::kinds::{Group, KINDS};
use calipam_files::objects::{Encoding, Flavour, KnownKind};
use calipam_model::CniConfiguration;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source, StoredBlock, Versioned};
use calipam_testkit::golden::{Golden, golden_states};
use jiff::SignedDuration;

/// The state as calipam reads it.
fn snapshot(golden: &Golden) -> Snapshot {
    let is_etcd = golden.is_on_etcd();
    let mut snapshot = Snapshot {
        taken_at: golden.at,
        ..Snapshot::default()
    };
    snapshot.datastore = if is_etcd {
        DatastoreKind::Etcd
    } else {
        DatastoreKind::Kubernetes
    };
    snapshot.namespaces = Some(Default::default());
    for object in &golden.objects {
        let group = object["apiVersion"].as_str().unwrap();
        let name = object["kind"].as_str().unwrap();
        // With etcd, Calico's nodes are there.
        if is_etcd && name == "Node" {
            continue;
        }
        if let Some(kind) = kind(group, name) {
            kind.add(&mut snapshot, object.to_string().as_bytes(), Encoding::Json);
        }
    }
    for (revision, (key, value)) in (1..).zip(&golden.entries) {
        snapshot.add_entry(key.as_bytes(), value.as_str().unwrap().as_bytes(), revision);
    }
    snapshot.mark_read(Source::all());
    snapshot
}

fn kind(group: &str, name: &str) -> Option<&'static KnownKind> {
    let is_group = |of: Group| match of {
        Group::Core => group == "v1",
        Group::Calico | Group::Only(Flavour::Classic) => group.starts_with("crd.projectcalico.org/"),
        Group::Only(Flavour::Native) => false,
        Group::KubeVirt => group.starts_with("kubevirt.io/"),
    };
    KINDS
        .iter()
        .find(|kind| kind.name == name && is_group(kind.group))
}

/// The difference between what was foretold and what happened; `None` if there is none that docs/cni.md does not declare.
fn difference(golden: &Golden) -> Option<String> {
    let snapshot = snapshot(golden);
    let configuration = CniConfiguration::parse(golden.conf.to_string().as_bytes()).unwrap();
    let options = Options {
        grace: Some(SignedDuration::ZERO),
        cni_configuration: Some(configuration),
        ..Options::default()
    };
    let (namespace, name) = golden.pod_name();
    let explained = explain(
        &Context::new(&snapshot, &options),
        &snapshot,
        Asking::Pod(namespace, name),
    )
    .expect("the pod exists");
    if matches!(explained.state, RequestState::Has(_)) {
        return None;
    }
    let report = Context::new(&snapshot, &options).check();
    let is_found = report.findings.iter().any(|finding| {
        finding.code == Code::PodWithoutAddress && finding.subject == Subject::Endpoint(golden.pod.clone())
    });

    if let RequestState::BypassesIpam(addresses) = &explained.state {
        let is_right = golden
            .calico
            .ips
            .iter()
            .all(|address| addresses.contains(address));
        return (!is_right || golden.calico.error.is_some()).then(|| explained.sentence());
    }

    // A block whose free list and records contradict each other is used by Calico as it is, but not by calipam.
    let contradicts = snapshot
        .blocks
        .iter()
        .any(|stored| stored.value.content.usable().is_none());
    let outcome = &golden.calico;
    let said = explained.sentence();
    match &outcome.error {
        None if explained.is_refused() && contradicts => None,
        None if explained.is_refused() => Some(format!("{said}; Calico assigned {:?}", outcome.ips)),
        None if is_found => Some(format!(
            "{said}; check reports the pod, but Calico assigned {:?}",
            outcome.ips
        )),
        None => other_addresses(golden, &snapshot, &explained),
        Some(error) if explained.is_refused() => {
            let mut texts = explained
                .families
                .iter()
                .filter_map(|family| family.answer.outcome.as_ref().err());
            let is_foretold = texts.any(|refused| is_text(refused.calico.trim(), error.trim()));
            match (is_foretold, is_found) {
                (true, true) => None,
                (true, false) if contradicts => None,
                // Nothing shows that Calico IPAM serves pods: there is no pool, or all blocks are for services.
                (true, false) if snapshot.pools.is_empty() && snapshot.blocks.is_empty() => None,
                (true, false)
                    if snapshot.blocks.iter().all(is_for_services) && !snapshot.blocks.is_empty() =>
                {
                    None
                }
                (true, false) => Some(format!("{said}; check does not report the pod")),
                (false, _) => {
                    let foretold = explained.refusal().map(|refused| refused.calico.as_str());
                    Some(format!("{said}; Calico said {error:?}, not {foretold:?}"))
                }
            }
        }
        Some(error) => {
            let first = explained.first_refusal().map(|refused| refused.calico.trim());
            // Calico assigned an address before the other family failed, and kept it until DEL, which was not called.
            let ends_well = outcome.again.as_ref().is_some_and(|again| again.error.is_none());
            let foretold = first == Some(error.trim()) && (ends_well || explained.families.len() > 1);
            (!foretold).then(|| format!("{said}; Calico said {error:?}"))
        }
    }
}

/// True if Calico's text is the predicted one, in which `…` stands for any text.
fn is_text(predicted: &str, text: &str) -> bool {
    match predicted.split_once('…') {
        Some((start, end)) => text.starts_with(start) && text.ends_with(end),
        None => text == predicted,
    }
}

/// Compares addresses. A pool whose blocks are single addresses is searched from a place that depends on the clock, so
/// each of its addresses is as good.
fn other_addresses(golden: &Golden, snapshot: &Snapshot, explained: &Explanation) -> Option<String> {
    let mut said = String::new();
    for address in &golden.calico.ips {
        let of_family = |family: &&FamilyAnswer| {
            let given = family.answer.outcome.as_ref().ok();
            given.is_some_and(|given| given.address.is_ipv4() == address.is_ipv4())
        };
        let given = explained
            .families
            .iter()
            .find(of_family)
            .and_then(|family| family.answer.outcome.as_ref().ok());
        let Some(given) = given else {
            return Some(format!(
                "{}; Calico also assigned {address}",
                explained.sentence()
            ));
        };
        let is_held = given.source == AddressSource::Held && golden.calico.ips.contains(&given.address);
        if given.address == *address || is_held {
            continue;
        }
        let mut pools = snapshot.pools.iter().map(|stored| &stored.value);
        let depends_on_clock = pools.any(|pool| {
            let is_single = pool.block_size == pool.cidr.max_prefix_len();
            is_single && pool.cidr.contains(&given.address) && pool.cidr.contains(address)
        });
        let contradicts = snapshot
            .blocks
            .iter()
            .any(|stored| stored.value.content.usable().is_none());
        if !depends_on_clock && !contradicts {
            let source = given.source;
            writeln!(
                said,
                "foretold {} ({source:?}), Calico assigned {address}",
                given.address
            )
            .unwrap();
        }
    }
    (!said.is_empty()).then_some(said)
}

fn is_for_services(stored: &Versioned<StoredBlock>) -> bool {
    stored
        .value
        .content
        .owner()
        .is_some_and(|owner| owner.to_string() == "virtual:load-balancer")
}

#[test]
fn calico_does_what_was_predicted() {
    let states = golden_states().unwrap();
    assert!(states.len() > 2_000, "{} states", states.len());

    let mut differences = Vec::new();
    for golden in &states {
        if let Some(difference) = difference(golden) {
            differences.push(format!("{}: {difference}", golden.seed));
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}
