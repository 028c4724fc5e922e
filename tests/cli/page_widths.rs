//! The page at the widths of computers and phones: no name is broken, and nothing overlaps.

use std::fs;

use calipam_testkit::browser::Browser;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use serde_json::json;

use super::pages::{evaluate, page_of};
use super::program::scratch;

/// The cluster has both families, names of the maximum length in Kubernetes, and a handle. Wide screens show columns,
/// narrow ones cards.
#[test]
fn no_name_is_broken_and_nothing_overlaps_at_any_width() {
    let Some(mut browser) = Browser::unless_left_out() else {
        return;
    };
    let (folder, export) = scratch("cluster.jsonl");
    let cluster = String::from_utf8(Cluster::damaged(ClusterSpec::new(2026)).export()).unwrap();
    let long = format!("rack-{}", "a1-".repeat(80) + "end");
    for (name, text) in [
        ("plain", cluster.clone()),
        ("long", cluster.replace("rack-ippool", &long)),
    ] {
        fs::write(&export, text).unwrap();
        let file = page_of(&folder, export.to_str().unwrap());
        let mut page = browser.page().unwrap();
        for (width, scheme, medium) in [
            (1280, "light", "screen"),
            (1280, "dark", "screen"),
            (700, "light", "screen"),
            (400, "light", "screen"),
            (400, "dark", "screen"),
            (718, "light", "print"),
        ] {
            let place = format!("{name}, {width} px, {scheme}, {medium}");
            page.resize(width, 900).unwrap();
            page.appearance(scheme, medium).unwrap();
            page.open(&file).unwrap();
            page.evaluate(OPEN).unwrap();
            let is_wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(page.evaluate(is_wide).unwrap(), 0, "{place}");
            for mistakes in [BROKEN_WORDS, OVERLAPS] {
                let found = page
                    .evaluate(&format!("(() => {{ {TEXTS} return {mistakes}; }})()"))
                    .unwrap();
                assert_eq!(found, json!([]), "{place}");
            }
            // The text and the background have different colors, and the findings need no horizontal scrolling.
            let colors = "(() => { const { color, backgroundColor } = getComputedStyle(document.body); return color !== backgroundColor; })()";
            assert_eq!(page.evaluate(colors).unwrap(), true, "{place}");
            let hidden = "[...document.querySelectorAll('#kinds .scroll, #findings .scroll, #pools .scroll')].map(one => one.scrollWidth - one.clientWidth)";
            let hidden: Vec<i64> = evaluate(&mut page, hidden);
            let is_shown = hidden.iter().all(|pixels| *pixels <= 0);
            assert!(is_shown || width == 700 || name == "long", "{place}: {hidden:?}");
            let cards = "['kinds', 'findings'].every(one => \
                getComputedStyle(document.querySelector(`#${one}-table tbody tr`)).display === 'block')";
            assert_eq!(page.evaluate(cards).unwrap(), width <= 700, "{place}");
            assert_eq!(page.complaints().unwrap(), [] as [String; 0], "{place}");
        }
        // A number with twenty digits is shown as a power of two. A tooltip contains all digits.
        let size = "[...document.querySelectorAll('#pools td[data-head=Size]')].map(one => [one.textContent, one.title])";
        let sizes = page.evaluate(size).unwrap();
        assert!(
            sizes
                .as_array()
                .unwrap()
                .contains(&json!(["2⁶⁴", "18,446,744,073,709,551,616"])),
            "{sizes}"
        );
        let numbers =
            "[...document.querySelectorAll('#pools td.number')].every(one => one.textContent.length <= 10)";
        assert_eq!(page.evaluate(numbers).unwrap(), true);
        // Only names that are wider than any column may be broken.
        let broken = "[...document.querySelectorAll('.long')].map(one => one.textContent.length)";
        let lengths: Vec<usize> = evaluate(&mut page, broken);
        assert!(lengths.iter().all(|length| *length > 43), "{lengths:?}");
        assert_eq!(
            lengths.iter().any(|length| *length > 200),
            name == "long",
            "{lengths:?}"
        );
    }
}

/// A script that opens all tables of blocks, and the evidence of some findings.
const OPEN: &str = "document.querySelectorAll('#maps details, #findings tr:nth-child(5n) details').forEach(one => { one.open = true; })";

/// A script that collects the visible text nodes in `texts`. Its function `boxes` returns the bounding box of each line
/// of a text node.
const TEXTS: &str = "const texts = []; \
    const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT); \
    while (walker.nextNode()) { \
        const node = walker.currentNode, parent = node.parentElement; \
        if (node.data.trim() && parent.checkVisibility() && !parent.closest('select, pre, .long, .script .cell')) texts.push(node); \
    } \
    const boxes = (node, from, to) => { \
        const range = document.createRange(); range.setStart(node, from); range.setEnd(node, to); \
        return [...range.getClientRects()].filter(box => box.width > 0); };";

/// An expression for the words that are broken over two lines, except those that are longer than a line on a phone.
const BROKEN_WORDS: &str = "texts.flatMap(node => [...node.data.matchAll(/\\S+/g)].filter(text => text[0].length <= 32) \
    .flatMap(text => [...text[0].matchAll(/[A-Za-z0-9]+/g)].map(word => [word[0], text.index + word.index])) \
    .filter(([word, at]) => new Set(boxes(node, at, at + word.length).map(box => Math.round(box.top))).size > 1) \
    .map(([word]) => `${word} in ${node.data}`))";

/// An expression for the texts of cells, headings and labels that overlap.
const OVERLAPS: &str = "(() => { const all = texts.flatMap(node => boxes(node, 0, node.data.length).map(box => ({ node, box }))) \
        .sort((a, b) => a.box.top - b.box.top); \
    const found = []; \
    all.forEach((one, at) => { for (let next = at + 1; next < all.length && all[next].box.top < one.box.bottom - 3; next += 1) { \
        const other = all[next]; \
        const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left); \
        if (one.node !== other.node && wide > 2) found.push(`${one.node.data} | ${other.node.data}`); } }); \
    return found; })()";
