//! `ipam configure`.

use calipam_model::config::IpamSetting;
use calipam_plan::configure::ConfigureRefusal;
use calipam_workflow::{ConfigureRequest, Error};

use super::args::ConfigureArgs;
use super::{Failed, finish, print, script};
use crate::args::{Global, WritingArgs};
use crate::connect;
use crate::console::Console;
use crate::exit::Failure;

pub(super) fn run(args: &ConfigureArgs, global: &Global, console: &Console) -> Result<(), Failed> {
    let settings = settings(args)?;
    let text: String = settings
        .iter()
        .map(|setting| format!("Successfully set {} to: {setting}\n", setting.name()))
        .collect();
    let intent = WritingArgs::agreed("calicoctl ipam configure");
    let request = ConfigureRequest { settings, foresees: false, intent };
    let configured = connect::block_on(async {
        let datastore = connect::open(global, console).await?;
        Ok(calipam_workflow::configure(&datastore, &request, &script(console)).await?)
    });
    let repaired = match configured {
        Err(Failure::Workflow(Error::Configure(ConfigureRefusal::Nothing))) => {
            return Err(Failed::said(ConfigureRefusal::Nothing.to_string()));
        }
        Err(Failure::Workflow(Error::Configure(refusal))) => {
            return Err(Failed::said(format!("error: {refusal}")));
        }
        other => other?,
    };
    if repaired.run.is_none() {
        repaired.plan.warnings.iter().for_each(|w| console.warn(&crate::hints::plan::warning(w)));
    }
    finish(repaired.run, console)?;
    print(&text, console)
}

/// What is to be set; an empty text is as good as none, as in calicoctl.
fn settings(args: &ConfigureArgs) -> Result<Vec<IpamSetting>, Failed> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut settings = Vec::new();
    if let Some(text) = given(&args.strictaffinity) {
        let value = parse_bool(&text)
            .ok_or_else(|| Failed::said("invalid value. Use true or false to set strictaffinity"))?;
        settings.push(IpamSetting::StrictAffinity(value));
    }
    if let Some(text) = given(&args.max_blocks_per_host) {
        let number = text.parse();
        let number =
            number.map_err(|_| Failed::said("invalid value for maxblockhost. Use a valid number"))?;
        settings.push(IpamSetting::MaxBlocksPerHost(number));
    }
    if let Some(text) = given(&args.kubevirt_ip_persistence) {
        settings.push(IpamSetting::Kubevirt(match text.as_str() {
            "Enabled" => true,
            "Disabled" => false,
            _ => {
                let message = "invalid value for --kubevirt-ip-persistence. Use Enabled or Disabled";
                return Err(Failed::said(message));
            }
        }));
    }
    if args.ip_cooldown_seconds >= 0 {
        settings.push(IpamSetting::Cooldown(args.ip_cooldown_seconds));
    }
    match settings.is_empty() {
        true => Err(Failed::said(ConfigureRefusal::Nothing.to_string())),
        false => Ok(settings),
    }
}

/// What Go reads as a bool.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
