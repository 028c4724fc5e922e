//! The `explain` command.

use calipam_check::views::{self, Asking, PodName, ServiceExplanation};
use calipam_check::{Context, Options};
use calipam_model::snapshot::{Snapshot, Source};
use calipam_plan::advice::cures_for;
use calipam_workflow::nearest;

use super::show::subject;
use crate::args::{ExplainArgs, Global};
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::render::explanation::Rules;
use crate::render::text::escape;
use crate::render::why::Why;
use crate::render::why_service::WhyService;
use crate::{connect, hints};

/// Prints the documentation of rules, the list of all rules, or why a pod, service or node will or will not get an
/// address.
///
/// # Errors
/// If the datastore cannot be read, or has no such pod, service or node.
pub(super) fn run(args: &ExplainArgs, global: &Global, console: &Console) -> Result<Outcome> {
    if args.pod.is_none() && args.service.is_none() && args.node.is_none() {
        console.print(&Rules::of(&args.rules))?;
        return Ok(Outcome::Clean);
    }
    let options = Options {
        cni_configuration: args.cni_config.read()?,
        ..Options::default()
    };
    let snapshot = connect::with(global, console, async |access| {
        calipam_workflow::read(access).await
    })?;

    if let Some(service) = &args.service {
        let explanation = explain_service(&snapshot, service)?;
        console.print(&WhyService::new(&snapshot, &explanation))?;
        return Ok(findings_if(explanation.is_refused()));
    }
    let asking = match &args.pod {
        Some((namespace, name)) => Asking::Pod(namespace, name),
        None => Asking::Node(args.node.as_deref().unwrap_or_default()),
    };
    print_explanation(asking, &snapshot, &options, console)
}

/// Prints why a pod, or the next pod of a node, will or will not get an address.
fn print_explanation(
    asking: Asking<'_>,
    snapshot: &Snapshot,
    options: &Options,
    console: &Console,
) -> Result<Outcome> {
    let context = Context::new(snapshot, options);
    let explanation =
        views::explain(&context, snapshot, asking).ok_or_else(|| not_found(snapshot, asking))?;
    // Only a refusal needs cures, and trying them takes time.
    let cures = if explanation.is_refused() {
        let report = context.check();
        cures_for(context, &report, &explanation, asking)
    } else {
        Vec::new()
    };
    console.print(&Why::new(snapshot, &explanation, &cures))?;
    Ok(findings_if(
        explanation.is_refused() || explanation.is_of_gone_node(),
    ))
}

/// Returns the outcome of an explanation: findings if it tells of a problem.
fn findings_if(is_problem: bool) -> Outcome {
    if is_problem {
        Outcome::Findings
    } else {
        Outcome::Clean
    }
}

/// Creates the failure for a pod or node that does not exist, with a hint at a similar name or at the list of nodes.
fn not_found(snapshot: &Snapshot, asking: Asking<'_>) -> Failure {
    match asking {
        Asking::Node(node) => Failure::refused(format!("node {:?} not found", escape(node))).hint(format!(
            "{} lists the nodes",
            hints::command(&["show", "--nodes"])
        )),
        Asking::Pod(namespace, name) => {
            let failure = Failure::refused(format!(
                "pod {} not found",
                escape(&format!("{namespace}/{name}"))
            ));
            let hint = if snapshot.has_read(Source::Pods) {
                subject::similar_pod(snapshot, namespace, name)
            } else {
                Some(subject::pods_not_read())
            };
            failure.hint_if(hint)
        }
    }
}

/// Explains why a service has an address or lacks one.
///
/// # Errors
/// If there is no such service, or services were not read.
fn explain_service(snapshot: &Snapshot, (namespace, name): &PodName) -> Result<ServiceExplanation> {
    if let Some(explanation) = views::explain_service(snapshot, namespace, name) {
        return Ok(explanation);
    }

    let service = format!("{namespace}/{name}");
    let failure = Failure::refused(format!("service {} not found", escape(&service)));
    if !snapshot.has_read(Source::Services) {
        return Err(failure.hint(subject::services_not_read()));
    }
    // Suggests the service with the most similar name.
    let mut names: Vec<String> = Vec::new();
    for service in &snapshot.services {
        names.push(service.value.full_name());
    }
    match nearest(&service, names.iter().map(String::as_str)) {
        Some(similar) => Err(failure.hint(format!("did you mean `{}`?", escape(similar)))),
        None => Err(failure),
    }
}
