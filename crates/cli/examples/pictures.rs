//! Takes the README's pictures of the HTML report for a dual-stack cluster like the one in the examples: `cargo run -p
//! calipam --example pictures -- ROOT PROGRAM`, or `cargo xtask generate`.
//!
//! Different browser versions draw letters differently. Therefore a checksum of the page is stored with the pictures,
//! so that they are taken again only if the page has changed.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use calipam_model::digest::sha256_hex;
use calipam_testkit::browser::{Browser, Page, program};
use calipam_testkit::cluster::{Cluster, ClusterSpec};

const FOLDER: &str = "docs/images";
const SUM: &str = "page.sha256";
const PICTURES: [&str; 2] = ["page.png", "map.png"];

/// The number of map cells from the first block to 10.244.10.0/26, the block with the most findings.
const CELLS: usize = 36;
/// The ordinal of a leaked address in 10.244.10.0/26.
const ADDRESS: usize = 6;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(root), Some(calipam)) = (arguments.next(), arguments.next()) else {
        eprintln!("name the root of the project and the program calipam");
        return ExitCode::FAILURE;
    };
    let made = make(Path::new(&root), Path::new(&calipam)).inspect_err(|error| eprintln!("{error}"));
    made.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn make(root: &Path, calipam: &Path) -> Result<(), Box<dyn Error>> {
    let work = tempfile::tempdir()?;
    let file = work.path().join("page.html");
    let calipam = calipam.canonicalize()?;
    let option = format!("html={}", file.display());
    // The page shows this file name.
    fs::write(
        work.path().join("cluster.jsonl"),
        Cluster::damaged(ClusterSpec::new(2026)).export(),
    )?;
    let arguments = [
        "check",
        "--quiet",
        "--fail-on",
        "never",
        "-d",
        "cluster.jsonl",
        "--output-file",
    ];
    let check = Command::new(calipam)
        .args(arguments)
        .arg(option)
        .current_dir(work.path())
        .output()?;
    if !check.status.success() {
        return Err(String::from_utf8_lossy(&check.stderr).into());
    }

    let folder = root.join(FOLDER);
    let sum = sha256_hex(fs::read(&file)?) + "\n";
    let is_there = PICTURES.iter().all(|name| folder.join(name).is_file());
    if is_there && fs::read_to_string(folder.join(SUM)).is_ok_and(|committed| committed == sum) {
        return Ok(());
    }
    if let Err(missing) = program() {
        println!("{FOLDER} stays as it is, and shows an older page: {missing}");
        return Ok(());
    }

    let mut browser = Browser::start()?;
    let mut page = browser.page()?;
    page.appearance("light", "screen")?;
    page.open(&file)?;
    fs::create_dir_all(&folder)?;
    fs::write(
        folder.join(PICTURES[0]),
        page.screenshot_of([0.0, 0.0, 1280.0, 900.0])?,
    )?;
    fs::write(folder.join(PICTURES[1]), map(&mut page)?)?;
    fs::write(folder.join(SUM), sum)?;
    for name in PICTURES {
        println!("{FOLDER}/{name}");
    }
    Ok(())
}

/// Takes a picture of the map of the first pool, with an open block and a selected address.
fn map(page: &mut Page<'_>) -> Result<Vec<u8>, Box<dyn Error>> {
    page.evaluate("document.querySelector('#map-0 canvas').focus()")?;
    for _ in 0..CELLS {
        page.press("ArrowRight")?;
    }
    page.press("Enter")?;
    page.click(&format!(
        "document.querySelectorAll('#map-0 .addresses button')[{ADDRESS}]"
    ))?;
    // Removes the focus ring of the last clicked element.
    page.evaluate("document.activeElement.blur()")?;
    let place = "(() => { const legend = document.querySelector('.legend').getBoundingClientRect(); \
        const end = document.querySelector('#map-0 div.script').getBoundingClientRect().bottom; \
        return [0, legend.top + scrollY - 12, 1280, end - legend.top + 24]; })()";
    let clip: [f64; 4] = serde_json::from_value(page.evaluate(place)?)?;
    Ok(page.screenshot_of(clip)?)
}
