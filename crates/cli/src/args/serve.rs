//! Options of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use calipam_history::keep::Keep;
use clap::Args;
use clap::ValueHint::DirPath;
use jiff::SignedDuration;

use super::check_options::CheckOptions;
use super::printing;

/// The longest interval between checks that can be set: a month. A longer one is probably a mistake.
const LONGEST: SignedDuration = SignedDuration::from_hours(31 * 24);

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct ServeArgs {
    /// Address to listen on; anyone who can reach it can read the report
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9795", value_parser = address)]
    pub listen: SocketAddr,
    /// A host name that requests may use, such as that of a proxy; can be repeated. Addresses and `localhost` are
    /// always allowed
    #[arg(long = "allow-host", value_name = "NAME", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Check at least this often; a change in the cluster is checked at once
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = interval)]
    pub interval: SignedDuration,
    /// Report new findings as Kubernetes Events, on the pod or node that they concern
    #[arg(long)]
    pub events: bool,
    /// Record every change to the IPAM data in this folder, as `record` does
    #[arg(long, value_name = "DIR", value_hint = DirPath)]
    pub record: Option<PathBuf>,
    /// Full states of the recording to keep, with the changes after them, such as `24h:all,30d:daily,1y:monthly`
    #[arg(long, value_name = "RULES", requires = "record")]
    pub keep: Option<Keep>,
    #[command(flatten)]
    pub options: CheckOptions,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "expected an address and a port, such as `127.0.0.1:9795`, or `[::]:9795` for all interfaces"
            .to_owned()
    })
}

fn interval(text: &str) -> Result<SignedDuration, String> {
    match printing::interval(text)? {
        long if long > LONGEST => Err("the longest interval is `31d`".into()),
        interval => Ok(interval),
    }
}
