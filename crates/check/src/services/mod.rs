//! Calico's LoadBalancer controller on a snapshot: which services it serves, the addresses that it has given them, and
//! those that it gives or refuses. The rule `service-without-address` and `explain --service` take their answers here.

mod explanation;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use calipam_assign::{
    Answer, Family, NotAsked, Outlook, Reason, ServiceAnswer, ServiceCall, ServiceFamily, ServiceOutcome,
};
use calipam_model::affinity::LOAD_BALANCER;
use calipam_model::block::BlockOwner;
use calipam_model::config::{LoadBalancerController, NotServed};
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::service::Service;
use calipam_model::service::request::{self, ServiceRequest, Unreadable};
use calipam_model::snapshot::Snapshot;

use crate::Context;
use crate::names::name_of_claim;

/// The explanation for a service.
#[derive(Clone, Debug)]
pub struct ServiceExplanation {
    /// `namespace/name`.
    pub service: String,
    pub state: ServiceState,
    /// The addresses that Calico has recorded for the service.
    pub recorded: Vec<IpAddr>,
    /// The addresses that are still recorded for an earlier service of the same name.
    pub of_earlier: Vec<IpAddr>,
    /// True if the controller releases the recorded addresses, because it does not serve the service.
    pub is_abandoned: bool,
    /// The addresses in the service's status.
    pub ingress: Vec<IpAddr>,
    /// The families, IPv4 first; empty unless the service is served.
    pub families: Vec<FamilyOfService>,
    /// False if the controller assigns and releases addresses again and again.
    pub settles: bool,
    /// The address in `spec.loadBalancerIP`, if this version of the controller does not read the field.
    pub unread_wish: Option<String>,
}

/// The state of a service's request for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// Calico's controller serves it.
    Served,
    NotLoadBalancer,
    /// It is being deleted. Until its finalizers are done, the controller treats it like any other service.
    Deleting,
    /// Its class is another controller's.
    OtherClass(String),
    /// The controller serves only services that ask for addresses.
    NotRequested,
    /// There is no controller that serves services.
    NotServed(NotServed),
    /// No pool is for services.
    NoPool,
    /// The controller cannot read an annotation, and leaves the service as it is.
    Unreadable(Unreadable),
    /// An object that the controller or the allocator needs was not read, or cannot be decoded.
    NotKnown,
}

/// A service's addresses in one family.
#[derive(Clone, Debug)]
pub struct FamilyOfService {
    pub family: ServiceFamily,
    /// The holder of the requested address, if it is taken.
    pub holder: Option<String>,
}

impl FamilyOfService {
    /// The allocator's answer, if it was asked.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.family.outcome {
            ServiceOutcome::Answered(answer) => Some(answer),
            ServiceOutcome::Satisfied | ServiceOutcome::NotAsked(_) => None,
        }
    }

    /// The reason why the controller does not ask for an address that the service lacks.
    pub fn not_asked(&self) -> Option<&NotAsked> {
        match &self.family.outcome {
            ServiceOutcome::NotAsked(why) => Some(why),
            ServiceOutcome::Satisfied | ServiceOutcome::Answered(_) => None,
        }
    }

    /// The name of the reason why there is no address.
    pub fn reason(&self) -> Option<&'static str> {
        let refused = self.answer().and_then(|answer| answer.outcome.as_ref().err());
        refused
            .map(|refused| refused.reason.name())
            .or(self.not_asked().map(NotAsked::name))
    }

    /// Returns the reason why there is no address, in words; `None` if there is one or it is not known.
    pub fn why(&self) -> Option<String> {
        let refused = self.answer().and_then(|answer| answer.outcome.as_ref().err());
        let Some(refused) = refused else {
            return self.not_asked().map(NotAsked::to_string);
        };
        if let Reason::Taken(address) = &refused.reason
            && let Some(holder) = &self.holder
        {
            return Some(format!("{address} is taken by {holder}"));
        }

        // Some reasons are worded for pods on nodes, not for services.
        Some(match &refused.reason {
            Reason::NoneAutomatic => {
                "every pool for LoadBalancer services is Manual: the service must name it".to_owned()
            }
            Reason::NoneEnabled => "no pool for LoadBalancer services is enabled".to_owned(),
            Reason::NoneSelectsNode => {
                "no pool selects the virtual node load-balancer, which has no labels".to_owned()
            }
            Reason::BlockLimit { held, limit } => {
                format!("the block limit of {limit} is reached: LoadBalancer services hold {held}")
            }
            Reason::ForeignBlock(block) => {
                format!("strict affinity is on, and block {block} does not belong to LoadBalancer services")
            }
            reason => reason.to_string(),
        })
    }

    /// The controller's error; empty if it logs none.
    pub fn calico(&self) -> Option<&str> {
        if let Some(NotAsked::Unreadable(why)) = self.not_asked() {
            return Some(&why.calico);
        }
        Some(&self.answer()?.outcome.as_ref().err()?.calico)
    }
}

/// The services of a cluster, and its controller.
pub(crate) struct Services<'c, 's> {
    context: &'c Context<'s>,
    controller: Option<Result<LoadBalancerController, NotServed>>,
    /// The pools that the controller knows.
    pools: Vec<&'s Pool>,
    /// True if an enabled pool is for services.
    pub(crate) has_pool: bool,
    outlook: OnceCell<Option<Outlook<'s>>>,
    recorded: OnceCell<Recorded>,
    /// Answers to services without an address, by request and namespace.
    remembered: RefCell<BTreeMap<(ServiceRequest, &'s str), ServiceAnswer>>,
}

impl<'c, 's> Services<'c, 's> {
    /// Finds the controller that serves the cluster's services, and the pools that it uses. Answers are found later.
    pub(crate) fn new(context: &'c Context<'s>) -> Self {
        let snapshot = context.snapshot;
        let pools = || snapshot.pools.iter().map(|stored| &stored.value);
        let controller = snapshot.serves_services();
        let serving = controller.and_then(Result::ok).unwrap_or_default();
        Self {
            context,
            controller,
            pools: serving.pools(pools()),
            has_pool: pools().any(|pool| pool.is_enabled() && pool.allows(PoolUse::LoadBalancer)),
            outlook: OnceCell::new(),
            recorded: OnceCell::new(),
            remembered: RefCell::default(),
        }
    }

    /// True if an address in a service's status is Calico's: it is recorded for the service, or in a pool for services.
    pub(crate) fn is_of_calico(&self, service: &Service, address: IpAddr) -> bool {
        self.pools.iter().any(|pool| pool.cidr.contains(&address))
            || self
                .recorded_for(service)
                .is_some_and(|recorded| recorded.contains(&address))
    }

    /// True if another controller serves services that name none: one of them has an address or host name that is not
    /// Calico's.
    pub(crate) fn has_other_controller(&self) -> bool {
        for service in self.context.snapshot.services.iter().map(|stored| &stored.value) {
            if service.request.class.is_some() || service.request.names_calico() {
                continue;
            }
            let mut ingress = service.ingress.iter();
            if service.has_hostname || ingress.any(|address| !self.is_of_calico(service, *address)) {
                return true;
            }
        }
        false
    }

    /// Explains the addresses of a service.
    pub(crate) fn explain(&self, service: &'s Service) -> ServiceExplanation {
        let no_addresses = BTreeSet::new();
        let recorded = self.recorded_for(service).unwrap_or(&no_addresses);
        let known_controller = self.controller.and_then(Result::ok);
        let is_spec_unread = known_controller.is_some_and(|controller| !controller.reads_spec_address);
        let spec_address = &service.request.spec_address;
        let unread_wish = if is_spec_unread && !spec_address.is_empty() {
            Some(spec_address.clone())
        } else {
            None
        };
        let mut explained = ServiceExplanation {
            service: service.full_name(),
            state: ServiceState::NotKnown,
            recorded: recorded.iter().copied().collect(),
            of_earlier: self.all_recorded().for_earlier(service),
            is_abandoned: false,
            ingress: service.ingress.clone(),
            families: Vec::new(),
            settles: true,
            unread_wish,
        };
        let controller = match self.serving_controller(service) {
            Ok(controller) => controller,
            Err(state) => {
                let is_unserved = matches!(
                    state,
                    ServiceState::NotLoadBalancer
                        | ServiceState::OtherClass(_)
                        | ServiceState::NotRequested
                        | ServiceState::NoPool
                );
                explained.is_abandoned = is_unserved && known_controller.is_some() && !recorded.is_empty();
                explained.state = state;
                return explained;
            }
        };
        match self.answer(service, controller, recorded) {
            Ok(Some(answer)) => {
                explained.state = ServiceState::Served;
                explained.settles = answer.settles;
                let families = answer.families.into_iter();
                explained.families = families.map(|family| self.with_holder(family)).collect();
            }
            Ok(None) => {}
            Err(why) => explained.state = ServiceState::Unreadable(why),
        }
        explained
    }

    /// The controller that serves the service.
    ///
    /// # Errors
    /// If there is none, or it has nothing to give.
    fn serving_controller(&self, service: &Service) -> Result<LoadBalancerController, ServiceState> {
        if service.is_internal {
            return Err(ServiceState::NotLoadBalancer);
        }
        let knows_classes = self
            .controller
            .and_then(Result::ok)
            .is_none_or(|controller| controller.knows_classes);
        if let Some(class) = &service.request.class
            && knows_classes
            && class != request::CALICO_CLASS
        {
            return Err(ServiceState::OtherClass(class.clone()));
        }
        if let Some(Ok(controller)) = self.controller
            && !service.is_managed(controller)
        {
            return Err(ServiceState::NotRequested);
        }
        if service.deleting {
            return Err(ServiceState::Deleting);
        }
        let controller = match self.controller {
            None => return Err(ServiceState::NotKnown),
            Some(Err(why)) => return Err(ServiceState::NotServed(why)),
            Some(Ok(controller)) => controller,
        };
        if !self.pools.is_empty() {
            return Ok(controller);
        }
        if self.context.index.pools_incomplete {
            return Err(ServiceState::NotKnown);
        }
        Err(ServiceState::NoPool)
    }

    /// The controller's answer; `None` if it depends on data that was not read or cannot be decoded.
    fn answer(
        &self,
        service: &'s Service,
        controller: LoadBalancerController,
        recorded: &BTreeSet<IpAddr>,
    ) -> Result<Option<ServiceAnswer>, Unreadable> {
        let wishes = service.request.wishes(&self.pools)?;
        let Some(outlook) = self.outlook.get_or_init(|| Outlook::new(self.context.snapshot)) else {
            return Ok(None);
        };
        let namespace = outlook.namespace(&service.namespace);
        let selects_namespaces = self.pools.iter().any(|pool| pool.selects_namespaces());
        if namespace.is_none() && selects_namespaces {
            return Ok(None);
        }

        // Services without an address get the same answer if their requests and namespaces are the same.
        let request_key = (service.request.clone(), service.namespace.as_str());
        if recorded.is_empty()
            && let Some(answer) = self.remembered.borrow().get(&request_key)
        {
            return Ok(Some(answer.clone()));
        }
        let spec_wish = if controller.reads_spec_address {
            service.request.spec_wish()
        } else {
            Ok(None)
        };
        let answer = outlook.service(&ServiceCall {
            request: &service.request,
            wishes: &wishes,
            spec_wish: &spec_wish,
            pools: &self.pools,
            namespace_labels: namespace.map(|namespace| &namespace.labels),
            recorded,
        });
        if recorded.is_empty() {
            self.remembered.borrow_mut().insert(request_key, answer.clone());
        }
        Ok(Some(answer))
    }

    /// Adds the holder of the address that the service names, if this address is taken.
    fn with_holder(&self, family: ServiceFamily) -> FamilyOfService {
        let mut holder = None;
        if let ServiceOutcome::Answered(answer) = &family.outcome
            && let Err(refused) = &answer.outcome
            && let Reason::Taken(address) = &refused.reason
        {
            holder = self.holder(*address);
        }
        FamilyOfService { family, holder }
    }

    /// The holder of an address according to its record.
    fn holder(&self, address: IpAddr) -> Option<String> {
        let index = &self.context.index;
        index.blocks_around(address).find_map(|block| {
            let allocation = block.usable?.allocation_of(address)?;
            Some(name_of_claim(&allocation.attribute))
        })
    }

    /// The addresses that the controller has recorded for a service, in blocks for services.
    fn recorded_for(&self, service: &Service) -> Option<&BTreeSet<IpAddr>> {
        self.all_recorded().by_handle.get(&service.handle())
    }

    fn all_recorded(&self) -> &Recorded {
        self.recorded
            .get_or_init(|| Recorded::in_blocks(self.context.snapshot))
    }

    /// True if the service's status lacks an address of a family.
    pub(crate) fn lacks(service: &Service, family: Family) -> bool {
        !service
            .ingress
            .iter()
            .any(|address| Family::of_address(*address) == family)
    }
}

/// The addresses that blocks for services record for services.
#[derive(Default)]
struct Recorded {
    by_handle: HashMap<String, BTreeSet<IpAddr>>,
    /// The handles under each namespace and name.
    handles: HashMap<(String, String), BTreeSet<String>>,
}

impl Recorded {
    /// Collects the addresses that the blocks for LoadBalancer services record for services that they name.
    fn in_blocks(snapshot: &Snapshot) -> Self {
        let mut recorded = Self::default();
        for stored in &snapshot.blocks {
            let content = &stored.value.content;
            let Some(block) = content.usable() else { continue };
            let is_for_services =
                matches!(content.owner(), Some(BlockOwner::Virtual(name)) if name == LOAD_BALANCER);
            if !is_for_services {
                continue;
            }
            for allocation in block.allocations() {
                let record = &allocation.attribute;
                if let Some(handle) = record.clean_handle()
                    && let Some(namespace) = record.get("namespace")
                    && let Some(name) = record.get("service")
                {
                    let handle = handle.to_string();
                    let name = (namespace.to_string(), name.to_string());
                    recorded.handles.entry(name).or_default().insert(handle.clone());
                    let addresses = recorded.by_handle.entry(handle).or_default();
                    addresses.insert(allocation.address);
                }
            }
        }
        recorded
    }

    /// The addresses that are recorded for an earlier service with the same namespace and name: under a handle that was
    /// made of another UID. Calico's controller keeps them while a service with this name exists, unless its
    /// annotations name other pools or addresses.
    fn for_earlier(&self, service: &Service) -> Vec<IpAddr> {
        let name = (service.namespace.clone(), service.name.clone());
        let Some(handles) = self.handles.get(&name) else {
            return Vec::new();
        };
        let current_handle = service.handle();
        let mut addresses = BTreeSet::new();
        for handle in handles.iter().filter(|handle| **handle != current_handle) {
            addresses.extend(self.by_handle.get(handle).into_iter().flatten().copied());
        }
        addresses.into_iter().collect()
    }
}

/// The addresses that are recorded for earlier services, by the name (`namespace/name`) of the service that Calico's
/// controller serves now.
pub fn of_earlier_services(snapshot: &Snapshot) -> BTreeMap<String, Vec<IpAddr>> {
    let mut by_name = BTreeMap::new();
    let Some(Ok(controller)) = snapshot.serves_services() else {
        return by_name;
    };
    let recorded = Recorded::in_blocks(snapshot);
    for service in snapshot.services.iter().map(|stored| &stored.value) {
        let addresses = recorded.for_earlier(service);
        if service.is_managed(controller) && !addresses.is_empty() {
            by_name.insert(service.full_name(), addresses);
        }
    }
    by_name
}
