use std::collections::BTreeMap;

use crate::error::SettingsErrorKind;
use crate::settings::*;

struct TestFiles(BTreeMap<&'static str, &'static str>);

impl Files for TestFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = path.to_str().and_then(|p| self.0.get(p));
        text.map(|t| t.as_bytes().to_vec())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn exists(&self, path: &Path) -> bool {
        path.to_str().is_some_and(|p| self.0.contains_key(p))
    }
}

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----\n";
const CONFIG: &str = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n  \
    etcdEndpoints: https://file:2379\n  etcdUsername: root\n  etcdPassword: hunter2\n";

fn files() -> TestFiles {
    TestFiles(
        [
            ("ca.pem", CERTIFICATE),
            ("cert.pem", CERTIFICATE),
            ("key.pem", KEY),
            ("my.cfg", CONFIG),
            ("dump.jsonl", "{}"),
            ("text", "hello"),
        ]
        .into(),
    )
}

fn resolve(overrides: &Overrides, environment: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let environment = environment
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect();
    Settings::resolve(overrides, &environment, &files())
}

fn etcd_of(settings: Settings) -> EtcdSettings {
    match settings.target {
        Target::Etcd(etcd) => etcd,
        other => panic!("not etcd: {other:?}"),
    }
}

#[test]
fn without_a_file_the_environment_counts() {
    let settings = resolve(
        &Overrides::default(),
        &[
            ("ETCD_ENDPOINTS", "http://a:2379, b:2380"),
            ("ETCD_USERNAME", "u"),
            ("KUBECONFIG", "/k"),
        ],
    );
    let settings = settings.unwrap();
    assert_eq!(settings.kubernetes.kubeconfig, "/k");
    let etcd = etcd_of(settings);
    assert_eq!(etcd.endpoints, ["http://a:2379", "https://b:2380"]);
    assert_eq!(etcd.user, None, "a user without a password does not count");
}

#[test]
fn a_file_counts_alone_and_the_command_line_wins() {
    let mut overrides = Overrides {
        config: Some("my.cfg".into()),
        ..Overrides::default()
    };
    let environment = [
        ("ETCD_ENDPOINTS", "http://environment:1"),
        ("ETCD_CA_CERT_FILE", "missing.pem"),
    ];
    let etcd = etcd_of(resolve(&overrides, &environment).unwrap());
    assert_eq!(etcd.endpoints, ["https://file:2379"]);
    assert_eq!(etcd.user, Some(("root".into(), Secret::new("hunter2"))));
    assert!(!format!("{etcd:?}").contains("hunter2"));
    overrides.etcd_endpoints = Some("http://line:1".into());
    assert_eq!(
        etcd_of(resolve(&overrides, &environment).unwrap()).endpoints,
        ["http://line:1"]
    );
    overrides.config = Some("none.cfg".into());
    assert_eq!(
        resolve(&overrides, &[]).unwrap_err().kind,
        SettingsErrorKind::Unreadable
    );
}

#[test]
fn the_datastore_is_selected_by_options_and_environment() {
    let target = |datastore: Option<&str>, environment: &[(&str, &str)]| {
        let overrides = Overrides {
            datastore: datastore.map(str::to_owned),
            ..Overrides::default()
        };
        resolve(&overrides, environment).map(|s| s.target)
    };
    assert_eq!(target(None, &[]), Ok(Target::Kubernetes));
    assert_eq!(
        target(
            None,
            &[("DATASTORE_TYPE", "kubernetes"), ("ETCD_ENDPOINTS", "x:1")]
        ),
        Ok(Target::Kubernetes)
    );
    assert_eq!(
        target(None, &[("DATASTORE_TYPE", "etcdv3")]),
        Err(SettingsError::no_endpoints())
    );
    assert_eq!(
        target(None, &[("DATASTORE_TYPE", "etcd")]),
        Err(SettingsError::unknown_datastore("etcd"))
    );
    assert!(matches!(
        target(Some("etcd"), &[("ETCD_ENDPOINTS", "x:1")]),
        Ok(Target::Etcd(_))
    ));
    assert_eq!(
        target(Some("dump.jsonl"), &[("USE_POD_CIDR", "broken")]),
        Ok(Target::File("dump.jsonl".into()))
    );
    let error = target(Some("nowhere"), &[]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no data file or datastore \"nowhere\""),
        "{error}"
    );
}

#[test]
fn discovery_is_refused_in_clear_words() {
    let default = Overrides::default();
    let both = [("ETCD_ENDPOINTS", "x:1"), ("ETCD_DISCOVERY_SRV", "example.org")];
    let error = resolve(&default, &both).unwrap_err();
    assert_eq!(
        error.to_string(),
        "both etcd endpoints and a discovery domain are set"
    );
    let alone = [
        ("DATASTORE_TYPE", "etcdv3"),
        ("ETCD_DISCOVERY_SRV", "example.org"),
    ];
    let error = resolve(&default, &alone).unwrap_err();
    assert!(error.to_string().contains("\"example.org\" is set"), "{error}");
    let hint = error.hint();
    assert!(hint.text.contains("_etcd-client-ssl._tcp.{}"), "{hint:?}");
    assert_eq!(hint.calls[0], Call::Name("example.org".into()));
    let overrides = Overrides {
        etcd_endpoints: Some("y:1".into()),
        ..default
    };
    assert_eq!(
        etcd_of(resolve(&overrides, &both).unwrap()).endpoints,
        ["http://y:1"]
    );
}

#[test]
fn an_endpoint_without_scheme_is_asked_by_tls_as_calico_does() {
    let endpoints = [("ETCD_ENDPOINTS", "x:1,http://y:2")];
    let etcd = etcd_of(resolve(&Overrides::default(), &endpoints).unwrap());
    assert_eq!(etcd.endpoints, ["https://x:1", "http://y:2"]);
    let line = Overrides {
        etcd_endpoints: Some("x:1".into()),
        ..Overrides::default()
    };
    assert_eq!(etcd_of(resolve(&line, &[]).unwrap()).endpoints, ["http://x:1"]);
}

#[test]
fn certificates_come_from_files_or_inline() {
    let endpoints = ("ETCD_ENDPOINTS", "etcd:2379");
    let default = Overrides::default();
    let all = [
        endpoints,
        ("ETCD_CA_CERT_FILE", "ca.pem"),
        ("ETCD_CERT_FILE", "cert.pem"),
        ("CALICO_ETCD_KEY_FILE", "key.pem"),
    ];
    let etcd = etcd_of(resolve(&default, &all).unwrap());
    assert_eq!(etcd.endpoints, ["https://etcd:2379"]);
    assert_eq!(etcd.tls.ca.as_deref(), Some(CERTIFICATE));
    assert_eq!(etcd.tls.identity, Some((CERTIFICATE.into(), Secret::new(KEY))));
    assert!(!format!("{etcd:?}").contains("c2VjcmV0"));
    let half = resolve(&default, &[endpoints, ("ETCD_CERT_FILE", "cert.pem")]);
    assert!(
        half.unwrap_err()
            .to_string()
            .ends_with("only the certificate is given")
    );
    let missing = resolve(&default, &[endpoints, ("ETCD_CA_CERT_FILE", "none.pem")]);
    let missing = missing.unwrap_err();
    assert_eq!(missing.kind, SettingsErrorKind::Unreadable);
    assert!(
        missing
            .to_string()
            .starts_with("cannot read the CA certificate none.pem: "),
        "{missing}"
    );
    let wrong = resolve(&default, &[endpoints, ("ETCD_CA_CERT_FILE", "text")]);
    assert!(
        wrong
            .unwrap_err()
            .to_string()
            .starts_with("the CA certificate is not usable: ")
    );
    let swapped = [
        endpoints,
        ("ETCD_CERT_FILE", "key.pem"),
        ("ETCD_KEY_FILE", "key.pem"),
    ];
    let error = resolve(&default, &swapped).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the client certificate is not usable: "),
        "{error}"
    );
    assert!(!format!("{error:?}").contains("c2VjcmV0"));
}

#[test]
fn inline_and_files_do_not_mix() {
    let mut values = Values::default();
    let field = |name: &str| fields::FIELDS.iter().find(|f| f.name == name).unwrap();
    values.set(field("etcdCACert"), CERTIFICATE.into());
    assert_eq!(
        tls(&values, &Overrides::default(), &files()).map(|t| t.ca),
        Ok(Some(CERTIFICATE.into()))
    );
    values.set(field("etcdKeyFile"), "key.pem".into());
    let mixed = tls(&values, &Overrides::default(), &files()).unwrap_err();
    assert_eq!(
        mixed.to_string(),
        "TLS certificates are given both inline and as files"
    );
}

#[test]
fn kubernetes_settings_are_kept() {
    let overrides = Overrides {
        kubeconfig: Some("/line".into()),
        context: Some("prod".into()),
        ..Overrides::default()
    };
    let environment = [
        ("KUBECONFIG", "/env"),
        ("CALICO_K8SAPITOKEN", "t0ken"),
        ("CALICO_API_GROUP", "g"),
    ];
    let kubernetes = resolve(&overrides, &environment).unwrap().kubernetes;
    assert_eq!(
        (kubernetes.kubeconfig.as_str(), kubernetes.context.as_str()),
        ("/line", "prod")
    );
    assert_eq!(kubernetes.token.reveal(), "t0ken");
    assert_eq!(kubernetes.api_group, "g");
    assert!(!format!("{kubernetes:?}").contains("t0ken"));
}

/// Each file on the command line replaces only the corresponding setting.
#[test]
fn certificates_of_the_command_line_win() {
    let environment = [
        ("ETCD_ENDPOINTS", "https://a:2379"),
        ("ETCD_CA_CERT_FILE", "missing.pem"),
    ];
    let mut overrides = Overrides {
        etcd_cacert: Some("ca.pem".into()),
        ..Overrides::default()
    };
    let etcd = etcd_of(resolve(&overrides, &environment).unwrap());
    assert_eq!(
        (etcd.tls.ca.as_deref(), etcd.tls.identity),
        (Some(CERTIFICATE), None)
    );

    overrides.etcd_cert = Some("cert.pem".into());
    let half = resolve(&overrides, &environment);
    assert!(
        half.unwrap_err()
            .to_string()
            .ends_with("only the certificate is given")
    );
    overrides.etcd_key = Some("key.pem".into());
    let etcd = etcd_of(resolve(&overrides, &environment).unwrap());
    assert_eq!(
        etcd.tls.identity,
        Some((CERTIFICATE.to_owned(), Secret::new(KEY)))
    );

    overrides.etcd_key = Some("text".into());
    let wrong = resolve(&overrides, &environment);
    assert!(
        wrong
            .unwrap_err()
            .to_string()
            .starts_with("the client key is not usable: ")
    );
}
