//! Clusters with one kind of fault at a time.

use std::collections::BTreeSet;

use calipam_check::{Code, Severity};
use calipam_plan::SkipReason;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};

use super::judge::{Rebuilt, rebuild_all, words};
use crate::checked::skip_reason;

/// The cases in which a rebuild repairs findings with a given code.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Repair {
    Always,
    /// Unless one of the listed reasons applies.
    Sometimes,
    /// Never: a person decides.
    Never,
}

/// Returns whether findings with this code are repaired, and the reasons for which they may be skipped.
fn expected(code: Code) -> (Repair, &'static [SkipReason]) {
    use Repair::{Always, Never, Sometimes};
    use SkipReason as Why;
    match code {
        Code::LeakedAddress => (
            Sometimes,
            &[Why::UnknownOwner, Why::HandleHeld, Why::SeenOnce, Why::Unchecked],
        ),
        Code::UnallocatedInUse => (
            Sometimes,
            &[
                Why::DuplicateOwners,
                Why::ContainerUnknown,
                Why::NodeUnknown,
                Why::Overlap,
                Why::NeedsDecision,
            ],
        ),
        Code::OwnerMismatch => (
            Sometimes,
            &[Why::OwnerMayLive, Why::WindowsReserved, Why::DuplicateOwners],
        ),
        Code::WrongNodeRecorded => (Sometimes, &[Why::DuplicateOwners, Why::Overlap]),
        Code::CorruptBlock => (
            Sometimes,
            &[
                Why::CorruptBeyondRepair,
                Why::TunnelAddressNotSet,
                Why::TunnelAddressTooLow,
                Why::TunnelAddressTooHigh,
            ],
        ),
        Code::BlockOfMissingNode | Code::AffinityOfMissingNode | Code::BlockWithoutAffinity => {
            (Sometimes, &[Why::NodeMayLive])
        }
        Code::EmptyUnownedBlock
        | Code::AffinityBlockMismatch
        | Code::AffinityLabels
        | Code::OrphanHandle
        | Code::MissingHandle
        | Code::HandleCount
        | Code::UnexpectedAffinityType
        | Code::HandleCarriageReturn => (Always, &[]),
        Code::AffinityConflict | Code::UnsettledAffinity | Code::HalfDeleted => {
            (Sometimes, &[Why::NeedsDecision])
        }
        Code::DuplicateAddress => (Never, &[Why::DuplicateOwners]),
        Code::AddressInSeveralBlocks
        | Code::OverlappingBlocks
        | Code::OverlappingPools
        | Code::PoolOverlapsNodes
        | Code::PoolOverlapsServices => (Never, &[Why::Overlap]),
        Code::InUseOutsidePools | Code::BlockOutsidePools => (Never, &[Why::OutsidePools]),
        Code::BorrowedTunnelAddress => (Never, &[Why::TunnelAddressTooLow, Why::TunnelAddressTooHigh]),
        Code::EndpointOfMissingNode => (Never, &[Why::NodeUnknown]),
        Code::UndecodableObject => (Never, &[Why::CorruptBeyondRepair, Why::NeedsDecision]),
        Code::TunnelAddressMissing
        | Code::BorrowedUnderStrictAffinity
        | Code::UnrecordedAddress
        | Code::SharedLegacyHandle
        | Code::UnexpectedBlockOwner
        | Code::HandleCaseCollision
        | Code::EndpointWithoutPod
        | Code::PodWithoutEndpoint
        | Code::PodAddressDisagreement
        | Code::NodeObjectMissing
        | Code::EndpointNodeMismatch
        | Code::ServiceWithoutAddress
        | Code::ServiceAddressExtra
        | Code::InvalidPoolSelector
        | Code::PoolSmallerThanBlock
        | Code::PoolNearlyFull
        | Code::NodeWithoutAddresses
        | Code::PodWithoutAddress
        | Code::PodsWithoutCalicoIpam
        | Code::AutoAllocationOff
        | Code::ConfigurationMismatch
        | Code::NoClusterInformation
        | Code::DatastoreLocked => (Never, &[Why::NeedsDecision]),
        // A rebuild concerns only one cluster.
        Code::AddressInSeveralClusters
        | Code::OverlappingClusterPools
        | Code::PoolCoversOtherCluster
        | Code::DisabledPoolMismatch
        | Code::ClusterSettingsDiffer
        | Code::ClusterUnreadable => (Never, &[]),
        // Only information: nothing is planned, and nothing is skipped.
        Code::BlockSizeMismatch | Code::AffinityWithoutBlock | Code::NodeOverBlockLimit => (Never, &[]),
    }
}

/// Faults that leave a finding although the finding's code is sometimes repaired, with the reason.
const LEFT: [(Fault, Code, SkipReason); 16] = [
    (Fault::LeakedHalf, Code::LeakedAddress, SkipReason::HandleHeld),
    (
        Fault::LeakedAnonymous,
        Code::LeakedAddress,
        SkipReason::UnknownOwner,
    ),
    (
        Fault::LeakedUnknownHandle,
        Code::LeakedAddress,
        SkipReason::UnknownOwner,
    ),
    (
        Fault::LeakedForeign,
        Code::LeakedAddress,
        SkipReason::UnknownOwner,
    ),
    (
        Fault::LeakedContainer,
        Code::LeakedAddress,
        SkipReason::UnknownOwner,
    ),
    (
        Fault::NodeGonePodsLeft,
        Code::AffinityOfMissingNode,
        SkipReason::NodeMayLive,
    ),
    (
        Fault::NodeGonePodsLeft,
        Code::BlockOfMissingNode,
        SkipReason::NodeMayLive,
    ),
    (
        Fault::DuplicateUnrecorded,
        Code::UnallocatedInUse,
        SkipReason::DuplicateOwners,
    ),
    (
        Fault::OwnerMismatchPodAsTunnel,
        Code::OwnerMismatch,
        SkipReason::OwnerMayLive,
    ),
    (
        Fault::OwnerMismatchForeign,
        Code::OwnerMismatch,
        SkipReason::OwnerMayLive,
    ),
    (
        Fault::OwnerMismatchReserved,
        Code::OwnerMismatch,
        SkipReason::WindowsReserved,
    ),
    // An ordinal that the block holds for an unknown owner stays held.
    (
        Fault::CorruptIndexNegative,
        Code::LeakedAddress,
        SkipReason::UnknownOwner,
    ),
    (
        Fault::CorruptIndexHuge,
        Code::LeakedAddress,
        SkipReason::UnknownOwner,
    ),
    (
        Fault::BlocksLost,
        Code::UnallocatedInUse,
        SkipReason::NeedsDecision,
    ),
    (
        Fault::BlocksLost,
        Code::UnallocatedInUse,
        SkipReason::DuplicateOwners,
    ),
    (
        Fault::BlocksLost,
        Code::UnallocatedInUse,
        SkipReason::ContainerUnknown,
    ),
];

/// Fails unless exactly the findings in the table remain. Returns the entries of [`LEFT`] that apply.
fn assert_table(fault: Fault, rebuilt: &Rebuilt) -> Vec<(Fault, Code, SkipReason)> {
    let name = fault.name();
    let left: BTreeSet<_> = rebuilt.later.findings.iter().map(|f| f.key_ref()).collect();
    for finding in &rebuilt.report.findings {
        let (repair, _) = expected(finding.code);
        let is_left = left.contains(&finding.key_ref());
        let what = format!(
            "{name}: {} {}\n{}",
            finding.code,
            finding.subject,
            words(&rebuilt.plan)
        );
        match repair {
            Repair::Always => assert!(!is_left, "{what}"),
            Repair::Never if finding.severity < Severity::Info && is_left => {
                assert!(
                    skip_reason(&rebuilt.plan, finding.code, &finding.subject).is_some(),
                    "{what}"
                );
            }
            Repair::Sometimes | Repair::Never => {}
        }
    }
    let mut left = Vec::new();
    for skipped in &rebuilt.plan.skipped {
        let Some(code) = skipped.code else { continue };
        let (repair, reasons) = expected(code);
        assert!(
            reasons.contains(&skipped.reason),
            "{name}: {code} is skipped as {}",
            skipped.reason
        );
        if repair == Repair::Sometimes {
            left.push((fault, code, skipped.reason));
            let listed = LEFT.contains(&left[left.len() - 1]);
            assert!(
                listed,
                "{name}: {code} {} is skipped as {}",
                skipped.subject, skipped.reason
            );
        }
    }
    left
}

#[test]
fn every_fault_is_repaired_or_skipped() {
    for fault in Fault::ALL {
        let cluster = Cluster::plain(ClusterSpec::new(3), 2, 2).with(*fault, 1);
        let rebuilt = rebuild_all(fault.name(), &cluster);
        assert_table(*fault, &rebuilt);
        let seen: BTreeSet<&str> = rebuilt.report.findings.iter().map(|f| f.code.name()).collect();
        assert!(
            !seen.is_empty() || *fault == Fault::StrictAffinity,
            "{} gives no finding",
            fault.name()
        );
    }
}

#[test]
fn every_fault_among_everything_else_that_occurs_leaves_the_listed_findings() {
    let mut left = Vec::new();
    for (place, fault) in Fault::ALL.iter().enumerate() {
        let cluster = Cluster::small(ClusterSpec::new(place as u64)).with(*fault, 1);
        left.extend(assert_table(*fault, &rebuild_all(fault.name(), &cluster)));
    }
    for listed in LEFT {
        assert!(left.contains(&listed), "{listed:?}");
    }
}

#[test]
fn a_healthy_cluster_needs_nothing() {
    for spec in [
        ClusterSpec::new(1),
        ClusterSpec::new(2).wide(),
        ClusterSpec::new(3).v4_only(),
    ] {
        let rebuilt = rebuild_all("healthy", &Cluster::featured(spec));
        assert!(
            rebuilt.plan.is_empty() && rebuilt.plan.skipped.is_empty(),
            "{}",
            words(&rebuilt.plan)
        );
    }
}
