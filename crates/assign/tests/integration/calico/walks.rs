//! Nodes that claim blocks one after the other get every block of a pool exactly once.

use std::collections::BTreeSet;

use calipam_assign::AutoAssign;
use calipam_model::IpNet;

use super::rows;
use crate::cluster::{Cluster, net, wants};

fn all_blocks(cidr: &str, block_size: u8) {
    let cluster = Cluster::with_blocks(&[(cidr, block_size)]);
    let expected: BTreeSet<IpNet> = net(cidr).subnets(block_size).unwrap().collect();
    for number in 0..expected.len() {
        let host = format!("host-{number}");
        cluster.node(&host, &[]);
        let v4 = u32::from(net(cidr).addr().is_ipv4());
        let request = AutoAssign {
            v6: 1 - v4,
            ..wants(&host, v4)
        };
        assert_eq!(cluster.auto(&request).unwrap().addresses().count(), 1, "{host}");
    }
    let blocks = cluster.blocks();
    let claimed: BTreeSet<IpNet> = blocks.iter().map(|block| block.cidr()).collect();
    assert_eq!((claimed, blocks.len()), (expected.clone(), expected.len()));
    assert!(
        blocks.iter().all(|block| block.allocated() == 1),
        "none was borrowed"
    );
}

rows! { all_blocks:
    of_a_pool_with_blocks_of_the_usual_size("10.10.0.0/24", 26);
    of_an_ipv6_pool_with_blocks_of_the_usual_size("fd80:24e2:f998:72d6::/120", 122);
    of_a_pool_with_the_largest_blocks("10.10.0.0/16", 20);
    of_an_ipv6_pool_with_the_largest_blocks("fd80:24e2:f998:72d6::/114", 116);
    of_a_pool_with_blocks_of_single_addresses("10.10.0.0/26", 32);
    of_an_ipv6_pool_with_blocks_of_single_addresses("fd80:24e2:f998:72d6::/122", 128);
}
