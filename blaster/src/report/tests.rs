//! Tests of the texts that the page must, or must not, contain. `browser.rs` tests its layout.
//!
//! Where: tests. Invariant: see `report`. Source: none.

use super::{ReportError, named, page, report};
use crate::result::RunResult;
use crate::result::sample;

fn two() -> Vec<super::Entry> {
    let hostile = "</title></script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
    named(vec![sample::result("ours", 50), sample::result(hostile, 80)])
}

#[test]
fn everything_is_on_the_page() {
    let page = page(&two(), &[]);
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
        "the generator: the capacity may be higher",
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
        format!("<td>{} (unsteady)</td>", super::words::span(Some(ns)))
    });
    assert!(page.contains(&ours) && page.contains(&theirs) && ours != theirs);
    let rows = page.split_once("id=\"manifest\"").unwrap().1;
    let marked =
        |row: &str| rows.contains(&format!("<tr class=\"differs\"><th scope=\"row\">{row}"));
    assert!(!marked("seed") && !marked("kernel"), "equal fields are marked");
    // A search limited by the generator is marked invalid.
    assert!(page.contains("Invalid (generator): in 1 of 8 trials"), "{page}");
    assert!(!page.contains("no rate met the objective"));
    assert!(page.contains("<td>200 [200, 200]</td>"));
}

#[test]
fn what_rests_on_reports_that_disagree_is_marked() {
    // The fourth report of each result has a stall; in the first result, the stall is removed.
    let mut entries = two();
    let steady = &mut entries[0].result;
    steady.reports[3].tally = steady.reports[2].tally.clone();
    steady.verdict.remarks.retain(|remark| remark.rule != "unsteady");
    (entries[1].result.search, entries[1].result.judgements) = (None, Vec::new());
    let page = page(&entries, &[]);
    let row = |name: &str| {
        let row = page.split_once(&format!("<th scope=\"row\">{name}</th>")).unwrap().1;
        let cells = row.split_once("</tr>").unwrap().0.split("</td>");
        cells.map(|cell| cell.contains("(unsteady)")).take(2).collect::<Vec<_>>()
    };
    for name in ["p99", "p99.9", "max", "sd"].map(|name| format!("response {name}")) {
        assert_eq!(row(&name), [false, true], "{name}");
    }
    for name in ["answered/s", "response p50", "hits"] {
        assert_eq!(row(name), [false, false], "{name}");
    }
    assert!(page.contains("Note (unsteady): the reports disagree: the p99 was "), "{page}");
    assert!(page.contains("</b>: yes, except the unsteady figures"));
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
    assert!(page(&entries, &[]).contains("<td>3; in 2 of them no rate met the objective</td>"));
}

#[test]
fn a_search_whose_marks_are_hollow_is_not_simply_trusted() {
    let mut entries = two();
    entries.truncate(1);
    let result = &mut entries[0].result;
    (result.verdict, result.judgements) = (Default::default(), Vec::new());
    let search = result.search.as_mut().unwrap();
    let names: Vec<String> = search.capacities.iter().map(|one| one.name.clone()).collect();
    for capacity in &mut search.capacities {
        capacity.limit = crate::search::bracket::Limit::Server;
    }
    let verdict = |late: bool, entries: &mut Vec<super::Entry>| {
        for point in &mut entries[0].result.search.as_mut().unwrap().curve {
            point.met = names.clone();
            point.client_bound = late.then(|| "it was late".to_owned());
        }
        page(entries, &[])
    };
    let hollow = verdict(true, &mut entries);
    assert!(hollow.contains("hollow") && hollow.contains("</b>: yes, with remarks."));
    assert!(
        hollow.contains("kvblaster was behind schedule, but all objectives were met"),
        "{hollow:.3000}"
    );
    assert!(verdict(false, &mut entries).contains("</b>: yes; the self-check"));
}

#[test]
fn what_comes_from_files_is_only_text() {
    let page = page(&two(), &[]);
    for injected in ["<script>alert", "<img", "onerror=alert(2)>", "</title></script>", "<b>\n"] {
        assert!(!page.contains(injected), "{injected}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert!(page.contains("1.6.45 &lt;b&gt;") && page.contains("&lt;img src=x"));
}

#[test]
fn nothing_is_fetched_from_elsewhere() {
    let page = page(&two(), &[]);
    for link in ["http://", "https://", "src=\"", "@import", "url(", "href="] {
        assert!(!page.contains(link), "{link}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn a_title_says_what_and_when_and_a_sentence_what_came_of_it() {
    let mut entries = two();
    entries[0].result.search = None;
    let page = page(&entries[..1], &[]);
    assert!(page.contains("<title>ours, 2026-11-"), "{page:.900}");
    let told = page.split_once("<p class=\"conclusion\">").unwrap().1;
    let told = told.split_once("</p>").unwrap().0;
    assert!(told.starts_with("ours answered 200 requests a second"), "{told}");
    assert!(told.contains("Check the result of ours before use; the reasons are below."), "{told}");
    // The reason why figures are invalid is visible; a note is in a folded list.
    let (seen, folded) =
        page.split_once("id=\"glance\"").unwrap().0.split_once("<details>").unwrap();
    assert!(seen.contains("p99&lt;1ms is not met") && folded.contains("Note (broken)"), "{seen}");
    // 12,000 answers are too few for a p99.99.
    assert!(!page.contains("response p99.99"));
    assert!(page.contains("<th scope=\"row\">response p99.9</th>") && page.contains(">figure<"));
}

#[test]
fn what_a_comparison_found_comes_first() {
    use crate::run::compare::{Comparison, figures};
    let servers = [("A one", 50), ("B other", 80)].map(|(name, us)| sample::result(name, us));
    let series = servers
        .each_ref()
        .map(|one| figures::Series { windows: one.reports.clone(), is_bound: false });
    let comparison = Comparison {
        schema: crate::result::SCHEMA,
        rounds: 6,
        is_interrupted: false,
        failed: None,
        confidence: figures::CONFIDENCE,
        figures: figures::rows(&series, &[]),
        servers: servers.to_vec(),
    };
    let folder = std::env::temp_dir().join(format!("kvblaster-compared-{}", std::process::id()));
    comparison.write(&folder).unwrap();
    let page = report(std::slice::from_ref(&folder)).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(page.contains("<title>A one against B other, "), "{page:.900}");
    let places =
        ["class=\"conclusion\"", "class=\"findings\"", "class=\"remarks\"", "id=\"glance\""];
    let places = places.map(|part| page.find(&format!(" {part}")).unwrap());
    assert!(places.is_sorted(), "{places:?}");
    assert!(page.contains("<li>Mean response time: ") && page.contains(" rounds are too few"));
}

#[test]
fn an_empty_result_makes_a_page_too() {
    let page = page(&named(vec![RunResult::default(), RunResult::default()]), &[]);
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
