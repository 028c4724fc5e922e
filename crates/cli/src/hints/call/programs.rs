//! The connection options in command lines of other programs: kubectl and calicoctl.

use super::{Call, OF_CALICOCTL};
use crate::render::text::shell_word;

/// The environment variables that calicoctl reads where calipam has options. (Not all of its commands have the option
/// `--context`.)
const VARIABLES: [(&str, &str); 6] = [
    ("kubeconfig", "KUBECONFIG"),
    ("context", "K8S_CURRENT_CONTEXT"),
    ("etcd_endpoints", "ETCD_ENDPOINTS"),
    ("etcd_cacert", "ETCD_CA_CERT_FILE"),
    ("etcd_cert", "ETCD_CERT_FILE"),
    ("etcd_key", "ETCD_KEY_FILE"),
];

impl Call {
    /// Formats a command line of kubectl, or of a program with its options, which is quoted for a shell, with the
    /// connection options.
    pub(in crate::hints) fn of_kubectl(&self, line: &str) -> String {
        let kubeconfig = self.value("kubeconfig").unwrap_or_default();
        // Only the variable KUBECONFIG can list several files, and not the option.
        if std::env::split_paths(kubeconfig).count() < 2 {
            return with_options(line, &self.connection_but(&OF_CALICOCTL));
        }
        let others = [&OF_CALICOCTL[..], &["kubeconfig"]].concat();
        let line = with_options(line, &self.connection_but(&others));
        format!("KUBECONFIG={} {line}", shell_word(kubeconfig))
    }

    /// Formats a command line of calicoctl, which is quoted for a shell, with the connection options. Most of them are
    /// environment variables.
    pub(in crate::hints) fn of_calicoctl(&self, line: &str) -> String {
        let mut words = Vec::new();
        // calicoctl needs the type if it is not in its configuration file.
        if let Some(kind) = self.datastore_type() {
            words.push(format!("DATASTORE_TYPE={kind}"));
        }
        for (id, variable) in VARIABLES {
            if let Some(value) = self.value(id) {
                words.push(format!("{variable}={}", shell_word(value)));
            }
        }
        words.push(with_options(line, &self.options(&["config"])));
        words.join(" ")
    }

    /// Returns calicoctl's type of the datastore; `None` for a file, or if the options do not tell it.
    fn datastore_type(&self) -> Option<&'static str> {
        match self.value("datastore") {
            Some("kubernetes") => Some("kubernetes"),
            Some("etcd" | "etcdv3") => Some("etcdv3"),
            Some(_) => None,
            None => self.value("etcd_endpoints").map(|_| "etcdv3"),
        }
    }

    /// Returns the value of a typed option; `None` if it was not typed.
    fn value(&self, id: &str) -> Option<&str> {
        let option = self.typed.iter().find(|arg| arg.id == id)?;
        match &option.words[..] {
            [joined] => joined.split_once('=').map(|(_, value)| value),
            words => words.last().map(String::as_str),
        }
    }
}

/// Appends options to a command line, quoted for a shell.
fn with_options(line: &str, options: &[&str]) -> String {
    let mut line = line.to_owned();
    for word in options {
        line.push_str(&format!(" {}", shell_word(word)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::tests::call;

    #[test]
    fn other_programs_get_the_same_connection() {
        let of = |words: &[&str]| {
            let call = call(&[&["check"][..], words].concat());
            (
                call.of_kubectl("kubectl get x"),
                call.of_calicoctl("calicoctl get x"),
            )
        };
        let expect = |kubectl: &str, calicoctl: &str| (kubectl.to_owned(), calicoctl.to_owned());
        assert_eq!(of(&[]), expect("kubectl get x", "calicoctl get x"));
        assert_eq!(
            of(&["--kubeconfig", "my config", "--context", "prod", "--as", "jane"]),
            expect(
                "kubectl get x --kubeconfig 'my config' --context prod --as jane",
                "KUBECONFIG='my config' K8S_CURRENT_CONTEXT=prod calicoctl get x"
            )
        );
        assert_eq!(
            of(&["-d", "kubernetes", "--kubeconfig", "a:b"]),
            expect(
                "KUBECONFIG=a:b kubectl get x",
                "DATASTORE_TYPE=kubernetes KUBECONFIG=a:b calicoctl get x"
            )
        );
        assert_eq!(
            of(&["--etcd-endpoints", "http://u:hunter2@a:1", "--etcd-key", "k.pem"]),
            expect(
                "kubectl get x",
                "DATASTORE_TYPE=etcdv3 ETCD_ENDPOINTS=http://a:1 ETCD_KEY_FILE=k.pem calicoctl get x"
            )
        );
        assert_eq!(
            of(&["-d", "cluster.jsonl", "-c", "lab.cfg"]),
            expect("kubectl get x", "calicoctl get x --config lab.cfg")
        );
    }
}
