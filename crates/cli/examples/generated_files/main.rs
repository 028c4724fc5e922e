//! Writes completions and man pages from the definition of the command line:
//! `cargo run -p calipam --example generated_files -- ROOT`, or `cargo xtask generate`. A test includes this file
//! to check that the committed files are current.

mod man;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Returns the path, relative to the project's root, and the content of each generated file.
pub(crate) fn files() -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let scripts = calipam::completion_scripts().filter(|(name, _)| is_committed(name));
    files.extend(scripts.map(|(name, script)| (format!("completions/{name}"), script)));
    files.extend(
        man::man_pages()?
            .into_iter()
            .map(|(name, page)| (format!("docs/man/{name}"), page)),
    );
    Ok(files)
}

/// True for the scripts of `calipam` and `kubectl-ipam`. The scripts for the other names are only in packages.
fn is_committed(script: &str) -> bool {
    ["calipam.", "kubectl-ipam.", "kubectl_complete-ipam"]
        .iter()
        .any(|begin| script.starts_with(begin))
}

fn main() -> io::Result<()> {
    let root = std::env::args_os()
        .nth(1)
        .ok_or_else(|| io::Error::other("name the root of the project"))?;
    for (name, content) in files()? {
        let path = Path::new(&root).join(&name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, content)?;
        println!("{name}");
    }
    Ok(())
}
