//! Opens the page in a browser.

use std::path::Path;
use std::time::Instant;

use calipam_testkit::browser::{self, Browser};

use crate::Failed;

pub(super) struct Opened {
    /// Seconds from the request to the end of loading, including the page's script.
    pub seconds: f64,
    /// Number of errors and warnings.
    pub complaints: usize,
}

/// Opens the page and uses it, and leaves pictures of it in a folder for people to look at. Returns `None` without a
/// browser.
pub(super) fn open(page: &Path, pictures: &Path) -> Result<Option<Opened>, Failed> {
    if browser::program().is_err() {
        return Ok(None);
    }
    use_page(page, pictures).map(Some)
}

fn use_page(file: &Path, pictures: &Path) -> Result<Opened, Failed> {
    // A browser derives the type of a file from its name.
    let named = file.with_extension("page.html");
    std::fs::copy(file, &named).ok();
    let mut browser = Browser::start()?;
    let mut page = browser.page()?;
    let begin = Instant::now();
    page.open(&named)?;
    let seconds = begin.elapsed().as_secs_f64();
    let keep = |name: &str, picture: Vec<u8>| {
        // A failed write of a picture does not spoil the measurement.
        if let Err(error) = std::fs::write(pictures.join(name), picture) {
            eprintln!("{name}: {error}");
        }
    };
    keep("page.png", page.screenshot()?);
    page.evaluate("document.querySelector('canvas').focus()")?;
    page.press("ArrowRight")?;
    page.press("Enter")?;
    page.click("document.querySelector('#findings-table th button')")?;
    keep("page-used.png", page.screenshot()?);
    Ok(Opened { seconds, complaints: page.complaints()?.len() })
}
