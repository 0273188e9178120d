//! Tests of the report's texts with made-up records, and of the page in a real browser, Chromium.
//!
//! Where: tests. Invariant: see `report`. Source: none.

use super::section::without_folders;
use super::{Entry, NOISE, entries, findings, knee, markdown, page, sections, write};
use crate::lab::claims::Verdict;
use crate::lab::experiment::{Experiment, Figure, Scale};
use crate::lab::figures::PREFIX;
use crate::lab::figures::PROFILE;
use crate::lab::points::points;
use crate::lab::record::{Missing, Record, Row, SCHEMA, Started};
use crate::report::browser::{WIDTHS, assert_readable, list, probed_page};
use crate::report::chart::Ticks;
use std::fs;
use std::path::PathBuf;

/// A name that would run a script or end a table's cell, if it were not escaped.
pub(super) const HOSTILE: &str = "</script><script>window.wrong.push('x')</script>`|<b>";

/// Makes an experiment with these servers and axes, and with claims about the first server.
pub(super) fn experiment(name: &str, servers: &[&str], axes: &str) -> Experiment {
    let programs = servers
        .iter()
        .map(|name| format!("[[servers]]\nname = \"{name}\"\nprogram = \"memcached\"\n"));
    let (first, second) = (servers[0], servers[1]);
    let text = format!(
        r#"
title = "The title of {name}"
source = "thesis"
place = "Section 3.7, figures 3.16 and 3.17 (pages 39 to 42)"
did = "Seven hosts ran memtier_benchmark against an eighth host in a closed loop."
found = ["Larger objects lowered throughput.", "The p99 was below 1 ms."]
differs = "Clients and servers share one machine."
figures = [{{ y = "requests/s", log = true }}, {{ y = "p99" }}, {{ y = "hits" }}]
drive = {{ flags = "-w uniform -c 1" }}
[[claims]]
says = "the thesis: 1.5 times the throughput (figure 3.16)"
figure = "requests/s"
of = "{first}"
to = "{second}"
at_least = 1.5
[[claims]]
says = "the thesis: p99 is below 1 ms"
figure = "p99"
of = "{first}"
at_most = 1000000.0
{axes}
{}"#,
        programs.collect::<String>()
    );
    Experiment::parse(name, &text).unwrap()
}

pub(super) const CONNECTIONS: &str = r#"
[[axes]]
name = "connections"
log = true
points = [{ at = 1, scale = "quick" }, { at = 16, scale = "quick" }, { at = 256, scale = "quick" }]
"#;
pub(super) const SENDERS: &str = r#"
[[axes]]
name = "group"
points = [{ at = "small", scale = "quick" }, { at = "rather large", scale = "quick" }]
"#;

/// Makes three rounds of rows, in which the first server is twice as fast as all other servers.
pub(super) fn record(experiment: &Experiment) -> Record {
    let mut record = Record {
        schema: SCHEMA,
        name: experiment.name.clone(),
        scale: Scale::Quick,
        rounds: 3,
        kvblaster: "0.1.0".to_owned(),
        started: "2026-11-24T10:00:00Z".to_owned(),
        command: format!("kvblaster lab run {} --quick", experiment.name),
        server_cpus: vec![0],
        client_cpus: vec![1],
        ..Record::default()
    };
    record.machine.kernel = "Linux 6.1 #1 SMP".to_owned();
    record.machine.cpu_model = Some("a processor".to_owned());
    for round in 0..3 {
        for (nth, at) in points(experiment, Scale::Quick).into_iter().enumerate() {
            for (server, of) in (0..).zip(&experiment.servers) {
                let noise = 1.0 + 0.01 * f64::from((round + server) % 3);
                let rate = 1e5 * (nth + 1) as f64 * noise * if server == 0 { 2.0 } else { 1.0 };
                let figures = [("requests/s", rate), ("mean", 2e11 / rate), ("p99", 4e11 / rate)];
                let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
                let (at, server) = (at.labels.clone(), of.name.clone());
                record.rows.push(Row { round, at, server, figures, ..Row::default() });
            }
        }
    }
    let started = |one: &crate::lab::experiment::Server| Started {
        server: one.name.clone(),
        version: "memcached 1.6.45".to_owned(),
        commands: vec!["/a/folder/memcached -t 1 -l 127.0.0.1".to_owned()],
        driven_by: "kvblaster run -c 1 127.0.0.1:1".to_owned(),
    };
    record.servers = experiment.servers.iter().map(started).collect();
    record
}

pub(super) fn entry(experiment: Experiment, record: Option<Record>) -> Entry {
    Entry { name: experiment.name.clone(), experiment: Some(experiment), record: Ok(record) }
}

/// Makes entries with and without axes, with failures, with orphans, and with hostile names.
pub(super) fn all_kinds() -> Vec<Entry> {
    let pairs = ["hypostyle", "memcached", "hypostyle again", "memcached again"];
    let noise = experiment(NOISE, &pairs, CONNECTIONS);
    let plain = experiment("plain", &["hypostyle", "memcached, with a long name", "redis"], "");
    let both = experiment("both", &["hypostyle", "memcached"], &format!("{CONNECTIONS}{SENDERS}"));
    let many = ["a", "b", "c", "d", "e", HOSTILE];
    let many = experiment("many names & more", &many, &format!("{CONNECTIONS}{SENDERS}"));
    let words = experiment("words", &["hypostyle", "memcached"], SENDERS);
    let mut bound = record(&words);
    for row in &mut bound.rows {
        row.remarks.push(format!("{HOSTILE} in round {}", row.round));
        row.bound = (row.server == "memcached").then(|| "the CPUs were busy".to_owned());
    }
    let mut partial = record(&both);
    partial.rows.truncate(3);
    let why = HOSTILE.to_owned();
    let server = "memcached".to_owned();
    partial.missing = vec![Missing { server, why, is_failure: true, ..Missing::default() }; 2];
    let partly = Experiment { name: "partly".to_owned(), ..both.clone() };
    let orphan = Record { rows: record(&words).rows, ..Record::default() };
    let (recorded, mut noisy, pair) = (record(&many), record(&noise), record(&both));
    for row in noisy.rows.iter_mut().filter(|row| row.server == "hypostyle") {
        row.figures.values_mut().for_each(|value| *value /= 2.0);
    }
    let alone = record(&plain);
    let kinds = profiled();
    vec![
        entry(noise, Some(noisy)),
        entry(both, Some(pair)),
        entry(Experiment { name: "empty".to_owned(), ..words.clone() }, Some(Record::default())),
        entry(many, Some(recorded)),
        entry(Experiment { name: "none".to_owned(), ..words.clone() }, None),
        Entry { name: "orphan".to_owned(), experiment: None, record: Ok(Some(orphan)) },
        entry(partly, Some(partial)),
        entry(plain, Some(alone)),
        Entry { name: "broken".to_owned(), experiment: None, record: Err(HOSTILE.to_owned()) },
        entry(words, Some(bound)),
        kinds,
    ]
}

/// Makes an entry with ten kinds of work. The first kind has 10 % of the work, the tenth has 0 %.
fn profiled() -> Entry {
    let mut kinds = experiment("kinds", &["hypostyle", "memcached"], SENDERS);
    kinds.figures =
        PROFILE[..10].iter().map(|one| Figure { y: one.name.to_owned(), log: false }).collect();
    let mut data = record(&kinds);
    let shares = [0.1, 0.01, 0.3, 0.02, 0.12, 0.03, 0.15, 0.04, 0.2, 0.0];
    for row in &mut data.rows {
        row.figures =
            PROFILE.iter().zip(shares).map(|(one, share)| (one.name.into(), share)).collect();
    }
    entry(kinds, Some(data))
}

#[test]
fn kinds_of_work_are_parts_of_bars_and_small_ones_are_together() {
    let sections = sections(&[profiled()]);
    assert!(sections[0].charts.is_empty() && sections[0].without_values().is_none());
    assert_eq!(sections[0].findings, [""; 0]);
    let bars = sections[0].profile.as_ref().unwrap();
    let names: Vec<&str> = bars.bars.iter().map(|bar| bar.name.as_str()).collect();
    let places = ["small", "rather large"];
    let expected =
        places.map(|at| ["hypostyle", "memcached"].map(|it| format!("{it}, group = {at}")));
    assert_eq!(names, expected.concat());
    let parts: Vec<(&str, String)> =
        bars.bars[0].parts.iter().map(|one| (one.name, format!("{:.2}", one.share))).collect();
    let kinds = ["driver", "copy", "socket layer", "wake-up", "wait", "lock", "kernel allocation"];
    let shares = ["0.10", "0.30", "0.12", "0.03", "0.15", "0.04", "0.20"].map(str::to_owned);
    assert_eq!(parts[..7], kinds.into_iter().zip(shares).collect::<Vec<_>>());
    assert_eq!(parts[7..], [("all other", "0.06".to_owned())]);
    let html = bars.html();
    assert!(html.contains(">copy 30 %</text>") && !html.contains(">lock 4 %<"), "{html}");
    let table = bars.table.as_ref().unwrap().markdown();
    assert!(table.contains("| allocation | 0.00 % \\[0.00 %, 0.00 %\\] |"), "{table}");
}

#[test]
fn every_kind_of_record_has_a_row_and_nothing_escapes() {
    let entries = all_kinds();
    let sections = sections(&entries);
    let page = page::page(&entries, &sections);
    for (name, cell) in [
        ("empty", "the data have no measurement"),
        ("none", "the experiment was not run"),
        ("orphan", "no longer an experiment"),
        ("broken", "the data cannot be read: &lt;/script&gt;"),
        ("both", "confirmed</td><td>the thesis: p99 is below 1 ms</td>"),
        ("kinds", "this machine cannot tell"),
    ] {
        let rows = || page.lines().filter(|line| line.contains(&format!(">{name}</")));
        let found = rows().any(|row| row.contains(&format!("</th><td>{cell}")));
        assert!(found, "{name}: {cell}\n{:?}", rows().collect::<Vec<_>>());
    }
    // The caption of each figure has the machine, the versions, the date and the command.
    let made = "Measured on 2026-11-24 by `kvblaster lab run plain --quick`, on a processor, 0 \
                CPUs, Linux 6.1, with memcached 1.6.45, kvblaster 0.1.0.</figcaption>";
    assert_eq!(page.matches(made).count(), 2);
    assert_eq!(page.matches("<figcaption>").count(), page.matches(".</figcaption>").count());
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(page.contains("id=\"many-names---more\"") && !page.contains("<b>\""));
    assert!(page.contains("2 measurements have a server") || !page.contains("orphan-1"));
    for (name, text) in markdown::files(&entries, &sections) {
        assert!(name.ends_with(".svg") || !text.contains("<script"), "{name}: {text}");
        let rows = text.lines().filter(|line| line.starts_with('|'));
        let cells = |row: &str| row.replace("\\|", "").matches('|').count();
        let widths: Vec<usize> = rows.map(cells).collect();
        assert!(widths.iter().all(|width| (3..=9).contains(width)), "{name}: {widths:?}");
    }
}

#[test]
fn noise_of_another_scale_is_told_and_a_claim_outside_the_scale_is_counted() {
    let mut entries = all_kinds();
    entries[0].record.as_mut().unwrap().as_mut().unwrap().scale = Scale::Full;
    let mut all = sections(&entries);
    let plain = all.iter_mut().find(|one| one.name == "plain").unwrap();
    let expected = "The noise between equal servers does not widen the intervals of this \
                    experiment, because the experiment own-noise was measured with the scale full";
    assert_eq!(plain.remarks, [expected]);
    plain.judged[0].verdict = Verdict::NotAtScale;
    let totals = super::overview::totals(&entries, &all);
    assert!(totals.ends_with("and 1 are not measured at this scale."), "{totals}");
}

#[test]
fn a_failure_is_a_row_and_equal_ones_are_one() {
    let sections = sections(&all_kinds());
    let section = sections.iter().find(|one| one.name == "partly").unwrap();
    let table = section.missing().markdown();
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(
        table.contains("| memcached | all | The measurement failed: &lt;/script&gt;"),
        "{table}"
    );
    assert_eq!(section.without_values().unwrap(), "No measurement has a value for hits");
}

#[test]
fn numbers_are_places_and_other_labels_are_categories() {
    let sections = sections(&all_kinds());
    let charts = |name: &str| &sections.iter().find(|one| one.name == name).unwrap().charts;
    assert!(matches!(&charts("own-noise")[0].x_ticks, Ticks::At(ticks) if ticks[2].0 == 256.0));
    let Ticks::Categories(names) = &charts("words")[0].x_ticks else { panic!("no categories") };
    assert_eq!(*names, ["small", "rather large"]);
    let Ticks::Categories(names) = &charts("plain")[0].x_ticks else { panic!("no categories") };
    assert_eq!(*names, ["hypostyle", "memcached, with a long name", "redis"]);
    // At two points of the second axis, two servers share a chart; six servers have two charts.
    let titles = |name: &str| charts(name).iter().map(|one| one.title.clone()).collect::<Vec<_>>();
    assert_eq!(titles("both"), ["requests/s by connections", "p99 by connections"]);
    assert_eq!(charts("both")[0].lines[1].name, "hypostyle, group = rather large");
    assert_eq!(titles("many names & more")[1], "requests/s by connections, group = rather large");
    let hollow =
        |line: usize| charts("words")[0].lines[line].points.iter().all(|dot| dot.is_hollow);
    assert!(!hollow(0) && hollow(1));
    let dot = &charts("own-noise")[0].lines[0].points[0];
    let (low, high) = dot.range.unwrap();
    assert!(low < dot.y && dot.y < high);
}

#[test]
fn a_report_has_no_folder_of_the_machine() {
    for (text, shown) in [
        ("/x/memcached -s /x/a.sock", "memcached -s a.sock"),
        (
            "sh -c 'exec \"$@\"' '/x y/nutcracker' -c /proc/self/fd/3",
            "sh -c 'exec \"$@\"' 'nutcracker' -c /proc/self/fd/3",
        ),
        ("redis://unix:/x/a.sock udp://10.0.0.1:1", "redis://unix:a.sock udp://10.0.0.1:1"),
        ("-o udp_allow=0.0.0.0/0,udp_allow=::/0", "-o udp_allow=0.0.0.0/0,udp_allow=::/0"),
        ("TRACES=/x/traces: not there (/x/y/), 1 / 2", "TRACES=traces: not there (y), 1 / 2"),
    ] {
        assert_eq!(without_folders(text), shown);
    }
    let experiment = experiment("paths", &["hypostyle", "memcached"], SENDERS);
    let mut data = record(&experiment);
    let path = || "/secret/x".to_owned();
    data.command += " --experiments /secret/x";
    data.servers[0].driven_by = path();
    data.rows[0].bound = Some(path());
    data.rows[1].remarks.push(path());
    data.missing.push(Missing { why: path(), ..Missing::default() });
    let entries = [entry(experiment, Some(data))];
    let sections = sections(&entries);
    let files = markdown::files(&entries, &sections).into_iter().map(|(_, text)| text);
    for text in files.chain([page::page(&entries, &sections)]) {
        assert!(!text.contains("secret"), "{text}");
    }
}

#[test]
fn simulated_servers_name_kvblaster_once() {
    let experiment = experiment("simulated", &["lru", "fifo"], SENDERS);
    let mut data = record(&experiment);
    for server in &mut data.servers {
        server.version = "simulated by kvblaster 0.1.0".to_owned();
    }
    let made = sections(&[entry(experiment, Some(data))])[0].conditions();
    assert!(made.ends_with("Linux 6.1, simulated by kvblaster 0.1.0."), "{made}");
}

#[test]
fn losses_are_told_like_wins() {
    let experiment = experiment("t", &["hypostyle", "memcached", "redis"], CONNECTIONS);
    let mut data = record(&experiment);
    for row in data.rows.iter_mut().filter(|row| row.server == "redis") {
        let rate = row.figures.get_mut("requests/s").unwrap();
        *rate *= if row.at == ["256"] { 4.0 } else { 2.0 };
    }
    let expected = [
        "the requests/s of hypostyle are 2.00 times those of memcached: better at 3 of 3 points",
        "the requests/s of hypostyle are 0.50 times (connections = 256) to 1.00 times \
         (connections = 16) those of redis: worse at 1, no difference shown at 2 of 3 points",
    ];
    assert_eq!(findings::compared(&experiment, &data, None), expected);
    // The noise of equal servers exceeds the difference.
    let mut noise = data.clone();
    noise.rows.iter_mut().filter(|row| row.server == "redis").for_each(|row| {
        row.server = "hypostyle again".to_owned();
    });
    let told = findings::compared(&experiment, &data, Some(&noise));
    assert!(told[1].ends_with("no difference shown at 3 of 3 points"), "{told:?}");
    let knees = knee::knees(&experiment, &data);
    let expected = "hypostyle: there is no knee, because requests/s still grow at the last point, \
                    connections = 256; the greatest requests/s with a p99 below 1 ms are 605,980, \
                    at connections = 256";
    assert_eq!((knees.len(), knees[0].as_str()), (3, expected));
    let few = Record { rows: data.rows[..3].to_vec(), ..data };
    let expected = "the requests/s of hypostyle are 1.98 times those of memcached (connections = \
                    1): too few rounds to tell";
    assert_eq!(findings::compared(&experiment, &few, None)[0], expected);
    assert_eq!(findings::compared(&experiment, &Record::default(), None), [""; 0]);
}

#[test]
fn a_comparison_is_void_or_open_where_the_measurements_are_doubtful() {
    let experiment = experiment("t", &["hypostyle", "memcached"], CONNECTIONS);
    let mut data = record(&experiment);
    let rows = |data: &mut Record, at: &str, change: fn(&mut Row)| {
        data.rows.iter_mut().filter(|row| row.at == [at]).for_each(change);
    };
    rows(&mut data, "1", |row| row.bound = Some("busy".to_owned()));
    rows(&mut data, "16", |row| {
        let share = if row.server == "memcached" { 0.5 } else { 0.0 };
        row.figures.insert("not found".to_owned(), share);
    });
    // At this point, both servers have the same share of keys not found, so there is no doubt.
    rows(&mut data, "256", |row| {
        row.figures.insert("not found".to_owned(), 0.2);
    });
    let expected = "the requests/s of hypostyle are 2.00 times those of memcached: better at 1, \
                    this machine cannot tell at 1, not comparable at 1 of 3 points; kvblaster was \
                    the limit in 6 of 18 measurements; the servers missed different shares of \
                    the keys (0.00 % and 50.00 %)";
    assert_eq!(findings::compared(&experiment, &data, None), [expected]);
    data.rows.retain(|row| row.at == ["16"]);
    let expected = "(connections = 16): not comparable; the servers missed different shares of";
    let told = findings::compared(&experiment, &data, None);
    assert!(told[0].contains(expected), "{told:?}");
}

#[test]
fn a_report_is_written_from_a_folder() {
    let folder = std::env::temp_dir().join(format!("kvblaster-lab-report-{}", std::process::id()));
    let library = folder.join("experiments");
    fs::create_dir_all(&library).unwrap();
    let to = |name: &str| folder.join(name);
    let none = write(&folder, None, (None, Some(&library))).unwrap_err().to_string();
    assert!(none.contains("no data of an experiment"), "{none}");
    let experiment = experiment("orphan", &["hypostyle", "memcached"], SENDERS);
    record(&experiment).write(&folder).unwrap();
    fs::write(to("broken.json"), "{").unwrap();
    let found = entries(&folder, Some(&library)).unwrap();
    assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["broken", "orphan"]);
    let markdown = to("docs");
    let told = write(&folder, None, (Some(&markdown), Some(&library))).unwrap();
    assert!(told.contains("report.html") && told.contains("docs"), "{told}");
    for (path, text) in [
        (to("report.html"), "no longer exists"),
        (markdown.join("README.md"), "the data cannot be read"),
        (markdown.join("orphan.md"), "12 measurements"),
    ] {
        let read = fs::read_to_string(&path).unwrap();
        assert!(read.contains(text), "{path:?}: {read}");
    }
    // Without `orphan.json`, the next report removes the files of `orphan`, and keeps `notes.md`.
    fs::remove_file(to("orphan.json")).unwrap();
    fs::write(markdown.join("notes.md"), "mine").unwrap();
    write(&folder, None, (Some(&markdown), Some(&library))).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&markdown).unwrap().map(|one| one.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["README.md", "notes.md"]);
    fs::write(markdown.join("README.md"), "mine").unwrap();
    let error = write(&folder, None, (Some(&markdown), Some(&library))).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "README.md: kvblaster does not replace this file, because no earlier report wrote it; \
             name another folder, or move the file"
        ),
        "{error}"
    );
    assert_eq!(fs::read_to_string(markdown.join("README.md")).unwrap(), "mine");
    let page = write(&folder, Some(&PathBuf::from("-")), (None, Some(&library))).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_experiment_as_markdown() {
    let experiment = experiment("small_one", &["hypostyle", "memcached"], SENDERS);
    let data = record(&experiment);
    let entries = [entry(experiment, Some(data))];
    let files = markdown::files(&entries, &sections(&entries));
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["README.md", "small_one.md", "small_one.svg"]);
    assert_eq!(files[1].1, include_str!("small.txt"), "{}", files[1].1);
    let readme = "| [small\\_one](small_one.md) | not reproduced | the thesis: p99";
    assert!(files[0].1.contains(readme), "{}", files[0].1);
    let svg = files[2].1.strip_prefix(markdown::MADE).unwrap();
    assert!(svg.starts_with("\n<svg ") && svg.contains("class=\"range k1\""));
}

#[test]
fn every_experiment_of_this_kvblaster_can_be_drawn() {
    for experiment in crate::lab::library::all(None).unwrap() {
        let mut data = record(&experiment);
        for row in &mut data.rows {
            row.figures = experiment.figures.iter().map(|one| (one.y.clone(), 0.5)).collect();
        }
        let name = experiment.name.clone();
        let figures = || experiment.figures.iter();
        let kinds = figures().filter(|one| one.y.starts_with(PREFIX)).count();
        let wanted = figures().count() - kinds;
        let sections = sections(&[entry(experiment, Some(data))]);
        assert!(sections[0].charts.len() >= wanted, "{name}");
        assert_eq!(sections[0].profile.is_some(), kinds > 0, "{name}");
        assert!(!page::page(&[], &sections).is_empty());
    }
}

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
