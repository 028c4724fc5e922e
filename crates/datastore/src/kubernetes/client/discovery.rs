//! Finds out which of Calico's API groups and kinds a cluster has (facts 2.1).

use std::collections::BTreeSet;

use calipam_files::objects::kinds::{CLASSIC_GROUP, NATIVE_GROUP};
use calipam_files::objects::{Accept, Flavour, KUBEVIRT_GROUP};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::KubeClient;
use crate::error::Result;

/// The API groups and kinds that a cluster has, as far as calipam reads them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Api {
    pub flavour: Flavour,
    /// Plurals of the kinds in Calico's group.
    calico: BTreeSet<String>,
    /// True if the server was not asked. Calico's group is then assumed to have all kinds.
    assumed: bool,
    /// True if lists should be requested without pages, because the server streams whole lists from a consistent cache
    /// (Kubernetes 1.33 and later). It would read each page after the first from its etcd, which costs ten times as
    /// much for pods.
    pub whole_lists: bool,
    /// Version and plurals of KubeVirt's group, if the cluster has it.
    kubevirt: Option<(String, BTreeSet<String>)>,
}

impl Api {
    /// Asks the server for its groups and kinds. `configured` is the API group in the settings; empty for none.
    pub(crate) async fn discover(client: &KubeClient, configured: &str) -> Result<Self> {
        let (groups, version) = tokio::join!(
            read::<Groups>(client, "/apis"),
            read::<ServerVersion>(client, "/version")
        );
        let groups = groups?.unwrap_or_default();
        let flavour = groups.flavour(configured);
        let whole_lists = match version {
            Ok(Some(version)) => version.is_at_least(1, 33),
            // A server that does not report its version is probably old.
            Ok(None) | Err(_) => false,
        };
        let mut api = Self {
            flavour,
            whole_lists,
            ..Self::default()
        };

        if groups.find(flavour.group()).is_some() {
            api.calico = plurals(client, flavour.group(), flavour.version()).await?;
        }
        if let Some(group) = groups.find(KUBEVIRT_GROUP) {
            let version = group.preferred_version.version.clone();
            let plurals = plurals(client, KUBEVIRT_GROUP, &version).await?;
            api.kubevirt = Some((version, plurals));
        }
        Ok(api)
    }

    /// The assumption about a server before it is asked: the API group in the settings, or the classic one, with
    /// all kinds.
    pub(crate) fn assumed(configured: &str) -> Self {
        Self {
            flavour: Flavour::configured(configured),
            assumed: true,
            ..Self::default()
        }
    }

    /// True if no Calico kinds are installed.
    pub(crate) fn is_empty(&self) -> bool {
        self.calico.is_empty() && !self.assumed
    }

    /// True if Calico's group has this kind.
    pub(crate) fn has(&self, plural: &str) -> bool {
        self.assumed || self.calico.contains(plural)
    }

    /// The path of all objects of a kind in Calico's group, whether or not it is installed.
    pub(crate) fn calico_path(&self, plural: &str) -> String {
        format!(
            "/apis/{}/{}/{plural}",
            self.flavour.group(),
            self.flavour.version()
        )
    }

    /// The path of all objects of a KubeVirt kind, if it is installed.
    pub(crate) fn kubevirt_path(&self, plural: &str) -> Option<String> {
        let (version, plurals) = self.kubevirt.as_ref()?;
        if !plurals.contains(plural) {
            return None;
        }
        Some(format!("/apis/{KUBEVIRT_GROUP}/{version}/{plural}"))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ServerVersion {
    major: String,
    /// Some providers append a `+`.
    minor: String,
}

impl ServerVersion {
    /// True for a server of the version `major.minor` or a later one; false if the server's version is not known.
    fn is_at_least(&self, major: u32, minor: u32) -> bool {
        let Some(own_major) = parse_number(&self.major) else {
            return false;
        };
        if own_major != major {
            return own_major > major;
        }
        match parse_number(&self.minor) {
            Some(own_minor) => own_minor >= minor,
            None => false,
        }
    }
}

/// Parses one number of a version, without the characters that follow it.
fn parse_number(text: &str) -> Option<u32> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    digits.parse().ok()
}

#[derive(Default, Deserialize)]
struct Groups {
    groups: Vec<GroupEntry>,
}

impl Groups {
    fn find(&self, name: &str) -> Option<&GroupEntry> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The flavour of the configured API group. If none is configured, the native flavour is chosen only if the cluster
    /// does not have the classic group.
    fn flavour(&self, configured: &str) -> Flavour {
        let has_only_native = self.find(NATIVE_GROUP).is_some() && self.find(CLASSIC_GROUP).is_none();
        if configured.is_empty() && has_only_native {
            Flavour::Native
        } else {
            Flavour::configured(configured)
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupEntry {
    name: String,
    preferred_version: Version,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// The plurals of a group's kinds; none if the server lists the group but has no such version.
async fn plurals(client: &KubeClient, group: &str, version: &str) -> Result<BTreeSet<String>> {
    #[derive(Default, Deserialize)]
    struct Resources {
        resources: Vec<Resource>,
    }
    #[derive(Deserialize)]
    struct Resource {
        name: String,
    }
    let answer: Option<Resources> = read(client, &format!("/apis/{group}/{version}")).await?;

    let mut plurals = BTreeSet::new();
    for resource in answer.unwrap_or_default().resources {
        // A name with a slash, such as `pods/status`, is a part of a kind.
        if !resource.name.contains('/') {
            plurals.insert(resource.name);
        }
    }
    Ok(plurals)
}

async fn read<T: DeserializeOwned>(client: &KubeClient, path: &str) -> Result<Option<T>> {
    client.get_json(path, Accept::Json, "the list of kinds").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_servers() {
        let version = |major: &str, minor: &str| ServerVersion {
            major: major.into(),
            minor: minor.into(),
        };
        for (major, minor, expected) in [
            ("1", "33", true),
            ("1", "36+", true),
            ("2", "0", true),
            ("1", "32", false),
            ("", "", false),
        ] {
            assert_eq!(
                version(major, minor).is_at_least(1, 33),
                expected,
                "{major}.{minor}"
            );
        }
    }
}
