//! Generates the Helm charts from the manifests in `docs/kubernetes`. Values that differ between clusters become
//! settings.

use std::fs;
use std::path::Path;

use crate::failure::Failure;
use crate::publisher::Publisher;
use crate::{step, workspace};

/// A chart below `docs/kubernetes/charts`. Its `Chart.yaml` and `values.yaml` are written by hand.
struct Chart {
    name: &'static str,
    /// The folder of the manifests.
    manifests: &'static str,
    templates: &'static [Template],
    /// Strings in the manifests, each with its replacement in all templates.
    settings: &'static [(&'static str, &'static str)],
}

struct Template {
    manifest: &'static str,
    /// The setting that enables the template; empty if the template is always rendered.
    when: &'static str,
}

const fn template(manifest: &'static str, when: &'static str) -> Template {
    Template { manifest, when }
}

const PROMETHEUS_RELEASE: (&str, &str) =
    ("release: kube-prometheus-stack", "release: {{ .Values.prometheusRelease }}");

const CHARTS: [Chart; 2] = [
    Chart {
        name: "calipam",
        manifests: "docs/kubernetes",
        templates: &[
            template("rbac.yaml", ""),
            template("cronjob.yaml", "not .Values.serve"),
            template("metrics.yaml", "not .Values.serve"),
            template("serve.yaml", ".Values.serve"),
            template("archive.yaml", ".Values.archive"),
            template("prometheus.yaml", ".Values.prometheus"),
        ],
        settings: &[
            ("namespace: calipam\n", "namespace: {{ .Release.Namespace }}\n"),
            ("image: registry.example.com/calipam:latest", "image: {{ .Values.image }}"),
            ("schedule: \"*/15 * * * *\"", "schedule: {{ .Values.schedule | quote }}"),
            (
                "    # a pool that is full on purpose\n    # pool-nearly-full 10.250.0.0/24\n",
                "{{ .Values.ignore | indent 4 }}\n",
            ),
            PROMETHEUS_RELEASE,
        ],
    },
    Chart {
        name: "calipam-cni",
        manifests: "docs/kubernetes/cni",
        templates: &[
            template("rbac.yaml", ""),
            template("daemonset.yaml", ""),
            template("prometheus.yaml", ".Values.prometheus"),
        ],
        settings: &[
            ("namespace: calipam-cni\n", "namespace: {{ .Release.Namespace }}\n"),
            ("image: registry.example.com/calipam-cni-installer:latest", "image: {{ .Values.image }}"),
            PROMETHEUS_RELEASE,
            ("path: /opt/cni/bin\n", "path: {{ .Values.binDir }}\n"),
            ("conf-dir=/etc/cni/net.d", "conf-dir={{ .Values.confDir }}"),
            ("ath: /etc/cni/net.d\n", "ath: {{ .Values.confDir }}\n"),
            (
                "        kubernetes.io/os: linux\n        calipam.io/cni-plugin: enabled\n",
                "        {{- toYaml .Values.nodeSelector | nindent 8 }}\n",
            ),
            (
                "            runAsUser: 0\n",
                "            runAsUser: 0\n            {{- with .Values.seLinuxOptions }}\n            seLinuxOptions:\n              \
                 {{- toYaml . | nindent 14 }}\n            {{- end }}\n",
            ),
        ],
    },
];

/// Writes the templates of every chart.
pub(crate) fn write() -> Result<(), Failure> {
    step::announce("Writing the templates of docs/kubernetes/charts/");
    for (path, text) in templates()? {
        let path = workspace::root().join(path);
        let failed = |error| Failure::io("write", &path, &error);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        fs::write(&path, text).map_err(failed)?;
    }
    Ok(())
}

/// Returns every template: its path below the root, and its text.
fn templates() -> Result<Vec<(String, String)>, Failure> {
    let image = format!("image: {}/", Publisher::read()?.registry);
    let mut all = Vec::new();
    for Chart { name, manifests, templates, settings } in &CHARTS {
        for Template { manifest, when } in *templates {
            let path = workspace::root().join(manifests).join(manifest);
            let text = fs::read_to_string(&path).map_err(|error| Failure::io("read", &path, &error))?;
            // Alerts contain Prometheus templates, which Helm must not evaluate.
            let text = text.replace("{{", "{{ \"{{\" }}");
            let text = text.replace(&image, "image: registry.example.com/");
            let text = settings.iter().fold(text, |text, (from, to)| text.replace(from, to));
            let source = format!("# Made of {manifests}/{manifest} by `cargo xtask generate`.\n");
            let text = match *when {
                "" => format!("{source}{text}"),
                when => format!("{{{{- if {when} }}}}\n{source}{text}{{{{- end }}}}\n"),
            };
            all.push((format!("docs/kubernetes/charts/{name}/templates/{manifest}"), text));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_those_of_the_manifests() {
        for (path, text) in templates().unwrap() {
            let found = fs::read_to_string(workspace::root().join(&path)).unwrap_or_default();
            assert!(found == text, "{path} is not current: `cargo xtask generate` writes it");
        }
    }

    #[test]
    fn every_setting_is_in_a_manifest_and_has_a_value() {
        for Chart { name, manifests, templates, settings } in &CHARTS {
            let root = workspace::root();
            let read = |manifest: &str| fs::read_to_string(root.join(manifests).join(manifest)).unwrap();
            let texts: String = templates.iter().map(|template| read(template.manifest)).collect();
            for (from, _) in *settings {
                assert!(texts.contains(from), "{name}: {from}");
            }
            let values = root.join("docs/kubernetes/charts").join(name).join("values.yaml");
            let values = fs::read_to_string(values).unwrap();
            let words =
                settings.iter().map(|(_, to)| *to).chain(templates.iter().map(|template| template.when));
            for word in words.flat_map(|text| text.split(".Values.").skip(1)) {
                let key: String = word.chars().take_while(char::is_ascii_alphanumeric).collect();
                assert!(values.contains(&format!("\n{key}:")), "{name}: {key}");
            }
        }
    }
}
