//! The part of a cluster that a command is about.

use calipam_model::selector::Selector;
use calipam_workflow::Names;
use clap::Args;

pub(super) const SELECTION: &str = "Selection";

/// Options that select a part of a cluster. Each option narrows the selection.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SelectionArgs {
    /// Only this node; can be repeated; wildcards `*`, `?`
    #[arg(long = "node", value_name = "NODE", value_delimiter = ',', help_heading = SELECTION)]
    pub nodes: Vec<String>,
    /// Only nodes that match this Calico selector, such as `rack == 'a'`
    #[arg(long, value_name = "SELECTOR", value_parser = selector, help_heading = SELECTION)]
    pub selector: Option<Selector>,
    /// Only this pool, by name or CIDR; can be repeated
    #[arg(long = "pool", value_name = "POOL", value_delimiter = ',', help_heading = SELECTION)]
    pub pools: Vec<String>,
}

impl SelectionArgs {
    /// Returns the names in these options, together with `namespace`.
    pub(crate) fn names(&self, namespace: Option<&String>) -> Names {
        let Self {
            nodes,
            selector,
            pools,
        } = self.clone();
        Names {
            nodes,
            pools,
            selector,
            namespace: namespace.cloned(),
        }
    }

    pub(crate) fn names_nodes(&self) -> bool {
        !self.nodes.is_empty() || self.selector.is_some()
    }
}

/// Parses a selector as Calico does.
fn selector(text: &str) -> Result<Selector, String> {
    Selector::parse(text).map_err(|reason| {
        format!(
            "{reason}\nexpected a selector as in a pool's nodeSelector, such as `rack == 'a'` or `has(gpu)`"
        )
    })
}
