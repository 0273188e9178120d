//! Tests of details that only a server's tests covered before: the actions that operators ask for,
//! and the text beside values in answers.
//!
//! Where: beside the crate, through its public interface only; found by `make mutants`.
//! Invariant: each word that memcached accepts is accepted, and no other.
//! Source: memcached 1.6.45 `process_lru_crawler_command`, `process_lru_command`, `proxy_request`.

use protocol::command::Operator;
use protocol::meta::write::{Asked, Get};
use protocol::show::Show;
use protocol::text::operator::{Classes, Control, Listing, Streams, read};
use protocol::{Args, Outcome, Refusal, Session, Speak, Step};

fn asks(operator: Operator, text: &str) -> Result<Control, Refusal> {
    let count = text.split_whitespace().count();
    read(operator, Args { text: text.as_bytes(), count })
}

#[test]
fn each_word_of_the_crawler_asks_for_its_own() {
    let crawler = |text| asks(Operator::LruCrawler, text);
    assert_eq!(crawler("crawl all"), Ok(Control::Crawl(Some(Classes::All))));
    assert_eq!(crawler("crawl 1,2"), Ok(Control::Crawl(Some(Classes::Listed(true)))));
    let dump = |listing| Ok(Control::Dump(listing, Some(Classes::Hash)));
    assert_eq!(crawler("metadump hash"), dump(Listing::Metadata));
    assert_eq!(crawler("mgdump hash"), dump(Listing::Requests));
    assert_eq!([crawler("tocrawl 7"), crawler("sleep 7")], [Ok(Control::Nothing); 2]);
    assert_eq!(crawler("enable"), Ok(Control::Crawler(true)));
    assert_eq!(crawler("disable"), Ok(Control::Crawler(false)));
    for wrong in ["crawl", "enable 1", "crawls all", "mgdump"] {
        assert_eq!(crawler(wrong), Err(Refusal::UnknownCommand), "{wrong}");
    }
}

#[test]
fn lru_takes_each_of_its_settings_alone() {
    let lru = |text| asks(Operator::Lru, text);
    for right in ["mode flat", "mode segmented", "temp_ttl 5", "temp_ttl -1", "tune 10 25 0.1 2.0"]
    {
        assert_eq!(lru(right), Ok(Control::Nothing), "{right}");
    }
    for wrong in ["mode", "mode round", "temp_ttl x", "temp_ttl", "tune 10 25 0.1"] {
        assert_eq!(lru(wrong), Err(Refusal::UnknownCommand), "{wrong}");
    }
    assert_eq!(lru("tune 50 50 0.1 2.0"), Err(Refusal::LruPercent));
    assert_eq!(lru("tune 10 25 0.1 0"), Err(Refusal::LruFactor));
}

#[test]
fn streams_meet_if_they_share_a_kind() {
    let both = Streams::FETCHERS.with(Streams::EVICTIONS);
    assert!(both.meet(Streams::FETCHERS) && both.meet(Streams::EVICTIONS.with(Streams::DELETIONS)));
    assert!(!both.meet(Streams::DELETIONS) && !Streams::default().meet(both));
}

#[test]
fn a_browser_is_sent_away_and_a_word_that_looks_like_one_is_answered() {
    let closes = |line: &[u8]| matches!(Session::new(Speak::Ascii).next(line), Step::Close);
    assert!(closes(b"GET / HTTP/1.1\r\n") && closes(b"POST HTTP/1.0\r\n"));
    assert!(!closes(b"HTTP/1.1\r\n") && !closes(b"GET / HTTPS\r\n"));
}

#[test]
fn an_answer_to_a_meta_command_shows_the_key_as_it_was_given() {
    for (key_binary, due) in [(false, "HD kfoo Oab\r\n"), (true, "HD kZm9v b Oab\r\n")] {
        let flags = Args { text: b"k Oab", count: 2 };
        let asked = Asked { flags, key: b"foo", key_binary, quiet: false };
        let mut out = Vec::new();
        asked.say(Outcome::Done, None, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), due);
        let get = Get { asked, value: true, now: 5 };
        assert_eq!(get.key(), b"foo");
    }
}
