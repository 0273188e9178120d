//! The page as text: what is on it, and what cannot get onto it. How it looks, a browser says
//! in `tests/report.rs`.
//!
//! Where: tests. Invariant: as for the page. Source: none.

use super::{ReportError, named, page, report};
use crate::result::RunResult;
use crate::result::sample;

fn two() -> Vec<super::Entry> {
    let hostile = "</title></script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
    named(vec![sample::result("ours", 50), sample::result(hostile, 80)])
}

#[test]
fn everything_is_on_the_page() {
    let page = page(&two());
    for expected in [
        "id=\"glance\"",
        "id=\"capacity\"",
        "id=\"curve-p99\"",
        "id=\"curve-mean\"",
        "id=\"percentiles\"",
        "id=\"time-rate\"",
        "id=\"time-p99\"",
        "id=\"time-hits\"",
        "id=\"cpu\"",
        "id=\"types\"",
        "id=\"cpus\"",
        "id=\"manifest\"",
        "Cap_avg",
        "the generator: this or more",
        "99.9 %",
        "seed",
        "Note (broken)",
        "p99&lt;1ms is not met",
    ] {
        assert!(page.contains(expected), "no {expected}");
    }
    let [ours, theirs] = [50, 80].map(|us| {
        let total = sample::result("", us).merged.unwrap().tally.total();
        let ns = total.response_ns.quantile_ns(0.999).unwrap() as f64;
        format!("<td>{} (unsteady)</td>", super::words::us(Some(ns)))
    });
    assert!(page.contains(&ours) && page.contains(&theirs) && ours != theirs);
    let rows = page.split_once("id=\"manifest\"").unwrap().1;
    let marked =
        |row: &str| rows.contains(&format!("<tr class=\"differs\"><th scope=\"row\">{row}"));
    assert!(!marked("seed") && !marked("kernel"), "equal fields are marked");
    // A generator that was the limit in a search does not pass for valid.
    assert!(page.contains("Invalid (generator): in 1 of 8 trials"), "{page}");
    assert!(!page.contains("held at no rate tried"));
    // 200 requests a second are answered in every report.
    assert!(page.contains("<td>200 [200, 200]</td>"));
}

#[test]
fn what_rests_on_reports_that_disagree_is_marked() {
    // The fourth report of each has a stall, for all but the steady one.
    let mut entries = two();
    let steady = &mut entries[0].result;
    steady.reports[3].tally = steady.reports[2].tally.clone();
    steady.verdict.remarks.retain(|remark| remark.rule != "unsteady");
    (entries[1].result.search, entries[1].result.judgements) = (None, Vec::new());
    let page = page(&entries);
    let row = |name: &str| {
        let row = page.split_once(&format!("<th scope=\"row\">{name}</th>")).unwrap().1;
        let cells = row.split_once("</tr>").unwrap().0.split("</td>");
        cells.map(|cell| cell.contains("(unsteady)")).take(2).collect::<Vec<_>>()
    };
    for name in ["p99 µs", "p99.9 µs", "max µs", "sd µs", "late %"] {
        assert_eq!(row(name), [false, true], "{name}");
    }
    for name in ["answered/s", "p50 µs", "hits %"] {
        assert_eq!(row(name), [false, false], "{name}");
    }
    assert!(page.contains("Note (unsteady): the reports disagree: the p99 was "), "{page}");
    assert!(page.contains("</b>: not where they are unsteady"));
    let types = page.split_once("id=\"types\"").unwrap().1.split_once("</section>").unwrap().0;
    let marked: Vec<bool> =
        types.split("<tr>").skip(1).map(|row| row.contains("(unsteady)")).collect();
    assert_eq!(marked[1..], [false, false, true, false], "{types}");
}

#[test]
fn rounds_in_which_nothing_held_are_told() {
    let mut entries = two();
    let capacities = &mut entries[0].result.search.as_mut().unwrap().capacities;
    capacities[0].rounds_per_s = vec![0.0, 9.0, 0.0];
    assert!(page(&entries).contains("<td>3, of which 2 held at no rate tried</td>"));
}

#[test]
fn what_comes_from_files_is_only_text() {
    let page = page(&two());
    for injected in ["<script>alert", "<img", "onerror=alert(2)>", "</title></script>", "<b>\n"] {
        assert!(!page.contains(injected), "{injected}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("1.6.45 &lt;b&gt;") && page.contains("&lt;img src=x"));
}

#[test]
fn nothing_is_fetched_from_elsewhere() {
    let page = page(&two());
    for link in ["http://", "https://", "src=\"", "@import", "url(", "href="] {
        assert!(!page.contains(link), "{link}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn an_empty_result_makes_a_page_too() {
    let page = page(&named(vec![RunResult::default(), RunResult::default()]));
    assert!(page.contains("unnamed #1") && page.contains("unnamed #2"));
    assert!(!page.contains("<figure") && page.ends_with("</html>\n"));
}

#[test]
fn too_few_and_too_many_are_refused() {
    assert!(matches!(report(&[]), Err(ReportError::Nothing)));
    let many = vec![std::path::PathBuf::from("nowhere"); super::RESULTS_MAX + 1];
    assert!(matches!(report(&many), Err(ReportError::TooMany(_))));
    assert!(matches!(report(&many[..1]), Err(ReportError::Result(_))));
}
