//! A selection of findings.

use crate::code::Code;
use crate::finding::Finding;
use crate::scope::Scope;

/// A selection of findings to show.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these codes; all if empty.
    pub rules: Vec<Code>,
    /// None of these codes.
    pub skip: Vec<Code>,
    /// Only findings in this part of the cluster.
    pub scope: Scope,
}

impl Filter {
    pub fn admits(&self, finding: &Finding) -> bool {
        self.admits_rule(finding.code) && self.scope.has(finding)
    }

    /// Returns true unless the filter excludes every finding with the code.
    pub fn admits_rule(&self, code: Code) -> bool {
        (self.rules.is_empty() || self.rules.contains(&code)) && !self.skip.contains(&code)
    }
}
