//! The floor of the parts `cni`: a program that is called as the plugin is, and sends the datastore the requests of one ADD or
//! DEL, or the writes of an ADD that claims a block, without thinking about the answers.

mod etcd;
mod kubernetes;

use serde_json::Value;

/// What can fail.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// What is asked of the program.
struct Call {
    command: Command,
    container: String,
}

enum Command {
    Add,
    /// The writes of an ADD that claims a block, and no reading.
    Claim,
    Del,
}

fn main() -> Result<(), Failed> {
    let configuration: Value = serde_json::from_reader(std::io::stdin())?;
    let command = match std::env::var("CNI_COMMAND")?.as_str() {
        "ADD" => Command::Add,
        "CLAIM" => Command::Claim,
        _ => Command::Del,
    };
    let call = Call { command, container: std::env::var("CNI_CONTAINERID")? };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match configuration["datastore_type"].as_str() {
            Some("kubernetes") => kubernetes::send(&configuration, &call).await,
            _ => etcd::send(&configuration, &call).await,
        }
    })
}
