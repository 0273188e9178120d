//! The flags of a meta command.
//!
//! Where: the executor parses the flags. The code that writes the answer reads the flags again.
//! Invariant: if `Flags::parse` succeeds, all flags are known, and no letter occurs twice. A
//! command ignores flags that mean nothing to it, as in memcached.
//! Source: memcached 1.6.45 `_meta_flag_preparse`; `process_mget_cmd` and similar functions.

pub mod write;

use crate::KEY_BYTES_MAX;
use crate::base64::{self, DecodedKey};
use crate::command::MetaVerb;
use crate::number;
use crate::outcome::Refusal;
use crate::request::{LineTokens, Meta};
use memory::verb::Verb;

/// Maximum number of tokens of a line, including the command and the key.
const TOKENS_MAX: usize = 20;

/// Maximum length of an opaque token (flag `O`), including its letter.
pub const OPAQUE_BYTES_MAX: usize = 32;

/// A meta command's flags. Exptimes are as the client sent them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// `b`: the key was given in base64.
    pub binary: bool,
    /// `N`: create the item on a miss, with this exptime.
    pub vivify: Option<i64>,
    /// `T`: the new exptime.
    pub exptime: Option<i64>,
    /// `R`: win the right to renew the item if the item expires within this time.
    pub recache: Option<i64>,
    /// `v`: return the value.
    pub value: bool,
    /// `q`: a miss of `mg`, or a success of another command, gets no answer.
    pub quiet: bool,
    /// `u`: do not bump the item.
    pub no_bump: bool,
    /// `x`: drop the value and keep the item.
    pub remove_value: bool,
    /// `I`: `md` marks the item as stale, and `ms` may store with a lower CAS unique.
    pub stale: bool,
    /// `M`: the mode's letter, which `store_verb` and `counts_up` interpret.
    mode: Option<u8>,
    /// `F`: the client flags.
    pub client_flags: u32,
    /// `C`: the CAS unique that the item must have.
    pub cas: Option<u64>,
    /// `E`: the CAS unique that the item gets.
    pub cas_in: Option<u64>,
    /// `D`: the number to add or subtract; `parse` gives 1 if the flag is missing.
    pub delta: u64,
    /// `J`: the initial number.
    pub initial: u64,
    /// True if any of the flags `h l N R T` is given: memcached then locks the item, and bumps it.
    pub locked: bool,
    /// True if the token of `O` is too long; memcached notices this only when it answers.
    pub opaque_too_long: bool,
}

impl Flags {
    /// Reads the flags of `meta`. Fails if a flag is wrong; the client gets the refusal even in
    /// quiet mode (`q`).
    pub fn parse(meta: &Meta<'_>) -> Result<Flags, Refusal> {
        let before = if meta.verb == MetaVerb::Set { 3 } else { 2 };
        if meta.key.len() > KEY_BYTES_MAX {
            return Err(by_verb(meta.verb, Refusal::BadFormat));
        }
        if before + meta.flags.count > TOKENS_MAX {
            return Err(by_verb(meta.verb, Refusal::FlagsTooLong));
        }
        let mut flags = Flags { delta: 1, ..Flags::default() };
        let mut seen = 0u128;
        let mut wrong = None;
        for token in meta.flags.tokens() {
            let letter = token[0];
            if letter >= 127 || seen >> letter & 1 == 1 {
                return Err(by_verb(meta.verb, Refusal::FlagDuplicate));
            }
            seen |= 1 << letter;
            match flags.take(letter, &token[1..], meta.key) {
                Ok(()) => {}
                Err(Refusal::FlagInvalid) => {
                    return Err(by_verb(meta.verb, Refusal::FlagInvalid));
                }
                // The last mistake is reported, but a wrong `F` only if it is the only mistake.
                Err(Refusal::BadFormat) => wrong = wrong.or(Some(Refusal::BadFormat)),
                Err(refusal) => wrong = Some(refusal),
            }
        }
        match wrong {
            Some(refusal) => Err(by_verb(meta.verb, refusal)),
            None => Ok(flags),
        }
    }

    /// Returns the key to look up; a key given in base64 is decoded into `place`.
    #[must_use]
    #[inline]
    pub fn key<'k>(&self, meta: &Meta<'k>, place: &'k mut Option<DecodedKey>) -> &'k [u8] {
        if self.binary {
            *place = base64::decode(meta.key);
        }
        place.as_ref().map_or(meta.key, DecodedKey::key)
    }

    /// Returns the verb of `ms`: flag `M` selects it, `C` turns a set or a replace into a cas, and
    /// with `N` append and prepend also store a value that extends none. Fails if the letter of `M`
    /// names no mode of `ms`.
    pub fn store_verb(&self) -> Result<Verb, Refusal> {
        let (is_cas, vivifies) = (self.cas.is_some(), self.vivify.is_some());
        match self.mode.unwrap_or(b'S') {
            b'S' | b'R' if is_cas => Ok(Verb::Cas),
            b'S' => Ok(Verb::Set),
            b'E' => Ok(Verb::Add),
            b'R' => Ok(Verb::Replace),
            b'A' => Ok(if vivifies { Verb::AppendVivify } else { Verb::Append }),
            b'P' => Ok(if vivifies { Verb::PrependVivify } else { Verb::Prepend }),
            _ => Err(Refusal::ModeSet),
        }
    }

    /// True if `ma` adds, false if it subtracts; fails if flag `M` names no mode of `ma`.
    pub fn counts_up(&self) -> Result<bool, Refusal> {
        match self.mode {
            None | Some(b'I' | b'+') => Ok(true),
            Some(b'D' | b'-') => Ok(false),
            Some(_) => Err(Refusal::ModeArithmetic),
        }
    }

    /// Returns the changes that the flags of `meta` make to the item, in the flags' order.
    /// memcached creates a missing item before it reads the flags, and stops reading at an opaque
    /// token that is too long. So an `N` after that token creates the item, but sets no exptime.
    pub fn changes(&self, meta: &Meta<'_>) -> impl Iterator<Item = Change> {
        let is_end = |token: &[u8]| self.opaque_too_long && token[0] == b'O';
        let seen = || meta.flags.tokens().take_while(move |token| !is_end(token));
        let is_made_first = self.vivify.is_some() && !seen().any(|token| token[0] == b'N');
        let in_order = seen().filter_map(|token| match token[0] {
            b'T' => self.exptime.map(Change::Touch),
            b'N' => self.vivify.map(Change::Vivify),
            b'R' => self.recache.map(Change::Recache),
            _ => None,
        });
        is_made_first.then_some(Change::Vivify(0)).into_iter().chain(in_order)
    }

    fn take(&mut self, letter: u8, text: &[u8], key: &[u8]) -> Result<(), Refusal> {
        match letter {
            b'b' => {
                base64::decode(key).ok_or(Refusal::KeyEncoding)?;
                self.binary = true;
            }
            b'N' => self.vivify = Some(seconds(text)?),
            b'T' => self.exptime = Some(seconds(text)?),
            b'R' => self.recache = Some(seconds(text)?),
            b'O' => self.opaque_too_long = text.len() + 1 > OPAQUE_BYTES_MAX,
            b'v' => self.value = true,
            b'q' => self.quiet = true,
            b'u' => self.no_bump = true,
            b'x' => self.remove_value = true,
            b'I' => self.stale = true,
            // A NUL byte as the mode's letter means that there is no mode.
            b'M' => {
                self.mode = Some(text.first().copied().unwrap_or(b' ')).filter(|mode| *mode > 0)
            }
            b'F' => {
                let flags = given(text).and_then(number::strict_u32);
                self.client_flags = flags.ok_or(Refusal::BadFormat)?;
            }
            b'C' => self.cas = Some(unique(text, Refusal::FlagToken)?),
            b'E' => self.cas_in = Some(unique(text, Refusal::FlagToken)?),
            b'J' => self.initial = unique(text, Refusal::BadInitial)?,
            b'D' => self.delta = unique(text, Refusal::BadMetaDelta)?,
            b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'h' | b'l' => {}
            _ => return Err(Refusal::FlagInvalid),
        }
        self.locked |= matches!(letter, b'h' | b'l' | b'N' | b'R' | b'T');
        Ok(())
    }
}

/// A change of an item that a flag requests. Exptimes are as the client sent them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// `T`: gives the item this exptime.
    Touch(i64),
    /// `N`: creates a missing item with this exptime.
    Vivify(i64),
    /// `R`: if the item expires within this time, the first client to ask wins the right to renew.
    Recache(i64),
}

impl<'a> Meta<'a> {
    /// Makes an `mg` of `key` whose only flag is `v`.
    #[must_use]
    pub fn value_of(key: &'a [u8]) -> Meta<'a> {
        let flags = LineTokens { text: b"v", count: 1 };
        Meta { verb: MetaVerb::Get, key, flags, value: &[], terminated: true }
    }

    /// True if `v` is the only flag of this `mg`, and the key is not too long.
    #[inline]
    #[must_use]
    pub fn is_of_value(&self) -> bool {
        self.flags.text == b"v" && self.key.len() <= KEY_BYTES_MAX
    }

    /// Returns the key that `me` requests, decoded into `place` if it is in base64. Like in
    /// memcached, `b` counts only if another flag follows it. Fails if the key is not valid base64.
    pub fn debug_key<'k>(&self, place: &'k mut Option<DecodedKey>) -> Result<&'k [u8], Refusal>
    where
        'a: 'k,
    {
        if self.flags.count >= 2 && self.flags.tokens().next() == Some(b"b") {
            *place = Some(base64::decode(self.key).ok_or(Refusal::BadFormat)?);
        }
        Ok(place.as_ref().map_or(self.key, DecodedKey::key))
    }
}

/// The flags of an `mg` that only looks an item up and counts the use: no flag changes the item,
/// and no flag takes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupFlags {
    /// `v`: return the value.
    pub value: bool,
    /// `q`: a miss gets no answer.
    pub quiet: bool,
}

impl LookupFlags {
    /// The bits of the allowed flags that are lower-case letters.
    const SMALL: u32 = bit(b'c')
        | bit(b'f')
        | bit(b'h')
        | bit(b'k')
        | bit(b'l')
        | QUIET
        | bit(b's')
        | bit(b't')
        | VALUE;

    /// Reads the flags of `meta`; `None` if `Flags::parse` must read them instead.
    #[inline]
    #[must_use]
    pub fn parse(meta: &Meta<'_>) -> Option<LookupFlags> {
        if meta.key.len() > KEY_BYTES_MAX || meta.flags.count > LOOKUP_FLAGS_MAX {
            return None;
        }
        let mut seen = 0;
        for token in meta.flags.tokens() {
            let letter = bit(token[0]);
            let is_small = token[0] & 0xe0 == 0x60 && letter & LookupFlags::SMALL != 0;
            let is_known = is_small || token[0] == b'O' && token.len() <= OPAQUE_BYTES_MAX;
            if !is_known || seen & letter != 0 {
                return None;
            }
            seen |= letter;
        }
        Some(LookupFlags { value: seen & VALUE != 0, quiet: seen & QUIET != 0 })
    }
}

const LOOKUP_FLAGS_MAX: usize = 10;

/// Returns the bit that stands for a letter; upper and lower case have the same bit.
const fn bit(letter: u8) -> u32 {
    1 << (letter & 0x1f)
}

const VALUE: u32 = bit(b'v');
const QUIET: u32 = bit(b'q');

/// Returns the refusal to report: `ma` reports every mistake in its flags by the same refusal.
fn by_verb(verb: MetaVerb, refusal: Refusal) -> Refusal {
    if verb == MetaVerb::Arithmetic { Refusal::FlagArithmetic } else { refusal }
}

fn given(text: &[u8]) -> Option<&[u8]> {
    (!text.is_empty()).then_some(text)
}

fn seconds(text: &[u8]) -> Result<i64, Refusal> {
    given(text).and_then(number::strict_i32).map(i64::from).ok_or(Refusal::FlagToken)
}

fn unique(text: &[u8], wrong: Refusal) -> Result<u64, Refusal> {
    given(text).and_then(number::strict_u64).ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(verb: MetaVerb, text: &[u8]) -> Result<Flags, Refusal> {
        Flags::parse(&meta(verb, text))
    }

    fn meta(verb: MetaVerb, flags: &[u8]) -> Meta<'_> {
        let flags = LineTokens::of(flags);
        Meta { verb, key: b"Zm9v", flags, value: b"", terminated: true }
    }

    #[test]
    fn the_key_is_what_its_text_stands_for() {
        let meta = meta(MetaVerb::Get, b"b");
        let mut place = None;
        assert_eq!(Flags::parse(&meta).unwrap().key(&meta, &mut place), b"foo");
        let mut place = None;
        assert_eq!(Flags::default().key(&meta, &mut place), b"Zm9v");
    }

    #[test]
    fn v_alone_asks_for_the_value_of_a_key_that_may_be_one() {
        let longest = [b'k'; KEY_BYTES_MAX + 1];
        assert!(Meta::value_of(&longest[1..]).is_of_value());
        assert!(!Meta::value_of(&longest).is_of_value());
        for text in [&b""[..], b"k", b"v k"] {
            assert!(!meta(MetaVerb::Get, text).is_of_value());
        }
    }

    #[test]
    fn flags_are_read_in_any_order() {
        let flags = parse(MetaVerb::Set, b"q F7 T-1 b ME C5 E18446744073709551615 I").unwrap();
        assert!(flags.quiet && flags.stale && flags.locked);
        assert_eq!(flags.client_flags, 7);
        assert_eq!(flags.exptime, Some(-1));
        assert!(flags.binary);
        assert_eq!((flags.mode, flags.cas, flags.cas_in), (Some(b'E'), Some(5), Some(u64::MAX)));
        assert_eq!(parse(MetaVerb::Arithmetic, b"M").unwrap().mode, Some(b' '));
        assert_eq!(parse(MetaVerb::Arithmetic, b"M\0").unwrap().mode, None);
    }

    #[test]
    fn a_mode_is_a_verb_of_its_command() {
        let stores = |text: &[u8]| parse(MetaVerb::Set, text).unwrap().store_verb();
        assert_eq!(stores(b""), Ok(Verb::Set));
        assert_eq!(stores(b"C1"), Ok(Verb::Cas));
        assert_eq!(stores(b"ME C1"), Ok(Verb::Add));
        assert_eq!(stores(b"C1 MReplace"), Ok(Verb::Cas));
        assert_eq!(stores(b"MP"), Ok(Verb::Prepend));
        assert_eq!(stores(b"MP N0"), Ok(Verb::PrependVivify));
        assert_eq!(stores(b"N0 MA"), Ok(Verb::AppendVivify));
        assert_eq!(stores(b"N0"), Ok(Verb::Set));
        assert_eq!(stores(b"MI"), Err(Refusal::ModeSet));
        let counts = |text: &[u8]| parse(MetaVerb::Arithmetic, text).unwrap().counts_up();
        assert_eq!([counts(b""), counts(b"M+"), counts(b"M-")], [Ok(true), Ok(true), Ok(false)]);
        assert_eq!(counts(b"M"), Err(Refusal::ModeArithmetic));
    }

    #[test]
    fn changes_stand_in_the_order_of_their_flags() {
        let changes = |text: &[u8]| {
            let meta = meta(MetaVerb::Get, text);
            Flags::parse(&meta).unwrap().changes(&meta).collect::<Vec<_>>()
        };
        let [touch, vivify, recache] = [Change::Touch(3), Change::Vivify(5), Change::Recache(7)];
        assert_eq!(changes(b"v T3 Oxx N5 R7"), [touch, vivify, recache]);
        assert_eq!(changes(b"R7 N5 k T3"), [recache, vivify, touch]);
        assert_eq!(changes(b"v q"), []);
        // An `N` after an opaque token that is too long creates the item before all other changes.
        let behind = |flags: &[u8]| [flags, b" O", &[b'x'; 40], b" N5 R7"].concat();
        assert_eq!(changes(&behind(b"T3")), [Change::Vivify(0), touch]);
        assert_eq!(changes(&behind(b"v")), [Change::Vivify(0)]);
        let too_long = [b"N5 O", &[b'x'; 40][..], b" T3"].concat();
        assert_eq!(changes(&too_long), [vivify]);
    }

    #[test]
    fn each_mistake_has_its_answer() {
        let wrong = |verb, text: &[u8]| parse(verb, text).unwrap_err();
        assert_eq!(wrong(MetaVerb::Get, b"v v"), Refusal::FlagDuplicate);
        assert_eq!(wrong(MetaVerb::Get, b"z"), Refusal::FlagInvalid);
        assert_eq!(wrong(MetaVerb::Get, b"T"), Refusal::FlagToken);
        assert_eq!(wrong(MetaVerb::Get, b"Tx z"), Refusal::FlagInvalid);
        assert_eq!(wrong(MetaVerb::Set, b"F"), Refusal::BadFormat);
        assert_eq!(wrong(MetaVerb::Set, b"Tx F"), Refusal::FlagToken);
        assert_eq!(wrong(MetaVerb::Set, b"F Tx"), Refusal::FlagToken);
        assert_eq!(wrong(MetaVerb::Set, b"J"), Refusal::BadInitial);
        assert_eq!(wrong(MetaVerb::Arithmetic, b"Jx"), Refusal::FlagArithmetic);
        assert_eq!(wrong(MetaVerb::Get, &b"v ".repeat(19)), Refusal::FlagsTooLong);
        assert_eq!(wrong(MetaVerb::Get, &b"v ".repeat(18)), Refusal::FlagDuplicate);
    }

    #[test]
    fn what_only_looks_is_what_the_flags_are_without_the_rest() {
        let looks = |text: &[u8]| LookupFlags::parse(&meta(MetaVerb::Get, text));
        let all = [b"c f h k l s t v q O".to_vec(), vec![b'x'; 31]].concat();
        assert_eq!(looks(&all), Some(LookupFlags { value: true, quiet: true }));
        assert_eq!(looks(b""), Some(LookupFlags { value: false, quiet: false }));
        for letter in 0x21..=u8::MAX {
            for text in [vec![letter], vec![b'v', b' ', letter], vec![letter, b'7']] {
                let looked = looks(&text);
                let flags = parse(MetaVerb::Get, &text);
                if let Some(looked) = looked {
                    let flags = flags.unwrap();
                    assert_eq!((flags.value, flags.quiet), (looked.value, looked.quiet));
                }
                let plain = b"cfhklstvqO".contains(&letter) && text != b"v v";
                assert_eq!(looked.is_some(), plain, "{text:?}");
            }
        }
        assert_eq!(looks(&[all, b"x".to_vec()].concat()), None);
    }

    #[test]
    fn an_opaque_may_have_32_bytes() {
        let opaque = |len: usize| [b"O".to_vec(), vec![b'x'; len - 1]].concat();
        assert!(!parse(MetaVerb::Get, &opaque(32)).unwrap().opaque_too_long);
        assert!(parse(MetaVerb::Get, &opaque(33)).unwrap().opaque_too_long);
    }
}
