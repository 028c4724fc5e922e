//! Addresses on the command line.

use std::net::{AddrParseError, IpAddr};

use calipam_model::IpNet;
use calipam_model::cidr::{parse_pool, to_canonical};

/// Reads an address as Calico does: an IPv4-mapped IPv6 address, such as `::ffff:192.0.2.1`, is read as IPv4.
pub(crate) fn address(text: &str) -> Result<IpAddr, AddrParseError> {
    text.parse::<IpAddr>().map(|address| address.to_canonical())
}

/// Reads a CIDR, of IPv4 if it is IPv4-mapped IPv6, such as `::ffff:192.0.2.0/120`. Keeps the host bits.
///
/// # Errors
/// If it is no CIDR, or Calico would not read it.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().map_err(|invalid| invalid.to_string())?;
    if parse_pool(text).is_none() {
        return Err("a leading zero or sign: some programs would read another number".to_owned());
    }
    Ok(to_canonical(network))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::network;
    use crate::args::{Cli, Command, IpamCommand};

    #[test]
    fn networks_that_calico_would_not_read_are_refused() {
        for refused in ["010.7.0.0/29", "10.7.0.0/029", "10.7.0.0/+29", "10.7.0.0", "x"] {
            assert!(network(refused).is_err(), "{refused}");
        }
        assert_eq!(network("10.7.0.3/29").unwrap().to_string(), "10.7.0.3/29");
    }

    #[test]
    fn ipv4_in_the_form_of_ipv6_is_ipv4_for_every_command() {
        for arguments in [
            &["show"][..],
            &["history"],
            &["release"],
            &["assign", "--node", "a"],
            &["diff", "a", "b"],
        ] {
            let all = [&["calipam"], arguments, &["--ip", "::ffff:10.0.0.1"]].concat();
            let command = Cli::try_parse_from(&all).unwrap().command;
            let Command::Ipam(command) = command else {
                panic!("{command:?}")
            };
            let addresses = match command {
                IpamCommand::Show(args) => Vec::from_iter(args.ip),
                IpamCommand::History(args) => Vec::from_iter(args.ip),
                IpamCommand::Release(args) => args.addresses,
                IpamCommand::Assign(args) => args.addresses,
                IpamCommand::Diff(args) => args.addresses,
                other => panic!("{other:?}"),
            };
            let expected: Vec<std::net::IpAddr> = vec!["10.0.0.1".parse().unwrap()];
            assert_eq!(addresses, expected, "{arguments:?}");
        }
        for arguments in [&["history"][..], &["rebuild"], &["diff", "a", "b"]] {
            let all = [&["calipam"], arguments, &["--block", "::ffff:10.0.0.0/122"]].concat();
            let Command::Ipam(command) = Cli::try_parse_from(&all).unwrap().command else {
                panic!()
            };
            let blocks = match command {
                IpamCommand::History(args) => Vec::from_iter(args.block),
                IpamCommand::Rebuild(args) => args.blocks,
                IpamCommand::Diff(args) => args.blocks,
                other => panic!("{other:?}"),
            };
            assert_eq!(blocks, ["10.0.0.0/26".parse().unwrap()], "{arguments:?}");
        }
    }
}
