//! Formats figures for people, and wraps, quotes and completes texts.
//!
//! Where: used by `--help` and by all reports, except for tables whose head gives the unit.
//! Invariant: a rounded figure has three significant digits. Times and sizes have units.

pub(crate) mod values;

use indicatif::HumanCount;
use std::borrow::Cow;
use std::time::Duration;

pub(crate) fn time(ns: u64) -> String {
    let (figure, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..999_500 => (ns as f64 / 1e3, "µs"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(figure))
}

/// Formats a time as `time` does. An unknown time is `-`.
pub(crate) fn time_or_dash(ns: Option<f64>) -> String {
    ns.map_or("-".to_owned(), |ns| time(whole(ns)))
}

/// An error that nothing but its text tells apart from other errors.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn hex(sum: &[u8]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats a time, rounded up to seconds, as seconds, minutes:seconds or hours:minutes.
pub(crate) fn clock(left: Duration) -> String {
    match left.as_secs() + u64::from(left.subsec_nanos() > 0) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds / 60 % 60),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(crate) fn whole(ns: f64) -> u64 {
    ns as u64
}

fn three_digits(figure: f64) -> String {
    match figure {
        figure if figure < 9.995 => format!("{figure:.2}"),
        figure if figure < 99.95 => format!("{figure:.1}"),
        figure => format!("{figure:.0}"),
    }
}

/// Formats a number of bytes with three digits and a unit.
pub(crate) fn size(bytes: f64) -> String {
    let (figure, unit) = match bytes {
        bytes if bytes < 1e3 => return format!("{bytes:.0} bytes"),
        bytes if bytes < 999_500.0 => (bytes / 1e3, "kB"),
        bytes if bytes < 999.5e6 => (bytes / 1e6, "MB"),
        bytes if bytes < 999.5e9 => (bytes / 1e9, "GB"),
        bytes => (bytes / 1e12, "TB"),
    };
    format!("{} {unit}", three_digits(figure))
}

pub(crate) fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

/// Formats a fraction like `percent`, except that a fraction above 0 is never shown as 0.
pub(crate) fn some_percent(part: f64) -> String {
    if part < 0.000_05 { "less than 0.01 %".to_owned() } else { percent(part) }
}

/// Formats a count with thousands separators. A fractional count below ten has two decimals.
pub(crate) fn grouped(value: f64) -> String {
    if value > 0.0 && value < 9.995 && (value - value.round()).abs() > 1e-9 {
        return format!("{value:.2}");
    }
    HumanCount(whole(value.round())).to_string()
}

/// Replaces the suffix `k`, `m` or `g` of a figure by three, six or nine zeros. Returns any other
/// text unchanged.
pub(crate) fn without_suffix(text: &str) -> Cow<'_, str> {
    let zeros = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => 3,
        Some(b'm') => 6,
        Some(b'g') => 9,
        _ => return Cow::Borrowed(text),
    };
    let figure = &text[..text.len() - 1];
    let (whole, part) = figure.split_once('.').unwrap_or((figure, ""));
    let is_digit = |byte: u8| byte.is_ascii_digit();
    let is_figure = !whole.is_empty() && (whole.to_owned() + part).bytes().all(is_digit);
    match part.split_at_checked(zeros) {
        _ if !is_figure => Cow::Borrowed(text),
        Some((more, "")) => Cow::Owned(format!("{whole}{more}")),
        Some((more, rest)) => Cow::Owned(format!("{whole}{more}.{rest}")),
        None => Cow::Owned(format!("{whole}{part:0<zeros$}")),
    }
}

/// Quotes a word for a shell, if needed.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |one: char| one.is_ascii_alphanumeric() || "-_./:=,@%+".contains(one);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Splits a text into words. Between single quotes, which are removed, spaces do not end a word.
pub(crate) fn split(text: &str) -> Vec<String> {
    let mut is_quoted = false;
    let words = text.split(|one: char| {
        is_quoted ^= one == '\'';
        one.is_whitespace() && !is_quoted
    });
    words.filter(|word| !word.is_empty()).map(|word| word.replace('\'', "")).collect()
}

pub(crate) fn command_line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Returns the end of an error message about `word`: a suggested name, or nothing.
pub(crate) fn suggestion<'n>(word: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let near = names.into_iter().map(|name| (strsim::damerau_levenshtein(word, name), name));
    // At most a third of a name's letters may differ; in a short name, one letter may differ.
    let near = near.filter(|(edits, name)| 3 * edits <= name.len().max(3));
    let nearest = near.min_by_key(|(edits, _)| *edits);
    nearest.map_or(String::new(), |(_, name)| format!("; do you mean {name}?"))
}

const COLUMNS: usize = 80;

/// Appends `text` to `first`, and wraps the lines. Further lines begin below the start of `text`.
pub(crate) fn wrapped(first: &str, text: &str) -> String {
    let indent = first.chars().count();
    let (mut out, mut used) = (first.to_owned(), indent);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if used > indent && used + 1 + width > COLUMNS {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        }
        if used > indent {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out.push('\n');
    out
}

/// Adds a full stop, unless the text ends with a punctuation mark or a bracket.
pub(crate) fn sentence(text: &str) -> String {
    if text.ends_with(['.', '?', '!', ')']) { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown =
            [0, 999, 1_000, 12_345, 999_499, 999_500, 1_234_567, 999_500_000, 12_345_678_901]
                .map(time);
        let expected = [
            "0 ns", "999 ns", "1.00 µs", "12.3 µs", "999 µs", "1.00 ms", "1.23 ms", "1.00 s",
            "12.3 s",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn sizes_have_three_digits_and_a_unit() {
        let shown = [0.0, 999.0, 1_000.0, 67_108_864.0, 999.5e6, 8e9, 1.1e15].map(size);
        let expected =
            ["0 bytes", "999 bytes", "1.00 kB", "67.1 MB", "1.00 GB", "8.00 GB", "1100 TB"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn paragraphs_are_wrapped_below_their_first_word() {
        let text = wrapped("note: ", &"twelve chars ".repeat(12));
        let five = "twelve chars ".repeat(5);
        let five = five.trim_end();
        assert_eq!(text, format!("note: {five} twelve\n      chars {five}\n      twelve chars\n"));
        assert_eq!(wrapped("", &"x".repeat(99)), "x".repeat(99) + "\n");
        assert_eq!(["a", "a?", "a."].map(sentence), ["a.", "a?", "a."]);
    }

    #[test]
    fn a_small_part_is_not_none_and_a_round_one_is_whole() {
        let shown = [0.000_000_1, 0.2, 0.000_06, 0.1].map(some_percent);
        assert_eq!(shown, ["less than 0.01 %", "20.00 %", "0.01 %", "10.00 %"]);
    }

    #[test]
    fn thousands_millions_and_billions_are_written_out() {
        for (text, figure) in [
            ("5k", "5000"),
            ("1.5M", "1500000"),
            ("2g", "2000000000"),
            ("1.2345k", "1234.5"),
            ("0.001k", "0001"),
            ("12", "12"),
        ] {
            assert_eq!(without_suffix(text), figure, "{text}");
        }
        for text in ["", "k", ".5k", "-1k", "5kk", "1e3k", "1.2.3k", "µm", "5µ"] {
            assert_eq!(without_suffix(text), text);
        }
    }

    #[test]
    fn a_near_miss_is_told_what_is_meant() {
        let names = ["threads", "timeout", "mix-a", "ttl"];
        let shown =
            ["thread", "treads", "mixa", "tl", "timeuot"].map(|word| suggestion(word, names));
        let meant = ["threads", "threads", "mix-a", "ttl", "timeout"];
        assert_eq!(shown, meant.map(|name| format!("; do you mean {name}?")));
        assert_eq!(["speed", "", "x"].map(|word| super::suggestion(word, names)), [""; 3]);
    }

    #[test]
    fn thousands_are_set_apart() {
        let shown = [0.0, 0.5, 5.0, 999.4, 1000.0, 12_345.6, 1_234_567.0].map(grouped);
        assert_eq!(shown, ["0", "0.50", "5", "999", "1,000", "12,346", "1,234,567"]);
        assert_eq!((percent(0.999_95), percent(0.0)), ("100.00 %".to_owned(), "0.00 %".to_owned()));
    }

    #[test]
    fn long_times_are_told_as_on_a_clock() {
        let shown =
            [0, 119_001, 120_000, 7_199_000, 7_200_000].map(|ms| clock(Duration::from_millis(ms)));
        assert_eq!(shown, ["0 s", "2:00 min", "2:00 min", "119:59 min", "2:00 h"]);
    }
}
