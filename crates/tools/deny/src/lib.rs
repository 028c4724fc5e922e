//! Checks the dependencies against `deny.toml`: licenses, sources, banned crates, and duplicate versions of crates.
//!
//! The file has cargo-deny's format. cargo-deny itself is not used: a bare machine would have to build another 140
//! packages for it, and could not verify a prebuilt program. Only packages that this platform builds are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use serde::Deserialize;

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

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// A package that cargo builds on this platform.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// Absent for the crates of this workspace.
    source: Option<String>,
}

/// Checks every package of a workspace against the rules at its root. Returns the problems, one per line.
pub fn check(workspace: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let rules: Rules = toml::from_str(&fs::read_to_string(workspace.join(RULES))?)?;
    Ok(problems(&rules, &packages(workspace)?))
}

/// Lists the packages that cargo builds for the platform of the toolchain.
fn packages(workspace: &Path) -> Result<Vec<Package>, Box<dyn Error>> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = String::from_utf8(output(Command::new(rustc).arg("-vV"))?)?;
    let host =
        text.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("`rustc -vV` names no host")?;

    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace);
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", host]);
    let metadata: Metadata = serde_json::from_slice(&output(&mut cargo)?)?;
    Ok(metadata.packages)
}

fn output(command: &mut Command) -> Result<Vec<u8>, Box<dyn Error>> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Lists the violations of the rules, one per line.
fn problems(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let Package { name, version, license, source } = package;
        if source.as_deref() != Some(CRATES_IO) {
            problems.push(format!("{name} {version} comes from {}", source.as_deref().unwrap_or_default()));
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
    let Ok(expression) = spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX) else { return false };
    expression.evaluate(|requirement| allowed.contains(&requirement.to_string()))
}

/// Lists crates with several versions, and skipped crates that are not dependencies.
fn versions(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let is_skipped = |package: &Package| rules.bans.skip.iter().any(|skip| skip.is(package));
    for package in packages.iter().filter(|package| !is_skipped(package)) {
        versions.entry(&package.name).or_default().insert(&package.version);
    }

    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    let several = several.map(|(name, versions)| {
        format!("{name} has several versions: {}", versions.into_iter().collect::<Vec<_>>().join(", "))
    });
    let stale = rules.bans.skip.iter().filter(|skip| !packages.iter().any(|package| skip.is(package)));
    several.chain(stale.map(|skip| format!("{} is skipped, but is no dependency", skip.name))).collect()
}

impl CrateSpec {
    fn is(&self, package: &Package) -> bool {
        let Some((name, version)) = self.name.split_once('@') else { return self.name == package.name };
        let rest = package.version.strip_prefix(version);
        name == package.name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dependencies_are_what_the_rules_allow() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let problems = check(&root).unwrap();
        assert_eq!(problems, [""; 0], "remove the dependency, or change {RULES} and say why there");
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
        Package { name: name.into(), version: version.into(), license, source: Some(source.into()) }
    }

    fn good(name: &str, version: &str) -> Package {
        package(name, version, Some("MIT"), CRATES_IO)
    }

    #[test]
    fn allowed_packages_have_no_problems() {
        let own = Package { source: None, ..good("calipam", "0.1.0") };
        let packages = [good("serde", "1.0.1"), good("syn", "2.0.1"), good("syn", "3.0.1"), own];
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
        for expression in
            ["MIT OR GPL-3.0-only", "Apache-2.0/MIT", "(MIT OR Zlib) AND Apache-2.0 WITH LLVM-exception"]
        {
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
}
