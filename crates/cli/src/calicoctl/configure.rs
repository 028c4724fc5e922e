//! The `ipam configure` command.

use calipam_model::config::{IpamSetting, parse_go_bool};
use calipam_plan::Refused;
use calipam_plan::configure::NO_SETTING;
use calipam_workflow::ConfigureRequest;

use super::args::ConfigureArgs;
use super::{Call, plain_failure};
use crate::args::WritingArgs;
use crate::exit::Result;
use crate::hints;

/// Changes settings of IPAM, and prints each of them as calicoctl does.
pub(super) fn run(args: &ConfigureArgs, call: Call<'_>) -> Result<()> {
    let settings = settings(args)?;
    // Printed only after the write, which consumes the settings.
    let mut confirmation = String::new();
    for setting in &settings {
        confirmation.push_str(&format!("Successfully set {} to: {setting}\n", setting.name()));
    }

    let request = ConfigureRequest {
        settings,
        predicts_effects: false,
        intent: WritingArgs::agreed("calicoctl ipam configure"),
    };
    let configured = call.with(async |access| calipam_workflow::configure(access, &request).await);
    let repaired = configured.map_err(|failure| match failure.cause::<Refused>() {
        Some(refused) => plain_failure(format!("error: {refused}")),
        None => failure,
    })?;
    // A run has printed the warnings itself.
    if repaired.run.is_none() {
        for warning in &repaired.plan.warnings {
            call.console.warn(&hints::text(warning));
        }
    }
    call.print_run(repaired.run)?;
    call.print(&confirmation)
}

/// Returns the settings in the options. As in calicoctl, empty values are ignored.
fn settings(args: &ConfigureArgs) -> Result<Vec<IpamSetting>> {
    let mut settings = Vec::new();
    if let Some(text) = non_empty(&args.strictaffinity) {
        let is_strict = parse_go_bool(text)
            .ok_or_else(|| plain_failure("invalid value. Use true or false to set strictaffinity"))?;
        settings.push(IpamSetting::StrictAffinity(is_strict));
    }
    if let Some(text) = non_empty(&args.max_blocks_per_host) {
        let number = text.parse();
        let number =
            number.map_err(|_| plain_failure("invalid value for maxblockhost. Use a valid number"))?;
        settings.push(IpamSetting::MaxBlocksPerHost(number));
    }
    if let Some(text) = non_empty(&args.kubevirt_ip_persistence) {
        settings.push(IpamSetting::Kubevirt(parse_persistence(text)?));
    }
    // A negative number is calicoctl's default for an option that is not given.
    if args.ip_cooldown_seconds >= 0 {
        settings.push(IpamSetting::Cooldown(args.ip_cooldown_seconds));
    }
    if settings.is_empty() {
        Err(plain_failure(NO_SETTING))
    } else {
        Ok(settings)
    }
}

/// Returns the value of an option; `None` if it is missing or empty.
fn non_empty(value: &Option<String>) -> Option<&str> {
    value.as_deref().filter(|text| !text.is_empty())
}

/// Reads the value of `--kubevirt-ip-persistence`.
fn parse_persistence(text: &str) -> Result<bool> {
    match text {
        "Enabled" => Ok(true),
        "Disabled" => Ok(false),
        _ => {
            let message = "invalid value for --kubevirt-ip-persistence. Use Enabled or Disabled";
            Err(plain_failure(message))
        }
    }
}
