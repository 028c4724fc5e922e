//! Nodes, and the choice of a node for the next pod.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use calipam_assign::MemoryNotes;
use calipam_model::node::Node;

use crate::engine::{Engine, Lock, TaskId};
use crate::random::Random;
use crate::scenario::Scenario;

/// The purpose of the random numbers that decide the weights of nodes; "node".
const RANDOM_STREAM: u64 = 0x6e6f_6465;

pub(crate) struct NodeState {
    pub name: Rc<str>,
    /// The number of pods that this node gets when the average node gets a hundred.
    weight: u32,
    /// The lock that the calls of the node's plugin take.
    pub lock: Lock,
    /// The full blocks that searches found, which the plugin keeps next to the lock.
    pub notes: Arc<MemoryNotes>,
    /// True if the machine is running and reaches the control plane.
    pub is_alive: bool,
    /// True if the node's object exists in the cluster.
    pub is_in_cluster: bool,
    /// On Kubernetes, true if the node's affinities have labels.
    pub is_labelled: Rc<Cell<bool>>,
    /// The node's pods that are not gone.
    pub pods: BTreeSet<u32>,
    /// The current tasks by pod; some pods have none.
    tasks: BTreeMap<u32, TaskId>,
}

pub(crate) struct Nodes {
    all: Vec<NodeState>,
    /// The nodes that take pods, in any order.
    open: Vec<u32>,
    /// The index of each node in `open`; `None` for nodes that take no pods.
    index_in_open: Vec<Option<usize>>,
    /// True for nodes that are known to be down, or were removed.
    closed: Vec<bool>,
    /// The pod limit of each node.
    max_pods: usize,
}

impl Nodes {
    /// Creates the nodes, all open for pods. With `pod_spread`, each has a random weight, so that some get more pods
    /// than others.
    pub(crate) fn new(engine: &Engine, scenario: &Scenario) -> Self {
        let count = scenario.node_count();
        let mut random = Random::new(scenario.seed, RANDOM_STREAM);
        let least_weight = 100 - scenario.pod_spread;
        let mut all = Vec::with_capacity(count as usize);
        for index in 0..count {
            // From 0 to twice the spread, so that the mean weight is 100.
            let additional_weight = random.below(u64::from(scenario.pod_spread) * 2 + 1);
            all.push(NodeState {
                name: scenario.node_name(index).into(),
                weight: least_weight + additional_weight as u32,
                lock: Lock::new(engine),
                notes: Arc::default(),
                is_alive: true,
                is_in_cluster: true,
                is_labelled: Rc::default(),
                pods: BTreeSet::new(),
                tasks: BTreeMap::new(),
            });
        }

        Self {
            all,
            open: (0..count).collect(),
            index_in_open: (0..count as usize).map(Some).collect(),
            closed: vec![false; count as usize],
            max_pods: scenario.max_pods_per_node as usize,
        }
    }

    pub(crate) fn get(&self, index: u32) -> &NodeState {
        &self.all[index as usize]
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut NodeState {
        &mut self.all[index as usize]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &NodeState)> {
        (0..).zip(&self.all)
    }

    /// Chooses the node for the next pod: of two random nodes that take pods, the one with fewer pods for its weight.
    /// `None` if no node takes pods.
    pub(crate) fn choose(&self, random: &mut Random) -> Option<u32> {
        let mut draw = || {
            let index = random.below(self.open.len() as u64) as usize;
            self.open.get(index).copied()
        };
        let first = draw()?;
        let second = draw()?;

        // Compares the quotients of pods and weight without dividing: each number is multiplied by the other's weight.
        let first_node = self.get(first);
        let second_node = self.get(second);
        let first_load = first_node.pods.len() as u64 * u64::from(second_node.weight);
        let second_load = second_node.pods.len() as u64 * u64::from(first_node.weight);
        if second_load < first_load {
            Some(second)
        } else {
            Some(first)
        }
    }

    pub(crate) fn forget_notes(&mut self) {
        for node in &mut self.all {
            node.notes = Arc::default();
        }
    }

    pub(crate) fn add_pod(&mut self, node: u32, pod: u32) {
        self.get_mut(node).pods.insert(pod);
        self.reconsider(node);
    }

    pub(crate) fn remove_pod(&mut self, node: u32, pod: u32) {
        self.get_mut(node).pods.remove(&pod);
        self.get_mut(node).tasks.remove(&pod);
        self.reconsider(node);
    }

    /// Sets a node's current task for a pod; `None` if it has ended. A node that fails ends its tasks. The task of a
    /// pod that the node no longer has is not kept.
    pub(crate) fn set_task(&mut self, node: u32, pod: u32, task: Option<TaskId>) {
        let state = self.get_mut(node);
        state.tasks.remove(&pod);
        if let Some(task) = task
            && state.pods.contains(&pod)
        {
            state.tasks.insert(pod, task);
        }
    }

    /// Marks a node as failed, and returns its tasks for the caller to kill.
    pub(crate) fn fail(&mut self, node: u32) -> Vec<TaskId> {
        let state = self.get_mut(node);
        state.is_alive = false;
        std::mem::take(&mut state.tasks).into_values().collect()
    }

    /// Closes a node for new pods.
    pub(crate) fn close(&mut self, node: u32) {
        self.closed[node as usize] = true;
        self.reconsider(node);
    }

    /// Lists a node among those that take pods, or removes it from them, by the number of pods that it has and by
    /// whether it is closed. Takes the same time for any number of nodes.
    fn reconsider(&mut self, node: u32) {
        let takes_pods = !self.closed[node as usize] && self.get(node).pods.len() < self.max_pods;
        let listed_at = self.index_in_open[node as usize];
        if takes_pods == listed_at.is_some() {
            return;
        }

        let Some(index) = listed_at else {
            self.index_in_open[node as usize] = Some(self.open.len());
            self.open.push(node);
            return;
        };
        self.index_in_open[node as usize] = None;
        // The last open node moves to the removed one's place.
        self.open.swap_remove(index);
        if let Some(moved) = self.open.get(index) {
            self.index_in_open[*moved as usize] = Some(index);
        }
    }
}

/// Returns a node's record in the datastore: that of the cluster with which the scenario begins, or else a new one with
/// the label that every node has.
pub(super) fn record(scenario: &Scenario, index: u32) -> Node {
    let start = scenario.start.as_ref();
    if let Some(node) = start.and_then(|start| start.nodes.get(index as usize)) {
        return node.clone();
    }
    let name = scenario.node_name(index);
    let labels = [("kubernetes.io/hostname".to_owned(), name.clone())];
    Node {
        kubernetes_name: Some(name.clone()),
        name,
        labels: labels.into(),
        ..Node::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_nodes_spread_as_in_the_scenario() {
        let pods = |pod_spread| -> (usize, usize) {
            let scenario = Scenario {
                nodes: 50,
                pod_spread,
                ..Scenario::default()
            };
            let mut nodes = Nodes::new(&Engine::default(), &scenario);
            let mut random = Random::new(1, 0);
            for pod in 0..50 * 40 {
                let node = nodes.choose(&mut random).unwrap();
                nodes.add_pod(node, pod);
            }
            let counts = || nodes.all.iter().map(|node| node.pods.len());
            (counts().min().unwrap(), counts().max().unwrap())
        };
        let ((least, most), (fewest, many)) = (pods(0), pods(20));
        assert!(least >= 37 && most <= 42, "{least} {most}");
        assert!(
            (29..=35).contains(&fewest) && (45..=51).contains(&many),
            "{fewest} {many}"
        );
    }

    #[test]
    fn full_and_closed_nodes_take_no_pods() {
        let scenario = Scenario {
            nodes: 3,
            max_pods_per_node: 2,
            ..Scenario::default()
        };
        let mut nodes = Nodes::new(&Engine::default(), &scenario);
        let mut random = Random::new(1, 0);
        nodes.close(1);
        for pod in 0..4 {
            let node = nodes.choose(&mut random).unwrap();
            assert_ne!(node, 1);
            nodes.add_pod(node, pod);
        }
        assert_eq!(nodes.choose(&mut random), None);
        nodes.remove_pod(2, *nodes.get(2).pods.first().unwrap());
        assert_eq!(nodes.choose(&mut random), Some(2));
    }
}
