//! Generates the Helm charts from the manifests in `docs/kubernetes`. Values that differ between clusters become
//! settings.

use crate::failure::Failure;
use crate::publisher::Publisher;
use crate::workspace;

/// A chart below `docs/kubernetes/charts`. Its `Chart.yaml` and `values.yaml` are written by hand.
struct Chart {
    name: &'static str,
    /// The folder of the manifests.
    manifests: &'static str,
    /// The manifests, each with the setting that enables its template; empty if the template is always rendered.
    templates: &'static [(&'static str, &'static str)],
    /// Strings in the manifests, each with its replacement in all templates.
    settings: &'static [(&'static str, &'static str)],
}

const PROMETHEUS_RELEASE: (&str, &str) = (
    "release: kube-prometheus-stack",
    "release: {{ .Values.prometheusRelease }}",
);

const CHARTS: [Chart; 2] = [
    Chart {
        name: "calipam",
        manifests: "docs/kubernetes",
        templates: &[
            ("rbac.yaml", ""),
            ("cronjob.yaml", "not .Values.serve"),
            ("metrics.yaml", "not .Values.serve"),
            ("serve.yaml", ".Values.serve"),
            ("archive.yaml", ".Values.archive"),
            ("prometheus.yaml", ".Values.prometheus"),
        ],
        settings: &[
            ("namespace: calipam\n", "namespace: {{ .Release.Namespace }}\n"),
            (
                "image: registry.example.com/calipam:latest",
                "image: {{ .Values.image }}",
            ),
            (
                "schedule: \"*/15 * * * *\"",
                "schedule: {{ .Values.schedule | quote }}",
            ),
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
            ("rbac.yaml", ""),
            ("daemonset.yaml", ""),
            ("prometheus.yaml", ".Values.prometheus"),
        ],
        settings: &[
            (
                "namespace: calipam-cni\n",
                "namespace: {{ .Release.Namespace }}\n",
            ),
            (
                "image: registry.example.com/calipam-cni-installer:latest",
                "image: {{ .Values.image }}",
            ),
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

/// Returns every template of the charts: its path below the root, and its text.
pub(crate) fn templates() -> Result<Vec<(String, String)>, Failure> {
    let image = format!("image: {}/", Publisher::read()?.registry);
    let mut all = Vec::new();
    for Chart {
        name,
        manifests,
        templates,
        settings,
    } in &CHARTS
    {
        for (manifest, when) in *templates {
            let text = workspace::read(format!("{manifests}/{manifest}"))?;
            // Alerts contain Prometheus templates, which Helm must not evaluate.
            let text = text.replace("{{", "{{ \"{{\" }}");
            let text = text.replace(&image, "image: registry.example.com/");
            let text = settings
                .iter()
                .fold(text, |text, (from, to)| text.replace(from, to));
            let source = format!("# Made of {manifests}/{manifest} by `cargo xtask generate`.\n");
            let text = match *when {
                "" => format!("{source}{text}"),
                when => format!("{{{{- if {when} }}}}\n{source}{text}{{{{- end }}}}\n"),
            };
            all.push((
                format!("docs/kubernetes/charts/{name}/templates/{manifest}"),
                text,
            ));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_templates_are_those_of_the_manifests() {
        for (path, text) in templates().unwrap() {
            let found = fs::read_to_string(workspace::root().join(&path)).unwrap_or_default();
            assert!(
                found == text,
                "{path} is not current: `cargo xtask generate` writes it"
            );
        }
    }

    #[test]
    fn every_setting_is_in_a_manifest_and_has_a_value() {
        for Chart {
            name,
            manifests,
            templates,
            settings,
        } in &CHARTS
        {
            let root = workspace::root();
            let read = |manifest: &str| fs::read_to_string(root.join(manifests).join(manifest)).unwrap();
            let texts: String = templates.iter().map(|(manifest, _)| read(manifest)).collect();
            for (from, _) in *settings {
                assert!(texts.contains(from), "{name}: {from}");
            }
            let values = root.join("docs/kubernetes/charts").join(name).join("values.yaml");
            let values = fs::read_to_string(values).unwrap();
            let words = settings
                .iter()
                .map(|(_, to)| *to)
                .chain(templates.iter().map(|(_, when)| *when));
            for word in words.flat_map(|text| text.split(".Values.").skip(1)) {
                let key: String = word.chars().take_while(char::is_ascii_alphanumeric).collect();
                assert!(values.contains(&format!("\n{key}:")), "{name}: {key}");
            }
        }
    }
}
