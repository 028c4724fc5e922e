//! No modules of a crate import each other in a circle, except a module and those inside of it: the code of a crate has
//! floors, and can be read from the lowest one up.

mod circle;
mod imports;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The path of a module inside its crate; empty for the crate itself.
type Module = Vec<String>;

/// The source files of a crate by their modules, without those of tests.
fn modules(source: &Path) -> BTreeMap<Module, String> {
    let mut modules = BTreeMap::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(module) = module(path.strip_prefix(source).unwrap()) {
                modules.insert(module, fs::read_to_string(&path).unwrap());
            }
        }
    }
    modules
}

/// The module of a file below `src`; `None` for a file that is not part of the crate itself, such as its tests.
fn module(file: &Path) -> Option<Module> {
    let mut module: Module = file
        .iter()
        .map(|part| part.to_str().unwrap().to_owned())
        .collect();
    let name = module.pop()?.strip_suffix(".rs")?.to_owned();
    let is_of_tests = name.ends_with("tests") || module.iter().any(|folder| folder == "tests");
    if is_of_tests {
        return None;
    }
    if !["mod", "lib", "main"].contains(&name.as_str()) {
        module.push(name);
    }
    Some(module)
}

/// The folders of all crates: the product's, and the tools.
fn crates() -> Vec<PathBuf> {
    let product = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crates");
    let tools = product.join("tools");
    let folders = [product, tools]
        .into_iter()
        .flat_map(|root| fs::read_dir(root).unwrap());
    let folders = folders.map(|entry| entry.unwrap().path());
    folders.filter(|path| path.join("Cargo.toml").exists()).collect()
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let mut circles = Vec::new();
    let mut seen = 0;
    for folder in crates() {
        let modules = modules(&folder.join("src"));
        seen += modules.len();
        let name = folder.file_name().unwrap().to_str().unwrap();
        let found = circle::circles(&imports::imports(&modules));
        circles.extend(found.into_iter().map(|circle| format!("{name}: {circle}")));
    }
    assert!(seen > 850, "only {seen} modules were found");
    assert_eq!(circles, [""; 0]);
}

/// The circles of a crate with these modules.
fn circles_of(modules: &[(&str, &str)]) -> Vec<String> {
    let path = |name: &str| {
        name.split("::")
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let modules = modules
        .iter()
        .map(|(name, text)| (path(name), (*text).to_owned()))
        .collect();
    circle::circles(&imports::imports(&modules))
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let to_b = [
        "use crate::b::B;",
        "use super::b::{self, B};",
        "use super::{b::{B as Other}, c};",
        "fn f(of: &crate::b::B) {}",
        "fn f() -> super::b::B {}",
        "use super::Shown;",
        "use crate::*;\nfn f(of: Shown) {}",
        "use crate::b;\nfn f() { b::made() }",
        "/* use crate::c; */ pub(super) use super::b::B;",
        "use super::Private;",
    ];
    for text in to_b {
        let lib = "mod a;\nmod b;\nmod c;\npub use self::b::B as Shown;\nuse self::b::Private;";
        let b = "use crate::a::A;\npub struct B;";
        let found = circles_of(&[("", lib), ("a", text), ("b", b), ("c", "")]);
        assert_eq!(found, ["a → b → a"], "{text}");
    }
}

#[test]
fn a_parent_its_children_tests_and_texts_make_no_circle() {
    let of_tests = "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n    fn f() { let x = '\"'; }\n}\n";
    for b in [
        "// use crate::a::A;",
        "const B: &str = \"crate::a::A\";",
        of_tests,
    ] {
        let modules = [("", "mod a;\nmod b;"), ("a", "use crate::b::B;"), ("b", b)];
        assert_eq!(circles_of(&modules), [""; 0], "{b}");
    }
    let family = [
        ("", "mod a;"),
        ("a", "mod one;\nmod two;\nuse self::one::One;"),
        ("a::one", "use super::A;"),
        ("a::two", "use super::one::One;"),
    ];
    assert_eq!(circles_of(&family), [""; 0]);
}

#[test]
fn each_circle_is_named_once() {
    let modules = [
        ("", "mod a;\nmod b;\nmod c;\nmod d;\nmod e;"),
        ("a", "use crate::b::B;"),
        ("b", "use crate::c::C;\nuse crate::d::D;"),
        ("c", "use crate::a::A;"),
        ("d", "use crate::e::E;"),
        ("e", "use crate::d::D;"),
    ];
    assert_eq!(circles_of(&modules), ["a → b → c → a", "d → e → d"]);
}
