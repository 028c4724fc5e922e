//! The floor of the part `cni`: a program that is called as the plugin is, and sends the datastore the requests of one ADD or DEL
//! without thinking about the answers.

mod etcd;
mod kubernetes;

use serde_json::Value;

/// What can fail.
type Failed = Box<dyn std::error::Error + Send + Sync>;

/// What is asked of the program.
struct Call {
    /// ADD, not DEL.
    is_add: bool,
    container: String,
}

fn main() -> Result<(), Failed> {
    let configuration: Value = serde_json::from_reader(std::io::stdin())?;
    let call =
        Call { is_add: std::env::var("CNI_COMMAND")? == "ADD", container: std::env::var("CNI_CONTAINERID")? };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match configuration["datastore_type"].as_str() {
            Some("kubernetes") => kubernetes::send(&configuration, &call).await,
            _ => etcd::send(&configuration, &call).await,
        }
    })
}
