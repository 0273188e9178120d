//! Cuts a command line into tokens.
//!
//! Where: the general parser cuts every line that the session's short cuts do not handle.
//! Invariant: only spaces separate tokens; tokens after the first `TOKENS_MAX` are ignored.
//! Source: memcached 1.6.45 `_mcmc_tokenize_meta`, `_process_token_len`.

use crate::request::LineTokens;

/// Maximum number of a line's tokens that memcached reads.
pub(crate) const TOKENS_MAX: usize = 23;

/// Maximum number of a line's bytes that memcached reads.
pub(crate) const SEEN_BYTES_MAX: usize = 65534;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens<'a> {
    line: &'a [u8],
    spans: [(u16, u16); TOKENS_MAX],
    count: usize,
}

/// Returns the length of a line without its end, `\r\n` or a bare `\n`.
#[inline]
pub(crate) fn content_end(line: &[u8]) -> usize {
    match line {
        [.., b'\r', _] => line.len() - 2,
        _ => line.len().saturating_sub(1),
    }
}

impl<'a> Tokens<'a> {
    pub(crate) fn cut(line: &'a [u8]) -> Tokens<'a> {
        let seen = &line[..line.len().min(SEEN_BYTES_MAX)];
        let end = content_end(seen);
        let mut tokens = Tokens { line, spans: [(0, 0); TOKENS_MAX], count: 0 };
        let mut at = 0;
        while at < end && tokens.count < TOKENS_MAX {
            if line[at] == b' ' {
                at += 1;
                continue;
            }
            // Token 1 is mostly a key, which may be long. `memchr` is fast for long tokens only.
            let rest = &line[at..end];
            let length = match tokens.count {
                1 => memchr::memchr(b' ', rest),
                _ => rest.iter().position(|&byte| byte == b' '),
            };
            let stop = length.map_or(end, |length| at + length);
            // `SEEN_BYTES_MAX` is below 2^16, so neither offset is truncated.
            tokens.spans[tokens.count] = (short(at), short(stop));
            tokens.count += 1;
            at = stop;
        }
        tokens
    }

    /// Like `cut`, but for a meta command whose flags start at token `first_flag`: returns no
    /// tokens if a flag starts with anything but a letter, a digit or one of ``[\]^_` ``.
    pub(crate) fn cut_meta(line: &'a [u8], first_flag: usize) -> Tokens<'a> {
        let mut tokens = Tokens::cut(line);
        let flags = tokens.spans.iter().take(tokens.count).skip(first_flag);
        let is_flag = |byte: u8| (65..123).contains(&byte) || byte.is_ascii_digit();
        if !flags.map(|&(start, _)| line[usize::from(start)]).all(is_flag) {
            tokens.count = 0;
        }
        tokens
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, index: usize) -> Option<&'a [u8]> {
        let (start, stop) = *self.spans[..self.count].get(index)?;
        Some(&self.line[usize::from(start)..usize::from(stop)])
    }

    pub(crate) fn last(&self) -> Option<&'a [u8]> {
        self.get(self.count.checked_sub(1)?)
    }

    /// Returns the text from token `index` to the line's end, as C functions read beyond a token.
    pub(crate) fn text_from(&self, index: usize) -> Option<&'a [u8]> {
        let (start, _) = *self.spans[..self.count].get(index)?;
        Some(&self.line[usize::from(start)..])
    }

    pub(crate) fn args_from(&self, index: usize) -> LineTokens<'a> {
        let Some(&(start, _)) = self.spans[..self.count].get(index) else {
            return LineTokens::default();
        };
        let (_, stop) = self.spans[self.count - 1];
        let text = &self.line[usize::from(start)..usize::from(stop)];
        LineTokens { text, count: self.count - index }
    }

    pub(crate) fn start(&self, index: usize) -> Option<usize> {
        self.spans[..self.count].get(index).map(|&(start, _)| usize::from(start))
    }

    pub(crate) fn noreply(&self) -> bool {
        self.last() == Some(b"noreply")
    }
}

fn short(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(line: &[u8]) -> Vec<&[u8]> {
        let tokens = Tokens::cut(line);
        (0..tokens.count()).filter_map(|index| tokens.get(index)).collect()
    }

    #[test]
    fn only_spaces_set_tokens_apart() {
        assert_eq!(cut(b"  get  a\tb c \r\n"), [&b"get"[..], b"a\tb", b"c"]);
        assert_eq!(cut(b"a\n"), [b"a"]);
        assert_eq!(cut(b"a\r\r\n"), [b"a\r"]);
        assert!(cut(b"   \r\n").is_empty());
        assert!(cut(b"\n").is_empty());
    }

    #[test]
    fn tokens_after_the_last_one_seen_are_not_there() {
        let line = [b"t ".repeat(22), b"noreply hidden\r\n".to_vec()].concat();
        let tokens = Tokens::cut(&line);
        assert_eq!(tokens.count(), TOKENS_MAX);
        assert!(tokens.noreply());
        assert_eq!(tokens.args_from(21), LineTokens::of(b"t noreply"));
    }

    #[test]
    fn a_flag_that_is_no_letter_spoils_a_meta_line() {
        assert_eq!(Tokens::cut_meta(b"mg k v 1 _\r\n", 2).count(), 5);
        assert_eq!(Tokens::cut_meta(b"mg k ~\r\n", 2).count(), 0);
        assert_eq!(Tokens::cut_meta(b"mg ~ v\r\n", 2).count(), 3);
        assert_eq!(Tokens::cut_meta(b"mg k \xff\r\n", 2).count(), 0);
    }
}
