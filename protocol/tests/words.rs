//! Tests details that other tests miss: operators' actions, and the text around values in answers.
//!
//! Where: integration tests of the crate's public interface. `make mutants` found these details.
//! Invariant: the parser accepts a word if and only if memcached accepts the word.
//! Source: memcached 1.6.45 `process_lru_crawler_command`, `process_lru_command`, `proxy_request`.

mod item;

use item::Item;
use protocol::binary::HEADER_BYTES;
use protocol::command::Operator;
use protocol::meta::write::{Get, Number, RequestFields, debug};
use protocol::show::Show;
use protocol::text::operator::{Classes, Control, Listing, Streams, read};
use protocol::{Args, Form, LineTokens, Outcome, ProtocolMode, Refusal, Session, Stats, Step, Tag};

fn asks(operator: Operator, text: &str) -> Result<Control, Refusal> {
    read(operator, Args::Line(flags(text)))
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
    for right in [
        "mode flat",
        "mode segmented",
        "mode flat and more words",
        "temp_ttl 5",
        "temp_ttl -1",
        "tune 10 25 0.1 2.0",
    ] {
        assert_eq!(lru(right), Ok(Control::Nothing), "{right}");
    }
    for wrong in ["mode", "mode round", "temp_ttl x", "temp_ttl", "tune 10 25 0.1"] {
        assert_eq!(lru(wrong), Err(Refusal::UnknownCommand), "{wrong}");
    }
    assert_eq!(lru("tune 50 50 0.1 2.0"), Err(Refusal::LruPercent));
    assert_eq!(lru("tune 10 25 0.1 0"), Err(Refusal::LruFactor));
}

#[test]
fn extstore_takes_its_settings_with_numbers_alone() {
    let extstore = |text| asks(Operator::Extstore, text);
    for right in ["free_memchunks 63 0", "item_size 512", "max_sleep 1", "max_frag 0.8"] {
        assert_eq!(extstore(right), Ok(Control::Nothing), "{right}");
    }
    for wrong in [
        "",
        "free_memchunks 64 0",
        "free_memchunks 63 x",
        "free_memchunks 63",
        "item_size x",
        "max_frag x",
        "max_frag",
        "other 5",
    ] {
        assert_eq!(extstore(wrong), Err(Refusal::UnknownCommand), "{wrong}");
    }
}

#[test]
fn statistics_have_one_name_and_argument_in_words_and_in_one_word() {
    let stats = |form, args| Stats { args, lists: false, form };
    let line = |text| stats(Form::LINE, Args::Line(flags(text)));
    let framed = Form::Binary(Tag { opcode: 0x10, quiet: false, opaque: 0 });
    let frame = |text: &'static str| stats(framed, Args::Word(text.as_bytes()));
    for (request, name, asks, argument) in [
        (line(""), None, false, None),
        (line(" detail  dump more"), Some("detail"), true, Some("dump")),
        (line("det dump"), Some("det"), true, Some("dump")),
        (line("details"), Some("details"), false, None),
        (frame("detail dump more"), Some("detail"), true, Some("dump more")),
        (frame("detail "), Some("detail"), true, Some("")),
        (frame("details"), Some("details"), true, None),
        (frame("det dump"), Some("det"), false, None),
        (frame(" detail on"), Some("detail"), false, None),
        (frame("  "), None, false, None),
    ] {
        let found = (request.name(), request.asks_for(b"detail"), request.argument(b"detail"));
        let (name, argument) = (name.map(str::as_bytes), argument.map(str::as_bytes));
        assert_eq!(found, (name, asks, argument), "{request:?}");
        assert!(request.argument(b"detail").is_none_or(|word| !request.form.asks_for(b"on", word)));
    }
}

#[test]
fn streams_meet_if_they_share_a_kind() {
    let both = Streams::FETCHERS.with(Streams::EVICTIONS);
    assert!(
        both.intersects(Streams::FETCHERS)
            && both.intersects(Streams::EVICTIONS.with(Streams::DELETIONS))
    );
    assert!(!both.intersects(Streams::DELETIONS) && !Streams::default().intersects(both));
}

#[test]
fn a_browser_is_sent_away_and_a_word_that_looks_like_one_is_answered() {
    let closes = |line: &[u8]| matches!(Session::new(ProtocolMode::Ascii).next(line), Step::Close);
    assert!(closes(b"GET / HTTP/1.1\r\n") && closes(b"POST HTTP/1.0\r\n"));
    assert!(!closes(b"HTTP/1.1\r\n") && !closes(b"GET / HTTPS\r\n"));
}

#[test]
fn an_answer_to_a_meta_command_shows_the_key_as_it_was_given() {
    for (key_binary, due) in [(false, "HD kfoo Oab\r\n"), (true, "HD kZm9v b Oab\r\n")] {
        let flags = flags("k Oab");
        let asked = RequestFields { flags, key: b"foo", key_binary, quiet: false };
        let mut out = Vec::new();
        asked.say(Outcome::Done, None, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), due);
        let get = Get { request: asked, value: true, now: 5 };
        assert_eq!(get.key(), b"foo");
    }
}

#[test]
fn each_refusal_has_its_status_in_a_frame() {
    for (refusal, status, words) in [
        (Refusal::NotFound, 0x01, "Not found"),
        (Refusal::StatsUnknown, 0x01, "Not found"),
        (Refusal::Exists, 0x02, "Data exists for key."),
        (Refusal::ReplyTooLong, 0x03, "Reply is longer than udp_reply_max"),
        (Refusal::MessageSpent, 0x03, "Message asks for more than 1024 requests"),
        (Refusal::StatsDetailTooLong, 0x03, "Prefixes take more than 1048576 bytes"),
        (Refusal::TooLarge, 0x03, "Too large."),
        (Refusal::BadFormat, 0x04, "Invalid arguments"),
        (Refusal::NotStored, 0x05, "Not stored."),
        (Refusal::NonNumeric, 0x06, "Non-numeric server-side value for incr or decr"),
        (Refusal::FlushOff, 0x20, "Auth failure."),
        (Refusal::UnknownCommand, 0x81, "Unknown command"),
        (Refusal::NoMemory, 0x82, "Out of memory allocating item"),
        (Refusal::NoMemoryDelta, 0x82, "Out of memory incrementing value"),
        (Refusal::NoMemoryVivify, 0x82, "Out of memory allocating new item"),
        (Refusal::ConnectionOnly, 0x83, "Answered over connections only"),
        (Refusal::OperatorOnly, 0x83, "Obeyed over UDP only with -o udp_admin"),
    ] {
        let mut out = Vec::new();
        let tag = Tag { opcode: 0x01, quiet: true, opaque: 7 };
        Form::Binary(tag).refuse(refusal, &mut out);
        assert_eq!((&out[6..8], &out[HEADER_BYTES..]), (&[0, status][..], words.as_bytes()));
    }
}

fn flags(text: &str) -> LineTokens<'_> {
    LineTokens::of(text.as_bytes())
}

fn asked(text: &str, quiet: bool) -> RequestFields<'_> {
    RequestFields { flags: flags(text), key: b"foo", key_binary: false, quiet }
}

fn said(say: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    say(&mut out);
    out.iter().copied().map(char::from).collect()
}

#[test]
fn ms_and_md_answer_with_two_letters_and_the_flags_in_their_order() {
    use Outcome::{Done, Refused, Stored};
    for (outcome, value_bytes, due, quiet_due) in [
        (Refused(Refusal::NotStored), Some(5), "NS s5 c0 Oab\r\n", "NS s5 c0 Oab\r\n"),
        (Refused(Refusal::NotFound), Some(5), "NF s5 c0 Oab\r\n", "NF s5 c0 Oab\r\n"),
        (Refused(Refusal::Exists), None, "EX Oab\r\n", "EX Oab\r\n"),
        (Stored(9), Some(5), "HD s5 c9 Oab\r\n", ""),
        (Done, None, "HD Oab\r\n", ""),
    ] {
        for (quiet, due) in [(false, due), (true, quiet_due)] {
            let answer = said(|out| asked("s c Oab", quiet).say(outcome, value_bytes, out));
            assert_eq!(answer, due, "{outcome:?}");
        }
    }
    let unknown = Refused(Refusal::UnknownCommand);
    assert_eq!(said(|out| asked("Oab", true).say(unknown, None, out)), "ERROR\r\n");
}

#[test]
fn ma_answers_with_the_time_that_its_item_has_left() {
    let number = Number { value: 42, cas: 9, exptime: 60, touched: Some(70), vivified: Some(80) };
    let answer =
        |text, with_value| said(|out| asked(text, false).number(&number, with_value, 50, out));
    assert_eq!(answer("t c", true), "VA 2 t10 c9\r\n42\r\n");
    assert_eq!(answer("T20 t Oab", false), "HD t20 Oab\r\n");
    assert_eq!(answer("t N30 t", false), "HD t10 t30\r\n");
    assert_eq!(said(|out| asked("t", true).number(&number, true, 50, out)), "");
    let kept = Number { touched: None, vivified: None, exptime: 0, ..number };
    assert_eq!(said(|out| asked("T1 N1 t", false).number(&kept, false, 50, out)), "HD t-1\r\n");
}

/// Returns an item with all fields known. If `is_marked` is true, the item is stale, an earlier
/// client has won the right to renew the item, and this client wins the right too.
fn known(exptime: u32, fetched: bool, is_marked: bool) -> Item {
    Item {
        client_flags: 3,
        value_bytes: 12_345,
        cas: 9,
        exptime: Some(exptime),
        touched: Some(70),
        vivified: Some(80),
        idle_seconds: Some(4),
        fetched: Some(fetched),
        stale: is_marked,
        token_sent: is_marked,
        won: is_marked,
    }
}

#[test]
fn mg_shows_of_an_item_what_is_asked_in_the_order_asked() {
    let item = known(60, true, false);
    let show = |text, value, item: &Item| {
        let get = Get { request: asked(text, false), value, now: 50 };
        assert_eq!(get.surround(item), None);
        said(|out| {
            assert_eq!(get.head(item, out), Some(value));
            get.end(out);
        })
    };
    assert_eq!(show("s t c f l h k Oab", false, &item), "HD s12345 t10 c9 f3 l4 h1 kfoo Oab\r\n");
    assert_eq!(show("t T20 t N30 t", false, &item), "HD t10 t20 t30\r\n");
    let other = known(0, false, true);
    assert_eq!(show("v t h", true, &other), "VA 12345 t-1 h0 Z X W\r\n\r\n");
}

#[test]
fn a_key_that_is_not_there_is_told_unless_it_was_asked_for_quietly() {
    let miss = |text, quiet| {
        said(|out| Get { request: asked(text, quiet), value: true, now: 50 }.miss(out))
    };
    assert_eq!((miss("v Oab", false), miss("v Oab", true)), ("EN Oab\r\n".into(), "".into()));
    let plain = protocol::meta::write::GetValue { key: b"foo", now: 50 };
    assert_eq!(said(|out| plain.miss(out)), "EN\r\n");
}

#[test]
fn me_tells_all_of_an_item() {
    let item = known(60, true, false);
    let told = |item: Option<&Item>| said(|out| debug(b"foo", item, 99, 50, out));
    assert_eq!(told(None), "EN\r\n");
    assert_eq!(told(Some(&item)), "ME foo exp=10 la=4 cas=9 fetch=yes cls=1 size=99\r\n");
    let other = known(0, false, false);
    assert_eq!(told(Some(&other)), "ME foo exp=-1 la=4 cas=9 fetch=no cls=1 size=99\r\n");
}

#[test]
fn a_number_may_be_any_of_64_bits() {
    for number in [0, 7, u64::MAX.into(), i64::MIN.into()] {
        let line = said(|out| Form::LINE.number(number, 0, out));
        assert_eq!(line, format!("{number}\r\n"));
    }
}

#[test]
fn a_line_is_said_unless_its_client_wants_no_reply() {
    use Outcome::{
        Deleted, Done, KeysEnd, Noop, Quit, Refused, StatsEnd, StatsReset, Stored, Touched,
    };
    for (outcome, line, without) in [
        (Stored(5), "STORED\r\n", ""),
        (Deleted, "DELETED\r\n", ""),
        (Touched, "TOUCHED\r\n", ""),
        (Done, "OK\r\n", ""),
        (Noop, "MN\r\n", ""),
        (Quit, "", ""),
        (KeysEnd, "END\r\n", ""),
        (StatsEnd, "END\r\n", ""),
        (StatsReset, "RESET\r\n", ""),
        (Refused(Refusal::NotFound), "NOT_FOUND\r\n", ""),
        // After the refusal of a long key, memcached sends a second line end.
        (Refused(Refusal::KeyTooLong), "CLIENT_ERROR bad command line format\r\n\r\n", "\r\n"),
    ] {
        for (noreply, due) in [(false, line), (true, without)] {
            assert_eq!(
                said(|out| Form::Text { noreply }.write_outcome(outcome, out)),
                due,
                "{outcome:?}"
            );
        }
    }
}
