//! The file of a fleet: YAML that names clusters, and where each is. Strict: a misspelt field would be a cluster that is read
//! from somewhere else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use calipam_check::read_document;
use calipam_datastore::settings::Overrides;
use calipam_files::regular;
use calipam_model::{IpNet, cidr};
use calipam_workflow::nearest;
use serde_json::{Map, Value};

use super::{Fleet, Named, Source};
use crate::connect;
use crate::exit::Failure;

const TOP: [&str; 2] = ["clusters", "taken"];
const CLUSTER: [&str; 12] = [
    "name",
    "group",
    "labels",
    "services",
    "datastore",
    "kubeconfig",
    "context",
    "etcdEndpoints",
    "etcdCACertFile",
    "etcdCertFile",
    "etcdKeyFile",
    "config",
];

/// What is wrong with the file: the message, and what would be right.
struct Wrong(String, Option<String>);

impl Wrong {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(message.into(), Some(hint.into()))
    }
}

pub(super) fn fleet(path: &Path, base: &Overrides) -> Result<Fleet, Failure> {
    let file = regular::open(path).map_err(Failure::io(format!("read {}", path.display())))?;
    let usage =
        |Wrong(message, hint): Wrong| Failure::usage(format!("{}: {message}", path.display())).hint_if(hint);
    let value: Value = read_document(file).map_err(|error| {
        usage(Wrong::new(format!("it is not YAML: {error}"), "docs/fleet.md has an example"))
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let fields = object(&value, "the file", &TOP).map_err(usage)?;

    let mut fleet = Fleet { taken: cidrs(fields, "taken", "the file").map_err(usage)?, ..Fleet::default() };
    let Some(Value::Array(entries)) = fields.get("clusters") else {
        return Err(usage(Wrong::new("it has no list `clusters`", "docs/fleet.md has an example")));
    };
    for (index, entry) in entries.iter().enumerate() {
        let entry = Entry::read(entry, index + 1, folder).map_err(usage)?;
        fleet.clusters.push(entry.named(base).map_err(usage)?);
    }
    Ok(fleet)
}

/// The fields of an object that has no others than these.
fn object<'v>(value: &'v Value, what: &str, known: &[&str]) -> Result<&'v Map<String, Value>, Wrong> {
    let Value::Object(fields) = value else {
        return Err(Wrong::new(
            format!("{what} has no fields"),
            format!("known fields: {}", known.join(", ")),
        ));
    };
    let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(fields) };
    let near = nearest(unknown, known.iter().copied());
    let hint = near.map_or_else(
        || format!("known fields: {}", known.join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    Err(Wrong::new(format!("{what} has the unknown field `{unknown}`"), hint))
}

/// A list of CIDRs; none if `of`, the file or a cluster, has no such field.
fn cidrs(fields: &Map<String, Value>, name: &str, of: &str) -> Result<Vec<IpNet>, Wrong> {
    let Some(value) = fields.get(name) else { return Ok(Vec::new()) };
    let wrong = || {
        Wrong::new(
            format!("{of}: `{name}` is not a list of CIDRs"),
            "a list such as [10.0.0.0/16, 172.16.4.0/22]",
        )
    };
    let items = value.as_array().ok_or_else(wrong)?;
    items.iter().map(|item| item.as_str().and_then(cidr::parse_cidr).ok_or_else(wrong)).collect()
}

/// An entry of `clusters`; paths are from the folder of the file.
#[derive(Default)]
struct Entry {
    what: String,
    name: Option<String>,
    group: Option<String>,
    labels: BTreeMap<String, String>,
    services: Vec<IpNet>,
    datastore: Option<PathBuf>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    etcd_endpoints: Option<String>,
    /// CA certificate, certificate and key.
    tls: [Option<PathBuf>; 3],
    config: Option<PathBuf>,
}

impl Entry {
    fn read(value: &Value, number: usize, folder: &Path) -> Result<Self, Wrong> {
        let what = match value.get("name").and_then(Value::as_str) {
            Some(name) => format!("the cluster {name:?}"),
            None => format!("cluster {number}"),
        };
        let fields = object(value, &what, &CLUSTER)?;
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(Wrong(format!("{what}: `{name}` is not a string"), None)),
        };
        let path = |name: &str| Ok(text(name)?.map(|path| folder.join(path)));
        let entry = Self {
            name: text("name")?,
            group: text("group")?,
            labels: labels(fields, &what)?,
            services: cidrs(fields, "services", &what)?,
            datastore: path("datastore")?,
            kubeconfig: path("kubeconfig")?,
            context: text("context")?,
            etcd_endpoints: endpoints(fields, &what)?,
            tls: [path("etcdCACertFile")?, path("etcdCertFile")?, path("etcdKeyFile")?],
            config: path("config")?,
            what,
        };
        entry.has_one_source()?;
        Ok(entry)
    }

    /// Where the cluster is has to be said once.
    fn has_one_source(&self) -> Result<(), Wrong> {
        let has_kubernetes = self.kubeconfig.is_some() || self.context.is_some();
        let has_etcd = self.etcd_endpoints.is_some();
        let sources = [
            ("datastore", self.datastore.is_some()),
            ("etcdEndpoints", has_etcd),
            // With etcd, pods are read from it as well.
            ("kubeconfig and context", has_kubernetes && !has_etcd),
            ("config", self.config.is_some()),
        ];
        let named: Vec<&str> = sources.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        let one = "one of datastore, etcdEndpoints, kubeconfig and context, and config";
        let what = &self.what;
        match named[..] {
            [] => Err(Wrong::new(format!("{what} does not say where it is"), format!("it needs {one}"))),
            [_] if self.tls.iter().any(Option::is_some) && !has_etcd => {
                Err(Wrong(format!("{what} has certificates for etcd, but no etcdEndpoints"), None))
            }
            [_] => Ok(()),
            _ => Err(Wrong::new(format!("{what} has {}", named.join(" and ")), format!("it needs {one}"))),
        }
    }

    fn named(self, base: &Overrides) -> Result<Named, Wrong> {
        let Self {
            what,
            name,
            group,
            labels,
            services,
            datastore,
            kubeconfig,
            context,
            etcd_endpoints,
            tls,
            config,
        } = self;
        let Some(name) = name else { return Err(Wrong(format!("{what} has no `name`"), None)) };
        if let Some(path) = datastore {
            return Ok(Named { name, group, labels, services, source: Source::of_file(path, base) });
        }
        let kubernetes = config.is_none() && etcd_endpoints.is_none();
        let [etcd_cacert, etcd_cert, etcd_key] = tls;
        // Without a kubeconfig of its own, the context is one of the user's.
        let of_user = || {
            let environment = connect::environment();
            environment.get("KUBECONFIG").filter(|_| context.is_some()).cloned()
        };
        let kubeconfig = kubeconfig.map(|path| path.to_string_lossy().into_owned()).or_else(of_user);
        let overrides = Overrides {
            config,
            kubeconfig,
            context,
            etcd_endpoints,
            etcd_cacert,
            etcd_cert,
            etcd_key,
            datastore: kubernetes.then(|| "kubernetes".to_owned()),
            ..base.clone()
        };
        Ok(Named { name, group, labels, services, source: Source::Entry(Box::new(overrides)) })
    }
}

fn labels(fields: &Map<String, Value>, what: &str) -> Result<BTreeMap<String, String>, Wrong> {
    let Some(value) = fields.get("labels") else { return Ok(BTreeMap::new()) };
    let wrong =
        || Wrong::new(format!("{what}: `labels` must be strings"), "such as {region: eu, stage: prod}");
    let labels = value.as_object().ok_or_else(wrong)?;
    let label = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    labels.iter().map(|entry| label(entry).ok_or_else(wrong)).collect()
}

/// One text with commas, as calicoctl has it, or a list.
fn endpoints(fields: &Map<String, Value>, what: &str) -> Result<Option<String>, Wrong> {
    let texts = |items: &[Value]| {
        let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
        texts.map(|texts| texts.join(","))
    };
    let joined = match fields.get("etcdEndpoints") {
        None => return Ok(None),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(items)) => texts(items),
        Some(_) => None,
    };
    let wrong = || Wrong(format!("{what}: `etcdEndpoints` are not URLs"), None);
    joined.filter(|joined| !joined.is_empty()).map(Some).ok_or_else(wrong)
}
