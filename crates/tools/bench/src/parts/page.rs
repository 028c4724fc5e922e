//! Opens one of calipam's HTML pages in a browser.

use std::path::Path;

use calipam_testkit::browser::{self, Browser};

use crate::Failed;
use crate::measured::Measured;

pub(super) struct Opened {
    /// The time from the request to the end of loading, including the page's script.
    pub loading: Measured,
    /// Number of errors and warnings.
    pub complaints: usize,
}

/// Opens the page. Returns `None` if there is no browser. If `pictures` is given, also operates the page and saves
/// screenshots in this folder for people to look at.
pub(super) fn open(file: &Path, pictures: Option<&Path>) -> Result<Option<Opened>, Failed> {
    if browser::program().is_err() {
        return Ok(None);
    }
    // A browser derives the type of a file from its name.
    let named = file.with_extension("page.html");
    std::fs::copy(file, &named)?;
    let mut browser = Browser::start()?;
    let mut page = browser.page()?;
    let loading = Measured::of(|| Ok(page.open(&named)?))?;
    if let Some(folder) = pictures {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("page.png"), page.screenshot()?)?;
        page.evaluate("document.querySelector('canvas').focus()")?;
        page.press("ArrowRight")?;
        page.press("Enter")?;
        page.click("document.querySelector('#findings-table th button')")?;
        std::fs::write(folder.join("page-used.png"), page.screenshot()?)?;
    }
    Ok(Some(Opened { loading, complaints: page.complaints()?.len() }))
}
