//! Evidence about nodes and pods that get no address.

use calipam_assign::{Family, Refused};
use calipam_model::words::joined;
use serde::{Serialize, Serializer};

use super::is_zero;

/// Evidence about nodes whose next pod gets no address, or about a pod that is waiting for one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NoAddressEvidence {
    /// The reasons, by family.
    pub refusals: Vec<RefusalEvidence>,
    /// The waiting pod's node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The nodes, if the finding is about several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The number of waiting pods on the node or nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting_pods: usize,
    /// The number of pods that run on the node or nodes, and whose successors would get no address.
    #[serde(skip_serializing_if = "is_zero")]
    pub refused_pods: usize,
    /// The number of pods that run on the node or nodes.
    #[serde(skip_serializing_if = "is_zero")]
    pub running_pods: usize,
    /// The first waiting pods, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<String>,
}

impl NoAddressEvidence {
    /// Joins the refusals with `and_no`. The result continues a sentence after the word "no".
    pub(crate) fn join_refusals(&self, and_no: &str) -> String {
        let refusals = self.refusals.iter();
        joined(
            refusals.map(|refusal| format!("{} address: {}", refusal.family, refusal.why)),
            and_no,
        )
    }
}

/// The reason why there is no address of a family.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RefusalEvidence {
    /// `ipv4` or `ipv6`.
    #[serde(serialize_with = "name_of_family")]
    pub family: Family,
    /// The name of the reason.
    pub reason: &'static str,
    /// The reason in words.
    pub why: String,
    /// True if the request itself is refused, whatever addresses are free.
    #[serde(skip)]
    pub of_request: bool,
    /// Calico's own message.
    pub calico: String,
    /// The pools that do not serve the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PassedOverEvidence>,
}

/// A pool that does not serve a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PassedOverEvidence {
    pub pool: String,
    pub why: String,
}

impl RefusalEvidence {
    /// Creates the evidence from the allocator's refusal: the reason, Calico's message, and the pools that were passed
    /// over.
    pub(crate) fn new(family: Family, refused: &Refused) -> Self {
        let mut pools = Vec::new();
        for (pool, why) in &refused.pools {
            pools.push(PassedOverEvidence {
                pool: pool.clone(),
                why: why.to_string(),
            });
        }
        Self {
            family,
            reason: refused.reason.name(),
            why: refused.reason.to_string(),
            of_request: refused.reason.is_of_request(),
            calico: refused.calico.clone(),
            pools,
        }
    }
}

fn name_of_family<S: Serializer>(family: &Family, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(family.name())
}
