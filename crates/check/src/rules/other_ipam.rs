//! Pods that get their addresses from another IPAM, although Calico networks them.

use calipam_model::words::{count, thousands};

use crate::Context;
use crate::claim::Claim;
use crate::code::{Code, Severity};
use crate::finding::{Evidence, Finding, OtherIpamEvidence, Subject};

/// Checks whether host-local assigns pod addresses. If it does, addresses that Calico IPAM holds for pods are useless.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let pods = context.index.host_local_pods;
    if pods == 0 {
        return;
    }
    let mut left_over = 0;
    for record in context.index.records() {
        if let Claim::Pod { .. } | Claim::LegacyPod { .. } | Claim::Container(_) =
            Claim::of(&record.allocation.attribute)
        {
            left_over += 1;
        }
    }

    let pods_have_addresses = if pods == 1 {
        "1 pod has an address".to_owned()
    } else {
        format!("{} pods have addresses", thousands(pods))
    };
    let mut message = format!("{pods_have_addresses} from host-local, not from Calico IPAM");
    let mut severity = Severity::Info;
    if left_over > 0 {
        message.push_str(&format!(
            ", but blocks still record {} for pods",
            count(left_over, "address", "addresses")
        ));
        severity = Severity::Warning;
    }
    let evidence = OtherIpamEvidence { pods, left_over };
    let subject = Subject::Configuration("default".into());
    let finding = Finding::new(
        Code::PodsWithoutCalicoIpam,
        subject,
        message,
        Evidence::OtherIpam(evidence),
    );
    out.push(finding.with_severity(severity));
}
