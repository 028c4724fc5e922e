//! The active kube-controllers configuration (facts 1.12).

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use super::{AssignIps, ClusterInformation, parse_go_duration};
use crate::DecodeError;
use crate::json;
use crate::stored::FieldDefect;

/// The kube-controllers settings that matter to IPAM: the active ones in the status, or else those in `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeControllersConfiguration {
    /// `controllers.node.leakGracePeriod`.
    pub leak_grace_period: Option<SignedDuration>,
    /// `controllers.loadBalancer.assignIPs`; `None` if the LoadBalancer controller is not running.
    pub assign_ips: Option<AssignIps>,
    /// True if `spec` has no `loadBalancer` section. In that case, the controller runs only if the environment variable
    /// `ENABLED_CONTROLLERS` names it.
    pub no_section: bool,
    /// True if `ENABLED_CONTROLLERS` names the LoadBalancer controller.
    pub by_environment: bool,
}

/// Calico's LoadBalancer controller, which gives services their addresses. The default is the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadBalancerController {
    /// The services that it serves.
    pub assign: AssignIps,
    /// True if it serves only services of its own class and without a class.
    pub knows_classes: bool,
    /// True if it reads `spec.loadBalancerIP`.
    pub reads_spec_address: bool,
    /// True if it no longer counts a pool that is being deleted.
    pub leaves_deleted_pools: bool,
}

/// The reason why Calico's controller serves no LoadBalancer services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum NotServed {
    /// The controller is off: the environment variable does not name it, or this version of kube-controllers is too
    /// old.
    #[error("kube-controllers is not running its loadbalancer controller")]
    ControllerOff,
    /// There is no `loadBalancer` section, and no environment variable starts the controller.
    #[error("KubeControllersConfiguration has no loadBalancer section")]
    NoSection,
    /// Only the environment variable starts the controller, but this Calico version serves no services without the
    /// `loadBalancer` section.
    #[error(
        "KubeControllersConfiguration has no loadBalancer section, which this version of Calico requires"
    )]
    OnlyByEnvironment,
    /// Calico has no such controller before version 3.30.
    #[error("this version of Calico has no loadbalancer controller, which came with v3.30")]
    TooOld,
    /// There is no KubeControllersConfiguration, which kube-controllers creates when it starts.
    #[error("there is no KubeControllersConfiguration: kube-controllers has never run")]
    NoConfiguration,
}

/// A version of Calico: major, minor, patch.
type Version = (u32, u32, u32);

impl Default for LoadBalancerController {
    fn default() -> Self {
        Self::of(None, AssignIps::default())
    }
}

impl LoadBalancerController {
    /// The controller of a Calico version. An unknown version is treated like the newest one.
    pub fn of(version: Option<Version>, assign: AssignIps) -> Self {
        let is_since = |first: Version| version.is_none_or(|version| version >= first);
        Self {
            assign,
            knows_classes: is_since((3, 30, 3)),
            reads_spec_address: is_since((3, 32, 2)),
            leaves_deleted_pools: is_since((3, 32, 0)),
        }
    }
}

/// True if `ENABLED_CONTROLLERS` alone makes this version serve all services. Earlier ones serve none without the
/// `loadBalancer` section, even if the status lists the controller.
fn serves_by_environment(version: Version) -> bool {
    match version {
        (3, 30, patch) => patch >= 7,
        (3, 31, patch) => patch >= 6,
        (major, minor, _) => (major, minor) >= (3, 32),
    }
}

/// True if this version runs the controller even if nothing names it, and then serves all services.
fn serves_unasked(version: Version) -> bool {
    matches!(version, (3, 30, 5..=6) | (3, 31, 1..=5))
}

#[derive(Default, Deserialize)]
struct Spec {
    controllers: Option<Controllers>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Controllers {
    node: Option<NodeController>,
    load_balancer: Option<LoadBalancer>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeController {
    leak_grace_period: Option<String>,
}

#[derive(Default, Deserialize)]
struct LoadBalancer {
    #[serde(rename = "assignIPs")]
    assign_ips: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    running_config: Option<Spec>,
    environment_vars: Option<BTreeMap<String, String>>,
}

/// The environment variable with the names of the controllers to run. It overrides the sections.
const ENABLED: &str = "ENABLED_CONTROLLERS";

impl KubeControllersConfiguration {
    /// Reads the resource's JSON. Reports a grace period that is not a duration, and leaves it out.
    pub fn parse(json: &[u8]) -> Result<(Self, Vec<FieldDefect>), DecodeError> {
        #[derive(Default, Deserialize)]
        struct Configuration {
            spec: Option<Spec>,
            status: Option<Status>,
        }
        let Configuration { spec, status } = json::from_slice(json)?;
        let spec_controllers = spec.unwrap_or_default().controllers.unwrap_or_default();
        let Status {
            running_config,
            environment_vars,
        } = status.unwrap_or_default();
        // Until the controllers have started, the status names none.
        let running = running_config
            .and_then(|running| running.controllers)
            .filter(|running| running.node.is_some() || running.load_balancer.is_some());

        let mut defects = Vec::new();
        let periods = [
            ("status.runningConfig", running.as_ref()),
            ("spec", Some(&spec_controllers)),
        ];
        let first_period = periods.into_iter().find_map(|(place, controllers)| {
            Some((place, controllers?.node.as_ref()?.leak_grace_period.as_ref()?))
        });
        let mut leak_grace_period = None;
        if let Some((place, text)) = first_period {
            leak_grace_period = parse_go_duration(text);
            if leak_grace_period.is_none() {
                let field = format!("{place}.controllers.node.leakGracePeriod");
                defects.push(FieldDefect::new(&field, format!("{text:?} is not a duration")));
            }
        }

        let enabled_names = environment_vars
            .as_ref()
            .and_then(|variables| variables.get(ENABLED));
        let is_enabled = enabled_names.map(|names| names.split(',').any(|name| name == "loadbalancer"));
        let runs = match &running {
            Some(running) => running.load_balancer.is_some(),
            None => is_enabled.unwrap_or(spec_controllers.load_balancer.is_some()),
        };
        let no_section = spec_controllers.load_balancer.is_none();
        let by_environment = is_enabled == Some(true);

        let assigned_by_running = running.and_then(|running| running.load_balancer?.assign_ips);
        let assigned_by_spec = spec_controllers
            .load_balancer
            .and_then(|section| section.assign_ips);
        let assign_ips = if !runs {
            None
        } else if assigned_by_running.or(assigned_by_spec).as_deref() == Some("RequestedServicesOnly") {
            Some(AssignIps::RequestedServicesOnly)
        } else {
            Some(AssignIps::AllServices)
        };
        Ok((
            Self {
                leak_grace_period,
                assign_ips,
                no_section,
                by_environment,
            },
            defects,
        ))
    }

    /// The controller that serves the cluster's services.
    ///
    /// # Errors
    /// If there is none, or it serves no services.
    pub fn serves(&self, cluster: Option<&ClusterInformation>) -> Result<LoadBalancerController, NotServed> {
        let version = cluster.and_then(ClusterInformation::version);
        if version.is_some_and(|version| version < (3, 30, 0)) {
            return Err(NotServed::TooOld);
        }

        // Some versions serve all services although no setting asks for it.
        let needs_no_setting = version.is_some_and(serves_unasked) && !self.by_environment;
        let Some(assign) = self.assign_ips else {
            if needs_no_setting {
                return Ok(LoadBalancerController::of(version, AssignIps::AllServices));
            }
            if self.no_section {
                return Err(NotServed::NoSection);
            }
            return Err(NotServed::ControllerOff);
        };
        // Without a section, only some versions take the setting of the environment.
        let takes_setting = !self.no_section || needs_no_setting || version.is_none_or(serves_by_environment);
        if !takes_setting {
            return Err(NotServed::OnlyByEnvironment);
        }
        Ok(LoadBalancerController::of(version, assign))
    }
}
