//! Kubernetes events (`events.k8s.io/v1`) about nodes and pods.

use std::sync::Arc;

use calipam_model::digest::sha256_hex;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::KubeClient;
use super::kinds::segment;
use crate::error::{Failure, Result};
use crate::settings::KubernetesSettings;

/// The controller that events name as their reporter.
const CONTROLLER: &str = "calipam.io/serve";
/// Maximum characters of a note, and of the name of a process.
const MAX_NOTE: usize = 1_000;
const MAX_INSTANCE: usize = 128;
/// Number of hexadecimal digits in the hash that identifies an event.
const DIGITS: usize = 16;

/// The subject of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Regarding {
    /// A node by its name, which kubelets also use as the node's UID in events.
    Node(String),
    Pod {
        namespace: String,
        name: String,
        uid: String,
    },
}

/// An event to report once.
#[derive(Clone, Debug)]
pub struct Event {
    pub regarding: Regarding,
    pub is_warning: bool,
    /// The kind of event in one word, such as `LeakedAddress`.
    pub reason: String,
    pub note: String,
    /// Distinguishes this event from others about the same object.
    pub identity: String,
}

/// Reports events to an API server.
pub struct Events {
    settings: KubernetesSettings,
    /// The name of this process.
    instance: String,
    client: Option<Arc<KubeClient>>,
}

impl Events {
    /// Creates a writer of events. It connects at its first event.
    pub fn new(settings: KubernetesSettings, instance: String) -> Self {
        let instance = instance.chars().take(MAX_INSTANCE).collect();
        Self {
            settings,
            instance,
            client: None,
        }
    }

    /// Reports an event, unless the server already has it from this or another process. Servers usually keep events for
    /// an hour.
    ///
    /// # Errors
    /// If the server cannot be reached, or rejects the event.
    pub async fn report(&mut self, event: &Event) -> Result<()> {
        let client = match &self.client {
            Some(client) => Arc::clone(client),
            None => KubeClient::connect(&self.settings).await?,
        };
        let (path, json) = event.object(&self.instance);
        let reported = client.write(Method::POST, &path, &json).await;
        let has_failed = matches!(reported, Err(Failure::Connection(_)));
        self.client = (!has_failed).then(|| Arc::clone(&client));
        match reported {
            Ok(_) | Err(Failure::Conflict(_)) => Ok(()),
            Err(failure) => Err(client.write_error("events", failure)),
        }
    }
}

impl Event {
    /// The path at which to create the event, and its JSON.
    fn object(&self, instance: &str) -> (String, Value) {
        // Events about objects without a namespace belong to the namespace `default`.
        let (namespace, name, object) = match &self.regarding {
            Regarding::Node(name) => (
                "default",
                name,
                json!({"kind": "Node", "name": name, "uid": name}),
            ),
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
        (
            format!("/apis/events.k8s.io/v1/namespaces/{}/events", segment(namespace)),
            event,
        )
    }
}
