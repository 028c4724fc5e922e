//! The option for the CNI configuration of the nodes, of commands that say whether pods get addresses.

use std::path::PathBuf;

use calipam_files::regular;
use calipam_model::CniConfiguration;
use calipam_model::words::quoted;
use clap::Args;
use clap::ValueHint::FilePath;

use super::writing::CHECKING;
use crate::exit::{Failure, Result};

#[derive(Debug, Args)]
pub(crate) struct CniConfigArgs {
    /// The CNI configuration of the nodes, such as 10-calico.conflist
    #[arg(long, value_name = "FILE", value_hint = FilePath, help_heading = CHECKING)]
    cni_config: Option<PathBuf>,
}

impl CniConfigArgs {
    /// Reads the CNI configuration that the option names; `None` without the option.
    ///
    /// # Errors
    /// If the file cannot be read, or is not the configuration of Calico's plugin.
    pub(crate) fn read(&self) -> Result<Option<CniConfiguration>> {
        let Some(path) = &self.cni_config else {
            return Ok(None);
        };
        let refused = |reason: String| {
            let failure = Failure::refused(format!(
                "cannot read the CNI configuration {}: {reason}",
                quoted(path)
            ));
            failure.hint("it is a file in /etc/cni/net.d on the node, such as 10-calico.conflist")
        };
        let json = regular::read(path).map_err(|error| refused(error.to_string()))?;
        CniConfiguration::parse(&json)
            .map(Some)
            .map_err(|error| refused(error.to_string()))
    }
}
