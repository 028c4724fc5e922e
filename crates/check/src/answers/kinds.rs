//! The kinds of pods that run on each node, and the pods that wait there.

use std::collections::HashMap;

use calipam_assign::{Refused, Wanted};
use calipam_model::IpNet;
use calipam_model::node::Node;
use calipam_model::pod::Pod;
use calipam_model::pool::Pool;
use calipam_model::snapshot::{DatastoreKind, Source};
use calipam_model::text::Text;
use jiff::SignedDuration;

use super::Answers;
use crate::{Context, FastMap};

/// The age from which a pod without an address counts as waiting.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// Pods with the same request, whose successors get the same answers on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub families: [bool; 2],
    /// The pools that the pods name.
    pub pools: [Vec<IpNet>; 2],
    /// The namespace, if a pool selects namespaces.
    pub namespace: Option<String>,
}

/// The pods on a node, by packed name of the node.
#[derive(Default)]
pub(crate) struct Kinds<'s> {
    kinds: Vec<Kind>,
    of_nodes: FastMap<&'s [u8], PodsOfNode<'s>>,
}

#[derive(Default)]
struct PodsOfNode<'s> {
    /// The number of pods of each kind that run on the node; kinds by position.
    running: Vec<(usize, usize)>,
    /// True if the node has a pod that is not finished and has or needs an address of its own.
    has_pods: bool,
    waiting: Vec<&'s Pod>,
    /// The refusals of pods that run, but whose requests Calico would refuse if they started again.
    refused: Vec<Refused>,
}

impl<'s> Kinds<'s> {
    /// Groups the pods of each node by their kind of request. If pods were not read, each endpoint counts as a plain
    /// pod.
    pub(crate) fn new(answers: &Answers<'_, 's>) -> Self {
        if answers.context.snapshot.has_read(Source::Pods) {
            Self::of_pods(answers)
        } else {
            Self::of_endpoints(answers)
        }
    }

    /// Counts each endpoint as a plain pod on its node. No pod waits, as far as endpoints show.
    fn of_endpoints(answers: &Answers<'_, 's>) -> Self {
        let plain = 0;
        let mut of_nodes: FastMap<&[u8], PodsOfNode<'_>> = FastMap::default();
        for stored in &answers.context.snapshot.endpoints {
            let endpoint = &stored.value;
            if !endpoint.is_of_openstack() {
                let of_node = of_nodes.entry(endpoint.node().packed()).or_default();
                of_node.count(plain);
            }
        }
        Self {
            kinds: vec![answers.plain_kind()],
            of_nodes,
        }
    }

    /// Sorts the pods of each node into those that wait for an address, and the kinds of those that have one from
    /// Calico.
    fn of_pods(answers: &Answers<'_, 's>) -> Self {
        let context = answers.context;
        let requests = Requests::new(answers);
        let mut kinds = KindList::default();
        let mut of_nodes: FastMap<&[u8], PodsOfNode<'_>> = FastMap::default();
        for stored in &context.snapshot.pods {
            let pod = &stored.value;
            if pod.finished || pod.host_network || pod.node().is_empty() {
                continue;
            }
            let of_node = of_nodes.entry(pod.node().packed()).or_default();
            of_node.has_pods = true;
            // A pod that has only just been created will get its address in a moment.
            if pod.waits() {
                if pod.is_older_than(PATIENCE, context.now) {
                    of_node.waiting.push(pod);
                }
                continue;
            }
            if pod.deleting || !is_served(context, pod) {
                continue;
            }
            match requests.kind_of(pod) {
                Ok(Some(kind)) => of_node.count(kinds.position(kind)),
                // Its successor needs no further address.
                Ok(None) => {}
                Err(refused) => of_node.refused.push(refused),
            }
        }
        Self {
            kinds: kinds.list,
            of_nodes,
        }
    }

    /// The refusals of pods that run on a node, but whose requests Calico would refuse if they started again.
    pub(crate) fn refused_on(&self, node: &Node) -> &[Refused] {
        self.of_node(node).map_or(&[], |of_node| &of_node.refused)
    }

    /// The kinds of the pods that run on a node, each with the number of pods, the most frequent first.
    pub(crate) fn running_on(&self, node: &Node) -> Vec<(&Kind, usize)> {
        let Some(of_node) = self.of_node(node) else {
            return Vec::new();
        };
        let mut running = of_node.running.clone();
        running.sort_by_key(|(kind, count)| (std::cmp::Reverse(*count), *kind));
        running
            .into_iter()
            .map(|(kind, count)| (&self.kinds[kind], count))
            .collect()
    }

    /// True if pods that have or need addresses of their own are on a node.
    pub(crate) fn has_pods(&self, node: &Node) -> bool {
        self.of_node(node).is_some_and(|of_node| of_node.has_pods)
    }

    /// All waiting pods.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &'s Pod> {
        self.of_nodes
            .values()
            .flat_map(|of_node| of_node.waiting.iter().copied())
    }

    /// Returns the pods on a node, which they name as in Calico or as in Kubernetes; `None` if there are none.
    fn of_node(&self, node: &Node) -> Option<&PodsOfNode<'s>> {
        node.names()
            .find_map(|name| self.of_nodes.get(Text::new(name).as_ref().packed()))
    }
}

/// The different kinds, in the order in which they were found.
#[derive(Default)]
struct KindList {
    list: Vec<Kind>,
    positions: HashMap<Kind, usize>,
}

impl KindList {
    /// Returns the position of a kind, which is added if it is missing.
    fn position(&mut self, kind: Kind) -> usize {
        if let Some(position) = self.positions.get(&kind) {
            return *position;
        }
        let position = self.list.len();
        self.list.push(kind.clone());
        self.positions.insert(kind, position);
        position
    }
}

impl PodsOfNode<'_> {
    /// Adds a running pod of a kind, which is given by its position.
    fn count(&mut self, kind: usize) {
        self.has_pods = true;
        match self.running.iter_mut().find(|(counted, _)| *counted == kind) {
            Some((_, count)) => *count += 1,
            None => self.running.push((kind, 1)),
        }
    }
}

/// True if Calico networks a running pod.
fn is_served(context: &Context<'_>, pod: &Pod) -> bool {
    pod.addresses().next().is_some()
        && (context.snapshot.datastore != DatastoreKind::Kubernetes || pod.is_annotated())
}

/// The requests of pods, as far as they differ from the requests of others.
struct Requests<'a, 'c, 's> {
    answers: &'a Answers<'c, 's>,
    /// True if a namespace names pools or families.
    namespaces_ask: bool,
    /// True if a pool selects namespaces.
    selects_namespaces: bool,
}

impl<'a, 'c, 's> Requests<'a, 'c, 's> {
    /// Looks for annotations of namespaces and for namespace selectors, on which a pod's request can depend.
    fn new(answers: &'a Answers<'c, 's>) -> Self {
        let snapshot = answers.context.snapshot;
        let mut namespaces = snapshot.namespaces.iter().flat_map(|all| all.values());
        let mut pools = snapshot.pools.iter().map(|stored| &stored.value);
        Self {
            answers,
            namespaces_ask: namespaces.any(|namespace| namespace.annotations != Default::default()),
            selects_namespaces: pools.any(Pool::selects_namespaces),
        }
    }

    /// Returns the kind of a pod that has addresses. `None` for a pod with addresses of its own choice or of its virtual
    /// machine: its successor gets the same ones.
    ///
    /// # Errors
    /// If Calico would refuse the request if the pod started again.
    fn kind_of(&self, pod: &Pod) -> Result<Option<Kind>, Refused> {
        // Pods of different namespaces are of one kind if no pool selects namespaces.
        let kind_namespace = if self.selects_namespaces {
            Some(pod.namespace().to_string())
        } else {
            None
        };
        if pod.request.is_none() && !self.namespaces_ask {
            return Ok(Some(Kind {
                namespace: kind_namespace,
                ..self.answers.plain_kind()
            }));
        }
        let request = pod.request.as_deref();
        if request.is_some_and(|request| request.machine.is_some()) {
            return Ok(None);
        }

        let configuration = self.answers.configurations.of_cluster();
        let outlook = &self.answers.outlook;
        match outlook.wanted(request, &pod.namespace().to_string(), configuration)? {
            Wanted::Any { families, pools } => {
                let mut of_families = families.into_iter().zip(&pools);
                let names_all_pools = of_families.all(|(is_asked, pools)| !is_asked || !pools.is_empty());
                let namespace = if names_all_pools { None } else { kind_namespace };
                Ok(Some(Kind {
                    families,
                    pools,
                    namespace,
                }))
            }
            Wanted::Addresses(_) | Wanted::Own(_) => Ok(None),
        }
    }
}
