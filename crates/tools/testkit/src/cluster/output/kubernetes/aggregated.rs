//! The classic form as `kubectl get` with short names returns it, through Calico's aggregated API.

use serde_json::Value;

use super::KubeCluster;
use super::names::METADATA;
use crate::kube::Flavour;

/// The kinds that the aggregated API serves; blocks and handles are not among them.
const SERVED: [&str; 5] =
    ["blockaffinities", "ippools", "ipreservations", "clusterinformations", "kubecontrollersconfigurations"];

impl KubeCluster {
    /// Returns the same objects in the form in which the aggregated API serves them. This API uses the native group and
    /// omits the type of affinities.
    pub fn through_aggregated_api(&self) -> Self {
        assert_eq!(self.flavour, Flavour::Classic, "where the group is native, there is no such API");
        let mut shown = self.clone();
        for object in shown.objects.iter_mut().filter(|object| SERVED.contains(&object.plural)) {
            object.json["apiVersion"] = Flavour::Native.api_version().into();
            if let Some(annotations) = object.json["metadata"]["annotations"].as_object_mut() {
                annotations.remove(METADATA);
            }
            if object.plural == "blockaffinities"
                && let Some(spec) = object.json["spec"].as_object_mut()
            {
                spec.remove("type");
                let deleted = spec.get("deleted").and_then(Value::as_str).map(str::to_owned);
                // Any other string stays, so that this form has every fault of the classic one.
                if let Some(deleted) = deleted.and_then(|text| text.parse::<bool>().ok()) {
                    spec.insert("deleted".to_owned(), deleted.into());
                }
            }
        }
        shown
    }
}
