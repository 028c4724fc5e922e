//! The floor of the `cni` parts: a program that is called like the plugin. It sends the datastore the requests of an
//! ADD or DEL, or the writes of an ADD that claims a block, and ignores the responses.

mod etcd;
mod kubernetes;

use std::fs::File;

use serde_json::Value;

type Failed = Box<dyn std::error::Error + Send + Sync>;

struct Call {
    command: Command,
    container: String,
    /// The lock file of the node, if an ADD must hold it while it reads and writes the block, as the plugin does.
    lock: Option<String>,
}

impl Call {
    fn hold_lock(&self) -> Result<Option<File>, Failed> {
        let Some(path) = &self.lock else { return Ok(None) };
        let file = File::create(path)?;
        file.lock()?;
        Ok(Some(file))
    }
}

enum Command {
    Add,
    /// The writes of an ADD that claims a block, without the reads.
    Claim,
    Del,
}

fn main() -> Result<(), Failed> {
    let configuration: Value = serde_json::from_reader(std::io::stdin())?;
    let named = std::env::var("CNI_COMMAND")?;
    let command = match named.as_str() {
        "ADD" | "LOCKED" => Command::Add,
        "CLAIM" => Command::Claim,
        _ => Command::Del,
    };
    let lock = configuration["ipam_lock_file"].as_str().filter(|_| named == "LOCKED").map(str::to_owned);
    let call = Call { command, container: std::env::var("CNI_CONTAINERID")?, lock };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match configuration["datastore_type"].as_str() {
            Some("kubernetes") => kubernetes::send(&configuration, &call).await,
            _ => etcd::send(&configuration, &call).await,
        }
    })
}
