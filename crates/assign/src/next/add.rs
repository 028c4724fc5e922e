//! The outcome of ADD for a pod: what Calico's plugins do, in their order, on the snapshot.

use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::plugin::Plugin;
use calipam_model::snapshot::{DatastoreKind, Defect, Snapshot, Source};
use calipam_model::{CniConfiguration, IpNet};

use super::answer::{Answer, PANIC, Refused};
use super::machine::MachineAddresses;
use super::reason::Reason;
use super::request::{Asked, PodAdd, Wanted, check_mac, check_rest, check_source_prefixes};
use super::{NextAddress, NotKnown, Outlook};
use crate::family::Family;

/// The state of an ADD when the plugins turn to the allocator.
enum Step {
    /// The pod's virtual machine already has these addresses, or the pod bypasses IPAM with them.
    Already(Vec<IpAddr>),
    /// The pod wants these addresses.
    Addresses(Vec<IpAddr>, Option<String>),
    /// The pod wants any address of each of the families, from these pools.
    Any {
        families: [bool; 2],
        pools: [Vec<IpNet>; 2],
        machine: Option<String>,
    },
}

impl<'s> Outlook<'s> {
    /// Returns the answer in each family that the pod asks for, IPv4 first. If Calico's plugins refuse the pod as a
    /// whole, that is the answer in every family.
    pub fn add(&self, pod: &PodAdd<'_>) -> Vec<(Family, Answer)> {
        let mut answers = match self.step(pod) {
            Ok(step) => self.answers(pod, step),
            Err(refused) => return self.in_all_families(pod, |_| Answer::refused(refused.clone())),
        };
        let mut families = [false; 2];
        for (family, _) in &answers {
            families[*family as usize] = true;
        }
        if answers.iter().all(|(_, answer)| answer.outcome.is_ok())
            && let Err(refused) = check_rest(pod, families, self.indexed.snapshot.datastore)
        {
            for (_, answer) in &mut answers {
                answer.outcome = Err(refused.clone());
            }
        }
        answers
    }

    /// Returns the refusal in each family in which the pod gets no address, as [`Self::add`] does, but quickly for many
    /// pods. `node` is the pod's node, if Calico knows it. A refusal in one family counts although the answer in the
    /// other one is not known, since Calico then refuses the pod.
    ///
    /// # Errors
    /// If the answer depends on unknown data.
    pub fn refusals(
        &self,
        pod: &PodAdd<'_>,
        node: Option<&Node>,
    ) -> Result<Vec<(Family, Arc<Refused>)>, NotKnown> {
        let everywhere = |refused: Refused| {
            let refused = Arc::new(refused);
            self.in_all_families(pod, |_| Arc::clone(&refused))
        };
        let step = match self.step(pod) {
            Ok(step) => step,
            Err(refused) => return Ok(everywhere(refused)),
        };
        let mut refusals = Vec::new();
        let mut is_known = true;
        let mut given = [false; 2];
        if let Step::Any {
            families,
            pools,
            machine: None,
        } = &step
            && let Some(node) = node
        {
            // The usual request, for which many nodes share one answer.
            given = *families;
            for family in asked(*families) {
                let named_pools = pools[family as usize].as_slice();
                let refusal = if named_pools.is_empty() {
                    self.refusal_in(pod.namespace, node, family)
                } else {
                    self.refusal(node, family, named_pools)
                };
                match refusal {
                    Ok(Some(refused)) => refusals.push((family, refused)),
                    Ok(None) => {}
                    Err(NotKnown) => is_known = false,
                }
            }
        } else {
            for (family, answer) in self.answers(pod, step) {
                given[family as usize] = true;
                if let Err(refused) = answer.outcome {
                    refusals.push((family, Arc::new(refused)));
                }
            }
        }
        if !refusals.is_empty() {
            return Ok(refusals);
        }
        match check_rest(pod, given, self.indexed.snapshot.datastore) {
            Err(refused) => Ok(everywhere(refused)),
            Ok(()) if is_known => Ok(refusals),
            Ok(()) => Err(NotKnown),
        }
    }

    /// Calls `answer` for each family that the pod asks for. If it asks for none, the configuration counts, and then
    /// Calico's default, so that there is at least one answer.
    fn in_all_families<T>(&self, pod: &PodAdd<'_>, answer: impl Fn(Family) -> T) -> Vec<(Family, T)> {
        let mut families = self.families_of(pod.request, pod.namespace, pod.configuration);
        if families == [false; 2] {
            families = pod.configuration.families;
        }
        if families == [false; 2] {
            families = CniConfiguration::default().families;
        }
        asked(families).map(|family| (family, answer(family))).collect()
    }

    /// Gives a pod the addresses that its virtual machine has already. If the pod names an address, the main plugin takes
    /// the machine's first one instead.
    ///
    /// # Errors
    /// If the pod names two: the plugin takes the first one for each of them, which fails.
    fn keep_of_machine(
        &self,
        pod: &PodAdd<'_>,
        asked: &Asked,
        mut addresses: Vec<IpAddr>,
    ) -> Result<Step, Refused> {
        let Asked::Addresses(named) = asked else {
            return Ok(Step::Already(addresses));
        };
        if named.len() > 1 {
            let is_of = |family| move |address: &IpAddr| Family::of_address(*address) == family;
            let v4 = addresses.iter().copied().find(is_of(Family::V4));
            let v6 = addresses.iter().copied().find(is_of(Family::V6));
            // Calico goes through the machine's blocks in random order. If both calls begin with the same one, the kubelet
            // tries again.
            if let Some(v4) = v4
                && let Some(v6) = v6
                && self.plugin_on(pod.node) == Plugin::Calico
            {
                return Ok(Step::Already(vec![v4, v6]));
            }
            return Err(one_for_each(pod, addresses[0]));
        }
        addresses.truncate(1);
        Ok(Step::Already(addresses))
    }

    /// Goes through the plugins' steps before the allocator's.
    ///
    /// # Errors
    /// If the plugins refuse the pod, whatever addresses are free.
    fn step(&self, pod: &PodAdd<'_>) -> Result<Step, Refused> {
        if let Some(refused) = self.cluster_refusal() {
            return Err(refused);
        }
        if let Some(request) = pod.request {
            check_source_prefixes(&request.annotations)?;
        }

        let asked = self.asked(pod.request, pod.namespace, pod.configuration)?;
        let machine = match &asked {
            Asked::Own(_) => None,
            // The main plugin asks for given addresses itself, and puts its own words before the error.
            Asked::Addresses(_) => self.machine_of(pod).map_err(Refused::of_main_plugin)?,
            Asked::Any { .. } => self.machine_of(pod)?,
        };
        let mut machine_handle = None;
        if let Some(MachineAddresses { handle, addresses }) = machine {
            if !addresses.is_empty() {
                return self.keep_of_machine(pod, &asked, addresses);
            }
            machine_handle = Some(handle);
        }
        Ok(match self.wanted_of(asked, pod.configuration)? {
            Wanted::Own(addresses) => Step::Already(addresses),
            Wanted::Addresses(addresses) => Step::Addresses(addresses, machine_handle),
            Wanted::Any { families, pools } => Step::Any {
                families,
                pools,
                machine: machine_handle,
            },
        })
    }

    /// Asks the allocator for the addresses that are left to assign after the plugins' own steps.
    fn answers(&self, pod: &PodAdd<'_>, step: Step) -> Vec<(Family, Answer)> {
        match step {
            Step::Already(addresses) => {
                let answer = |address: IpAddr| (Family::of_address(address), self.answer_held(address));
                addresses.into_iter().map(answer).collect()
            }
            Step::Addresses(addresses, machine) => self.named_answers(pod, &addresses, machine.as_deref()),
            Step::Any {
                families,
                pools,
                machine,
            } => self.any_answers(pod, families, &pools, machine.as_deref()),
        }
    }

    /// Asks the allocator for the addresses that the pod names, until one is refused.
    fn named_answers(
        &self,
        pod: &PodAdd<'_>,
        addresses: &[IpAddr],
        machine: Option<&str>,
    ) -> Vec<(Family, Answer)> {
        let mut answers = Vec::new();
        for &address in addresses {
            let mut answer = self.next_named(pod.node, address, machine, pod.held);
            if let Err(refused) = answer.outcome {
                answer.outcome = Err(self.own_record(pod, address, refused).of_main_plugin());
            }
            let is_refused = answer.outcome.is_err();
            // The plugin takes the machine's first address for each of the two, which fails.
            if machine.is_some() && !is_refused && addresses.len() > 1 {
                return self.in_all_families(pod, |_| Answer::refused(one_for_each(pod, address)));
            }
            answers.push((Family::of_address(address), answer));
            if is_refused {
                break;
            }
        }
        answers
    }

    /// Asks the allocator for any address of each of the families.
    fn any_answers(
        &self,
        pod: &PodAdd<'_>,
        families: [bool; 2],
        pools: &[Vec<IpNet>; 2],
        machine: Option<&str>,
    ) -> Vec<(Family, Answer)> {
        let labels = self.namespace(pod.namespace).map(|namespace| &namespace.labels);
        let request = |family: Family| NextAddress {
            node: pod.node,
            family,
            pools: &pools[family as usize],
            namespace_labels: labels,
            machine,
        };
        let mut answers: Vec<(Family, Answer)> = asked(families)
            .map(|family| (family, self.next(&request(family))))
            .collect();

        // The first attempt assigns IPv4 before it fails on IPv6.
        if let [(v4, given), (_, failed)] = answers.as_mut_slice()
            && failed.first.is_some()
            && given.outcome.is_ok()
            && given.first.is_none()
            && machine.is_none()
        {
            *given = self.next_after_release(&request(*v4));
        }
        answers
    }

    /// The refusal of every pod because of the cluster information.
    pub fn cluster_refusal(&self) -> Option<Refused> {
        cluster_refusal(self.indexed.snapshot)
    }

    /// Changes the reason if a taken address is recorded for the pod itself, under another container.
    fn own_record(&self, pod: &PodAdd<'_>, address: IpAddr, refused: Refused) -> Refused {
        let is_taken = matches!(refused.reason, Reason::Taken(_));
        if !is_taken || !self.is_recorded_for(pod, address) {
            return refused;
        }
        Refused {
            reason: Reason::TakenByEarlier(address),
            ..refused
        }
    }

    /// Returns true if the record of an address names the pod. If no block can be read around it, it counts as
    /// another's.
    fn is_recorded_for(&self, pod: &PodAdd<'_>, address: IpAddr) -> bool {
        let Some(cidr) = self.indexed.block_around(address) else {
            return false;
        };
        let Some(stored) = self.indexed.block(cidr) else {
            return false;
        };
        let Some(block) = stored.value.content.usable() else {
            return false;
        };
        let Some(allocation) = block.allocation_of(address) else {
            return false;
        };

        let has_attribute = |key: &str, expected: &str| {
            let value = allocation.attribute.get(key);
            value.is_some_and(|value| value == *expected)
        };
        has_attribute("namespace", pod.namespace) && has_attribute("pod", pod.name)
    }
}

/// Returns the refusal of every pod because of the cluster information, which Calico's main plugin reads first; `None`
/// if it allows pods, or if it was not read or cannot be decoded. Calico 2 has none.
pub fn cluster_refusal(snapshot: &Snapshot) -> Option<Refused> {
    let is_broken = |defect: &Defect| matches!(defect.key, Some(Key::ClusterInformation(_)));
    let is_known = snapshot.has_read(Source::ClusterInformation) && !snapshot.defects.iter().any(is_broken);
    if snapshot.datastore == DatastoreKind::EtcdV2 || !is_known {
        return None;
    }
    let Some(cluster) = &snapshot.cluster else {
        let detail = match (snapshot.datastore, snapshot.is_native) {
            (DatastoreKind::Kubernetes, false) => {
                "clusterinformations.crd.projectcalico.org \"default\" not found"
            }
            (DatastoreKind::Kubernetes, true) => {
                "clusterinformations.projectcalico.org \"default\" not found"
            }
            _ => "<nil>",
        };
        let calico_message = format!(
            "error getting ClusterInformation: resource does not exist: ClusterInformation(default) with error: {detail}"
        );
        return Some(Refused::new(Reason::NoClusterInformation, calico_message));
    };
    match cluster.datastore_ready {
        Some(true) => None,
        Some(false) => Some(Refused::new(
            Reason::NotReady,
            "Calico is currently not ready to process requests",
        )),
        None => Some(Refused::new(Reason::ReadyNotSet, PANIC)),
    }
}

/// The families that are true in `families`, IPv4 first.
fn asked(families: [bool; 2]) -> impl Iterator<Item = Family> {
    Family::BOTH
        .into_iter()
        .filter(move |family| families[*family as usize])
}

/// The refusal of a pod that gets its virtual machine's address for each of the two addresses that it names: the main
/// plugin adds it to the container's interface twice, right after it has set the MAC address. Its message shows the
/// whole interface, of which nothing is known.
fn one_for_each(pod: &PodAdd<'_>, address: IpAddr) -> Refused {
    if let Err(refused) = check_mac(pod) {
        return refused;
    }
    let calico_message = "failed to add IP addr to …: file exists";
    Refused::new(Reason::OneForEach(address), calico_message)
}

impl Refused {
    /// The refusal of a given address, as the main plugin passes it on.
    fn of_main_plugin(mut self) -> Self {
        self.calico.insert_str(0, "error getting IP from IPAM: ");
        self
    }
}
