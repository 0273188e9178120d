//! Nanoseconds per operation of the store alone: no sockets, no protocol, one thread.
//!
//! Where: the store's part of a request's cost; what is left of a server profile without it is
//! protocol and kernel.
//! Invariant: keys come in a fixed pseudo-random order, and each operation's outcome is checked: a
//! run in which a hit misses or a set is refused fails.

use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use store::policy::Eviction;
use store::{Body, Column, Config, Put, Store, Stored, Value, Verb};

/// Operations between two quiescent points, as a column with 32 requests in flight would have.
const BATCH: u32 = 32;
/// Keys a column reads ahead of executing at most.
const AHEAD: usize = 16;
/// Digits of the number in each key.
const KEY_DIGITS: usize = 8;
/// The rest of each key; 36 bytes with the digits.
const KEY_PREFIX: &[u8; 28] = b"hypostyle:bench:cluster:key:";
/// Most keys: their number is written with eight digits, and misses take as many again.
const KEYS_MAX: u32 = 50_000_000;
/// Longest value: it must stay in the log.
const VALUE_BYTES_MAX: u32 = 8_192;
/// Most operations and rounds.
const OPS_MAX: u32 = 1_000_000_000;

const USAGE: &str = "\
usage: cargo bench --bench store -- [options]
  --keys N,N        keys stored, one table each (100000,2000000)
  --value-bytes N   length of each value (64)
  --ops N           operations per round (2000000)
  --rounds N        rounds of each operation, of which the median is shown (7)
  --eviction NAME   the policy, as -o eviction takes it (the server's default)
  --only TEXT       only operations whose name has TEXT in it: for profiles
";

type Outcome<T> = Result<T, Box<dyn Error>>;

struct Options {
    keys: Vec<u32>,
    value_bytes: u32,
    ops: u32,
    rounds: u32,
    eviction: Eviction,
    only: String,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nowhere is left to report a failure of standard error.
            let _ = writeln!(std::io::stderr(), "store: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let mut out = std::io::stdout();
    let Some(options) = parse(std::env::args().skip(1))? else {
        return Ok(out.write_all(USAGE.as_bytes())?);
    };
    for &keys in &options.keys {
        writeln!(out, "{keys} keys of 36 B, values of {} B", options.value_bytes)?;
        let mut bench = Bench::new(keys, &options)?;
        for (name, op) in OPS.into_iter().filter(|(name, _)| name.contains(&options.only)) {
            let nanoseconds = bench.measure(op, &options)?;
            let mops = 1e3 / nanoseconds;
            writeln!(out, "  {name:<22}{nanoseconds:>8.1} ns/op{mops:>9.2} Mop/s")?;
        }
    }
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Outcome<Option<Options>> {
    let mut options = Options {
        keys: vec![100_000, 2_000_000],
        value_bytes: 64,
        ops: 2_000_000,
        rounds: 7,
        eviction: Eviction::default(),
        only: String::new(),
    };
    while let Some(word) = words.next() {
        if word == "--bench" {
            continue;
        }
        if word == "--help" || word == "-h" {
            return Ok(None);
        }
        let value = words.next().ok_or_else(|| format!("{word}: unknown, or no value"))?;
        match word.as_str() {
            "--keys" => {
                let all = value.split(',').map(|one| whole(one, KEYS_MAX));
                options.keys = all.collect::<Outcome<Vec<u32>>>()?;
            }
            "--value-bytes" => options.value_bytes = whole(&value, VALUE_BYTES_MAX)?,
            "--ops" => options.ops = whole(&value, OPS_MAX)?,
            "--rounds" => options.rounds = whole(&value, OPS_MAX)?,
            "--eviction" => {
                let named = Eviction::named(&value);
                options.eviction = named.ok_or_else(|| format!("{value}: no such policy"))?;
            }
            "--only" => options.only = value,
            _ => return Err(format!("{word}: unknown option").into()),
        }
    }
    Ok(Some(options))
}

fn whole(text: &str, max: u32) -> Outcome<u32> {
    let number = text.parse::<u32>()?;
    if (1..=max).contains(&number) {
        return Ok(number);
    }
    Err(format!("{number} is not within 1 to {max}").into())
}

/// The operations measured, and what each must come to.
#[derive(Clone, Copy)]
enum Op {
    /// Makes the key and does nothing: what every other figure contains.
    Key,
    GetHit,
    /// The same with a batch's memory asked for in advance, as a column does it.
    GetHitAhead,
    GetMiss,
    /// Replaces a value by one of the same length.
    Set,
    /// Stores a new key where another must go for it.
    SetEvict,
}

/// Every operation, with its name in the table.
const OPS: [(&str, Op); 6] = [
    ("(making the key)", Op::Key),
    ("get, hit", Op::GetHit),
    ("get, hit, read ahead", Op::GetHitAhead),
    ("get, miss", Op::GetMiss),
    ("set, overwriting", Op::Set),
    ("set, evicting", Op::SetEvict),
];

/// Two stores of the same keys: one with room to spare, one that must evict.
struct Bench {
    roomy: Column,
    tight: Column,
    keys: u32,
    value: Vec<u8>,
    random: u64,
    /// Number of the next key never stored before.
    fresh: u32,
}

impl Bench {
    fn new(keys: u32, options: &Options) -> Outcome<Bench> {
        let value_bytes = usize::try_from(options.value_bytes)?;
        let payload_bytes = usize::try_from(keys)? * (value_bytes + 36);
        let column = |memory_bytes| -> Outcome<Column> {
            let config = Config {
                memory_bytes,
                item_bytes_max: 1 << 20,
                columns: 1,
                eviction: Some(options.eviction),
                cas: true,
                now: 62,
            };
            Ok(Store::new(&config)?.column())
        };
        let mut bench = Bench {
            roomy: column(payload_bytes * 2 + (64 << 20))?,
            tight: column((payload_bytes / 2).max(8 << 20))?,
            keys,
            value: vec![b'v'; value_bytes],
            random: 1,
            fresh: 2 * keys,
        };
        for column in [&mut bench.roomy, &mut bench.tight] {
            column.set_now(62);
            column.online();
            for number in 0..keys {
                set(column, number, &bench.value)?;
                if number % BATCH == 0 {
                    between_batches(column);
                }
            }
        }
        Ok(bench)
    }

    /// Median nanoseconds of one `op`.
    fn measure(&mut self, op: Op, options: &Options) -> Outcome<f64> {
        let mut figures = Vec::new();
        for _ in 0..options.rounds {
            let batches = options.ops.div_ceil(BATCH);
            let start = Instant::now();
            for _ in 0..batches {
                self.batch(op)?;
                self.between_batches(op);
            }
            figures.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(batches * BATCH));
        }
        figures.sort_by(f64::total_cmp);
        Ok(figures[figures.len() / 2])
    }

    fn batch(&mut self, op: Op) -> Outcome<()> {
        match op {
            Op::GetHitAhead => self.get_ahead(),
            _ => (0..BATCH).try_for_each(|_| self.once(op)),
        }
    }

    fn get_ahead(&mut self) -> Outcome<()> {
        let numbers: [u32; BATCH as usize] = std::array::from_fn(|_| self.random_below_keys());
        for half in numbers.chunks(AHEAD) {
            let ahead: [_; AHEAD] = std::array::from_fn(|at| {
                let number = half.get(at).copied().unwrap_or(0);
                self.roomy.prefetch(&key_of(number))
            });
            for key in ahead {
                self.roomy.prefetch_item(key);
            }
            for &number in half {
                hit(&mut self.roomy, number, self.value.len())?;
            }
        }
        Ok(())
    }

    #[inline]
    fn once(&mut self, op: Op) -> Outcome<()> {
        let number = self.random_below_keys();
        match op {
            Op::Key => {
                black_box(key_of(number));
                Ok(())
            }
            Op::GetHit | Op::GetHitAhead => hit(&mut self.roomy, number, self.value.len()),
            Op::GetMiss => miss(&mut self.roomy, number + self.keys),
            Op::Set => set(&mut self.roomy, number, &self.value),
            Op::SetEvict => {
                let fresh = self.fresh;
                // Below 10^8 as keys must be; those of the first round are long evicted when they
                // come again.
                self.fresh = if fresh + 1 < 100_000_000 { fresh + 1 } else { 2 * self.keys };
                set(&mut self.tight, fresh, &self.value)
            }
        }
    }

    fn between_batches(&mut self, op: Op) {
        match op {
            Op::SetEvict => between_batches(&mut self.tight),
            _ => between_batches(&mut self.roomy),
        }
    }

    /// xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators,
    /// scrambled" (2016).
    fn random_below_keys(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let high = self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        u32::try_from((high * u64::from(self.keys)) >> 32).unwrap_or(0)
    }
}

/// What a column does once per loop.
fn between_batches(column: &mut Column) {
    column.quiesce();
    column.maintain();
}

fn hit(column: &mut Column, number: u32, value_bytes: usize) -> Outcome<()> {
    let Some(hit) = column.get(&key_of(number)) else {
        return Err(format!("key {number} was stored and is missing").into());
    };
    match hit.value {
        Value::Log(bytes) if bytes.len() == value_bytes => {
            black_box(bytes.last().copied());
            Ok(())
        }
        _ => Err(format!("key {number} has not the value stored").into()),
    }
}

fn miss(column: &mut Column, number: u32) -> Outcome<()> {
    match column.get(&key_of(number)) {
        None => Ok(()),
        Some(_) => Err(format!("key {number} was never stored and is found").into()),
    }
}

fn set(column: &mut Column, number: u32, value: &[u8]) -> Outcome<()> {
    let key = key_of(number);
    let put = Put::new(Verb::Set, &key);
    match column.put(&put, Body::Bytes(value)) {
        Ok(Stored::Stored { .. }) => Ok(()),
        other => Err(format!("set of key {number} came to {other:?}").into()),
    }
}

/// The key with this number, below 10^8.
#[inline]
fn key_of(number: u32) -> [u8; KEY_PREFIX.len() + KEY_DIGITS] {
    let mut key = [b'0'; KEY_PREFIX.len() + KEY_DIGITS];
    key[..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX);
    let mut rest = number;
    for digit in key[KEY_PREFIX.len()..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    key
}
