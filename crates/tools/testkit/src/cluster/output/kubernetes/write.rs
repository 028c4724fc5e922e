//! Writes clusters to an API server. To be fast, it uses several connections that stay open.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::slice;

use anyhow::Result;
use calipam_model::parallel;
use serde_json::json;

use super::{KubeCluster, KubeObject};
use crate::cluster::Cluster;
use crate::cluster::output::etcd;
use crate::kube::{self, Flavour, foreign_kind};
use crate::servers::KubeApiserver;

/// Number of concurrent connections.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(8).unwrap();

/// Kinds whose status has its own path.
const WITH_STATUS: [&str; 3] = ["nodes", "pods", "services"];

impl KubeObject {
    /// The path of all objects of its kind in its namespace.
    pub fn collection(&self, flavour: Flavour) -> String {
        flavour.folder(self.plural, self.namespace())
    }

    /// The object's key in the server's etcd.
    fn key(&self, flavour: Flavour) -> String {
        let group = match self.plural {
            "nodes" => return format!("/registry/minions/{}", self.name()),
            "pods" => return format!("/registry/{}", self.path()),
            "services" => return format!("/registry/services/specs/{}/{}", self.namespace(), self.name()),
            plural if foreign_kind(plural).is_some() => "kubevirt.io",
            _ => flavour.group(),
        };
        format!("/registry/{group}/{}", self.path())
    }
}

impl Cluster {
    /// Puts every object into the etcd of a server, as JSON, after applying `change`. The kinds must be
    /// [installed](crate::kube::install). The pods' namespaces are not created, and the server takes a while to see all
    /// objects.
    pub fn write_to_etcd_of(
        &self,
        server: &KubeApiserver,
        flavour: Flavour,
        change: impl Fn(&mut KubeObject) + Send,
    ) -> Result<()> {
        etcd::write(&server.etcd().endpoint(), move |visit| {
            self.for_each_part(|part| {
                for mut object in part.kubernetes(flavour).objects {
                    change(&mut object);
                    visit(object.key(flavour).as_bytes(), object.json.to_string().as_bytes());
                }
            });
        })
    }
}

impl KubeCluster {
    /// Creates every object through the API. The kinds must be [installed](crate::kube::install), including those of
    /// [KubeVirt](crate::kube::install_kubevirt). The server sets UIDs and creation times.
    ///
    /// # Panics
    /// Panics if the server refuses an object.
    pub fn write_to_server(&self, server: &KubeApiserver) -> Result<()> {
        self.create_namespaces(server)?;
        // Each connection stops at its first error, so that a hung server fails the test after one time limit.
        let create_share = |first: usize| {
            let mut share = self.objects.iter().skip(first).step_by(CONNECTIONS.get());
            share.try_for_each(|object| create(server, self.flavour, object))
        };
        parallel::map(CONNECTIONS, CONNECTIONS.get(), create_share)
            .into_iter()
            .collect()
    }

    fn create_namespaces(&self, server: &KubeApiserver) -> Result<()> {
        let names: BTreeSet<&str> = self.objects.iter().map(KubeObject::namespace).collect();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            let namespace = kube::named(json!({}), "v1", "Namespace", name);
            let response = server.request("POST", "/api/v1/namespaces", &namespace.to_string())?;
            // Some objects exist from the beginning.
            assert!(matches!(response.status, 201 | 409), "{name}: {}", response.body);
        }
        Ok(())
    }
}

fn create(server: &KubeApiserver, flavour: Flavour, object: &KubeObject) -> Result<()> {
    let path = object.collection(flavour);
    kube::create(server, &path, slice::from_ref(&object.json))?;
    let path = format!("{path}/{}", object.name());
    if WITH_STATUS.contains(&object.plural) {
        let status = object.json["status"].clone();
        kube::edit(server, &format!("{path}/status"), |stored| {
            stored["status"] = status
        });
    }
    // The server sets the deletion time. An object with a finalizer stays, and so does a pod on a node.
    if object.json["metadata"]["deletionTimestamp"].is_string() {
        let deleted = server.request("DELETE", &path, "")?;
        assert!(matches!(deleted.status, 200 | 202), "{path}: {}", deleted.body);
    }
    Ok(())
}
