//! Pods that get their addresses from another IPAM, although Calico networks them.

use crate::Context;
use crate::claim::Claim;
use crate::code::{Code, Severity};
use crate::finding::{Evidence, Finding, OtherIpamEvidence, Subject};
use crate::names::addresses;

/// Checks whether host-local assigns pod addresses. If it does, addresses that Calico IPAM holds for pods are useless.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let pods = context.index.host_local_pods;
    if pods == 0 {
        return;
    }
    let claims = context
        .index
        .records()
        .map(|record| Claim::of(&record.allocation.attribute));
    let is_of_pod = |claim: &Claim<'_>| {
        matches!(
            claim,
            Claim::Pod { .. } | Claim::LegacyPod { .. } | Claim::Container(_)
        )
    };
    let evidence = OtherIpamEvidence {
        pods,
        left_over: claims.filter(is_of_pod).count(),
    };
    let severity = if evidence.left_over > 0 {
        Severity::Warning
    } else {
        Severity::Info
    };
    let who = if pods == 1 {
        "1 pod has an address".into()
    } else {
        format!("{pods} pods have addresses")
    };
    let left_over = match evidence.left_over {
        0 => String::new(),
        count => format!(", but blocks still record {} for pods", addresses(count)),
    };
    let message = format!("{who} from host-local, not from Calico IPAM{left_over}");
    let subject = Subject::Configuration("default".into());
    let finding = Finding::new(
        Code::PodsWithoutCalicoIpam,
        subject,
        message,
        Evidence::OtherIpam(evidence),
    );
    out.push(finding.with_severity(severity));
}
