//! Plans of `configure`, which changes the allocator's settings (facts 1.6, 7.8).

use std::collections::BTreeSet;

use calipam_check::{Code, Options, Subject, check, list};
use calipam_model::DecodeError;
use calipam_model::config::{IpamConfig, IpamSetting};
use calipam_model::document::Document;
use calipam_model::edit::Edit;
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision, Snapshot, Source};
use calipam_model::words::count;
use calipam_model::writable::Object;

use crate::plan::{Action, Change, Plan, PlanKind, Verb};
use crate::refusal::{Refused, Result};

/// The longest cooldown that Calico accepts, in seconds.
const LONGEST_COOLDOWN: i64 = 1200;
/// The highest block limit that all of Calico's schemas accept.
const MOST_BLOCKS: i64 = 1_000_000;

/// The reason why a plan without settings is refused, in calicoctl's words.
pub const NO_SETTING: &str = "at least one configuration option must be specified";

/// Refuses a stored configuration that cannot be decoded.
pub fn undecodable(reason: &DecodeError) -> Refused {
    Refused::new(format!("the stored configuration cannot be decoded: {reason}"))
}

/// Plans a change of settings. `stored` is the stored configuration with its version. The plan names the snapshot's
/// cluster and, if the snapshot is complete, the consequences.
pub fn plan(
    snapshot: Snapshot,
    stored: Option<(&Revision, &Document)>,
    settings: &[IpamSetting],
) -> Result<Plan> {
    if settings.is_empty() {
        return Err(Refused::new(NO_SETTING));
    }
    check_ranges(settings)?;

    let before = match stored {
        Some((_, document)) => decode(document)?,
        None => IpamConfig::default(),
    };
    let mut document = match stored {
        Some((_, document)) => document.clone(),
        None => defaults(snapshot.datastore),
    };
    document.set(settings);
    let after = decode(&document)?;
    accept(&before, &after)?;

    let mut changes = Vec::new();
    for setting in settings {
        if !setting.is_set(&before) {
            let subject = Subject::Configuration(setting.name().into());
            let detail = format!("set to {setting}");
            changes.push(Change::new(Verb::Configure, subject, detail, &[]));
        }
    }
    let mut actions = Vec::new();
    if !changes.is_empty() {
        let object = Box::new(Object::IpamConfig(document));
        let edit = match stored {
            Some((version, _)) => Edit::Replace(Key::IpamConfig, version.clone(), object),
            None => Edit::Create(Key::IpamConfig, object),
        };
        actions.push(Action::new("configuration of the allocator", vec![edit], changes));
    }

    let mut warnings: Vec<Hint> = Vec::new();
    warnings.extend(other_resource(&snapshot, settings));
    let plan = Plan::new(PlanKind::Configure, &snapshot, actions);
    if before != after && snapshot.has_read(Source::Blocks) {
        warnings.extend(consequences(snapshot, after).into_iter().map(Hint::from));
    }
    Ok(Plan { warnings, ..plan })
}

/// Decodes a configuration, or refuses it.
fn decode(document: &Document) -> Result<IpamConfig> {
    document.ipam_config().map_err(|reason| undecodable(&reason))
}

/// Returns a configuration with other settings.
///
/// # Errors
/// If Calico refuses them.
pub(crate) fn configured(before: IpamConfig, settings: &[IpamSetting]) -> Result<IpamConfig> {
    check_ranges(settings)?;
    let after = before.with(settings);
    accept(&before, &after)?;
    Ok(after)
}

/// Refuses combinations of settings that Calico refuses, with the error messages of calicoctl. Hints name the same
/// command with one of its options replaced.
fn accept(before: &IpamConfig, after: &IpamConfig) -> Result<()> {
    if before == after || after.strict_affinity {
        return Ok(());
    }
    if !after.auto_allocate_blocks {
        let message = "Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time";
        let with_blocks =
            Call::again_with(["--auto-allocate-blocks", "true"]).without(&["auto_allocate_blocks"]);
        let hint = Hint::new("also let nodes claim blocks: {}", [with_blocks]);
        return Err(Refused::new(message).hint(hint));
    }
    if after.max_blocks_per_host > 0 {
        let message = "MaxBlocksPerHost requires StrictAffinity to be enabled";
        let with_strict_affinity =
            Call::again_with(["--strict-affinity", "true"]).without(&["strict_affinity"]);
        let without_limit =
            Call::again_with(["--max-blocks-per-host", "0"]).without(&["max_blocks_per_host"]);
        let hint = Hint::new(
            "also set strict affinity: {}; or set no limit: {}",
            [with_strict_affinity, without_limit],
        );
        return Err(Refused::new(message).hint(hint));
    }
    Ok(())
}

/// Describes the findings that the configuration would add: nodes above the block limit, addresses that are borrowed
/// under strict affinity, and nodes that can no longer get addresses.
fn consequences(mut snapshot: Snapshot, after: IpamConfig) -> Vec<String> {
    let codes = [
        Code::NodeOverBlockLimit,
        Code::BorrowedUnderStrictAffinity,
        Code::NodeWithoutAddresses,
    ];
    let findings_before = findings_of(&codes, &snapshot);
    snapshot.ipam_config = Some(after);
    let findings_after = findings_of(&codes, &snapshot);

    let mut consequences = Vec::new();
    for code in codes {
        let mut subjects: Vec<Subject> = Vec::new();
        for (found, subject) in findings_after.difference(&findings_before) {
            if *found == code {
                subjects.push(subject.clone());
            }
        }
        if !subjects.is_empty() {
            consequences.push(consequence_of(code, &subjects));
        }
    }
    consequences
}

/// Checks a snapshot. Returns the findings with these codes, each with its subject or, if many nodes share a finding,
/// with each of its nodes.
fn findings_of(codes: &[Code], snapshot: &Snapshot) -> BTreeSet<(Code, Subject)> {
    let mut subjects = BTreeSet::new();
    for finding in check(snapshot, &Options::default()).findings {
        if !codes.contains(&finding.code) {
            continue;
        }
        if finding.code == Code::NodeWithoutAddresses {
            for node in finding.nodes {
                subjects.insert((finding.code, Subject::Node(node)));
            }
        } else {
            subjects.insert((finding.code, finding.subject));
        }
    }
    subjects
}

/// Describes a consequence of the new settings: the findings with a code that appear, about these subjects.
fn consequence_of(code: Code, subjects: &[Subject]) -> String {
    let number = subjects.len();
    let consequence = match code {
        Code::NodeOverBlockLimit => {
            format!("{} above the block limit", count(number, "node is", "nodes are"))
        }
        Code::BorrowedUnderStrictAffinity => format!(
            "{} still in another node's block, which strict affinity does not allow",
            count(number, "address is", "addresses are")
        ),
        _ => format!(
            "{} no further address for pods",
            count(number, "node gets", "nodes get")
        ),
    };
    format!("after this, {consequence}: {}", list(subjects))
}

/// Warns of the other object in etcd that has these settings, if it differs. Calico's allocator ignores it, and calipam
/// leaves it as it is, but a check reports the difference.
fn other_resource(snapshot: &Snapshot, settings: &[IpamSetting]) -> Option<Hint> {
    if snapshot.datastore != DatastoreKind::Etcd {
        return None;
    }
    let resource = snapshot.ipam_configuration?;
    let mut spec = serde_json::Map::new();
    for setting in settings {
        if !setting.is_set(&resource) {
            let (_, value) = setting.field();
            spec.insert(setting.resource_field().to_owned(), value);
        }
    }
    if spec.is_empty() {
        return None;
    }
    let patch = serde_json::json!({ "spec": spec }).to_string();
    let command = Call::calicoctl(["patch", "ipamconfiguration", "default", "-p", &patch]);
    let text = "the IPAMConfiguration resource `default` differs, and a check will report configuration-mismatch: with \
                etcd, Calico's allocator reads only what is set here; to set the resource as well: {}";
    Some(Hint::new(text, [command]))
}

/// Refuses numbers that are negative or larger than Calico accepts for the settings.
fn check_ranges(settings: &[IpamSetting]) -> Result<()> {
    for setting in settings {
        let (number, most) = match setting {
            IpamSetting::MaxBlocksPerHost(number) => (*number, MOST_BLOCKS),
            IpamSetting::Cooldown(seconds) => (*seconds, LONGEST_COOLDOWN),
            _ => continue,
        };
        if !(0..=most).contains(&number) {
            let message = format!("{} takes 0 to {most}, not {setting}", setting.name());
            return Err(Refused::new(message));
        }
    }
    Ok(())
}

/// Returns the values that Calico assumes while no configuration is stored, and that it writes with the first setting.
/// The field for virtual machines is left out on Kubernetes: older schemas lack it, and Calico behaves the same without
/// it.
fn defaults(datastore: DatastoreKind) -> Document {
    let mut document = Document::default();
    document.set(&[IpamSetting::AutoAllocateBlocks(true)]);
    if datastore == DatastoreKind::Etcd {
        document.set(&[IpamSetting::Kubevirt(true)]);
    }
    document
}
