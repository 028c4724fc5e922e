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
/// Maximum characters of a note, since API servers refuse more than 1024 bytes.
const MAX_NOTE: usize = 1_000;
/// Maximum characters of the name of a process, since API servers refuse more.
const MAX_INSTANCE: usize = 128;
/// Number of hexadecimal digits in the hash that identifies an event.
const HASH_DIGITS: usize = 16;
/// Maximum characters of the subject's name in the name of an event. With the rest, the name stays below the limit for
/// object names, 253.
const MAX_SUBJECT_NAME: usize = 200;

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

impl Regarding {
    fn name(&self) -> &str {
        match self {
            Self::Node(name) | Self::Pod { name, .. } => name,
        }
    }

    /// The namespace of events about this object. Those about objects without a namespace belong to `default`.
    fn namespace_of_events(&self) -> &str {
        match self {
            Self::Node(_) => "default",
            Self::Pod { namespace, .. } => namespace,
        }
    }

    /// The object as events refer to it.
    fn reference(&self) -> Value {
        match self {
            // `kubectl describe node` finds events by this UID, since kubelets report theirs with it.
            Self::Node(name) => json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}),
            Self::Pod { namespace, name, uid } => {
                json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid})
            }
        }
    }
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
        self.client = Some(Arc::clone(&client));
        if let Err(Failure::Connection(_)) = reported {
            // The next event connects again.
            self.client = None;
        }
        match reported {
            Ok(_) | Err(Failure::Conflict(_)) => Ok(()),
            Err(failure) => Err(client.write_error("events", failure)),
        }
    }
}

impl Event {
    /// Builds the JSON of the event, and the path at which to create it. `instance` is the name of this process.
    fn object(&self, instance: &str) -> (String, Value) {
        let namespace = self.regarding.namespace_of_events();
        let reference = self.regarding.reference();

        // The same event gets the same name from every process, so the server refuses to create it twice.
        let identity = format!("{}\n{}\n{reference}", self.reason, self.identity);
        let hash = &sha256_hex(identity)[..HASH_DIGITS];
        let subject_name = self.regarding.name();
        let short_name: String = subject_name.chars().take(MAX_SUBJECT_NAME).collect();
        let event_name = format!("{short_name}.calipam-{hash}");

        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"namespace": namespace, "name": event_name},
            "eventTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            "reportingController": CONTROLLER, "reportingInstance": instance,
            "action": "Check", "reason": self.reason, "regarding": reference,
            "note": self.note.chars().take(MAX_NOTE).collect::<String>(),
            "type": if self.is_warning { "Warning" } else { "Normal" },
        });
        (
            format!("/apis/events.k8s.io/v1/namespaces/{}/events", segment(namespace)),
            event,
        )
    }
}
