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

/// Returns a fleet with a cluster for each context of the kubeconfig that the options name. With `--routed`, all
/// clusters are in one group, so that they are compared with each other.
///
/// # Errors
/// If `--datastore` names another datastore, or a pattern matches no context.
pub(super) fn fleet(args: &FleetArgs, global: &Global) -> Result<Fleet> {
    if let Some(other) = &global.datastore
        && other != "kubernetes"
    {
        return Err(Failure::usage(format!(
            "several contexts need the Kubernetes datastore, but --datastore is {other}"
        ))
        .hint("a --fleet file can name clusters of any datastore"));
    }

    let settings = KubernetesSettings::resolve(&base(global), &connect::environment(), &LocalFiles)
        .map_err(calipam_datastore::Error::from)?;
    let contexts = KubeconfigNames::read(&settings)?.contexts;
    let group = if args.routed {
        Some(ROUTED.to_owned())
    } else {
        None
    };

    let mut clusters = Vec::new();
    for name in matching_contexts(&global.contexts, &contexts)? {
        let overrides = Overrides {
            context: Some(name.clone()),
            datastore: Some("kubernetes".to_owned()),
            ..base(global)
        };
        clusters.push(Named {
            name,
            group: group.clone(),
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

/// Returns those of `contexts` that the patterns match, each once.
///
/// # Errors
/// If a pattern matches no context.
fn matching_contexts(patterns: &[String], contexts: &[String]) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for pattern in patterns {
        let matches = matching(pattern, contexts);
        if matches.is_empty() {
            return Err(no_context(pattern, contexts));
        }
        for name in matches {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    Ok(names)
}

/// Creates the failure for a pattern that matches none of `contexts`.
fn no_context(pattern: &str, contexts: &[String]) -> Failure {
    // Before the list of contexts, which can be long, the one that was probably meant.
    let hint = if let Some(similar) = nearest(pattern, contexts.iter().map(String::as_str)) {
        format!(
            "did you mean `{similar}`? The kubeconfig has {}",
            contexts.join(", ")
        )
    } else if contexts.is_empty() {
        "name the kubeconfig with --kubeconfig or KUBECONFIG".to_owned()
    } else {
        format!("it has {}", contexts.join(", "))
    };
    Failure::usage(format!("the kubeconfig has no context {pattern:?}")).hint(hint)
}
