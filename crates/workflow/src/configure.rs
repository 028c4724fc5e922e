//! `configure`: changes the configuration of the allocator.

use calipam_datastore::{Datastore, clock};
use calipam_model::config::{ClusterInformation, IpamConfig, IpamSetting};
use calipam_model::document::Document;
use calipam_model::hint::Hint;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use calipam_model::writable::Object;
use calipam_plan::configure;

use crate::failure::{Failure, Result};
use crate::operator::Access;
use crate::read::read;
use crate::run::{Intent, Run};
use crate::write::Repaired;

/// A request to change settings.
#[derive(Clone, Debug)]
pub struct ConfigureRequest {
    pub settings: Vec<IpamSetting>,
    /// True to read everything, in order to report the effects on nodes and addresses.
    pub predicts_effects: bool,
    pub intent: Intent,
}

/// Reads the necessary objects, plans, shows the plan, asks the operator, and writes the settings.
///
/// # Errors
/// If an object cannot be read or written, Calico does not accept the settings, or the operator does not agree.
pub async fn configure(access: Access<'_>, request: &ConfigureRequest) -> Result<Repaired> {
    let purpose = ["change the settings of the allocator", "to configure it"];
    let run = Run::on_live(access, &request.intent, purpose)?;
    let keys = [
        Key::cluster_information(),
        Key::ipam_configuration(),
        Key::IpamConfig,
    ];
    let mut stored = access.datastore.stored(&keys).await?;
    let config = stored.pop().flatten();
    let resource = stored.pop().flatten();
    let cluster = stored.pop().flatten();

    let mut everything = None;
    let mut unknown_effects = None;
    if request.predicts_effects {
        match read(access).await {
            Ok(snapshot) => everything = Some(snapshot),
            // A user who may write the configuration may lack permission to read everything.
            Err(error) => {
                unknown_effects = Some(format!("the effect on nodes and addresses is unknown: {error}"));
            }
        }
    }
    let snapshot = match everything {
        Some(snapshot) => snapshot,
        None => Snapshot {
            datastore: access.datastore.kind(),
            location: access.datastore.location(),
            taken_at: clock::now(),
            cluster: cluster.and_then(|stored| ClusterInformation::parse(&stored.raw).ok()),
            ipam_configuration: resource.and_then(|stored| IpamConfig::parse_resource(&stored.raw).ok()),
            ..Snapshot::default()
        },
    };
    let config = match &config {
        None => None,
        Some(stored) => match &stored.object {
            Some(Object::IpamConfig(document)) => Some((&stored.revision, document)),
            _ => {
                let reason = Document::parse(&stored.raw).err();
                let reason = reason.unwrap_or_else(|| "it is not a configuration".into());
                return Err(configure::undecodable(&reason).into());
            }
        },
    };

    let mut plan = configure::plan(snapshot, config, &request.settings)?;
    if !plan.is_empty() {
        plan.warnings.extend(unknown_effects.map(Hint::from));
    }
    let passed = None;
    let repaired = run.write(plan, passed).await?;
    if let Some(executed) = &repaired.run
        && executed.execution.is_complete()
    {
        check_kept(access.datastore, &request.settings).await?;
    }
    Ok(repaired)
}

/// Checks that the settings were stored: older schemas in Kubernetes silently drop fields that they do not know.
async fn check_kept(datastore: &Datastore, settings: &[IpamSetting]) -> Result<()> {
    if datastore.kind() != DatastoreKind::Kubernetes {
        return Ok(());
    }
    let stored = datastore.stored_object(Key::IpamConfig).await?;
    let Some(Object::IpamConfig(document)) = stored.and_then(|stored| stored.object) else {
        return Ok(());
    };
    let Ok(config) = document.ipam_config() else {
        return Ok(());
    };
    match settings.iter().find(|setting| !setting.is_set(&config)) {
        Some(setting) => Err(Failure::refused(format!(
            "{} was written, but this cluster drops it: its custom resource definitions are too old",
            setting.name()
        ))
        .hint("install the custom resource definitions of the running Calico version")),
        None => Ok(()),
    }
}
