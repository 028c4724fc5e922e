//! Kubeconfig contexts as a fleet.

use calipam_datastore::KubeconfigNames;
use calipam_datastore::settings::{KubernetesSettings, LocalFiles, Overrides};
use calipam_workflow::{matching, nearest};

use super::{Fleet, Named, Source, base};
use crate::args::{FleetArgs, Global};
use crate::connect;
use crate::exit::{Failure, Result};

/// The name of the group for contexts that route to each other.
const ROUTED: &str = "routed";

/// Returns a fleet with a cluster for each named context.
pub(super) fn fleet(args: &FleetArgs, global: &Global) -> Result<Fleet> {
    if let Some(other) = global.datastore.as_ref().filter(|name| *name != "kubernetes") {
        return Err(Failure::usage(format!(
            "several contexts need the Kubernetes datastore, but --datastore is {other}"
        ))
        .hint("a --fleet file can name clusters of any datastore"));
    }

    let settings = KubernetesSettings::resolve(&base(global), &connect::environment(), &LocalFiles)
        .map_err(calipam_datastore::Error::from)?;
    let known = KubeconfigNames::read(&settings)?.contexts;
    let names = named(&global.contexts, &known)?;

    let mut clusters = Vec::new();
    for name in names {
        let overrides = Overrides {
            context: Some(name.clone()),
            datastore: Some("kubernetes".to_owned()),
            ..base(global)
        };
        clusters.push(Named {
            name,
            group: args.routed.then(|| ROUTED.to_owned()),
            labels: Default::default(),
            services: Default::default(),
            source: Source {
                overrides,
                is_entry: false,
            },
        });
    }
    Ok(Fleet {
        clusters,
        ..Fleet::default()
    })
}

/// Returns the contexts that the patterns match, each once.
fn named(patterns: &[String], known: &[String]) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for pattern in patterns {
        let found = matching(pattern, known);
        if found.is_empty() {
            let near = nearest(pattern, known.iter().map(String::as_str));
            let hint = match (near, known) {
                (Some(near), _) => format!("did you mean `{near}`? It has {}", known.join(", ")),
                (None, []) => "name the kubeconfig with --kubeconfig or KUBECONFIG".to_owned(),
                (None, _) => format!("it has {}", known.join(", ")),
            };
            return Err(Failure::usage(format!("the kubeconfig has no context {pattern:?}")).hint(hint));
        }
        for name in found {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    Ok(names)
}
