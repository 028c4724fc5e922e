//! The page of a simulation in a real browser. Its charts show the same numbers as its tables.

use std::fs;

use calipam_testkit::browser::Browser;
use serde_json::json;

use super::program::calipam;

#[test]
fn the_page_of_a_simulation_draws_what_its_tables_say() {
    let Some(mut browser) = Browser::unless_left_out() else { return };
    let folder = tempfile::tempdir().unwrap();
    let small = ["simulate", "--nodes", "6", "--pods-per-node", "8", "--pool", "10.0.0.0/24", "-o", "html"];
    let questions: [(&str, &[&str], usize); 5] = [
        ("scale", &["--nodes", "4,8"], 2),
        ("sizes", &["--block-size", "26..29"], 3),
        ("failure", &["--fail-node", "--block-size", "28"], 2),
        ("clashes", &["--clashes=none,freed-by-hand", "--runs", "1", "--block-size", "29"], 1),
        ("advice", &["--advise", "--max-pods-per-node", "12"], 3),
    ];
    let mut page = browser.page().unwrap();
    for (name, question, charts) in questions {
        let run = calipam(&[&small[..], question].concat()).succeeded();
        let file = folder.path().join(format!("{name}.html"));
        fs::write(&file, &run.stdout).unwrap();
        for scheme in ["light", "dark"] {
            page.appearance(scheme, "screen").unwrap();
            page.open(&file).unwrap();
            assert_eq!(page.evaluate("document.querySelectorAll('svg').length").unwrap(), charts, "{name}");
            // Each bar, curve and label is visible, has its own color, and stays within its chart.
            assert_eq!(page.evaluate(STRAY).unwrap(), json!([]), "{name}, {scheme}");
        }
        // In a narrow window, the tables scroll, not the page.
        page.resize(400, 900).unwrap();
        let is_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
        assert_eq!(page.evaluate(is_wide).unwrap(), false, "{name}");
        page.resize(1280, 900).unwrap();
        assert_eq!(page.complaints().unwrap(), [] as [String; 0]);
    }
    let asked = page.requests().unwrap();
    assert!(asked.iter().all(|url| url.starts_with("file://") && url.ends_with(".html")), "{asked:?}");

    // The highest bar is as high as the axis, and the others are in proportion to their values.
    page.open(&folder.path().join("sizes.html")).unwrap();
    let bars = page.evaluate(WASTED).unwrap();
    let bars: Vec<(f64, f64)> = serde_json::from_value(bars).unwrap();
    let (most, highest) =
        bars.iter().copied().fold((0.0, 0.0), |a: (f64, f64), b| (a.0.max(b.0), a.1.max(b.1)));
    assert!(bars.len() == 4 && most > 0.0 && highest > 100.0, "{bars:?}");
    for (value, height) in bars {
        assert!((value / most - height / highest).abs() < 0.01, "{value} {height}");
    }
}

/// An expression for the parts of charts that are outside their chart or invisible.
const STRAY: &str = "[...document.querySelectorAll('svg')].flatMap(svg => { \
    const box = svg.getBoundingClientRect(); \
    return [...svg.querySelectorAll('rect, polyline, text')].filter(part => { \
        const own = part.getBoundingClientRect(), style = getComputedStyle(part); \
        const paint = part.tagName === 'polyline' ? style.stroke : style.fill; \
        return paint === 'none' || paint === 'rgb(0, 0, 0)' || own.left < box.left - 1 || own.right > box.right + 1 \
            || own.top < box.top - 1 || own.bottom > box.bottom + 1; \
    }).map(part => part.outerHTML); })";

/// An expression for the value and height of each bar in the chart of wasted addresses.
const WASTED: &str = "[...document.querySelectorAll('figure')].filter(figure => \
    figure.textContent.includes('Wasted addresses')).flatMap(figure => [...figure.querySelectorAll('rect')]).map(rect => \
    [Number(rect.textContent.match(/([0-9,]+)$/)[1].replaceAll(',', '')), Number(rect.getAttribute('height'))])";
