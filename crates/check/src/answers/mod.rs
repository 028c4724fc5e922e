//! Answers to the question who gets an address. Calico's algorithm is asked with the whole request of each pod; the
//! rules, `explain`, `show`, metrics and the page all take their answers from here.

mod configuration;
mod judge;
mod kinds;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use calipam_assign::{Family, NotKnown, Outlook, PodAdd, Refused, Wanted};
use calipam_model::endpoint::Endpoint;
use calipam_model::node::Node;
use calipam_model::pod::{Pod, PodRequest, evidence};
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use calipam_model::text::TextRef;

pub(crate) use self::configuration::{Configurations, shows_configuration};
pub(crate) use self::judge::{Judge, NodeRefusal, Nodes, WaitingPod};
pub(crate) use self::kinds::{Kind, Kinds};
use crate::Context;
use crate::record::is_same_node;

/// The answers to requests of the pods in a snapshot.
pub(crate) struct Answers<'c, 's> {
    pub(crate) context: &'c Context<'s>,
    pub(crate) outlook: Outlook<'s>,
    pub(crate) configurations: Configurations,
    endpoints: OnceLock<EndpointsByPod<'s>>,
}

/// Endpoints by the namespace and name of their pods.
type EndpointsByPod<'s> = HashMap<(TextRef<'s>, TextRef<'s>), Vec<&'s Endpoint>>;

impl<'c, 's> Answers<'c, 's> {
    /// Prepares to answer requests in the snapshot. `None` if data that the allocator needs was not read or cannot be
    /// decoded.
    pub(crate) fn new(context: &'c Context<'s>) -> Option<Self> {
        Self::on(context, context.snapshot)
    }

    /// Prepares to answer as if the cluster had the blocks, affinities, pools and configuration of `changed`. `None` as
    /// for [`Self::new`].
    pub(crate) fn on(context: &'c Context<'s>, changed: &'s Snapshot) -> Option<Self> {
        let configurations = Configurations::new(context);
        let outlook = Outlook::new(changed)?.configured(configurations.of_cluster());
        Some(Self {
            context,
            outlook,
            configurations,
            endpoints: OnceLock::new(),
        })
    }

    /// Calls `ask` with the ADD of a pod on a node, which is named as in Calico, and returns its answer.
    pub(crate) fn with_add<T>(&self, pod: &Pod, node: &str, ask: impl FnOnce(&PodAdd<'_>) -> T) -> T {
        let namespace = pod.namespace().to_string();
        let name = pod.name().to_string();
        let held = self.addresses_of_endpoint(pod);
        ask(&PodAdd {
            node,
            namespace: &namespace,
            name: &name,
            request: pod.request.as_deref(),
            held: &held,
            configuration: self.configurations.of_cluster(),
        })
    }

    /// The addresses of a pod's endpoint, if the pod names addresses. On Kubernetes, the pod is its own endpoint.
    fn addresses_of_endpoint(&self, pod: &Pod) -> Vec<IpAddr> {
        let names_addresses = pod
            .request
            .as_ref()
            .is_some_and(|request| !request.annotations.addresses.is_empty());
        if !names_addresses {
            return Vec::new();
        }

        if self.context.snapshot.datastore == DatastoreKind::Kubernetes {
            let in_status: Vec<IpAddr> = pod.named_by(evidence::STATUS).collect();
            if in_status.is_empty() {
                return pod.named_by(evidence::CNI).collect();
            }
            return in_status;
        }

        let mut addresses = Vec::new();
        let endpoints = self.endpoints_by_pod().get(&(pod.namespace(), pod.name()));
        for endpoint in endpoints.into_iter().flatten() {
            if is_same_node(endpoint.node(), pod.node(), &self.context.index) {
                addresses.extend(endpoint.addresses());
            }
        }
        addresses
    }

    /// Looks up all endpoints at once, since many pods can name addresses.
    fn endpoints_by_pod(&self) -> &EndpointsByPod<'s> {
        self.endpoints.get_or_init(|| {
            let mut by_pod = EndpointsByPod::new();
            for endpoint in self.context.snapshot.endpoints.iter().map(|stored| &stored.value) {
                by_pod
                    .entry((endpoint.namespace(), endpoint.pod()))
                    .or_default()
                    .push(endpoint);
            }
            by_pod
        })
    }

    /// Returns the refusal in each family in which a pod gets no address.
    ///
    /// # Errors
    /// If the answer depends on unknown data.
    pub(crate) fn refusals(&self, pod: &Pod, on: &str) -> Result<Vec<(Family, Arc<Refused>)>, NotKnown> {
        self.with_add(pod, on, |add| {
            self.outlook.refusals(add, self.context.index.node(on))
        })
    }

    /// True for a pod that takes any address of any pool: neither its annotations nor those of its namespace nor the
    /// nodes' CNI configuration name pools or addresses. False for a request that Calico's plugins refuse.
    pub(crate) fn wants_any(&self, pod: &Pod) -> bool {
        let configuration = self.configurations.of_cluster();
        let namespace = pod.namespace().to_string();
        let wanted = self
            .outlook
            .wanted(pod.request.as_deref(), &namespace, configuration);
        match wanted {
            Ok(Wanted::Any { pools: [v4, v6], .. }) => v4.is_empty() && v6.is_empty(),
            Ok(Wanted::Addresses(_) | Wanted::Own(_)) | Err(_) => false,
        }
    }

    /// Returns the refusals of the next pod of a kind on a node. A refusal in one family counts although the answer in
    /// the other one is not known.
    ///
    /// # Errors
    /// If the answer depends on unknown data.
    pub(crate) fn refusals_of_kind(
        &self,
        kind: &Kind,
        node: &Node,
    ) -> Result<Vec<(Family, Arc<Refused>)>, NotKnown> {
        let mut refusals = Vec::new();
        let mut is_known = true;
        for family in Family::BOTH {
            if !kind.families[family as usize] {
                continue;
            }
            let pools = kind.pools[family as usize].as_slice();
            // Named pools serve a request whatever its namespace.
            let answer = if pools.is_empty()
                && let Some(namespace) = &kind.namespace
            {
                self.outlook.refusal_in(namespace, node, family)
            } else {
                self.outlook.refusal(node, family, pools)
            };
            match answer {
                Ok(Some(refused)) => refusals.push((family, refused)),
                Ok(None) => {}
                Err(NotKnown) => is_known = false,
            }
        }

        if refusals.is_empty() && !is_known {
            return Err(NotKnown);
        }
        Ok(refusals)
    }

    /// The kind of a node's next pod: that of most pods that run there, or else of a pod that requests nothing in
    /// particular.
    pub(crate) fn next_kind(&self, kinds: &Kinds<'s>, node: &Node) -> Kind {
        match kinds.running_on(node).first() {
            Some((most_frequent, _)) => (*most_frequent).clone(),
            None => self.plain_kind(),
        }
    }

    /// Returns the kind of a pod that requests nothing in particular: it gets the families and pools of the
    /// configuration.
    pub(crate) fn plain_kind(&self) -> Kind {
        let nothing = PodRequest::default();
        let no_namespace = "";
        let configuration = self.configurations.of_cluster();
        match self.outlook.wanted(Some(&nothing), no_namespace, configuration) {
            Ok(Wanted::Any { families, pools }) => Kind {
                families,
                pools,
                namespace: None,
            },
            _ => Kind {
                families: configuration.families,
                ..Kind::default()
            },
        }
    }
}

/// The families of which there are addresses.
pub(crate) fn families_of(addresses: impl Iterator<Item = IpAddr>) -> [bool; 2] {
    let mut families = [false; 2];
    for address in addresses {
        families[Family::of_address(address) as usize] = true;
    }
    families
}
