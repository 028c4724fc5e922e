//! The explanation of a service's addresses in words.

use std::net::IpAddr;

use calipam_model::words::joined;

use super::{FamilyOfService, ServiceExplanation, ServiceState};
use crate::names::short;

impl ServiceExplanation {
    /// Returns true if the service lacks an address because of Calico: its controller refuses one or cannot settle on
    /// one, or no controller of Calico serves the service although it has none.
    pub fn is_refused(&self) -> bool {
        match self.state {
            ServiceState::Served => {
                !self.settles || self.families.iter().any(|family| family.family.is_refused())
            }
            ServiceState::NoPool => true,
            ServiceState::Unreadable(_) => self.recorded.is_empty(),
            ServiceState::NotServed(_) => self.ingress.is_empty(),
            ServiceState::NotLoadBalancer
            | ServiceState::Deleting
            | ServiceState::OtherClass(_)
            | ServiceState::NotRequested
            | ServiceState::NotKnown => false,
        }
    }

    /// The first family that gets no address.
    pub fn refused_family(&self) -> Option<&FamilyOfService> {
        self.families.iter().find(|family| family.family.is_refused())
    }

    /// The controller's error; empty if it logs none. It logs none about a family whose pools are full, even if the other
    /// family's request fails.
    pub fn calico(&self) -> &str {
        if let ServiceState::Unreadable(why) = &self.state {
            return &why.calico;
        }
        let refused = self.families.iter().filter(|family| family.family.is_refused());
        refused
            .filter_map(FamilyOfService::calico)
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    /// Returns the answer in one sentence: whether the service has or gets addresses and why, then what is released,
    /// and what is left of earlier services.
    pub fn sentence(&self) -> String {
        let who = short(&self.service);
        let sentence = match &self.state {
            ServiceState::Served => self.addresses(&who),
            ServiceState::NotLoadBalancer => {
                format!("{who} is not a LoadBalancer service, so it needs no address")
            }
            ServiceState::Deleting => {
                format!(
                    "{who} is being deleted: until its finalizers are done, Calico treats it like any other service"
                )
            }
            ServiceState::OtherClass(class) => {
                format!("Calico does not serve {who}: its loadBalancerClass is {class:?}")
            }
            ServiceState::NotRequested => format!(
                "Calico does not serve {who}: assignIPs is RequestedServicesOnly, and the service has neither Calico's class nor one of its annotations"
            ),
            ServiceState::NotServed(why) => format!("{who} gets no address from Calico: {why}"),
            ServiceState::NoPool => format!("{who} gets no address: no pool is for LoadBalancer services"),
            ServiceState::Unreadable(why) if self.recorded.is_empty() => {
                format!("{who} gets no address: the controller cannot read {}", why.field)
            }
            ServiceState::Unreadable(why) => {
                let has = joined(&self.recorded, ", ");
                format!("{who} keeps {has}, but the controller cannot read {}", why.field)
            }
            ServiceState::NotKnown => {
                format!("it is not known which address {who} gets: the data is incomplete")
            }
        };
        let released = if self.is_abandoned {
            format!("; the controller releases {}", joined(&self.recorded, ", "))
        } else {
            String::new()
        };
        let sentence = sentence + &released + &self.unrecorded() + &self.earlier();
        match &self.unread_wish {
            Some(wish) => {
                format!("{sentence}; this version of Calico does not read its spec.loadBalancerIP {wish}")
            }
            None => sentence,
        }
    }

    /// The clause about addresses in the status that are recorded neither for the service nor for an earlier one of its
    /// name, and are not assigned to it; empty if there are none, or if another controller may have set them.
    fn unrecorded(&self) -> String {
        let is_replaced = match self.state {
            ServiceState::Served => self.settles,
            ServiceState::NoPool => self.is_abandoned,
            ServiceState::Unreadable(_) => false,
            _ => return String::new(),
        };
        let given: Vec<IpAddr> = self.given().collect();
        let mut unrecorded = self.ingress.clone();
        unrecorded.retain(|address| {
            let is_known = [&self.recorded, &self.of_earlier, &given];
            !is_known.iter().any(|known| known.contains(address))
        });
        if unrecorded.is_empty() {
            return String::new();
        }
        let addresses = joined(&unrecorded, ", ");
        if is_replaced {
            format!("; the controller removes {addresses} from its status: not recorded for the service")
        } else {
            format!("; its status lists {addresses}, not recorded for the service")
        }
    }

    /// The clause about the addresses of an earlier service of this name; empty if there are none.
    fn earlier(&self) -> String {
        let are = match self.of_earlier.len() {
            0 => return String::new(),
            1 => "is",
            _ => "are",
        };
        let addresses = joined(&self.of_earlier, ", ");
        format!("; {addresses} {are} still recorded for an earlier service of this name")
    }

    /// Describes the addresses that a service keeps, gets, lacks and loses, in one sentence.
    fn addresses(&self, who: &str) -> String {
        if !self.settles {
            return format!(
                "the controller assigns and releases the address of {who} again and again: what the service names does not include the address that it gets"
            );
        }
        let mut parts: Vec<String> = Vec::new();
        let kept: Vec<IpAddr> = self.kept().collect();
        if !kept.is_empty() {
            let unpublished = self.unpublished(&kept);
            parts.push(format!("{who} has {}{unpublished}", joined(&kept, ", ")));
        }

        let mut given: Vec<IpAddr> = self.given().collect();
        given.retain(|address| !kept.contains(address));
        if !given.is_empty() {
            parts.push(format!("IPAM can assign {} to {who}", joined(&given, ", ")));
        }

        let mut released: Vec<IpAddr> = Vec::new();
        for family in &self.families {
            if family.family.is_refused() {
                let why = family.why().unwrap_or_default();
                parts.push(format!("{who} gets no {} address: {why}", family.family.family));
            }
            released.extend(&family.family.released);
        }
        if !released.is_empty() {
            let released = joined(&released, ", ");
            parts.push(format!(
                "the controller releases {released}, which the service does not name"
            ));
        }

        if parts.is_empty() {
            return format!("{who} asks for no address");
        }
        parts.join("; ")
    }

    /// The recorded addresses that the service keeps.
    fn kept(&self) -> impl Iterator<Item = IpAddr> {
        self.families
            .iter()
            .flat_map(|family| family.family.kept.iter().copied())
    }

    /// The addresses that IPAM assigns to the service.
    fn given(&self) -> impl Iterator<Item = IpAddr> {
        let answers = self.families.iter().filter_map(FamilyOfService::answer);
        answers
            .filter_map(|answer| answer.outcome.as_ref().ok())
            .map(|assigned| assigned.address)
    }

    /// The clause about kept addresses that the service's status lacks; empty if it lists all of them.
    fn unpublished(&self, kept: &[IpAddr]) -> &'static str {
        let is_published = kept.iter().all(|address| self.ingress.contains(address));
        if is_published {
            ""
        } else {
            ", which its status does not list"
        }
    }
}
