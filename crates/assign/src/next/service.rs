//! The addresses that Calico's LoadBalancer controller gives a service (facts 2.13). The controller compares the
//! service with its records, releases addresses, and asks the allocator for new ones. It does so again after each
//! change, so the answer is the state in which nothing changes any more, if there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calipam_model::affinity::LOAD_BALANCER;
use calipam_model::plugin::Plugin;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::service::request::{ServiceRequest, Unreadable, Wishes};

use super::answer::Answer;
use super::claims::BlockLimit;
use super::{NextAddress, Outlook};
use crate::allocator::Allocator;
use crate::event::Event;
use crate::family::Family;
use crate::on_snapshot::{SnapshotStore, without_waiting};
use crate::release::Release;
use crate::request::{AssignIp, AutoAssign};

/// The number of times that the controller looks at a service before its state counts as never settled. Four are the
/// longest way to a settled state: a release, an assignment, a second release, and a look that changes nothing.
const ROUNDS: usize = 8;

/// A service that the controller looks at.
#[derive(Clone, Copy, Debug)]
pub struct ServiceCall<'r> {
    pub request: &'r ServiceRequest,
    /// The pools and addresses that the service names in annotations.
    pub wishes: &'r Wishes,
    /// The address in `spec.loadBalancerIP`, if the controller reads the field.
    pub spec_wish: &'r Result<Option<IpAddr>, Unreadable>,
    /// The pools that the controller knows.
    pub pools: &'r [&'r Pool],
    /// The labels of the service's namespace; `None` if they were not read.
    pub namespace_labels: Option<&'r BTreeMap<String, String>>,
    /// The addresses that are recorded for the service.
    pub recorded: &'r BTreeSet<IpAddr>,
}

/// The addresses of a service once the controller has looked at it.
#[derive(Clone, Debug)]
pub struct ServiceAnswer {
    /// IPv4 first.
    pub families: Vec<ServiceFamily>,
    /// False if the controller assigns and releases addresses again and again.
    pub settles: bool,
}

/// The addresses of a service in one family.
#[derive(Clone, Debug)]
pub struct ServiceFamily {
    pub family: Family,
    /// True if the service asks for an address of the family.
    pub is_needed: bool,
    /// The recorded addresses that the service keeps.
    pub kept: Vec<IpAddr>,
    /// The recorded addresses that the controller releases.
    pub released: Vec<IpAddr>,
    pub outcome: ServiceOutcome,
}

/// The controller's request to the allocator for an address of a family.
#[derive(Clone, Debug)]
pub enum ServiceOutcome {
    /// There is none, since the service needs no further address.
    Satisfied,
    Answered(Box<Answer>),
    /// There is none, for this reason.
    NotAsked(NotAsked),
}

/// The reason why the controller does not ask for an address that the service lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    /// The controller takes an IPv4 address for an IPv6 one, too, when it counts what a service lacks.
    #[error("the controller asks for no IPv6 address for a service that has an IPv4 address")]
    HasOther,
    /// The request for the other family failed.
    #[error("the controller asks for it only after it got the other family's address")]
    OtherFailed,
    /// The controller only counts the addresses that the service has, and does not compare their families.
    #[error(
        "the controller asks for no further address, since the service has as many as its ipFamilyPolicy asks for"
    )]
    HasEnough,
    #[error("{0}")]
    Unreadable(Unreadable),
}

impl NotAsked {
    /// The reason's name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::HasOther => "has-other-family",
            Self::OtherFailed => "other-family-failed",
            Self::HasEnough => "has-enough",
            Self::Unreadable(_) => "unreadable-request",
        }
    }
}

impl ServiceFamily {
    /// True if the service lacks the address of this family that it asks for, and the controller does not give it one.
    pub fn is_refused(&self) -> bool {
        let is_given = match &self.outcome {
            ServiceOutcome::Answered(answer) => answer.outcome.is_ok(),
            ServiceOutcome::Satisfied | ServiceOutcome::NotAsked(_) => false,
        };
        self.is_needed && self.kept.is_empty() && !is_given
    }
}

/// One look of the controller at a service.
#[derive(Default)]
struct Round {
    /// True if an address was released.
    has_released: bool,
    /// True if the allocator failed, so that the controller asked for nothing else.
    is_broken: bool,
    /// By family.
    answers: [Option<Answer>; 2],
    /// By family.
    not_asked: [Option<NotAsked>; 2],
}

impl Round {
    fn failed(&self) -> bool {
        self.answers
            .iter()
            .flatten()
            .any(|answer| answer.outcome.is_err())
    }
}

impl<'s> Outlook<'s> {
    /// Returns the addresses that the controller gives to a service.
    pub fn service(&self, call: &ServiceCall<'_>) -> ServiceAnswer {
        self.run(Plugin::Calico, |allocator, events| {
            let controller = Controller {
                outlook: self,
                call,
                allocator,
                events,
            };
            controller.settle()
        })
    }
}

/// Calico's LoadBalancer controller with one service, and the allocator in which its requests take effect.
struct Controller<'c, 's> {
    outlook: &'c Outlook<'s>,
    call: &'c ServiceCall<'c>,
    allocator: &'c Allocator<&'c SnapshotStore<'c>>,
    /// Takes the allocator's events so far.
    events: &'c dyn Fn() -> Vec<Event>,
}

impl Controller<'_, '_> {
    /// Repeats the controller's rounds until one of them changes nothing, and returns the addresses of the service then.
    fn settle(&self) -> ServiceAnswer {
        let mut held = self.call.recorded.clone();
        let mut outcomes = [ServiceOutcome::Satisfied, ServiceOutcome::Satisfied];
        let mut had_failed = false;
        let mut settles = false;
        for _ in 0..ROUNDS {
            let held_before = held.clone();
            let round = self.run_round(&mut held);
            for family in Family::BOTH {
                note_outcome(&mut outcomes[family as usize], &round, family);
            }

            // A failed request is repeated, because the first one may have cleaned something up.
            let is_unchanged = held == held_before;
            let is_final = !round.failed() || had_failed;
            settles = is_unchanged && !round.has_released && is_final;
            if settles {
                break;
            }
            had_failed = is_unchanged && round.failed();
        }

        let mut families = Vec::new();
        for (family, outcome) in Family::BOTH.into_iter().zip(outcomes) {
            families.push(self.describe_family(family, outcome, &held));
        }
        ServiceAnswer { families, settles }
    }

    /// Describes one family of the service: the recorded addresses that it keeps, those that are released, and the outcome.
    fn describe_family(
        &self,
        family: Family,
        outcome: ServiceOutcome,
        held: &BTreeSet<IpAddr>,
    ) -> ServiceFamily {
        let recorded = self.call.recorded.iter();
        let of_family = recorded.filter(|address| Family::of_address(**address) == family);
        let (kept, released) = of_family.partition(|address| held.contains(*address));
        ServiceFamily {
            family,
            is_needed: self.needs(family),
            kept,
            released,
            outcome,
        }
    }

    /// The addresses that the service names. The annotation takes precedence.
    fn named(&self) -> Result<Vec<IpAddr>, &Unreadable> {
        if !self.call.wishes.addresses.is_empty() {
            return Ok(self.call.wishes.addresses.clone());
        }
        match self.call.spec_wish {
            Ok(wish) => Ok(wish.iter().copied().collect()),
            Err(unreadable) => Err(unreadable),
        }
    }

    /// True if the service names addresses of a family, or asks for any address of it and names none. Addresses that
    /// cannot be read count as none.
    fn needs(&self, family: Family) -> bool {
        let named = self.named().unwrap_or_default();
        if named.is_empty() {
            return self.asks_for(family);
        }
        let mut families = named.into_iter().map(Family::of_address);
        families.any(|named_family| named_family == family)
    }

    /// True if the service asks for any address of a family, unless it names addresses.
    fn asks_for(&self, family: Family) -> bool {
        match family {
            Family::V4 => self.call.request.v4,
            Family::V6 => self.call.request.v6,
        }
    }

    /// Looks at the service once, as the controller does after each change: releases unwanted addresses, then asks for
    /// missing ones. `held` are the addresses of the service, before and after.
    fn run_round(&self, held: &mut BTreeSet<IpAddr>) -> Round {
        let mut round = Round {
            has_released: self.release_unwanted(held),
            ..Round::default()
        };
        // The events of the releases are not those of the request.
        drop((self.events)());

        // The controller counts addresses, whatever their families.
        let enough = if self.call.request.dual_stack { 2 } else { 1 };
        if held.len() == enough {
            let has_family = families_of(held);
            for family in Family::BOTH {
                if self.needs(family) && !has_family[family as usize] {
                    round.not_asked[family as usize] = Some(NotAsked::HasEnough);
                }
            }
            return round;
        }
        match self.named() {
            Ok(named) if named.is_empty() => self.ask_for_any(held, &mut round),
            Ok(named) => self.ask_for_named(&named, held, &mut round),
            Err(why) => {
                for family in Family::BOTH.into_iter().filter(|family| self.needs(*family)) {
                    round.not_asked[family as usize] = Some(NotAsked::Unreadable(why.clone()));
                }
            }
        }
        round
    }

    /// Releases the addresses that the service no longer wants. Returns true if there were any.
    fn release_unwanted(&self, held: &mut BTreeSet<IpAddr>) -> bool {
        let mut unwanted: Vec<IpAddr> = held.iter().copied().collect();
        unwanted.retain(|address| self.is_unwanted(*address));
        for address in &unwanted {
            // A block that cannot be changed keeps the address.
            if without_waiting(self.allocator.release_ips(&[Release::any(*address)])).is_ok() {
                held.remove(address);
            }
        }
        !unwanted.is_empty()
    }

    /// True if the controller releases an address of the service: it is not among those that annotations name, or in
    /// none of the pools that they name, or in a Manual pool although no annotation names anything.
    fn is_unwanted(&self, address: IpAddr) -> bool {
        let Wishes {
            pools_v4,
            pools_v6,
            addresses,
        } = self.call.wishes;
        if !addresses.is_empty() {
            return !addresses.contains(&address);
        }
        if pools_v4.is_some() || pools_v6.is_some() {
            let mut named = pools_v4.iter().chain(pools_v6).flatten();
            return !named.any(|pool| pool.contains(&address));
        }
        let pool = self.call.pools.iter().find(|pool| pool.cidr.contains(&address));
        pool.is_some_and(|pool| !pool.automatic)
    }

    /// Asks for the addresses that the service names, until one is refused, and adds to `held` those that it gets. The
    /// answers, and the families that are not asked for, are noted in `round`.
    fn ask_for_named(&self, named: &[IpAddr], held: &mut BTreeSet<IpAddr>, round: &mut Round) {
        for address in named {
            if held.contains(address) {
                continue;
            }
            let family = Family::of_address(*address);
            if round.is_broken {
                round.not_asked[family as usize] = Some(NotAsked::OtherFailed);
                continue;
            }
            let wanted = AssignIp {
                intended_use: Some(PoolUse::LoadBalancer),
                ..AssignIp::new(LOAD_BALANCER, *address)
            };
            let result = without_waiting(self.allocator.assign_ip(&wanted));
            round.is_broken = result.is_err();
            let answer =
                Answer::for_named_address(self.outlook, LOAD_BALANCER, *address, result, (self.events)());
            if answer.outcome.is_ok() {
                held.insert(*address);
            }
            round.answers[family as usize] = Some(answer);
        }
    }

    /// Asks for any address of each family that the service lacks, IPv4 first, and adds to `held` those that it gets.
    /// IPv6 is not asked for if the service has IPv4, nor after an error.
    fn ask_for_any(&self, held: &mut BTreeSet<IpAddr>, round: &mut Round) {
        let has_family = families_of(held);
        for family in Family::BOTH {
            if !self.asks_for(family) || has_family[family as usize] {
                continue;
            }

            if family == Family::V6 && has_family[Family::V4 as usize] {
                round.not_asked[family as usize] = Some(NotAsked::HasOther);
                continue;
            }
            if round.is_broken {
                round.not_asked[family as usize] = Some(NotAsked::OtherFailed);
                continue;
            }
            let answer = self.request_any(family, round);
            if let Ok(given) = &answer.outcome {
                held.insert(given.address);
            }
            round.answers[family as usize] = Some(answer);
        }
    }

    /// Asks the allocator for one address of a family from the pools that the service may use.
    fn request_any(&self, family: Family, round: &mut Round) -> Answer {
        let wishes = self.call.wishes;
        let mut wanted = AutoAssign {
            host: LOAD_BALANCER.to_owned(),
            pools_v4: wishes.pools_v4.clone().unwrap_or_default(),
            pools_v6: wishes.pools_v6.clone().unwrap_or_default(),
            intended_use: Some(PoolUse::LoadBalancer),
            max_blocks_per_host: self.outlook.max_blocks_per_host(BlockLimit::Configured),
            namespace_labels: self.call.namespace_labels.cloned(),
            ..AutoAssign::default()
        };
        match family {
            Family::V4 => wanted.v4 = 1,
            Family::V6 => wanted.v6 = 1,
        }
        let result = without_waiting(self.allocator.auto_assign(&wanted));
        let is_error = result.is_err();
        round.is_broken = is_error;

        let request = NextAddress {
            namespace_labels: self.call.namespace_labels,
            ..NextAddress::new(LOAD_BALANCER, family, wanted.pools(family))
        };
        let events = (self.events)();
        let limit = BlockLimit::Configured;
        let mut answer = Answer::for_any_address(self.outlook, &request, limit, result, events);
        if let Err(refused) = &mut answer.outcome
            && !is_error
        {
            // The controller does not log the allocator's messages, unlike the plugin.
            refused.calico.clear();
        }
        answer
    }
}

/// Notes the outcome of a round. A refusal stays the outcome even if the controller no longer asks; an address that was
/// given does not, since the controller has released it.
fn note_outcome(outcome: &mut ServiceOutcome, round: &Round, family: Family) {
    if let Some(answer) = &round.answers[family as usize] {
        *outcome = ServiceOutcome::Answered(Box::new(answer.clone()));
    } else if let Some(why) = &round.not_asked[family as usize] {
        let is_refused = matches!(outcome, ServiceOutcome::Answered(answer) if answer.outcome.is_err());
        if !is_refused {
            *outcome = ServiceOutcome::NotAsked(why.clone());
        }
    }
}

/// For each family, true if one of the addresses is of it.
fn families_of(addresses: &BTreeSet<IpAddr>) -> [bool; 2] {
    let mut families = [false; 2];
    for address in addresses {
        families[Family::of_address(*address) as usize] = true;
    }
    families
}
