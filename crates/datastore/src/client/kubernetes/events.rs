//! Events of Kubernetes (`events.k8s.io/v1`) about nodes and pods.

use std::sync::Arc;

use calipam_model::digest::sha256_hex;
use jiff::Timestamp;
use serde_json::json;

use super::KubeClient;
use super::kinds::segment;
use crate::error::{Failure, Result};
use crate::settings::KubernetesSettings;

/// Who reports them.
const CONTROLLER: &str = "calipam.io/serve";
/// Most characters of what is told, and of a name.
const MAX_NOTE: usize = 1_000;
const MAX_INSTANCE: usize = 128;
/// Digits of a hash that tells one event from others.
const DIGITS: usize = 16;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    /// By its name, which is what its kubelet takes for its UID in events, too.
    Node(String),
    Pod {
        namespace: String,
        name: String,
        uid: String,
    },
}

/// Something that is told once.
#[derive(Clone, Debug)]
pub struct Event {
    pub regarding: Regarding,
    pub is_warning: bool,
    /// One word for its kind, such as `LeakedAddress`.
    pub reason: String,
    pub note: String,
    /// What tells it from others about the same object.
    pub identity: String,
}

/// Where events are told.
pub struct Events {
    settings: KubernetesSettings,
    /// This process.
    instance: String,
    client: Option<Arc<KubeClient>>,
}

impl Events {
    pub fn new(settings: KubernetesSettings, instance: String) -> Self {
        let instance = instance.chars().take(MAX_INSTANCE).collect();
        Self { settings, instance, client: None }
    }

    /// Tells an event. One that the server still has, which as a rule is so for an hour, is not told again, whichever process told it.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses.
    pub async fn tell(&mut self, event: &Event) -> Result<()> {
        let client = match &self.client {
            Some(client) => Arc::clone(client),
            None => KubeClient::connect(&self.settings).await?,
        };
        let (path, json) = event.object(&self.instance);
        let told = client.post(&path, json.into_bytes()).await;
        self.client = told.as_ref().err().is_none_or(is_answer).then_some(client.clone());
        match told {
            Ok(_) | Err(Failure::Conflict(_)) => Ok(()),
            Err(failure) => Err(client.write_error("events", failure)),
        }
    }
}

/// True if the server is there, so that its connection is kept.
fn is_answer(failure: &Failure) -> bool {
    !matches!(failure, Failure::Connection(_))
}

impl Event {
    /// The path at which it is made, and its JSON.
    fn object(&self, instance: &str) -> (String, String) {
        // What is about an object without a namespace is in this one.
        let (namespace, name, object) = match &self.regarding {
            Regarding::Node(name) => ("default", name, json!({"kind": "Node", "name": name, "uid": name})),
            Regarding::Pod { namespace, name, uid } => (
                namespace.as_str(),
                name,
                json!({"kind": "Pod", "namespace": namespace, "name": name, "uid": uid}),
            ),
        };
        let mut regarding = object;
        regarding["apiVersion"] = "v1".into();
        let hash = &sha256_hex(format!("{}\n{}\n{regarding}", self.reason, self.identity))[..DIGITS];
        let name: String = name.chars().take(200).collect();
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"namespace": namespace, "name": format!("{name}.calipam-{hash}")},
            "eventTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            "reportingController": CONTROLLER, "reportingInstance": instance,
            "action": "Check", "reason": self.reason, "regarding": regarding,
            "note": self.note.chars().take(MAX_NOTE).collect::<String>(),
            "type": if self.is_warning { "Warning" } else { "Normal" },
        });
        (format!("/apis/events.k8s.io/v1/namespaces/{}/events", segment(namespace)), event.to_string())
    }
}
