//! The pools that a configuration names by CIDR or by name (facts of the plugin, section 8).

use std::collections::BTreeMap;

use calipam_assign::Family;
use calipam_model::IpNet;
use calipam_model::pool::Pool;

use crate::call::{CallAllocator, POOLS, within};
use crate::config::{Ipam, pool_cidr};
use crate::failure;
use crate::protocol::CniError;

/// Returns the CIDRs of the configured IPv4 and IPv6 pools, in this order. Reads the datastore only if a pool is given
/// by name.
pub(crate) async fn resolve(
    ipam: &Ipam,
    allocator: &CallAllocator,
) -> Result<(Vec<IpNet>, Vec<IpNet>), CniError> {
    let mut entries = ipam.ipv4_pools.iter().chain(&ipam.ipv6_pools);
    if entries.all(|entry| pool_cidr(entry).is_some()) {
        return resolve_in(ipam, &[]);
    }
    let pools = within(POOLS, allocator.pools()).await?;
    let pools = pools.map_err(|error| failure::from_allocator(&error))?;
    resolve_in(ipam, &pools)
}

/// Like [`resolve`], with the pools of the datastore. They include disabled pools, which are refused later.
pub(crate) fn resolve_in(ipam: &Ipam, pools: &[Pool]) -> Result<(Vec<IpNet>, Vec<IpNet>), CniError> {
    let names = pools.iter().map(|pool| (pool.name.as_str(), pool.cidr));
    let cidrs_by_name = names.collect();
    let v4 = cidrs_of_entries(&ipam.ipv4_pools, &cidrs_by_name, Family::V4)?;
    let v6 = cidrs_of_entries(&ipam.ipv6_pools, &cidrs_by_name, Family::V6)?;
    Ok((v4, v6))
}

/// Returns the CIDRs of the pools that the configuration lists for a family, each by CIDR or by name.
fn cidrs_of_entries(
    entries: &[String],
    cidrs_by_name: &BTreeMap<&str, IpNet>,
    family: Family,
) -> Result<Vec<IpNet>, CniError> {
    let mut cidrs = Vec::new();
    for entry in entries {
        cidrs.push(cidr_of_entry(entry, cidrs_by_name, family)?);
    }
    Ok(cidrs)
}

/// Returns the CIDR of the pool that an entry of the configuration names, by CIDR or by name.
fn cidr_of_entry(
    entry: &str,
    cidrs_by_name: &BTreeMap<&str, IpNet>,
    family: Family,
) -> Result<IpNet, CniError> {
    // The texts of the errors are those of Calico's plugin.
    let Some(cidr) = pool_cidr(entry).or_else(|| cidrs_by_name.get(entry).copied()) else {
        let text = format!("error parsing pool {entry:?}: invalid CIDR address: {entry}");
        return Err(CniError::internal(text));
    };
    if Family::of(cidr) != family {
        let text = format!("{:?} isn't a {family} address", cidr.addr().to_string());
        return Err(CniError::internal(text));
    }
    Ok(cidr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_cidrs_or_names() {
        let known = BTreeMap::from([("main", "10.0.0.0/16".parse().unwrap())]);
        let resolve = |entry: &str, family| cidr_of_entry(entry, &known, family).map(|cidr| cidr.to_string());
        assert_eq!(resolve("main", Family::V4).unwrap(), "10.0.0.0/16");
        assert_eq!(resolve("10.1.2.3/24", Family::V4).unwrap(), "10.1.2.0/24");
        let error = resolve("other", Family::V4).unwrap_err();
        assert_eq!(
            error.msg,
            "error parsing pool \"other\": invalid CIDR address: other"
        );
        assert_eq!(
            resolve("fd00::/64", Family::V4).unwrap_err().msg,
            "\"fd00::\" isn't a IPv4 address"
        );
        assert!(resolve("main", Family::V6).is_err());
        // As Go's `net.ParseCIDR` reads it.
        assert_eq!(resolve("::ffff:10.0.0.0/120", Family::V4).unwrap(), "10.0.0.0/24");
        for bad in ["010.7.0.0/29", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"] {
            let error = resolve(bad, Family::V4).unwrap_err();
            assert_eq!(
                error.msg,
                format!("error parsing pool {bad:?}: invalid CIDR address: {bad}")
            );
        }
    }
}
