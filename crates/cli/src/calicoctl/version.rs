//! `version`: the four lines that scripts read.

use super::datastore::information;
use super::{print, said};
use crate::args::Global;
use crate::connect;
use crate::console::Console;
use crate::exit::Failure;
use crate::render::text::escape;

/// The calicoctl version that has the same commands.
const STANDS_FOR: &str = "v3.33.0";

pub(super) fn run(global: &Global, console: &Console) -> Result<(), Failure> {
    let calipam = env!("CARGO_PKG_VERSION");
    print(&format!("Client Version:    {STANDS_FOR}\nGit commit:        calipam-{calipam}\n"), console)?;
    let information =
        connect::block_on(async { Ok(information(&connect::open(global, console).await?).await?) })?;
    let Some(information) = information else {
        return Err(said(
            "Unable to retrieve Cluster Version or Type: resource does not exist: ClusterInformation(default)",
        ));
    };
    let [version, kind] = [&information.calico_version, &information.cluster_type]
        .map(|text| if text.is_empty() { "unknown".into() } else { escape(text) });
    print(&format!("Cluster Version:   {version}\nCluster Type:      {kind}\n"), console)
}
