//! Tests of the lab's page in a real browser, Chromium.
//!
//! Where: tests.
//! Invariant: the browser loads nothing from the network. Without Chromium, tests are skipped
//! except in CI.
//! Source: WCAG 2.2, 1.4.3 (contrast), 1.4.10 (reflow) and 1.4.11.

use super::tests::all_kinds;
use super::{page, sections};
use crate::report::browser::{WIDTHS, assert_readable, list, probed_page};

#[test]
fn the_labs_page_runs_fits_and_can_be_read() {
    let entries = all_kinds();
    let sections = sections(&entries);
    let Some(told) = probed_page(&page::page(&entries, &sections), "lab") else { return };
    assert_eq!(told.len(), WIDTHS.len());
    for (told, width) in told.iter().zip(WIDTHS) {
        assert_readable(told, width);
        let charts: usize =
            sections.iter().map(|one| one.charts.len() + usize::from(one.profile.is_some())).sum();
        assert_eq!(list(&told["figures"]).len(), charts, "at {width}");
        // The copied table has a head, and a row for each claim.
        let copied = told["copied"].as_str().unwrap();
        let measured = sections.iter().filter(|one| !one.record.rows.is_empty());
        let rows: usize = measured.map(|one| one.judged.len().max(1)).sum();
        assert_eq!(copied.lines().count(), rows + 1, "{copied}");
        assert!(copied.lines().all(|row| row.split('\t').count() == 4), "{copied}");
    }
}
