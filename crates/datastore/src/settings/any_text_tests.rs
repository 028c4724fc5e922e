//! Settings with arbitrary text. The worst result is a clear error.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::fields::FIELDS;
use super::*;

/// Strings that have a special meaning in URLs, YAML, PEM or headers.
const PIECES: [&str; 32] = [
    "http://",
    "https://",
    "socks5://",
    "://",
    "[::1]",
    "[",
    "]",
    "a",
    "10.0.0.1",
    ":",
    ":0",
    ":99999",
    "/",
    "?",
    "#",
    "@",
    "%",
    "%zz",
    ",",
    ".",
    " ",
    "\n",
    "\r\n",
    "\0",
    "\u{7f}",
    "é",
    "🦀",
    "\"",
    "{",
    "-",
    "1e400",
    "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
];

pub(crate) fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![3 => select(&PIECES[..]).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)];
    vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// A file system with the same file at every path.
struct OneFile(Vec<u8>);

impl Files for OneFile {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }

    fn exists(&self, _: &Path) -> bool {
        !self.0.is_empty()
    }
}

/// Generates settings files: empty, with arbitrary bytes, with a known field followed by arbitrary text, or with
/// arbitrary strings as values of known fields.
fn file() -> impl Strategy<Value = Vec<u8>> {
    const HEAD: &str = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n";
    let names: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
    let of_fields = btree_map(select(names.clone()), text(), 0..6).prop_map(|spec| {
        let file = json!({"apiVersion": "projectcalico.org/v3", "kind": "CalicoAPIConfig", "spec": spec});
        file.to_string().into_bytes()
    });
    let of_lines =
        (select(names), text()).prop_map(|(name, text)| format!("{HEAD}  {name}: {text}").into_bytes());
    prop_oneof![Just(Vec::new()), vec(any::<u8>(), 0..60), of_lines, of_fields]
}

fn environment() -> impl Strategy<Value = BTreeMap<String, String>> {
    let names = FIELDS.iter().filter_map(|field| field.variable);
    let names: Vec<String> = names
        .flat_map(|name| [name.to_owned(), format!("CALICO_{name}")])
        .collect();
    btree_map(select(names), text(), 0..6)
}

/// Options of the command line, each with arbitrary text or missing.
fn overrides() -> impl Strategy<Value = Overrides> {
    let kinds = ["etcd", "etcdv2", "kubernetes", "-"].map(str::to_owned);
    let datastore = option::of(prop_oneof![select(kinds.to_vec()), text()]);
    let texts = vec(option::of(text()), 17);
    (datastore, texts, vec(text(), 0..2), any::<bool>()).prop_map(
        |(datastore, texts, as_groups, insecure)| {
            let mut texts = texts.into_iter();
            let mut next = || texts.next().expect("there are enough");
            let kubectl = KubectlOptions {
                cluster: next(),
                user: next(),
                server: next(),
                as_user: next(),
                as_groups,
                insecure,
                client_identity: next()
                    .zip(next())
                    .map(|(certificate, key)| (certificate.into(), key.into())),
                tls_server_name: next(),
                token: Secret::new(next().unwrap_or_default()),
                certificate_authority: next().map(PathBuf::from),
                request_timeout: None,
            };
            Overrides {
                config: next().map(PathBuf::from),
                kubeconfig: next(),
                context: next(),
                etcd_endpoints: next(),
                etcd_cacert: next().map(PathBuf::from),
                etcd_cert: next().map(PathBuf::from),
                etcd_key: next().map(PathBuf::from),
                datastore,
                kubectl,
                shown_as: None,
                connect_timeout: None,
                unattended: true,
            }
        },
    )
}

proptest! {
    #[test]
    fn no_settings_panic(overrides in overrides(), environment in environment(), file in file()) {
        let files = OneFile(file);
        let resolved = Settings::resolve(&overrides, &environment, &files);
        let _ = resolved.map_err(|error| error.to_string());
        let _ = KubernetesSettings::resolve(&overrides, &environment, &files);

        // Sets only the kind of datastore, so that the server comes from the environment or the file.
        let server = |datastore: &str| Overrides { datastore: Some(datastore.to_owned()), ..Overrides::default() };
        for overrides in [Overrides::default(), server("etcd"), server("kubernetes")] {
            for files in [&files, &OneFile(Vec::new())] {
                let _ = Settings::resolve(&overrides, &environment, files);
            }
        }
    }
}
