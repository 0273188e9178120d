//! Formats of figures and texts on the page.
//!
//! Where: used for every cell and label of the page.
//! Invariant: a browser shows the output of `escaped` as text, also in quoted attributes. A
//! Markdown viewer shows the output of `escaped_markdown` as text in a paragraph or a table's cell,
//! if other text precedes it in the line.
//! Source: the HTML standard, section 13.1; the specification of GitHub Flavored Markdown, 6.1.

use crate::words::{grouped, size, whole};

/// Escapes text for HTML and SVG, including quoted attributes.
pub(crate) fn escaped(text: &str) -> String {
    escaped_but(text, |one, out| match one {
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&#39;"),
        one => out.push(one),
    })
}

/// Escapes text for a paragraph or a table's cell of Markdown.
pub(crate) fn escaped_markdown(text: &str) -> String {
    escaped_but(text, |one, out| match one {
        '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => out.extend(['\\', one]),
        '\t' => out.push('\u{fffd}'),
        one => out.push(one),
    })
}

/// Escapes what both forms escape; `rest` adds each other character.
fn escaped_but(text: &str, rest: fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\n' | '\t' => rest(one, &mut out),
            // Other control characters may move the cursor or change the writing direction.
            one if one.is_control() => out.push('\u{fffd}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            one => rest(one, &mut out),
        }
    }
    out
}

/// Returns the first `chars` characters of a text, and an ellipsis if the text is longer.
pub(crate) fn shortened(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Removes the middle of a text of more than `chars` characters: names often differ at the ends.
pub(crate) fn elided(text: &str, chars: usize) -> String {
    let count = text.chars().count();
    if count <= chars {
        return text.to_owned();
    }
    let last = chars / 3;
    let first: String = text.chars().take(chars - last).collect();
    first + "…" + &text.chars().skip(count - last).collect::<String>()
}

/// The text shown for an unknown figure.
pub(crate) const UNKNOWN: &str = "–";

/// Formats a number with `decimals` decimals, from 1000 on with separators; `None` as a dash.
pub(crate) fn number(value: Option<f64>, decimals: usize) -> String {
    match value {
        Some(value) if value.is_finite() && (decimals == 0 || value >= 1000.0) => {
            grouped(value.round())
        }
        Some(value) if value.is_finite() => format!("{value:.decimals$}"),
        _ => UNKNOWN.to_owned(),
    }
}

/// Formats nanoseconds with a suitable unit.
pub(crate) fn span(ns: Option<f64>) -> String {
    ns.filter(|ns| ns.is_finite())
        .map_or_else(|| UNKNOWN.to_owned(), |ns| crate::words::time(whole(ns)))
}

/// Formats bytes with a suitable unit.
pub(crate) fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| UNKNOWN.to_owned(), |bytes| size(bytes as f64))
}

/// Formats a share between 0 and 1 as a percentage.
pub(crate) fn percent(ratio: Option<f64>) -> String {
    let percent = ratio.map(|ratio| 100.0 * ratio);
    percent.map_or_else(|| UNKNOWN.to_owned(), |percent| format!("{} %", plain(percent)))
}

/// Formats a time with a suitable unit, for an axis.
pub(crate) fn time(ns: f64) -> String {
    let (figure, unit) = match ns {
        0.0 => return "0".to_owned(),
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "µs"),
        ns => (ns, "ns"),
    };
    format!("{} {unit}", plain(figure))
}

/// Formats a rate or count, for an axis.
pub(crate) fn count(value: f64) -> String {
    match value {
        value if value >= 1e9 => plain(value / 1e9) + "G",
        value if value >= 1e6 => plain(value / 1e6) + "M",
        value if value >= 1e3 => plain(value / 1e3) + "k",
        value => plain(value),
    }
}

/// Formats a number with at most three decimals, without trailing zeros.
pub(crate) fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_escapes() {
        let text = escaped("<b a='1' c=\"2\">&amp;\u{0}\u{1b}\u{202e}\n");
        assert_eq!(
            text,
            "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;amp;\u{fffd}\u{fffd}\u{fffd}\n"
        );
        assert_eq!(shortened("añb", 2), "añ…");
        assert_eq!(shortened("añ", 2), "añ");
        assert_eq!(
            (elided("añbcdefg", 6), elided("añbcde", 6)),
            ("añbc…fg".into(), "añbcde".into())
        );
    }

    #[test]
    fn figures_are_short_on_axes() {
        assert_eq!([0.0, 1.0, 5e4, 2e6].map(time), ["0", "1 ns", "50 µs", "2 ms"]);
        assert_eq!([count(1500.0), count(0.5), count(2e6)], ["1.5k", "0.5", "2M"]);
        assert_eq!(
            [number(None, 1), number(Some(f64::NAN), 1), span(Some(1234.0)), span(None)],
            ["–", "–", "1.23 µs", "–"]
        );
        assert_eq!(
            [number(Some(1_234_567.8), 1), number(Some(12.34), 1), percent(Some(0.0005))],
            ["1,234,568", "12.3", "0.05 %"]
        );
    }
}
