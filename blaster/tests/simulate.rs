//! Tests of `kvblaster simulate` as a user runs it, on traces that the tests make.
//!
//! Where: tests of the whole program. Invariant: stdout gets the report and nothing else. An error
//! is reported on stderr with the name of the file, and by the exit status.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use simulate::sizes::mix;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kvblaster-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn trace(&self, name: &str, keys: u64, count: u64) -> PathBuf {
        let request = |at| {
            let random = mix(at);
            // Taking the smaller of two random keys makes low keys more frequent.
            let key = (random % keys).min((random >> 32) % keys);
            u32::try_from(key).unwrap()
        };
        let bytes: Vec<u8> = (0..count).flat_map(|at| request(at).to_le_bytes()).collect();
        self.file(name, &compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest))
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(words: &str, paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvblaster"));
    command.args(words.split_whitespace()).args(paths).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_simulation_prints_a_table_and_draws_a_plot() {
    let folder = Folder::new("table");
    let (one, two) = (folder.trace("one.u32.zst", 500, 9000), folder.trace("two.zst", 90, 3000));
    let svg = folder.0.join("curves.svg");
    let words = format!("simulate -s 1%,10%,50% -t 2 --svg {}", svg.display());
    let out = run(&words, &[&one, &two]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let table = text(&out.stdout);
    let frames = table.lines().filter(|line| line.trim().starts_with("+---"));
    assert_eq!(frames.count(), 4, "two plots in {table}");
    for part in ["a lru", "one: 9000 requests for ", "two: 3000", "the same size", "256 segments"] {
        assert!(table.contains(part), "no {part} in {table}");
    }
    for policy in ["lru", "memcached", "clock", "sieve", "arc", "lirs", "belady", "fifo", "clock2q"]
    {
        let rows = table.lines().filter(|line| line.split_whitespace().next() == Some(policy));
        assert_eq!(rows.count(), 3, "{policy} in {table}");
    }
    assert!(text(&out.stderr).contains("66 of 66 simulations"));
    let svg = std::fs::read_to_string(svg).unwrap();
    // Each of 11 policies has a line in each of two charts, and in the legend of each chart. The
    // colours do not depend on the style sheet of a page.
    assert_eq!(svg.matches("<path class=\"line ").count(), 2 * 22);
    assert!(!svg.contains("var(") && svg.contains(".k0 { stroke: #"));
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}

#[test]
fn json_has_the_same_figures_however_many_threads() {
    let folder = Folder::new("json");
    let trace = folder.trace("a.u32.zst", 800, 20_000);
    let of = |threads: &str| {
        let words = format!("simulate --json -i etc -s 5%,40k --set-ratio 0.3 -t {threads}");
        let out = run(&words, &[&trace]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()
    };
    let json = of("1");
    assert_eq!(json, of("3"));
    assert_eq!(json["traces"][0]["requests"], 20_000);
    assert_eq!(json["set_percent"], 30);
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 22);
    assert!(results.iter().all(|cell| cell["misses"].as_u64().unwrap() <= 20_000));
}

#[test]
fn what_cannot_be_replayed_is_told_with_its_name() {
    let folder = Folder::new("wrong");
    let whole = std::fs::read(folder.trace("whole.zst", 1000, 9000)).unwrap();
    let cases = [
        (folder.file("cut.zst", &whole[..whole.len() / 2]), "truncated or damaged"),
        (folder.file("plain.txt", b"1 2 3 4 5"), "not compressed with zstd"),
        (folder.file("empty.zst", b""), "no requests"),
        (folder.0.join("missing.zst"), "No such file"),
    ];
    for (path, why) in cases {
        let out = run("simulate -s 1%", &[&path]);
        let told = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{told}");
        assert!(out.stdout.is_empty());
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(told.contains(why) && told.contains(name), "{told}");
    }
    let trace = folder.trace("small.zst", 100, 1000);
    let out = run("simulate -i 20/20 -s 10% -p live", &[&trace]);
    assert!(text(&out.stderr).contains("too little for the real store"));
}

#[test]
fn a_wrong_command_line_is_refused_and_help_is_not() {
    for words in ["", "simulate", "replay x", "simulate --fast x", "simulate -s 0 x"] {
        let out = run(words, &[]);
        assert_eq!(out.status.code(), Some(64), "{words}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains("--help"), "{words}");
    }
    assert!(text(&run("--help", &[]).stdout).contains("simulate"));
    assert!(text(&run("simulate --help", &[]).stdout).contains("--set-ratio"));
    assert!(text(&run("--version", &[]).stdout).starts_with("kvblaster "));
}

#[test]
fn requests_are_drawn_from_a_workload() {
    let of = |words: &str| {
        let words = format!("simulate --json -s 10% -p lru -w {words}");
        let out = run(&words, &[]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()
    };
    let drawn = of("mix-a --keys 500 --requests 20k");
    assert_eq!(drawn["traces"][0]["name"], "mix-a");
    assert_eq!(drawn["traces"][0]["requests"], 20_000);
    assert_eq!(drawn, of("mix-a --keys 500 --requests 20k --seed 1"));
    assert_ne!(drawn, of("mix-a --keys 500 --requests 20k --seed 2"));
    // 70 % of the requests of mix C are gets, and only gets are simulated.
    let gets = of("mix-c --keys 500 --requests 20k")["traces"][0]["requests"].as_u64().unwrap();
    assert!((13_000..15_000).contains(&gets), "{gets}");
    let folder = Folder::new("drawn");
    let sets = folder.file("sets.toml", b"mix = \"set=1\"\n");
    let out = run(&format!("simulate --requests 9 -w {}", sets.display()), &[]);
    assert!(text(&out.stderr).contains("sets: none of 9 requests is a get"));
}

#[test]
fn a_csv_that_a_run_replays_is_simulated_by_its_gets() {
    let folder = Folder::new("csv");
    let row = |nth: u32| {
        let verb = ["get", "set"][usize::from(nth.is_multiple_of(3))];
        format!("{},key{},8,100,1,{verb},0\n", nth / 100, nth * 7 % 400)
    };
    let rows: String = (0..3000).map(row).collect();
    let plain = folder.file("twitter.csv", rows.as_bytes());
    let packed = compress_to_vec(rows.as_bytes(), CompressionLevel::Fastest);
    let packed = folder.file("cluster52.sort.zst", &packed);
    for (path, name) in [(plain, "twitter"), (packed, "cluster52")] {
        let out = run("simulate -s 10% -p lru,clock2q", &[&path]);
        let told = text(&out.stdout);
        assert!(told.contains(&format!("{name}: 2000 requests for 400 distinct keys")), "{told}");
    }
}
