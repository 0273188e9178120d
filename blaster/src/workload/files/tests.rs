//! Tests of the files that a controller sends.
//!
//! Where: unit tests of `files`. Invariant: no test reserves memory for files that are too long.

use super::super::tests::Folder;
use super::*;
use crate::workload::{Workload, WorkloadError};

#[test]
fn a_workload_finds_its_files_among_those_that_were_sent_and_nowhere_else() {
    let folder = Folder::new("sent");
    let sizes = folder.file("sizes", "10 1\n20 3\n");
    let mut workload = Workload::default();
    for name in ["value-size", "batch"] {
        workload.set(name, &format!("file:{}", sizes.display())).unwrap();
    }
    let text = workload.to_toml();
    let sent = SentFiles::read(&workload).unwrap();
    assert_eq!(sent.0.len(), 1, "two settings name one file");
    let mut bytes = Vec::new();
    sent.write_contents(&mut bytes).unwrap();
    assert_eq!(bytes, b"10 1\n20 3\n");
    let mut received: SentFiles =
        serde_json::from_str(&serde_json::to_string(&sent).unwrap()).unwrap();
    received.read_contents(&mut bytes.as_slice()).unwrap();
    // In the first pass, the file on this machine is removed; in the second pass, it is changed.
    for change in [None, Some("30 1\n")] {
        fs::remove_file(&sizes).unwrap_or_default();
        change.iter().for_each(|text| drop(folder.file("sizes", text)));
        assert_eq!(Workload::from_sent(&text, &received).unwrap().to_toml(), text);
    }
    let WorkloadError(why) = Workload::from_sent(&text, &SentFiles::default()).unwrap_err();
    let told = format!("value-size: {}: the controller has not sent this file", sizes.display());
    assert_eq!(why, told);
}

#[test]
fn files_that_are_too_long_together_and_those_that_are_no_files_are_refused() {
    let folder = Folder::new("long");
    let (four, five) = (folder.file("four", "1234"), folder.file("five", "12345"));
    let mut sent = SentFiles::default();
    sent.add(&four, 8).unwrap();
    let why = sent.add(&five, 8).unwrap_err();
    assert!(
        why.starts_with("the file has 5 bytes; ") && why.ends_with(" at most 8 bytes"),
        "{why}"
    );
    sent.add(&four, 8).unwrap();
    sent.add(&five, 9).unwrap();
    assert_eq!(sent.0.len(), 2);
    let why = sent.add(Path::new("/dev/zero"), 8).unwrap_err();
    assert!(why.starts_with("not a regular file; "), "{why}");
}

#[test]
fn announced_lengths_are_refused_before_anything_is_read() {
    struct Untouched;
    impl Read for Untouched {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            panic!("it is read")
        }
    }
    let announced = |lengths: &[u64]| {
        let file =
            |bytes: &u64| SentFile { path: String::new(), bytes: *bytes, contents: Arc::default() };
        SentFiles(lengths.iter().map(file).collect())
    };
    for lengths in [&[SENT_BYTES_MAX + 1][..], &[1, SENT_BYTES_MAX], &[u64::MAX, 2]] {
        let why = announced(lengths).read_contents(&mut Untouched).unwrap_err();
        let expected = "the files of the workload have more than 67108864 bytes together";
        assert_eq!(why, expected, "{lengths:?}");
    }
    let why = announced(&[2, 3]).read_contents(&mut &b"1234"[..]).unwrap_err();
    assert_eq!(why, "the input ended before all files of the workload arrived");
}
