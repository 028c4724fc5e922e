//! Circles among imports.

use std::collections::{BTreeMap, BTreeSet};

use crate::Module;
use crate::imports::Imports;

/// Returns a circle through each group of modules that import each other, such as `a → b → a`.
pub(crate) fn circles(imports: &Imports) -> Vec<String> {
    let mut named = BTreeSet::new();
    let mut circles = Vec::new();
    for module in imports.keys().filter(|module| !module.is_empty()) {
        if named.contains(module) {
            continue;
        }
        let Some(circle) = circle(imports, module) else {
            continue;
        };
        named.extend(modules_of_group(imports, module));
        circles.push(
            circle
                .iter()
                .map(|module| module.join("::"))
                .collect::<Vec<_>>()
                .join(" → "),
        );
    }
    circles
}

/// Returns the shortest way from a module back to it, with the module at both ends; `None` if there is none.
fn circle(imports: &Imports, module: &Module) -> Option<Vec<Module>> {
    let before = reached(imports, module);
    let mut last = before.get(module)?;
    let mut circle = vec![module.clone()];
    while *last != module {
        circle.push((*last).clone());
        last = &before[*last];
    }
    circle.push(module.clone());
    circle.reverse();
    Some(circle)
}

/// Returns the modules on the circles of a module.
fn modules_of_group<'i>(imports: &'i Imports, module: &'i Module) -> Vec<&'i Module> {
    let reached_here = reached(imports, module);
    reached_here
        .into_keys()
        .filter(|other| reached(imports, other).contains_key(module))
        .collect()
}

/// Returns all modules that a module imports, directly or not, and for each the module before it on the shortest way.
fn reached<'i>(imports: &'i Imports, module: &'i Module) -> BTreeMap<&'i Module, &'i Module> {
    let mut before = BTreeMap::new();
    let mut next = vec![module];
    while !next.is_empty() {
        let mut later = Vec::new();
        for from in next {
            for imported in imports.get(from).into_iter().flatten() {
                before.entry(imported).or_insert_with(|| {
                    later.push(imported);
                    from
                });
            }
        }
        next = later;
    }
    before
}
