//! The imports between the modules of a crate: paths in `use` and everywhere else. Re-exports are followed to the module
//! that has the item.

use std::collections::{BTreeMap, BTreeSet};

use crate::Module;
use crate::words::{Word, words};

/// The modules that each module imports, without those inside of it or around it.
pub(crate) type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// A path from the crate: the module that is named, and the rest of the path inside of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    module: Module,
    rest: Vec<String>,
}

/// The names in a module.
#[derive(Default)]
struct Scope {
    /// The items of the module itself.
    own: BTreeSet<String>,
    /// The items of other modules that have a name here.
    imported: BTreeMap<String, Place>,
    /// The imported names that other modules see, too.
    re_exported: BTreeSet<String>,
    /// The modules all of whose items have their names here.
    globs: Vec<Module>,
}

/// A path in `use`, and the name that it has in the module; `*` for all names.
struct Used {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

/// The paths of a module: those in `use`, and all others.
#[derive(Default)]
struct Paths {
    used: Vec<Used>,
    others: Vec<Vec<String>>,
}

/// The modules of a crate, with the names in each.
struct Scopes(BTreeMap<Module, Scope>);

/// Returns the imports of each module.
pub(crate) fn imports(modules: &BTreeMap<Module, String>) -> Imports {
    let mut scopes = Scopes(BTreeMap::new());
    let mut paths = BTreeMap::new();
    for (module, text) in modules {
        let words = words(text);
        let scope = Scope {
            own: items(&words),
            ..Scope::default()
        };
        scopes.0.insert(module.clone(), scope);
        paths.insert(module.clone(), Paths::of(&words));
    }
    for (module, paths) in &paths {
        scopes.add(module, &paths.used);
    }

    let imports_of = |(module, paths): (&Module, &Paths)| {
        let used = paths.used.iter().map(|used| &used.path);
        let homes = used
            .chain(&paths.others)
            .filter_map(|path| scopes.home(module, path));
        let others = homes.filter(|home| !home.starts_with(module) && !module.starts_with(home));
        (module.clone(), others.collect())
    };
    paths.iter().map(imports_of).collect()
}

/// The names that follow the keyword of an item.
fn items(words: &[Word]) -> BTreeSet<String> {
    let keywords = [
        "fn", "struct", "enum", "trait", "type", "const", "static", "union",
    ];
    let name = |pair: &[Word]| match pair {
        [Word::Name(keyword), Word::Name(name)] if keywords.contains(&keyword.as_str()) => Some(name.clone()),
        _ => None,
    };
    words.windows(2).filter_map(name).collect()
}

impl Scopes {
    fn add(&mut self, module: &Module, used: &[Used]) {
        for Used {
            path,
            name,
            is_public,
        } in used
        {
            let Some(place) = self.place(module, path) else {
                continue;
            };
            let scope = self.0.entry(module.clone()).or_default();
            if name == "*" {
                scope.globs.push(place.module);
                continue;
            }
            if *is_public {
                scope.re_exported.insert(name.clone());
            }
            scope.imported.insert(name.clone(), place);
        }
    }

    /// Resolves a path that begins in the crate, in this module, or in the one around it; `None` for any other path.
    fn place(&self, module: &Module, path: &[String]) -> Option<Place> {
        let mut base = module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            _ => {
                let child = [base.as_slice(), &rest[..1]].concat();
                if !self.0.contains_key(&child) {
                    return None;
                }
            }
        }
        while let Some((first, others)) = rest.split_first() {
            let child = [base.as_slice(), std::slice::from_ref(first)].concat();
            if !self.0.contains_key(&child) {
                break;
            }
            base = child;
            rest = others;
        }
        Some(Place {
            module: base,
            rest: rest.to_vec(),
        })
    }

    /// Returns the module that has the item at a path; `None` if the path is not known to lead into this crate.
    fn home(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut place = match self.place(module, path) {
            Some(place) => place,
            None => self.named(module, path.first()?)?,
        };
        let mut seen = Vec::new();
        while let Some(name) = place.rest.first()
            && let Some(next) = self.named(&place.module, name)
            && !seen.contains(&next)
        {
            seen.push(next.clone());
            place = next;
        }
        Some(place.module)
    }

    /// Returns the place of an item that a module only imports or re-exports.
    fn named(&self, module: &Module, name: &String) -> Option<Place> {
        let scope = &self.0[module];
        if let Some(place) = scope.imported.get(name) {
            return Some(place.clone());
        }
        let has = |glob: &&Module| {
            let scope = &self.0[*glob];
            scope.own.contains(name) || scope.re_exported.contains(name)
        };
        let glob = scope.globs.iter().find(has)?;
        Some(Place {
            module: glob.clone(),
            rest: vec![name.clone()],
        })
    }
}

impl Used {
    fn new(path: Vec<String>, name: &str) -> Self {
        Self {
            path,
            name: name.to_owned(),
            is_public: false,
        }
    }
}

impl Paths {
    fn of(words: &[Word]) -> Self {
        let mut paths = Self::default();
        let mut rest = words;
        let mut before = None;
        while let Some((first, others)) = rest.split_first() {
            rest = match first {
                _ if first.is("use") => {
                    let is_public =
                        before.is_some_and(|word: &Word| word.is("pub") || *word == Word::Sign(')'));
                    paths.read_use(others, is_public)
                }
                Word::Name(name) => paths.read_path(name, others),
                _ => others,
            };
            before = Some(first);
        }
        paths
    }

    /// Reads a path outside of `use`, and returns the words after it.
    fn read_path<'w>(&mut self, first: &str, mut rest: &'w [Word]) -> &'w [Word] {
        let mut path = vec![first.to_owned()];
        while let [Word::Inside, Word::Name(name), others @ ..] = rest {
            path.push(name.clone());
            rest = others;
        }
        self.others.push(path);
        rest
    }

    /// Reads the paths of a `use`, and returns the words after it.
    fn read_use<'w>(&mut self, words: &'w [Word], is_public: bool) -> &'w [Word] {
        let end = words
            .iter()
            .position(|word| *word == Word::Sign(';'))
            .unwrap_or(words.len());
        let before = self.used.len();
        self.read_tree(&[], &words[..end]);
        self.used[before..]
            .iter_mut()
            .for_each(|used| used.is_public = is_public);
        &words[end..]
    }

    /// Reads one entry of a list such as `b, c as d, e::{f, g}`, and returns the words after it.
    fn read_tree<'w>(&mut self, prefix: &[String], words: &'w [Word]) -> &'w [Word] {
        let mut path = prefix.to_vec();
        let mut rest = words;
        loop {
            rest = match rest {
                [Word::Inside, others @ ..] => others,
                [Word::Name(of), Word::Name(name), others @ ..] if of == "as" => {
                    self.used.push(Used::new(path, name));
                    return others;
                }
                // In a list, `self` is the module before the list.
                [Word::Name(own), others @ ..] if own == "self" && !path.is_empty() => others,
                [Word::Name(part), others @ ..] => {
                    path.push(part.clone());
                    others
                }
                [Word::Sign('*'), others @ ..] => {
                    self.used.push(Used::new(path, "*"));
                    return others;
                }
                [Word::Sign('{'), others @ ..] => return self.read_list(&path, others),
                _ => break,
            };
        }
        if let Some(name) = path.last().cloned() {
            self.used.push(Used::new(path, &name));
        }
        rest
    }

    /// Reads the entries of a list up to its `}`, and returns the words after it.
    fn read_list<'w>(&mut self, prefix: &[String], words: &'w [Word]) -> &'w [Word] {
        let mut rest = words;
        loop {
            rest = match rest {
                [Word::Sign('}'), others @ ..] => return others,
                [Word::Sign(_), others @ ..] => others,
                [] => return rest,
                entry => self.read_tree(prefix, entry),
            };
        }
    }
}
