//! The `version` command, which prints the same four lines as calicoctl, since scripts parse them.

use calipam_workflow::cluster_information;

use super::{Call, plain_failure};
use crate::exit::Result;
use crate::render::text::escape;

/// The calicoctl version whose commands calipam implements.
const STANDS_FOR: &str = "v3.33.0";

/// Prints the versions of the program and of the cluster as calicoctl does.
pub(super) fn run(call: Call<'_>) -> Result<()> {
    let calipam = env!("CARGO_PKG_VERSION");
    call.print(&format!(
        "Client Version:    {STANDS_FOR}\nGit commit:        calipam-{calipam}\n"
    ))?;
    let information = call.with(async |access| cluster_information(access.datastore).await)?;
    let Some(information) = information else {
        return Err(plain_failure(
            "Unable to retrieve Cluster Version or Type: resource does not exist: ClusterInformation(default)",
        ));
    };
    let [version, kind] = [&information.calico_version, &information.cluster_type].map(|text| {
        if text.is_empty() {
            "unknown".into()
        } else {
            escape(text)
        }
    });
    call.print(&format!(
        "Cluster Version:   {version}\nCluster Type:      {kind}\n"
    ))
}
