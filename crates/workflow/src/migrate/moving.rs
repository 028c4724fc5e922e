//! Who moves: the pods of the old pool by what brings them back, and what ties pods to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use calipam_datastore::workloads::{Asks, Budget, WorkloadPod, Workloads};
use calipam_model::IpNet;
use calipam_model::pool::Pool;
use calipam_plan::migrate::{Survey, UserKind};

/// Pods of the old pool that the same thing brings back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub namespace: String,
    /// The kind of the controller; `None` where nothing brings the pods back.
    pub kind: Option<String>,
    /// Of the controller, or of the pod.
    pub name: String,
    pub pods: usize,
    /// The disruption budgets that count them, and how many pods each lets go now.
    pub budgets: BTreeMap<String, i64>,
}

/// An annotation that asks for the old pool, or an address of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// `Namespace web`, `Deployment web/api` or `Pod web/one`.
    pub subject: String,
    pub annotation: &'static str,
    pub value: String,
}

/// What Kubernetes says of those who move.
#[derive(Clone, Debug, Default)]
pub struct Moving {
    pub workloads: Vec<Group>,
    pub pins: Vec<Pin>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

impl Moving {
    /// Reads what it can.
    pub(super) async fn read(workloads: &Workloads, survey: &Survey) -> Self {
        let mut unread = Vec::new();
        let pods = or_unread(workloads.pods().await, &mut unread);
        let budgets = or_unread(workloads.budgets().await, &mut unread);
        let namespaces = or_unread(workloads.namespaces().await, &mut unread);

        let by_name: HashMap<String, &WorkloadPod> =
            pods.iter().map(|pod| (format!("{}/{}", pod.namespace, pod.name), pod)).collect();
        let users = survey.users.iter().filter(|user| user.kind == UserKind::Pod);
        let names: BTreeSet<&str> = users.map(|user| user.name.as_str()).collect();
        let moving: Vec<&WorkloadPod> = names.iter().filter_map(|name| by_name.get(*name).copied()).collect();

        let old = &survey.migration.old;
        let mut pins: BTreeSet<Pin> = BTreeSet::new();
        for pod in &pods {
            let subject = match &pod.controller {
                Some(controller) => format!("{} {}/{}", controller.kind, pod.namespace, controller.name),
                None => format!("Pod {}/{}", pod.namespace, pod.name),
            };
            pins.extend(pinned(subject, &pod.asks, old));
        }
        for namespace in &namespaces {
            pins.extend(pinned(format!("Namespace {}", namespace.name), &namespace.asks, old));
        }
        Self { workloads: groups(&moving, &budgets), pins: pins.into_iter().collect(), unread }
    }
}

fn or_unread<T>(read: calipam_datastore::Result<Vec<T>>, unread: &mut Vec<String>) -> Vec<T> {
    read.unwrap_or_else(|error| {
        unread.push(error.to_string());
        Vec::new()
    })
}

fn groups(pods: &[&WorkloadPod], budgets: &[Budget]) -> Vec<Group> {
    let mut groups: BTreeMap<(String, Option<String>, String), Group> = BTreeMap::new();
    for pod in pods {
        let (kind, name) = match &pod.controller {
            Some(controller) => (Some(controller.kind.clone()), controller.name.clone()),
            None => (None, pod.name.clone()),
        };
        let key = (pod.namespace.clone(), kind.clone(), name.clone());
        let group = groups.entry(key).or_insert_with(|| Group {
            namespace: pod.namespace.clone(),
            kind,
            name,
            pods: 0,
            budgets: BTreeMap::new(),
        });
        group.pods += 1;
        let covering = budgets.iter().filter(|budget| budget.covers(pod));
        group.budgets.extend(covering.map(|budget| (budget.name.clone(), budget.allowed)));
    }
    groups.into_values().collect()
}

/// The annotations that ask for the pool, by name or CIDR, or for an address of it.
fn pinned(subject: String, asks: &[Asks], old: &Pool) -> Vec<Pin> {
    let is_old = |text: &String| {
        let is_network = text.parse::<IpNet>().is_ok_and(|cidr| cidr.trunc() == old.cidr);
        let is_address = text.parse::<IpAddr>().is_ok_and(|address| old.cidr.contains(&address));
        *text == old.name || is_network || is_address
    };
    let asks = asks.iter().filter(|asks| {
        serde_json::from_str::<Vec<String>>(&asks.value).is_ok_and(|texts| texts.iter().any(is_old))
    });
    let pin = |asks: &Asks| Pin {
        subject: subject.clone(),
        annotation: asks.annotation,
        value: asks.value.clone(),
    };
    asks.map(pin).collect()
}
