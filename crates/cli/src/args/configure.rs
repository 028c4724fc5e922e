//! Options of `configure`.

use calipam_model::config::IpamSetting;
use calipam_workflow::ConfigureRequest;
use clap::Args;
use clap::builder::PossibleValuesParser;

use super::writing::WritingArgs;
use crate::exit::{Failure, Result};
use crate::hints;

const SETTINGS: &str = "Settings";

/// Options of `configure`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigureArgs {
    /// Nodes use addresses from their own blocks only
    #[arg(
        long,
        alias = "strictaffinity",
        value_name = "true|false",
        action = clap::ArgAction::Set,
        help_heading = SETTINGS
    )]
    pub strict_affinity: Option<bool>,
    /// Nodes claim blocks when they need one
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set, help_heading = SETTINGS)]
    pub auto_allocate_blocks: Option<bool>,
    /// Maximum blocks per node; needs strict affinity; 0 for the built-in limit
    #[arg(long, value_name = "N", help_heading = SETTINGS)]
    pub max_blocks_per_host: Option<i64>,
    /// Whether stopped KubeVirt virtual machines keep their addresses (Calico 3.32 and later)
    #[arg(long, value_name = "Enabled|Disabled", value_parser = PossibleValuesParser::new(["Enabled", "Disabled"]), ignore_case = true, hide_possible_values = true, help_heading = SETTINGS)]
    pub kubevirt_ip_persistence: Option<String>,
    /// Seconds until a released address can be assigned again, 0 to 1200 (Calico 3.33 and later)
    #[arg(long, value_name = "SECONDS", help_heading = SETTINGS)]
    pub ip_cooldown_seconds: Option<i64>,
    /// Print the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub writing: WritingArgs,
}

impl ConfigureArgs {
    /// Returns the request that these options describe. Refuses a call without any setting.
    pub(crate) fn request(&self) -> Result<ConfigureRequest> {
        let mut settings = Vec::new();
        settings.extend(self.strict_affinity.map(IpamSetting::StrictAffinity));
        settings.extend(self.auto_allocate_blocks.map(IpamSetting::AutoAllocateBlocks));
        settings.extend(self.max_blocks_per_host.map(IpamSetting::MaxBlocksPerHost));
        if let Some(persistence) = &self.kubevirt_ip_persistence {
            let is_enabled = persistence.eq_ignore_ascii_case("Enabled");
            settings.push(IpamSetting::Kubevirt(is_enabled));
        }
        settings.extend(self.ip_cooldown_seconds.map(IpamSetting::Cooldown));
        if settings.is_empty() {
            return Err(Failure::usage(
                "specify what to set: --strict-affinity, --auto-allocate-blocks, --max-blocks-per-host, \
                 --kubevirt-ip-persistence or --ip-cooldown-seconds",
            )
            .hint(format!(
                "{} prints what is set",
                hints::command(&["show", "--configuration"])
            )));
        }

        // Without a command for the journal, the change is only planned.
        let command = if self.dry_run {
            None
        } else {
            Some("configure".to_owned())
        };
        Ok(ConfigureRequest {
            settings,
            predicts_effects: true,
            intent: self.writing.intent(command),
        })
    }
}
