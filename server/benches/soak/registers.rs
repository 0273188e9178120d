//! Keys as registers: each key belongs to one actor, which knows the key's value, sends requests in
//! all three protocols, and checks each answer.
//!
//! Where: one actor per thread. Invariant: on the roomy server, a stored item is present until it
//! is deleted or expires. On the narrow server an item may be evicted, and then stays absent. A
//! value that is present is, byte for byte, the last value that the server has acknowledged.

use std::time::{Duration, Instant};

use crate::measure::wire::{Answer, PROTOCOLS, Request, Verb, Wire};
use crate::measure::{Outcome, fail};
use crate::site::{Progress, RunControl, Site};
use testing::random::{Random, hash};

const KEYS: u32 = 400;
/// One key in this number of keys holds a decimal number.
const NUMBERS_EACH: u32 = 8;
const VALUE_BYTES_MAX: usize = 400 << 10;
/// Mean number of requests before an actor opens a new connection.
const REQUESTS_EACH: u32 = 2000;
/// Range of the times to live that may end during the soak, in seconds.
const SECONDS: std::ops::Range<u32> = 30..60;
/// An item may expire this much early or late: the process may be stopped after it reads the clock.
const SLACK: Duration = Duration::from_secs(20);

/// The value of a stored item, and the time for which the item lives.
struct Item {
    value: Vec<u8>,
    /// The item must live until the first time, and must have expired by the second time. `None`
    /// if the item does not expire.
    life: Option<(Instant, Instant)>,
}

struct Span {
    sent: Instant,
    answered: Instant,
}

impl Span {
    fn life(&self, exptime: u32) -> Option<(Instant, Instant)> {
        let seconds = Duration::from_secs(exptime.into());
        (exptime > 0).then(|| (self.sent + seconds - SLACK, self.answered + seconds + SLACK))
    }
}

pub(crate) fn key_of(actor: u32, key: u32) -> String {
    format!("register-{actor}-{key}")
}

pub(crate) struct Registers<'s> {
    site: &'s Site<'s>,
    number: u32,
    random: Random,
    items: Vec<Option<Item>>,
    wire: Option<Wire>,
    version: u64,
    hits: u64,
    misses: u64,
    refused: u64,
}

impl<'s> Registers<'s> {
    pub(crate) fn new(site: &'s Site<'s>, number: u32, seed: u64) -> Registers<'s> {
        Registers {
            site,
            number,
            random: Random::new(hash(seed, u64::from(number))),
            items: (0..KEYS).map(|_| None).collect(),
            wire: None,
            version: 0,
            hits: 0,
            misses: 0,
            refused: 0,
        }
    }

    /// Sends requests until the soak is over, and then gets each key once more.
    pub(crate) fn run(&mut self, control: &RunControl, progress: &Progress) -> Outcome<String> {
        while control.is_running() {
            let key = self.random.number(KEYS);
            self.step(key)?;
            progress.add(1);
        }
        for key in 0..KEYS {
            self.ask(key, Verb::Get, 0)?;
        }
        let there = self.items.iter().flatten().count();
        let Registers { hits, misses, refused, .. } = self;
        Ok(format!(
            "{hits} right values, {misses} misses, {refused} requests refused, {there} of {KEYS} \
             keys present at the end"
        ))
    }

    fn step(&mut self, key: u32) -> Outcome<()> {
        if self.random.number(REQUESTS_EACH) == 0 {
            self.wire = None;
        }
        self.version += 1;
        let is_number = key.is_multiple_of(NUMBERS_EACH);
        let made = if is_number {
            self.random.number(1_000_000).to_string().into_bytes()
        } else {
            let bytes = self.value_bytes();
            value(key, self.version, bytes)
        };
        let exptime = match self.random.number(6) {
            0 => SECONDS.start + self.random.number(SECONDS.end - SECONDS.start),
            1 => 1_000_000,
            _ => 0,
        };
        let held = self.items[key as usize].as_ref().map_or(0, |item| item.value.len());
        match self.random.number(20) {
            0..4 => self.ask(key, Verb::Set(&made), exptime),
            4 => self.ask(key, Verb::Add(&made), exptime),
            5 => self.ask(key, Verb::Replace(&made), exptime),
            6 if !is_number && held + made.len() <= VALUE_BYTES_MAX => {
                self.ask(key, Verb::Append(&made), 0)
            }
            7 => self.ask(key, Verb::Delete, 0),
            8 => self.ask(key, Verb::Touch, exptime),
            9 | 10 if is_number => {
                let by = u64::from(self.random.number(1000));
                self.ask(key, Verb::Increment(by), 0)
            }
            _ => self.ask(key, Verb::Get, 0),
        }
    }

    fn value_bytes(&mut self) -> usize {
        let most = match self.random.number(100) {
            0..60 => 200,
            60..90 => 4000,
            90..99 => 40_000,
            _ => 200_000,
        };
        self.random.number(most) as usize
    }

    fn ask(&mut self, key: u32, verb: Verb<'_>, exptime: u32) -> Outcome<()> {
        let name = key_of(self.number, key);
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => {
                let protocol = PROTOCOLS[self.random.number(3) as usize];
                Wire::connect(self.site.address(), protocol)?
            }
        };
        let sent = Instant::now();
        let answer = wire.ask(&Request { verb, key: &name, exptime });
        let span = Span { sent, answered: Instant::now() };
        let protocol = wire.protocol.name();
        self.wire = Some(wire);
        let judged = answer.and_then(|answer| self.judge(key, verb, (exptime, &span), &answer));
        judged.or_else(|why| fail(format!("{name}, {}, {protocol}: {why}", brief(verb))))
    }

    fn judge(
        &mut self,
        key: u32,
        verb: Verb<'_>,
        (exptime, span): (u32, &Span),
        answer: &Answer,
    ) -> Outcome<()> {
        let life = span.life(exptime);
        let place = key as usize;
        match (verb, answer) {
            // Some replies say "out of memory", others "Out of memory".
            (_, Answer::Refused(words)) if self.site.loses && words.contains("ut of memory") => {
                self.refused += 1;
                // A refused set deletes the old value; other refused verbs leave it unchanged.
                if matches!(verb, Verb::Set(_)) {
                    self.items[place] = None;
                }
            }
            (_, Answer::Refused(words)) => {
                return fail(format!("the request was refused: {words}"));
            }
            (Verb::Set(value), Answer::Done) => {
                self.items[place] = Some(Item { value: value.to_vec(), life });
            }
            (Verb::Set(_), _) => return fail("a set was not acknowledged".to_owned()),
            (Verb::Add(value), Answer::Done) => {
                self.may_be_absent(place, span)?;
                self.items[place] = Some(Item { value: value.to_vec(), life });
            }
            (Verb::Add(_), _) => _ = self.present(place, span)?,
            (_, Answer::NotDone) => {
                self.misses += 1;
                self.may_be_absent(place, span)?;
                self.items[place] = None;
            }
            (verb, answer) => {
                let item = self.present(place, span)?;
                match (verb, answer) {
                    (Verb::Get, Answer::Value(got)) => same(&item.value, got)?,
                    (Verb::Replace(value), Answer::Done) => {
                        *item = Item { value: value.to_vec(), life };
                    }
                    (Verb::Append(piece), Answer::Done) => item.value.extend_from_slice(piece),
                    (Verb::Touch, Answer::Done) => item.life = life,
                    (Verb::Delete, Answer::Done) => self.items[place] = None,
                    (Verb::Increment(by), Answer::Number(got)) => {
                        let due = str::from_utf8(&item.value)?.parse::<u64>()? + by;
                        item.value = due.to_string().into_bytes();
                        same(&item.value, got.to_string().as_bytes())?;
                    }
                    _ => return fail("the answer belongs to another kind of request".to_owned()),
                }
                self.hits += u64::from(matches!(verb, Verb::Get));
            }
        }
        Ok(())
    }

    /// Fails if the key must be present.
    fn may_be_absent(&self, place: usize, span: &Span) -> Outcome<()> {
        match &self.items[place] {
            Some(Item { life: Some((sure_until, _)), .. }) if span.answered >= *sure_until => {}
            Some(item) if !self.site.loses => {
                let life = item.life.map(|(_, over)| over.duration_since(span.answered));
                let bytes = item.value.len();
                return fail(format!(
                    "an item of {bytes} bytes is lost; time to its expiry: {life:?}"
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// Fails if the key must be absent.
    fn present(&mut self, place: usize, span: &Span) -> Outcome<&mut Item> {
        match &mut self.items[place] {
            None => fail("the item is present, but was deleted or absent before".to_owned()),
            Some(Item { life: Some((_, over)), .. }) if span.sent > *over => {
                let late = span.sent.duration_since(*over);
                fail(format!("the item is still present {late:?} after it expired"))
            }
            Some(item) => Ok(item),
        }
    }
}

fn brief(verb: Verb<'_>) -> String {
    let name = format!("{verb:?}");
    let end = name.find('(').unwrap_or(name.len());
    name[..end].to_lowercase()
}

fn value(key: u32, version: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(hash(version, u64::from(key)));
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        value.extend_from_slice(&random.next().to_le_bytes());
    }
    value.truncate(bytes);
    value
}

fn same(due: &[u8], got: &[u8]) -> Outcome<()> {
    if due == got {
        return Ok(());
    }
    let at = due.iter().zip(got).take_while(|(due, got)| due == got).count();
    let near = |bytes: &[u8]| bytes[at..bytes.len().min(at + 32)].escape_ascii().to_string();
    fail(format!(
        "wrong value: {} bytes instead of {}; from byte {at} on, {:?} instead of {:?}",
        got.len(),
        due.len(),
        near(got),
        near(due),
    ))
}
