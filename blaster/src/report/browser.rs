//! Tests in a real browser: the page works, fits a phone, and is readable in both themes.
//!
//! Where: tests.
//! Invariant: the browser loads nothing from the network. Without Chromium, tests are skipped
//! except in CI.
//! Source: WCAG 2.2, 1.4.3 (contrast), 1.4.10 (reflow) and 1.4.11.

use super::words::escaped;
use super::{Entry, named, page};
use crate::measure::verdict::Severity;
use crate::result::sample;
use crate::workload::Verb;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::skip;

const BROWSER_SECONDS_MAX: &str = "120";
/// Browsers that accept the flags in `dom`. The environment variable `CHROMIUM` overrides the list.
const BROWSERS: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];
/// Widths in pixels of a small phone, a common phone and a desktop screen.
pub(crate) const WIDTHS: [u32; 3] = [360, 390, 1280];
/// Height in pixels of every tested screen.
const SCREEN_PX: f64 = 800.0;

/// A script that runs before the page's own script, and records errors and copied text.
const BEFORE: &str = "<script>window.wrong=[];window.copied=[];\
addEventListener('error',e=>wrong.push(String(e.message||e.target)),true);\
addEventListener('securitypolicyviolation',e=>wrong.push('policy: '+e.blockedURI));\
Object.defineProperty(navigator,'clipboard',{value:{writeText:t=>{copied.push(t);\
return Promise.resolve();}}});</script>";

const PROBE: &str = include_str!("probe.js");

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let found = BROWSERS.iter().flat_map(|name| folders.iter().map(move |one| one.join(name)));
    named.or_else(|| found.into_iter().find(|program| program.exists()))
}

fn probed(entries: &[Entry], name: &str) -> Option<Vec<Value>> {
    probed_page(&page(entries, &[]), name)
}

/// Returns the results of `PROBE` for a page at each of `WIDTHS`; `None` if there is no browser.
pub(crate) fn probed_page(page: &str, name: &str) -> Option<Vec<Value>> {
    let Some(browser) = browser() else {
        skip("no Chromium to look at the page with (make peers)");
        return None;
    };
    let folder = std::env::temp_dir().join(format!("kvblaster-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let page = page.replacen("<head>", &format!("<head>{BEFORE}"), 1);
    let frames = WIDTHS.map(|width| {
        let page = escaped(&page);
        format!(
            "<iframe style=\"width:{width}px;height:{SCREEN_PX}px;border:0\" \
             srcdoc=\"{page}\"></iframe>"
        )
    });
    let html = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body>{}<pre id=\"probe\"></pre>\
         <script>{PROBE}</script>",
        frames.concat()
    );
    let path = folder.join("probe.html");
    std::fs::write(&path, html).unwrap();
    let dom = dom(&browser, &folder, &path);
    std::fs::remove_dir_all(&folder).unwrap();
    let (_, rest) = dom.rsplit_once("<pre id=\"probe\">").unwrap_or_else(|| panic!("{dom:.2000}"));
    let (told, _) = rest.split_once("</pre>").unwrap();
    let told = told.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told:.2000}")))
}

/// Returns the page's HTML after the page's scripts have run.
fn dom(browser: &Path, folder: &Path, page: &Path) -> String {
    let output = Command::new("timeout")
        .args(["-k", "5", BROWSER_SECONDS_MAX])
        .arg(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
        ])
        .args(["--disable-dev-shm-usage", "--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .env("HOME", folder)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{browser:?}: {}\n{error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn list(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

#[test]
fn three_servers_stand_side_by_side_on_a_phone() {
    let servers = [("hypostyle", 50), ("memcached", 80), ("redis", 300)];
    let mut entries = named(servers.map(|(name, us)| sample::result(name, us)).to_vec());
    for entry in &mut entries {
        let sentence = "something else ran beside it and took part of this machine ".repeat(3);
        (0..4).for_each(|_| {
            entry.result.verdict.add("steal", Severity::Warning, sentence.clone());
        });
    }
    let Some(told) = probed(&entries, "three") else { return };
    // The table "At a glance" does not scroll.
    for (told, width) in told.iter().zip(WIDTHS) {
        assert!(!list(&told["scrolling"]).contains(&"glance".to_owned()), "at {width}");
        // The conclusion is in the upper half of the first screen. The table begins on this screen.
        let [top, end] = ["glance_top", "conclusion_end"].map(|at| told[at].as_f64().unwrap());
        assert!(end < SCREEN_PX / 2.0 && top < SCREEN_PX, "at {width}: {end} {top} px");
    }
}

#[test]
fn high_percentiles_have_labels_that_do_not_overlap() {
    let mut result = sample::result("ours", 50);
    let merged = result.merged.as_mut().unwrap();
    merged.tally.answered_n(Verb::Get, 50_000, Some(50_000), 200_000_000);
    let Some(told) = probed(&named(vec![result]), "labels") else { return };
    for (told, width) in told.iter().zip(WIDTHS) {
        assert_eq!(list(&told["overlapping"]), [""; 0], "at {width}");
    }
}

/// Checks the probe of a page of this width: no errors, nothing cut off, everything readable.
pub(crate) fn assert_readable(told: &Value, width: u32) {
    assert_eq!(list(&told["wrong"]), [""; 0], "errors at {width}");
    assert_eq!(list(&told["outside"]), [""; 0], "wider than the page at {width}");
    assert_eq!(told["page_width"], width, "the page scrolls sideways at {width}");
    assert_eq!(list(&told["overlapping"]), [""; 0], "labels at {width}");
    assert_eq!(list(&told["tall"]), [""; 0], "rows at {width}");
    assert_eq!(list(&told["faint"]), [""; 0], "contrast at {width}");
    assert_eq!(list(&told["nameless"]), [""; 0], "without a text at {width}");
    assert_eq!(list(&told["torn"]), [""; 0], "words broken at {width}");
    assert!(told["letter_px"].as_f64().unwrap() >= 11.0, "{} px", told["letter_px"]);
    assert_ne!(told["paper"][0], told["paper"][1], "the theme does not change");
}

#[test]
fn the_page_runs_fits_and_can_be_read() {
    let long = "a run with a rather long name that has to be broken somewhere on a phone, or cut";
    let entries = named(vec![
        sample::result("ours", 50),
        sample::result("</script><script>window.wrong.push('injected')</script>", 80),
        sample::result(long, 300),
    ]);
    let Some(told) = probed(&entries, "page") else { return };
    assert_eq!(told.len(), WIDTHS.len());
    for (told, width) in told.iter().zip(WIDTHS) {
        assert_readable(told, width);
        let figures = ["curve-p99", "curve-mean", "percentiles", "time-rate", "time-p99"];
        assert_eq!(list(&told["figures"]), [&figures[..], &["time-hits", "cpu"]].concat());
        // Five charts have one line per run, and the chart of percentiles has two lines per run.
        assert_eq!(told["lines"], 3 * 5 + 6, "at {width}");
        let copied = told["copied"].as_str().unwrap();
        let rows: Vec<Vec<&str>> = copied.lines().map(|row| row.split('\t').collect()).collect();
        // The copied table has a row per figure and a column per run.
        assert_eq!((rows.len(), rows[0].len()), (19, 4), "{copied}");
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{copied}");
        assert_eq!((rows[0][1], rows[1][0], rows[1][1]), ("ours", "answered/s", "200 [200, 200]"));
        let p99 = entries[0].result.merged.as_ref().unwrap().tally.total().response_ns;
        let p99 = p99.quantile_ns(0.99).unwrap() as f64;
        let row = rows.iter().find(|row| row[0] == "response p99").unwrap();
        assert_eq!(row[1], super::words::span(Some(p99)) + " (unsteady)");
    }
}
