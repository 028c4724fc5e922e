//! Writes completions and man pages from the definition of the command line:
//! `cargo run -p calipam --example generated_files -- ROOT`, or `cargo xtask generate`. A test includes this file
//! to see whether what is committed is current.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// What the pages name as their source.
const SOURCE: &str = concat!("calipam ", env!("CARGO_PKG_VERSION"));

/// All generated files: path below the root of the project, and content.
pub fn files() -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    files.extend(calipam::completion_scripts().map(|(name, script)| (format!("completions/{name}"), script)));
    man_pages(&calipam::command(), &mut files)?;
    Ok(files)
}

/// The page of a command, and of each command below it that is not hidden.
fn man_pages(command: &clap::Command, files: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let page =
        clap_mangen::Man::new(command.clone()).title(name.clone()).manual("calipam").source(SOURCE).date("");
    let mut text = Vec::new();
    page.render(&mut text)?;
    files.insert(format!("docs/man/{name}.1"), text);
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        man_pages(sub, files)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(root) = std::env::args_os().nth(1) else {
        eprintln!("error: name the root of the project");
        return ExitCode::from(2);
    };
    match write(Path::new(&root)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}

fn write(root: &Path) -> io::Result<()> {
    for (name, content) in files()? {
        let path = root.join(&name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, content)?;
        println!("{name}");
    }
    Ok(())
}
