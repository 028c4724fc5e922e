//! Findings about the cluster's settings.

use std::collections::BTreeMap;

use calipam_assign::Reason;
use calipam_model::config::LOCKED_BY;
use calipam_model::key::Key;
use calipam_model::snapshot::DatastoreKind;

use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, Subject};
use crate::names::list;
use crate::views::settings_of;

/// The values, by setting and by the place where they were found.
type Settings = BTreeMap<String, BTreeMap<String, String>>;

/// Checks the settings of the cluster that keep pods from starting, and those that contradict each other.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let cluster_information = || Key::cluster_information().to_string();

    if let Some(cluster) = &snapshot.cluster
        && cluster.is_locked()
    {
        let mut settings = one_setting("datastoreReady", cluster_information(), "false");
        let mut message = "the datastore is locked: no pod can start or stop until it is unlocked".to_owned();
        if let Some(run) = &cluster.locked_by {
            message.push_str(&format!("; the lock names the calipam run {run}"));
            settings.append(&mut one_setting(LOCKED_BY, cluster_information(), run));
        }
        out.push(new_finding(Code::DatastoreLocked, message, settings));
    }

    if let Some(refused) = calipam_assign::cluster_refusal(snapshot)
        && refused.reason != Reason::NotReady
    {
        let settings = one_setting("datastoreReady", cluster_information(), "missing");
        let message = format!("no pod can start or stop: {}", refused.reason);
        out.push(new_finding(Code::NoClusterInformation, message, settings));
    }

    let config = snapshot.effective_ipam_config();
    if config.is_some_and(|config| !config.auto_allocate_blocks) {
        let settings = one_setting("autoAllocateBlocks", Key::IpamConfig.to_string(), "false");
        let message = "automatic block allocation is off: nodes cannot claim blocks";
        out.push(new_finding(Code::AutoAllocationOff, message, settings));
    }
    check_mismatch(context, out);
}

/// Makes a finding about the cluster's configuration, with the settings and their values as evidence.
fn new_finding(code: Code, message: impl Into<Box<str>>, settings: Settings) -> Finding {
    Finding::new(
        code,
        Subject::Configuration("default".into()),
        message,
        Evidence::Configuration(settings),
    )
}

fn one_setting(setting: &str, place: String, value: &str) -> Settings {
    BTreeMap::from([(setting.to_owned(), BTreeMap::from([(place, value.to_owned())]))])
}

/// Reports the settings that differ between the object that the allocator reads and the resource that users see.
fn check_mismatch(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    // Only in etcd are they two objects.
    if snapshot.datastore != DatastoreKind::Etcd {
        return;
    }
    let (Some(object), Some(resource)) = (snapshot.ipam_config, snapshot.ipam_configuration) else {
        return;
    };

    // Both lists contain the same settings in the same order.
    let has_default_limit = snapshot.block_limit().is_some();
    let in_object = settings_of(&object, has_default_limit);
    let in_resource = settings_of(&resource, has_default_limit);
    let mut different = Settings::new();
    for (used, shown) in in_object.into_iter().zip(in_resource) {
        if used.value != shown.value {
            let values = BTreeMap::from([
                (Key::IpamConfig.to_string(), used.value),
                (Key::ipam_configuration().to_string(), shown.value),
            ]);
            different.insert(used.name.to_owned(), values);
        }
    }
    if different.is_empty() {
        return;
    }

    let message = format!(
        "the IPAM settings that Calico uses differ from the IPAMConfiguration resource in {}",
        list(different.keys())
    );
    out.push(new_finding(Code::ConfigurationMismatch, message, different));
}
