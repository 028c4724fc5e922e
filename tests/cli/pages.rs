//! The page of `-o html` in a real browser. It can be filtered, sorted and zoomed, runs only its own script, requests
//! nothing else, and shows the same content without its script.

use std::fs;
use std::path::{Path, PathBuf};

use calipam_testkit::browser::{Browser, Page};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::program::{EXAMPLE, assert_expected, calipam, items, on_example, scratch};

/// Writes the page of a cluster to a file.
pub(super) fn page_of(folder: &TempDir, datastore: &str) -> PathBuf {
    let file = folder.path().join("page.html");
    calipam(&format!(
        "check -q -d {datastore} --output-file html={}",
        file.display()
    ))
    .completed();
    file
}

/// Evaluates an expression in the page.
pub(super) fn evaluate<T: DeserializeOwned>(page: &mut Page<'_>, expression: &str) -> T {
    serde_json::from_value(page.evaluate(expression).unwrap()).expect(expression)
}

/// Asserts that the page has requested only its own file, and that neither the page nor the browser reports errors.
fn assert_quiet(page: &mut Page<'_>, file: &Path) {
    let itself = format!("file://{}", file.canonicalize().unwrap().display());
    assert_eq!(page.requests().unwrap(), [itself]);
    assert_eq!(page.complaints().unwrap(), [] as [String; 0]);
}

/// Returns the visible cells of a column in the table of findings.
fn shown(page: &mut Page<'_>, column: usize) -> Vec<String> {
    let visible = format!(
        "[...document.querySelectorAll('#findings-table > tbody > tr')].filter(row => row.offsetParent) \
         .map(row => row.cells[{column}].textContent)"
    );
    evaluate(page, &visible)
}

fn text(page: &mut Page<'_>, selector: &str) -> String {
    evaluate(
        page,
        &format!("document.querySelector({}).textContent", json!(selector)),
    )
}

#[test]
fn the_page_of_the_example() {
    let Some(mut browser) = Browser::unless_left_out() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = page_of(&folder, EXAMPLE);
    let report = on_example("check -o json").json();
    let findings = items(&report["findings"]);
    for part in [
        findings_are_filtered_sorted_and_explained,
        it_begins_with_what_to_do,
        a_map_opens_its_blocks,
    ] {
        let mut page = browser.page().unwrap();
        page.open(&file).unwrap();
        part(&mut page, findings);
        assert_quiet(&mut page, &file);
    }
    let mut page = browser.page().unwrap();
    page.scripts(false).unwrap();
    page.open(&file).unwrap();
    without_its_script_it_is_tables(&mut page, findings);
    assert_quiet(&mut page, &file);

    let export = folder.path().join("healthy.jsonl");
    Cluster::plain(ClusterSpec::new(3), 3, 4)
        .write_export(&export)
        .unwrap();
    let mut page = browser.page().unwrap();
    page.open(&page_of(&folder, export.to_str().unwrap())).unwrap();
    let text = beginning(&mut page).replace(&folder.path().display().to_string(), "FOLDER");
    assert_expected("page-healthy", &text);
}

fn findings_are_filtered_sorted_and_explained(page: &mut Page<'_>, findings: &[Value]) {
    assert_eq!(
        page.evaluate("document.title").unwrap(),
        format!("calipam: {} findings", findings.len())
    );
    assert_eq!(shown(page, 0).len(), findings.len());

    page.click("document.getElementById('filter')").unwrap();
    page.type_text("node-11 tunnel").unwrap();
    assert_eq!(shown(page, 2), ["10.244.11.0", "10.244.11.1", "10.244.11.2"]);
    assert_eq!(
        text(page, "#findings-shown"),
        format!("3 of 3 shown, {} in all", findings.len())
    );
    let choose = |id: &str, value: &str| {
        format!(
            "(() => {{ const one = document.getElementById('{id}'); one.value = '{value}'; \
             one.dispatchEvent(new Event('input')); }})()"
        )
    };
    page.evaluate(&choose("severity", "warning")).unwrap();
    assert_eq!(shown(page, 2), [] as [String; 0]);
    page.evaluate(&choose("filter", "")).unwrap();
    let of = |field: &str, value: &str| findings.iter().filter(|f| f[field] == value).count();
    assert_eq!(shown(page, 0), vec!["warning"; of("severity", "warning")]);
    page.evaluate(&choose("severity", "")).unwrap();
    page.evaluate(&choose("filter", "leaked-address")).unwrap();
    assert_eq!(
        shown(page, 1),
        vec!["leaked-address"; of("code", "leaked-address")]
    );

    // Sorts by subject, with addresses in numerical order, and then reversed. Severities begin with the highest.
    let head = |column: usize| format!("document.querySelectorAll('#findings-table th button')[{column}]");
    page.click(&head(2)).unwrap();
    let ascending = shown(page, 2);
    let place = |address: &str| ascending.iter().position(|one| one == address).unwrap();
    assert!(place("10.244.10.9") < place("10.244.10.20"), "{ascending:?}");
    page.click(&head(2)).unwrap();
    let descending: Vec<String> = ascending.iter().rev().cloned().collect();
    assert_eq!(shown(page, 2), descending);
    page.evaluate(&choose("filter", "")).unwrap();
    page.click(&head(0)).unwrap();
    let severities = shown(page, 0);
    assert_eq!(severities[..3], ["critical", "critical", "error"]);
    assert_eq!(severities.last().unwrap(), "info");
    let sorted = "document.querySelector('#findings-table th').getAttribute('aria-sort')";
    assert_eq!(page.evaluate(sorted).unwrap(), "ascending");

    // Evidence and repair unfold, and a code links to its meaning.
    let evidence = "[...document.querySelectorAll('#findings-table details')].find(one => \
        one.closest('tr').cells[1].textContent === 'leaked-address')";
    let is_seen = format!("{evidence}.querySelector('.facts').checkVisibility()");
    assert_eq!(page.evaluate(&is_seen).unwrap(), false);
    page.click(&format!("{evidence}.querySelector('summary')"))
        .unwrap();
    assert_eq!(page.evaluate(&is_seen).unwrap(), true);
    let names = format!("[...{evidence}.querySelectorAll('.facts th')].map(one => one.textContent)");
    let names: Vec<String> = evaluate(page, &names);
    assert_eq!(names[..4], ["owners", "pool", "reasons", "records"]);
    let repair = page
        .evaluate(&format!("{evidence}.querySelector('code').textContent"))
        .unwrap();
    assert!(
        findings.iter().any(|finding| finding["repair"] == repair),
        "{repair}"
    );
    page.click("document.querySelector('a[href=\"#code-leaked-address\"]')")
        .unwrap();
    page.evaluate("new Promise(done => setTimeout(done, 50))")
        .unwrap();
    assert_eq!(
        page.evaluate("document.getElementById('code-leaked-address').open")
            .unwrap(),
        true
    );
}

/// Returns the beginning of the page as a person reads it: the sentence, the five numbers and the next steps, without
/// empty lines.
fn beginning(page: &mut Page<'_>) -> String {
    let text = "['header', '#kinds'].map(one => document.querySelector(one).innerText).join('\\n').replaceAll(/\\s*\\n+/g, '\\n')";
    evaluate(page, text)
}

fn it_begins_with_what_to_do(page: &mut Page<'_>, _: &[Value]) {
    assert_expected("page-example", &beginning(page));
    // A click on the number of a kind shows its findings.
    let count = "[...document.querySelectorAll('#kinds-table a')].find(one => one.dataset.filter === 'leaked-address')";
    let number: usize = evaluate(page, &format!("Number({count}.textContent)"));
    page.click(count).unwrap();
    assert_eq!(shown(page, 1), vec!["leaked-address"; number]);
}

fn a_map_opens_its_blocks(page: &mut Page<'_>, _: &[Value]) {
    // Uses the keyboard. From the first block, 10.244.1.0/26, it is 36 cells to 10.244.10.0/26.
    page.evaluate("document.querySelector('#map-0 canvas').focus()")
        .unwrap();
    for _ in 0..36 {
        page.press("ArrowRight").unwrap();
    }
    let cell = text(page, "#map-0 .cell");
    assert!(
        cell.starts_with("10.244.10.0/26, ") && cell.contains("findings (worst: critical)"),
        "{cell}"
    );
    page.press("Enter").unwrap();
    assert_eq!(text(page, "#map-0 .block h4"), "10.244.10.0/26, host:node-10");
    let addresses = "document.querySelectorAll('#map-0 .addresses button')";
    assert_eq!(page.evaluate(&format!("{addresses}.length")).unwrap(), 64);

    // The details of a leaked address are the same as in its finding.
    page.click(&format!("{addresses}[6]")).unwrap();
    let story = text(page, "#map-0 .block p:last-child");
    for part in [
        "10.244.10.6: allocated, recorded for default/queue-49",
        "which is gone",
        "calipam show --ip 10.244.10.6",
    ] {
        assert!(story.contains(part), "{part} in {story}");
    }
    assert_eq!(
        page.evaluate(&format!("{addresses}[6].className")).unwrap(),
        "used marked error"
    );
    // The address has the color of its state, and the frame of its severity.
    let style = |index: usize, property: &str| format!("getComputedStyle({addresses}[{index}]).{property}");
    let mut differs = |a: (usize, &str), b: (usize, &str)| {
        page.evaluate(&style(a.0, a.1)).unwrap() != page.evaluate(&style(b.0, b.1)).unwrap()
    };
    assert!(differs((6, "backgroundColor"), (63, "backgroundColor")));
    assert!(
        differs((3, "outlineColor"), (7, "outlineColor")),
        "critical, error"
    );
    assert!(differs((7, "outlineStyle"), (63, "outlineStyle")));
    page.click(&format!("{addresses}[63]")).unwrap();
    assert!(text(page, "#map-0 .block p:last-child").starts_with("10.244.10.63: free"));

    // Uses the mouse: the last cell of a pool that has one line of 16 cells.
    page.click_at("document.querySelector('#map-1 canvas')", 0.99, 0.5)
        .unwrap();
    assert_eq!(text(page, "#map-1 .cell"), "172.16.0.240/28, no block");
    page.click_at("document.querySelector('#map-1 canvas')", 0.01, 0.5)
        .unwrap();
    assert!(text(page, "#map-1 .cell").starts_with("172.16.0.0/28, 1 of 16 addresses in use"));
    assert!(text(page, "#map-1 .block h4").starts_with("172.16.0.0/28, "));

    // The colors differ between light and dark, and the map uses several in both. On paper, the light ones are used.
    let canvas = "document.querySelector('#map-0 canvas')";
    let colours = format!(
        "(() => {{ const canvas = {canvas}; const {{ data }} = canvas.getContext('2d') \
         .getImageData(0, 0, canvas.width, canvas.height); return new Set(new Uint32Array(data.buffer)).size; }})()"
    );
    assert!(evaluate::<u64>(page, &colours) > 5);
    let mut seen = Vec::new();
    for (scheme, medium) in [("light", "screen"), ("dark", "screen"), ("dark", "print")] {
        page.appearance(scheme, medium).unwrap();
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            .unwrap();
        let paper = page
            .evaluate("getComputedStyle(document.body).backgroundColor")
            .unwrap();
        seen.push((paper, page.evaluate(&format!("{canvas}.toDataURL()")).unwrap()));
    }
    assert!(seen[0].0 != seen[1].0 && seen[0].1 != seen[1].1);
    assert!(seen[0].0 == seen[2].0 && seen[1].1 != seen[2].1);
    page.appearance("dark", "screen").unwrap();
    assert!(page.pdf().unwrap().starts_with(b"%PDF-"));
}

fn without_its_script_it_is_tables(page: &mut Page<'_>, findings: &[Value]) {
    assert_eq!(page.evaluate("document.documentElement.className").unwrap(), "");
    assert_eq!(shown(page, 0).len(), findings.len());
    let visible = "[...document.querySelectorAll('.script, canvas')].filter(e => e.offsetParent).length";
    assert_eq!(
        page.evaluate(visible).unwrap(),
        0,
        "what only the script can fill is not shown"
    );

    let table = "document.querySelector('#map-0 details')";
    page.click(&format!("{table}.querySelector('summary')")).unwrap();
    let rows: String = evaluate(page, &format!("{table}.querySelector('table').innerText"));
    assert!(rows.contains("10.244.10.0/26\thost:node-10\t"), "{rows}");
    let pools: String = evaluate(page, "document.querySelector('#pools table').innerText");
    assert!(
        pools.contains("default-ipv4-ippool\t10.244.0.0/16\t21\t65,536\t105\t0\t"),
        "{pools}"
    );
}

/// Names that would become markup if they were not escaped.
const HOSTILE_NAMES: [&str; 3] = [
    "<img src=x onerror=document.title=`taken`>",
    "</script><script>document.title=`taken`</script>",
    "</tr></table><svg onload=document.title=`taken`><a href=javascript:document.title=`taken`>",
];

#[test]
fn no_name_of_a_cluster_runs_as_a_script() {
    let Some(mut browser) = Browser::unless_left_out() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let example = String::from_utf8(Cluster::example().export()).unwrap();
    for name in HOSTILE_NAMES {
        // The cluster has a workload, a node and a pool with that name.
        let hostile = example
            .replace("queue-49", name)
            .replace("\"host:node-10\"", &json!(format!("host:{name}")).to_string())
            .replace("\"name\":\"rack-ippool\"", &format!("\"name\":{}", json!(name)));
        let export = folder.path().join("hostile.jsonl");
        fs::write(&export, hostile).unwrap();
        let file = page_of(&folder, export.to_str().unwrap());
        let mut page = browser.page().unwrap();
        page.open(&file).unwrap();
        let body = text(&mut page, "main");
        assert!(body.matches(name).count() >= 3, "{name}: {body}");

        // The script of the page also shows the names: in the block, the address and the details.
        let press = |key: &str| format!("c.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}' }}))");
        let enter = press("Enter");
        page.evaluate(&format!(
            "document.querySelectorAll('canvas').forEach(c => {{ c.focus(); {enter}; }})"
        ))
        .unwrap();
        let to_block = format!("for (let n = 0; n < 36; n += 1) {};", press("ArrowRight"));
        page.evaluate(&format!(
            "(c => {{ {to_block} {enter}; }})(document.querySelector('#map-0 canvas'))"
        ))
        .unwrap();
        page.evaluate("document.querySelectorAll('.addresses button').forEach(b => b.click())")
            .unwrap();
        page.click("document.querySelectorAll('#map-0 .addresses button')[6]")
            .unwrap();
        assert!(text(&mut page, "#map-0 h4").contains(name));
        assert!(text(&mut page, "#map-0 .block p:last-child").contains(name));

        let title: String = evaluate(&mut page, "document.title");
        assert!(title.starts_with("calipam: "), "{name}: {title}");
        let elements = "document.querySelectorAll('img, svg, script, iframe, object').length";
        assert_eq!(page.evaluate(elements).unwrap(), 2);
        assert_quiet(&mut page, &file);
    }
}

#[test]
fn a_thousand_findings_are_shown_by_and_by() {
    let Some(mut browser) = Browser::unless_left_out() else {
        return;
    };
    let (folder, export) = scratch("cluster.jsonl");
    Cluster::sized(ClusterSpec::new(1), 1_000)
        .write_export(&export)
        .unwrap();
    // All endpoints are removed, so the address of every pod is leaked.
    let healthy = fs::read_to_string(&export).unwrap();
    let mut lines: Vec<&str> = healthy
        .lines()
        .filter(|line| !line.contains("/workloadendpoints/"))
        .collect();
    let end = json!({"entries": lines.len() - 2}).to_string();
    *lines.last_mut().unwrap() = &end;
    fs::write(&export, lines.join("\n") + "\n").unwrap();

    let file = page_of(&folder, export.to_str().unwrap());
    let mut page = browser.page().unwrap();
    page.open(&file).unwrap();
    let all: usize = evaluate(
        &mut page,
        "document.querySelectorAll('#findings-table > tbody > tr').length",
    );
    assert!(all > 900, "{all}");
    assert_eq!(shown(&mut page, 0).len(), 100);
    page.click("document.getElementById('findings-all')").unwrap();
    assert_eq!(shown(&mut page, 0).len(), all);
    assert_eq!(
        page.evaluate("document.getElementById('findings-all').offsetParent")
            .unwrap(),
        Value::Null
    );

    // Without findings, the page of a cluster of this size also works.
    fs::write(&export, healthy).unwrap();
    let file = page_of(&folder, export.to_str().unwrap());
    let mut page = browser.page().unwrap();
    page.open(&file).unwrap();
    assert_eq!(page.evaluate("document.title").unwrap(), "calipam: no findings");
    let report = calipam(&format!("check -d {} -o json", export.display())).json();
    let used = "JSON.parse(document.getElementById('map-data').textContent).pools \
        .flatMap(pool => pool.cells).reduce((sum, cell) => sum + (cell[2] || 0), 0)";
    assert_eq!(page.evaluate(used).unwrap(), report["counts"]["allocations"]);
    assert_quiet(&mut page, &file);
}
