//! `show`.

use std::net::IpAddr;

use calipam_check::views;
use calipam_datastore::Datastore;
use calipam_datastore::read::Lookup;
use calipam_model::snapshot::Snapshot;

use crate::args::{Global, ShowArgs, Subject};
use crate::exit::{Failure, Outcome};
use crate::operator::Person;
use crate::output::Console;
use crate::render::document::Detail;
use crate::render::show as render;
use crate::{connect, hints};

/// Reads what the subject needs, and prints it.
///
/// # Errors
/// Where the datastore cannot be read, or holds nothing of the subject.
pub fn run(args: &ShowArgs, global: &Global, console: &Console) -> Result<Outcome, Failure> {
    let subject = args.subject();
    let snapshot = connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        read(&datastore, &subject, console).await
    })?;
    match &subject {
        Subject::Pools => render::print(&views::pools(&snapshot), &snapshot, console)?,
        Subject::Blocks => render::print(&views::blocks(&snapshot), &snapshot, console)?,
        Subject::Nodes => render::print(&views::nodes(&snapshot), &snapshot, console)?,
        Subject::Borrowed => render::print(&views::borrowed(&snapshot), &snapshot, console)?,
        Subject::Configuration => render::print(&views::configuration(&snapshot), &snapshot, console)?,
        Subject::Compare => return compare(&snapshot, console),
        Subject::Address { address, .. } => return story(*address, &snapshot, console),
        Subject::Handle(id) => return handle(id, &snapshot, console),
    }
    std::mem::forget(snapshot);
    Ok(Outcome::Clean)
}

/// Reads the few keys around one address or handle, or everything.
async fn read(datastore: &Datastore, subject: &Subject, console: &Console) -> Result<Snapshot, Failure> {
    let person = Person::watching(console);
    let lookup = match subject {
        Subject::Address { address, all_owners: false } => Lookup::Address(*address),
        Subject::Handle(id) => Lookup::Handle(id.clone()),
        _ => return Ok(calipam_workflow::read(datastore, &person).await?),
    };
    Ok(calipam_workflow::read_around(datastore, &lookup, &person).await?)
}

fn story(address: IpAddr, snapshot: &Snapshot, console: &Console) -> Result<Outcome, Failure> {
    let view = views::address(snapshot, address);
    render::print(&view, snapshot, console)?;
    if view.pools.is_empty() && view.blocks.is_empty() && view.owners.is_empty() {
        console.hint(&format!(
            "it is in none of the pools and blocks; {} lists the pools",
            hints::command(&["show"])
        ));
        return Ok(Outcome::Refused);
    }
    if view.partial {
        let all = hints::command(&["show", "--ip", &address.to_string(), "--all-owners"]);
        console.hint(&format!("only the recorded owner was looked for; {all} finds others"));
    }
    Ok(Outcome::Clean)
}

/// The comparison that people make by hand before and after a repair; exit code 1 where the two differ.
fn compare(snapshot: &Snapshot, console: &Console) -> Result<Outcome, Failure> {
    let Some(comparison) = views::compare(snapshot) else {
        return Err(Failure::NotFound {
            message: "there is nothing to compare with: pods were not read".into(),
            hint: Some("name the kubeconfig of the cluster by `--kubeconfig`".into()),
        });
    };
    render::print(&comparison, snapshot, console)?;
    let agree = comparison.nodes.iter().all(render::agrees);
    if !agree && console.format.detail() == Some(Detail::Short) {
        console
            .hint(&format!("{} names the addresses", hints::command(&["show", "--compare", "-o", "wide"])));
    }
    Ok(if agree { Outcome::Clean } else { Outcome::Findings })
}

fn handle(id: &str, snapshot: &Snapshot, console: &Console) -> Result<Outcome, Failure> {
    let Some(view) = views::handle(snapshot, id) else {
        return Err(Failure::NotFound {
            message: format!("there is no handle {id:?}"),
            hint: Some(format!(
                "{} lists handles that allocations name without an object",
                hints::command(&["check", "--rule", "missing-handle", "-o", "wide"])
            )),
        });
    };
    render::print(&view, snapshot, console)?;
    Ok(Outcome::Clean)
}
