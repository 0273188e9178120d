//! A server under all kinds of load and trouble at once, for any time: no wrong value is read,
//! nothing promised is lost, memory keeps its bounds, and the structure is sound in the end.
//!
//! ```text
//!            narrow: not everything fits           roomy: everything does
//!            kvblaster --verify, three protocols   -
//!            registers: right, or gone for good    registers: right, and there
//!            the limit up and down, flushes        the limit up and down, above what is there
//!            clients stall, come and go; the process is stopped; descriptors run out
//!            datagrams ask for as much as they may, 2,000 a second
//! ```
//!
//! With `--moving` there is one server instead, whose whole load moves between its columns. With
//! `--bypass` it is the narrow one, past the kernel, on a link that goes down now and then.
//!
//! Where: outside the cache; it starts servers, works on them, and asks each for its audit.
//! Invariant: no fault depends on the machine's speed. A step of the wall clock does not matter to
//! the server, whose clock is monotonic; that clock jumps when the process was stopped.

mod audit;
mod blasters;
mod clients;
mod floods;
#[path = "../measure/mod.rs"]
mod measure;
mod moving;
mod registers;
mod site;
mod trouble;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use blaster::launch::PORT;
use blasters::Blaster;
use clients::Stallers;
use measure::launched::{EVERYBODY, Launch};
use measure::report::{Report, say};
use measure::wire::SPEECHES;
use measure::{Outcome, fail};
use moving::Stage;
use registers::Registers;
use site::{Bell, Deeds, Site};
use testing::namespace::{Namespace, Veth, WIRE, pair};
use trouble::Plant;

/// Actors with keys of their own, on each server.
const REGISTERS: u32 = 4;
/// More than there are cores, so that columns are preempted at any point.
const THREADS: u32 = 3;
const CONNECTIONS: u32 = 4000;
const MEMORY_MB: u32 = 64;
/// The link's MTU, past the kernel: one packet holds a value of several kilobytes.
const MTU: u32 = 9000;
const MINUTE: Duration = Duration::from_secs(60);

/// Two servers under everything at once: one where not everything fits, with three kvblasters that
/// verify, one where everything does and nothing may be lost. Or one server whose load moves from
/// column to column, or one past the kernel. Exit status 1 on any fault.
#[derive(Debug, clap::Parser)]
struct Options {
    /// How long
    #[arg(long, default_value_t = 1)]
    minutes: u32,
    /// The seed of all randomness
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 32))]
    seed: u64,
    /// Requests a second of each kvblaster
    #[arg(long = "rate", default_value_t = 5000)]
    rate_per_s: u32,
    /// One server, all of whose load is on another of its columns each second
    #[arg(long)]
    moving: bool,
    /// One server past the kernel's network stack, with this -o `zero_copy` for all values; as root
    #[arg(long, value_name = "WHAT", conflicts_with = "moving")]
    bypass: Option<String>,
    /// Another server
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Does harm behind the actors' backs, to see it found
    #[arg(long, value_enum)]
    plant: Option<Plant>,
}

fn main() -> ExitCode {
    measure::run(run)
}

/// Runs the soak. Past the kernel the server is at one end of a link, everything else at the other.
fn run(options: Options) -> Outcome<()> {
    if options.bypass.is_none() {
        return run_at(&options, None);
    }
    let Some([near, far]) = pair(Veth { mtu: MTU, ..Veth::default() }) else {
        return fail("no link between two namespaces".to_owned());
    };
    near.on(|| run_at(&options, Some(&far)).map_err(|error| error.to_string())).map_err(Into::into)
}

fn run_at(options: &Options, far: Option<&Namespace>) -> Outcome<()> {
    let (_, program) = Report::of_subject(options.subject.as_ref())?;
    let launch = Launch {
        program: &program,
        threads: THREADS,
        memory_mb: MEMORY_MB,
        connections: CONNECTIONS,
        extra: &[],
    };
    let sites = if let (Some(far), Some(what)) = (far, &options.bypass) {
        let zero_copy = format!("zero_copy={what},zero_copy_min=1,{EVERYBODY}");
        let extra = ["-U", PORT, "--xdp", WIRE, "-o", &zero_copy].map(str::to_owned);
        let launch = Launch { extra: &extra, ..launch };
        let start = || site(launch, ("bypass", true), (32, 128)).map_err(|it| it.to_string());
        vec![far.on(start)?.of(far)?]
    } else if options.moving {
        let extra = ["-U", PORT, "-o", "udp_port_per_column"].map(str::to_owned);
        vec![site(Launch { extra: &extra, ..launch }, ("moving", false), (64, 64))?]
    } else {
        let extra = ["-U", PORT].map(str::to_owned);
        let launch = Launch { extra: &extra, ..launch };
        vec![site(launch, ("narrow", true), (24, 128))?, site(launch, ("roomy", false), (40, 128))?]
    };
    let stage = options.moving.then(|| Stage::of(&sites[0])).transpose()?;
    let bell = Bell::default();
    let told = soak(options, &sites, stage.as_ref(), &bell);
    for line in &told {
        say(&format!("{line}\n"))?;
    }
    if bell.faults().is_empty() {
        for site in &sites {
            say(&format!("{:>7} {:<12} {} between threads\n", site.name, "moves", site.moves()?))?;
        }
        if let Some(stage) = &stage {
            say(&format!(" moving {:<12} {}\n", "counts", stage.audit()?))?;
        }
        for site in &sites {
            let sound = audit::ask(site)?;
            say(&format!("{:>7} {:<12} {sound}\n", site.name, "audit"))?;
        }
    }
    match &bell.faults()[..] {
        [] => say("nothing wrong was read, nothing was lost, memory stayed in its bounds\n"),
        faults => fail(format!("{} faults:\n{}", faults.len(), faults.join("\n"))),
    }
}

fn site(
    launch: Launch<'_>,
    names: (&'static str, bool),
    limits_mb: (u32, u32),
) -> Outcome<Site<'static>> {
    let (name, loses) = names;
    let mut words = launch.words()?;
    if name == "bypass" {
        words.iter_mut().for_each(|word| *word = word.replace("127.0.0.1", "0.0.0.0"));
    }
    if name == "roomy" {
        // Connections move to another thread after each turn.
        let moves = ["env", "HYPOSTYLE_MIGRATE_AT_EACH_TURN=1"].map(str::to_owned);
        words.splice(0..0, moves);
    }
    let server = blaster::launch::start(&words, &[])?;
    let limit_bytes = AtomicU64::new(u64::from(MEMORY_MB) << 20);
    let address = server.target.clone();
    Ok(Site { name, server, address, arena_bytes: 0, far: None, loses, limits_mb, limit_bytes })
}

/// An actor at work.
struct Actor<'scope> {
    name: String,
    deeds: Arc<Deeds>,
    thread: ScopedJoinHandle<'scope, Option<String>>,
}

/// The actors of one server.
struct Cast<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    site: &'env Site<'env>,
    bell: &'env Bell,
    actors: Vec<Actor<'scope>>,
}

impl<'scope, 'env> Cast<'scope, 'env> {
    /// Starts an actor; its error is a fault.
    fn add(
        &mut self,
        name: &str,
        act: impl FnOnce(&'env Bell, &Deeds) -> Outcome<String> + Send + 'scope,
    ) {
        let name = format!("{:>7} {name:<12}", self.site.name);
        let deeds = Arc::new(Deeds::default());
        let (bell, its_name, its_deeds) = (self.bell, name.clone(), Arc::clone(&deeds));
        let thread = self.scope.spawn(move || match act(bell, &its_deeds) {
            Ok(told) => Some(told),
            Err(why) => {
                bell.fault(format!("{its_name} {why}"));
                None
            }
        });
        self.actors.push(Actor { name, deeds, thread });
    }

    /// Starts all actors of the server whose load moves.
    fn fill_moving(&mut self, options: &'env Options, stage: &'env Stage<'env>) {
        let (site, seed) = (self.site, options.seed);
        for number in 0..moving::CLIENTS {
            let name = format!("streams {number}");
            self.add(&name, move |bell, deeds| stage.stream(number, bell, deeds));
            let name = format!("datagrams {number}");
            self.add(&name, move |bell, deeds| stage.datagrams(number, bell, deeds));
        }
        if let Some(plant) = options.plant {
            let key = moving::key_of(0);
            self.add("plant", move |bell, deeds| trouble::plant(site, (plant, &key), bell, deeds));
        }
        self.add("shifts", move |bell, deeds| stage.shift(seed, bell, deeds));
    }

    /// Starts all actors of a server.
    fn fill(&mut self, options: &'env Options) {
        // The two servers get different seeds, so that nothing happens to both at the same moments.
        let (site, seed) = (self.site, 2 * options.seed + u64::from(self.site.loses));
        for number in 0..REGISTERS {
            let name = format!("registers {number}");
            self.add(&name, move |bell, deeds| Registers::new(site, number, seed).run(bell, deeds));
        }
        if let Some(plant) = options.plant.filter(|_| !site.loses) {
            let key = registers::key_of(0, 1);
            self.add("plant", move |bell, deeds| trouble::plant(site, (plant, &key), bell, deeds));
        }
        if site.loses {
            let mut ways = SPEECHES.map(|speech| (speech, "")).to_vec();
            if let Some(far) = site.far {
                ways.extend(SPEECHES.map(|speech| (speech, "udp://")));
                self.add("links", move |bell, deeds| trouble::links(far, seed, bell, deeds));
            }
            for (speech, scheme) in ways {
                let rate_per_s = options.rate_per_s;
                let blaster = Blaster { site, speech, scheme, seed, rate_per_s };
                let name = format!("kvb. {scheme}{}", speech.name());
                self.add(&name, move |bell, deeds| blaster.run(bell, deeds));
            }
            self.add("flushes", move |bell, deeds| trouble::flushes(site, seed, bell, deeds));
        }
        self.add("stallers", move |bell, deeds| Stallers::new(site, seed).run(bell, deeds));
        self.add("floods", move |bell, deeds| floods::run(site, seed, bell, deeds));
        self.add("churn", move |bell, deeds| clients::churn(site, seed, bell, deeds));
        self.add("limits", move |bell, deeds| trouble::limits(site, seed, bell, deeds));
        self.add("stops", move |bell, deeds| trouble::stops(site, seed, bell, deeds));
        self.add("descriptors", move |bell, deeds| trouble::descriptors(site, seed, bell, deeds));
        self.add("memory", move |bell, deeds| trouble::watch(site, bell, deeds));
    }
}

/// Lets all actors work until the soak is over. Returns a line from each.
fn soak(
    options: &Options,
    sites: &[Site<'_>],
    stage: Option<&Stage<'_>>,
    bell: &Bell,
) -> Vec<String> {
    std::thread::scope(|scope| {
        let mut actors = Vec::new();
        for site in sites {
            let mut cast = Cast { scope, site, bell, actors: Vec::new() };
            match stage {
                Some(stage) => cast.fill_moving(options, stage),
                None => cast.fill(options),
            }
            actors.append(&mut cast.actors);
        }
        let start = Instant::now();
        for minute in 1..=options.minutes {
            let due = MINUTE * minute;
            bell.pause(due.saturating_sub(start.elapsed()));
            let counts = actors.iter().map(|one| {
                let words: Vec<&str> = one.name.split_whitespace().collect();
                format!("{} {}", words.join(" "), one.deeds.count())
            });
            let line = format!("{minute} min: {}\n", counts.collect::<Vec<_>>().join(", "));
            if let Err(why) = say(&line) {
                bell.fault(format!("nobody listens: {why}"));
            }
            if !bell.goes_on() {
                break;
            }
        }
        bell.ring();
        let tell = |one: Actor<'_>| match one.thread.join() {
            Ok(told) => format!("{} {}", one.name, told.unwrap_or_else(|| "failed".to_owned())),
            Err(_) => {
                bell.fault(format!("{} panicked", one.name));
                format!("{} panicked", one.name)
            }
        };
        actors.into_iter().map(tell).collect()
    })
}
