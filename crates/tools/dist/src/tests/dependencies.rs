//! Tests of the dependencies against `deny.toml`: licenses, sources, banned crates, and duplicate versions of crates.
//!
//! The file has cargo-deny's format. cargo-deny itself is not used: a bare machine would have to build another 140
//! packages for it, and could not verify a prebuilt program. Only packages that are built for Linux are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;

use super::{TARGET, root};
use crate::sbom;

const RULES: &str = "deny.toml";
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Deserialize)]
struct Rules {
    licenses: Licences,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licences {
    /// SPDX license identifiers, including an exception such as `WITH LLVM-exception`.
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<CrateSpec>,
    skip: Vec<CrateSpec>,
}

/// A crate as `name` or `name@version`. The version may be abbreviated, such as `1.2`.
#[derive(Deserialize)]
struct CrateSpec {
    #[serde(rename = "crate")]
    name: String,
}

/// A package that cargo builds for a target.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// Absent for the crates of this workspace.
    source: Option<String>,
}

/// Lists the violations of the rules, one per line.
fn problems(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let Package {
            name,
            version,
            license,
            source,
        } = package;
        if source.as_deref() != Some(CRATES_IO) {
            problems.push(format!(
                "{name} {version} comes from {}",
                source.as_deref().unwrap_or_default()
            ));
        }
        if rules.bans.deny.iter().any(|banned| banned.is(package)) {
            problems.push(format!("{name} {version} is banned"));
        }
        match license {
            None => problems.push(format!("{name} {version} states no licence")),
            Some(licence) if !is_allowed(licence, &rules.licenses.allow) => {
                problems.push(format!("{name} {version} has the licence {licence:?}"));
            }
            Some(_) => {}
        }
    }
    problems.extend(versions(rules, packages));
    problems
}

/// True if the allowed licenses satisfy an SPDX expression. Older crates write `/` instead of `OR`.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let Ok(expression) = spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX) else {
        return false;
    };
    expression.evaluate(|requirement| allowed.contains(&requirement.to_string()))
}

/// Lists crates with several versions, and skipped crates that are not dependencies.
fn versions(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let is_skipped = |package: &Package| rules.bans.skip.iter().any(|skip| skip.is(package));
    for package in packages.iter().filter(|package| !is_skipped(package)) {
        versions
            .entry(&package.name)
            .or_default()
            .insert(&package.version);
    }

    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    let several = several.map(|(name, versions)| {
        format!(
            "{name} has several versions: {}",
            versions.into_iter().collect::<Vec<_>>().join(", ")
        )
    });
    let stale = rules
        .bans
        .skip
        .iter()
        .filter(|skip| !packages.iter().any(|package| skip.is(package)));
    several
        .chain(stale.map(|skip| format!("{} is skipped, but is no dependency", skip.name)))
        .collect()
}

impl CrateSpec {
    fn is(&self, package: &Package) -> bool {
        let Some((name, version)) = self.name.split_once('@') else {
            return self.name == package.name;
        };
        let rest = package.version.strip_prefix(version);
        name == package.name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

#[test]
fn the_dependencies_are_what_the_rules_allow() {
    let rules: Rules = toml::from_str(&fs::read_to_string(root().join(RULES)).unwrap()).unwrap();
    let mut metadata = sbom::metadata(&root(), TARGET).unwrap();
    let packages: Vec<Package> = serde_json::from_value(metadata["packages"].take()).unwrap();
    let problems = problems(&rules, &packages);
    assert_eq!(
        problems, [""; 0],
        "remove the dependency, or change {RULES} and say why there"
    );
}

fn rules() -> Rules {
    toml::from_str(
        r#"
        [licenses]
        allow = ["Apache-2.0 WITH LLVM-exception", "MIT"]
        [bans]
        deny = [{ crate = "openssl" }]
        skip = [{ crate = "syn@2", reason = "old" }]
        "#,
    )
    .expect("these rules are TOML")
}

fn package(name: &str, version: &str, license: Option<&str>, source: &str) -> Package {
    let license = license.map(str::to_owned);
    Package {
        name: name.into(),
        version: version.into(),
        license,
        source: Some(source.into()),
    }
}

fn good(name: &str, version: &str) -> Package {
    package(name, version, Some("MIT"), CRATES_IO)
}

#[test]
fn allowed_packages_have_no_problems() {
    let own = Package {
        source: None,
        ..good("calipam", "0.1.0")
    };
    let packages = [
        good("serde", "1.0.1"),
        good("syn", "2.0.1"),
        good("syn", "3.0.1"),
        own,
    ];
    assert_eq!(problems(&rules(), &packages), [""; 0]);
}

#[test]
fn each_broken_rule_is_named() {
    let packages = [
        good("openssl", "0.10.1"),
        package("forked", "1.0.0", Some("MIT"), "git+https://example.com/forked"),
        package("closed", "1.0.0", Some("GPL-3.0-only"), CRATES_IO),
        package("silent", "1.0.0", None, CRATES_IO),
        good("twice", "1.0.0"),
        good("twice", "2.0.0"),
    ];
    assert_eq!(
        problems(&rules(), &packages),
        [
            "openssl 0.10.1 is banned",
            "forked 1.0.0 comes from git+https://example.com/forked",
            "closed 1.0.0 has the licence \"GPL-3.0-only\"",
            "silent 1.0.0 states no licence",
            "twice has several versions: 1.0.0, 2.0.0",
            "syn@2 is skipped, but is no dependency",
        ]
    );
}

#[test]
fn licences_are_read_as_expressions() {
    let allowed = rules().licenses.allow;
    for expression in [
        "MIT OR GPL-3.0-only",
        "Apache-2.0/MIT",
        "(MIT OR Zlib) AND Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in ["Apache-2.0", "MIT AND Zlib", "no licence at all"] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}

#[test]
fn a_version_is_named_by_its_beginning() {
    let skip = CrateSpec { name: "syn@2".into() };
    assert!(skip.is(&good("syn", "2.0.1")) && skip.is(&good("syn", "2")));
    assert!(!skip.is(&good("syn", "21.0.0")) && !skip.is(&good("syn2", "2.0.0")));
}
