//! The floor of the `cni` parts: a program that is called like the plugin. It sends the datastore the requests of an
//! ADD or DEL, or the writes of an ADD that claims a block, and ignores what the responses say.

mod etcd;
mod kubernetes;

use std::fs::File;

use serde_json::Value;

type Failed = Box<dyn std::error::Error + Send + Sync>;

struct Call {
    /// ADD, LOCKED, CLAIM or DEL.
    command: String,
    container: String,
    configuration: Value,
}

impl Call {
    /// Locks the file of the node for LOCKED, an ADD that does so while it reads and writes the block, as the plugin
    /// does.
    fn hold_lock(&self) -> Result<Option<File>, Failed> {
        let path = self.configuration["ipam_lock_file"]
            .as_str()
            .filter(|_| self.command == "LOCKED");
        let file = path.map(File::create).transpose()?;
        file.as_ref().map_or(Ok(()), File::lock)?;
        Ok(file)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let configuration: Value = serde_json::from_reader(std::io::stdin())?;
    let command = std::env::var("CNI_COMMAND")?;
    let container = std::env::var("CNI_CONTAINERID")?;
    let call = Call {
        command,
        container,
        configuration,
    };
    match call.configuration["datastore_type"].as_str() {
        Some("kubernetes") => kubernetes::send(&call).await,
        _ => etcd::send(&call).await,
    }
}
