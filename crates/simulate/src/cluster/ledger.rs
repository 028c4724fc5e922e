//! The actual users of addresses, regardless of the records in the datastore.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::time::Micros;

/// An address that two pods use at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clash {
    pub address: IpAddr,
    pub at: Micros,
}

#[derive(Default)]
pub(crate) struct Ledger {
    /// The pod that uses each address. The map is used only for lookups, so its order does not matter.
    users: HashMap<IpAddr, u32, foldhash::fast::FixedState>,
    pub clashes: Vec<Clash>,
}

impl Ledger {
    /// Records that a pod begins to use an address, and whether another pod was using it.
    pub(crate) fn take(&mut self, address: IpAddr, pod: u32, at: Micros) {
        if let Some(first) = self.users.insert(address, pod)
            && first != pod
        {
            self.clashes.push(Clash { address, at });
        }
    }

    /// Records that a pod stops using an address.
    pub(crate) fn leave(&mut self, address: IpAddr, pod: u32) {
        if self.users.get(&address) == Some(&pod) {
            self.users.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_users_of_one_address_clash() {
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let mut ledger = Ledger::default();
        ledger.take(address, 1, Micros(1));
        ledger.leave(address, 1);
        ledger.take(address, 2, Micros(2));
        assert!(ledger.clashes.is_empty());
        ledger.take(address, 3, Micros(3));
        assert_eq!(
            ledger.clashes,
            [Clash {
                address,
                at: Micros(3)
            }]
        );
        // The first user leaves, while the second one still uses the address.
        ledger.leave(address, 2);
        ledger.take(address, 4, Micros(4));
        assert_eq!(ledger.clashes.len(), 2);
    }
}
