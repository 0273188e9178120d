//! Tests of workload files: reading, printing, and the messages about mistakes.
//!
//! Where: unit tests. Invariant: see `tests`.

use super::super::settings::{SETTINGS, Setting};
use super::super::{Files, Workload, WorkloadError, file, presets};
use super::Folder;

fn parse(text: &str) -> Result<Workload, (usize, String)> {
    file::parse(text, &Files::here(""))
}

#[test]
fn every_preset_is_made_and_printed_and_read_back() {
    for preset in &presets::PRESETS {
        let workload = Workload::preset(preset.name).unwrap();
        workload.check().unwrap();
        let text = workload.to_toml();
        let again = parse(&text).unwrap();
        assert_eq!(again.to_toml(), text, "{}", preset.name);
        for (name, _) in preset.settings() {
            assert!(text.contains(&format!("{name} = ")), "{name}:\n{text}");
        }
    }
    assert!(Workload::preset("mix-d").is_none());
    assert_eq!(Workload::preset("solarflare-48").unwrap().keys(), 983_040);
}

#[test]
fn every_setting_is_printed_as_it_is_read() {
    let folder = Folder::new("printed");
    let sizes = folder.file("sizes", "64 1\n128 3\n");
    let trace = folder.file("trace.csv", "1,k,1,1,1,get,0\n2,k,1,1,1,get,0\n");
    let sizes = format!("file:{}", sizes.display());
    let keys = folder.file("keys", "one\ntwo\n");
    let others = [
        ("keys", "12345"),
        ("key-file", keys.to_str().unwrap()),
        ("population-seed", "7"),
        ("popularity", "gaussian:0.1,0.25"),
        ("keys-per", "agent"),
        ("key-size", &sizes),
        ("key-prefix", "\"007\\"),
        ("value-size", "list:0=1,9=2.5"),
        ("value-size-per", "request"),
        ("mix", "get=70,append=30"),
        ("mix-order", "dealt"),
        ("set-order", "oldest"),
        ("batch", "uniform:1,9"),
        ("gap", "trace"),
        ("ttl", "exponential:60,1,3600"),
        ("cache-aside", "yes"),
        ("trace", trace.to_str().unwrap()),
        ("trace-requests", "1"),
        ("trace-loops", "0"),
    ];
    let mut workload = Workload::default();
    for (name, value) in others {
        let before = workload.to_toml();
        workload.set(name, value).unwrap();
        assert_ne!(workload.to_toml(), before, "{name}");
    }
    assert_eq!(others.map(|row| row.0), SETTINGS.map(|setting| setting.name));
    // If there is a trace, the trace determines the keys and their order.
    for name in ["key-file", "keys-per", "set-order"] {
        let why = format!("{name}: cannot be set with a trace, which determines all keys");
        assert_eq!(parse(&workload.to_toml()).err(), Some((1, why)));
        match name {
            "key-file" => workload.key_file = None,
            "keys-per" => workload.set(name, "run").unwrap(),
            _ => workload.set(name, "drawn").unwrap(),
        }
    }
    let text = workload.to_toml();
    assert_eq!(parse(&text).unwrap().to_toml(), text, "{text}");
    assert_eq!(workload.keys(), 1, "the number of keys in the trace");
}

#[test]
fn files_change_presets_and_find_their_histograms_beside_them() {
    let folder = Folder::new("files");
    folder.file("sizes.csv", "bytes,count\n10,1\n20,1\n");
    let text = "# mine\npreset = \"mix-c\"\nkeys = 1_000\nvalue-size = \"file:sizes.csv\"\n\
                mix = { get = 3, set = 1.5 }\ncache-aside = true\nbatch = 4\n";
    let path = folder.file("mine.toml", text);
    let workload = Workload::read(&path).unwrap();
    assert_eq!((workload.keys(), workload.cache_aside), (1000, true));
    let printed = workload.to_toml();
    assert!(printed.contains("mix = \"get=3,set=1.5\"\n"), "{printed}");
    assert!(printed.contains("popularity = \"power-law:0.01,0.001,10000,4\"\n"), "{printed}");
    assert!((workload.value_bytes_mean() - 15.0).abs() < 1e-9);
    let sum = "# md5 of value-size's file: 6a450112eaaaf5d21ba00188262ed709\n";
    assert!(printed.ends_with(sum), "{printed}");
    // The manifest finds the histogram's file from any folder.
    let copied = Folder::new("elsewhere");
    let again = Workload::read(&copied.file("copy.toml", &printed)).unwrap();
    assert_eq!(again.to_toml(), printed);
    // A GET has four keys, so the number of GETs is a quarter of the number of keys that GETs read.
    let shares = workload.shares().unwrap();
    assert!((shares[0] - 0.75 / 2.25).abs() < 1e-9, "{shares:?}");
}

#[test]
fn mistakes_in_files_are_told_with_their_line() {
    for (text, line, why) in [
        ("keys = 5\nkeyz = 1\n", 2, "keyz: no such setting; the settings are keys, key-file, "),
        ("\n\nkeys = 0\n", 3, "keys: 0: must be a whole number from 1 to 1099511627776"),
        ("keys = [1]\n", 1, "keys: must be a string or a number, not this array"),
        ("keys = 1\nkeys = 2\n", 2, "duplicate key"),
        ("keys = \n", 1, ""),
        (
            "keys = 1\npreset = \"no\"\n",
            2,
            "preset: no: no such preset; the presets are uniform, zipf,",
        ),
        ("value-size = \"64\"\nmix = { put = 1 }", 2, "mix: put=1: put is none of get, set,"),
        ("gap = \"trace\"", 1, "gap: trace: the workload has no trace that records times"),
        ("ttl = { a = { b = 1 } }", 1, "ttl: a table cannot contain a table here"),
        ("keys = 3\nkey-file = \"/no/such\"", 2, "key-file: /no/such: No such file or directory"),
    ] {
        let (at, told) = parse(text).unwrap_err();
        assert_eq!(at, line, "{text:?}: {told}");
        assert!(told.starts_with(why), "{text:?}: {told}");
    }
    let folder = Folder::new("mistakes");
    let path = folder.file("bad.toml", "keys = 5\nttl = -1\n");
    let error = Workload::read(&path).unwrap_err().to_string();
    assert_eq!(error, format!("{}:2: ttl: -1: must be 0 to 2592000 seconds", path.display()));
    let missing = Workload::read(&folder.0.join("none.toml")).unwrap_err().to_string();
    assert!(missing.contains("none.toml: "), "{missing}");
    folder.file("sizes", "64 1\nbig 2\n");
    let path = folder.file("sizes.toml", "value-size = \"file:sizes\"");
    let error = Workload::read(&path).unwrap_err().to_string();
    assert!(error.ends_with("/sizes: line 2: big is not a number"), "{error}");
}

#[test]
fn values_that_a_setting_cannot_have_are_refused_and_change_nothing() {
    let mut workload = Workload::default();
    let before = workload.to_toml();
    let refused = [
        ("keys", "1099511627777 -1 many"),
        ("key-size", "0 251 1-251 8.5 20-10"),
        ("key-prefix", "\u{e9}"),
        (
            "value-size",
            "134217729 -1 etc- pareto:1,2 pareto:0,1,1,9 pareto:1,1,9,1 \
             pareto:1,0.1,1000000,2000000 list: list:1=0 list:1=-1 list:1.5=1 file:/no/such/file \
             uniform:1 nan 1e999 triangle:1,2",
        ),
        ("value-size-per", "thread"),
        ("mix", "get=0"),
        ("mix-order", "random"),
        ("batch", "0 1025 etc"),
        ("gap", "0 -5 pareto"),
        ("ttl", "2592001 etc"),
        ("cache-aside", "maybe"),
        ("trace", "/no/such/file"),
        ("trace-loops", "x"),
        ("trace-requests", "1.5"),
        ("popularity", "zipf"),
        ("seed", "1"),
        ("keys-per", "thread"),
        ("set-order", "newest"),
        ("key-file", "/no/such/file"),
    ];
    let each =
        refused.iter().flat_map(|(name, values)| values.split(' ').map(move |one| (*name, one)));
    for (name, value) in each.chain([("keys", ""), ("key-prefix", "a b")]) {
        let WorkloadError(why) = workload.set(name, value).unwrap_err();
        assert!(why.starts_with(&format!("{name}: ")), "{name} {value}: {why}");
        assert_eq!(workload.to_toml(), before, "{name} {value}");
    }
    let long = format!("list:{}", ["1=1"; 1025].join(","));
    assert!(workload.set("value-size", &long).is_err());
}

#[test]
fn what_is_written_wrongly_is_told_how_it_is_written_or_what_is_meant() {
    let mut workload = Workload::default();
    for (name, value, told) in [
        ("value-size", "pareto:1,2", "; the form is pareto:SCALE,SHAPE,MIN,MAX[,LOCATION]"),
        ("value-size", "pareto:0,1,1,9", "; the form is pareto:SCALE,SHAPE,MIN,MAX[,LOCATION]"),
        ("ttl", "uniform:1", "; the form is uniform:A,B"),
        ("value-size", "paretto:1,2,3,4", "; do you mean pareto?"),
        ("value-size", "facebok", "; do you mean facebook?"),
        ("gap", "exponental", "; do you mean exponential?"),
        ("popularity", "zipf:11", "; the form is zipf:S"),
        ("popularity", "zipf:a", "; the form is zipf:S"),
        ("popularity", "gausian", "; do you mean gaussian?"),
        ("key-sise", "5", "; do you mean key-size?"),
    ] {
        let WorkloadError(why) = workload.set(name, value).unwrap_err();
        assert!(why.ends_with(told), "{name} {value}: {why}");
    }
    let (_, why) = file::parse("preset = \"etx\"", &Files::here("")).unwrap_err();
    assert!(why.ends_with("; do you mean etc?"), "{why}");
}

#[test]
fn numbers_have_units() {
    let mut workload = Workload::default();
    for (name, value) in [("keys", "5m"), ("value-size", "1k-1.5k"), ("batch", "list:1=2k,3=1")] {
        workload.set(name, value).unwrap();
    }
    let text = workload.to_toml();
    for told in ["keys = 5000000\n", "\"uniform:1000,1500\"", "\"list:1=2000,3=1\""] {
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[test]
fn help_tells_all_there_is_and_fits_a_terminal() {
    let help = crate::flags::tests::parse_words("run --help").unwrap_err();
    for Setting { name, value, .. } in &SETTINGS {
        assert!(help.contains(&format!("\n      --{name} <{value}>")), "{name}: {help}");
    }
    for preset in &presets::PRESETS {
        assert!(help.contains(&format!("\n  {} ", preset.name)), "{}", preset.name);
    }
    for line in help.lines() {
        assert!(line.len() <= 100 && (line.starts_with("  ") || !line.contains("  ")), "{line}");
    }
}
