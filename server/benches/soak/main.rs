//! A soak test: a server runs for any time under load and disturbances of all kinds. The test fails
//! on a wrong value, a wrongly lost item, too much memory, or a fault in the audit at the end.
//!
//! ```text
//!            narrow: not all items fit             roomy: all items fit
//!            kvblaster --verify, three protocols   -
//!            registers: right value, or evicted    registers: right value, never evicted
//!            memory limit changes; flushes         memory limit changes, but all items fit
//!            clients stall or reconnect; the process is stopped; file descriptors run out
//!            2,000 datagrams a second request as much work as possible
//! ```
//!
//! With `--moving` there is one server instead, whose whole load moves between its columns. With
//! `--bypass` there is only the narrow server, over AF_XDP, on a link that sometimes goes down.
//!
//! Where: outside the cache; the soak starts servers, sends requests, and has each server audit
//! itself.
//! Invariant: a slow machine causes no fault. A step of the wall clock does not affect the server,
//! whose clock is monotonic. The server's clock jumps when the stopped process resumes.

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
use measure::wire::PROTOCOLS;
use measure::{Outcome, fail};
use moving::MovingLoad;
use registers::Registers;
use site::{Progress, RunControl, Site};
use testing::namespace::{Namespace, Veth, WIRE, pair};
use trouble::Plant;

const REGISTERS: u32 = 4;
/// Three columns on a machine with two cores, so that the kernel preempts columns at any point.
const THREADS: u32 = 3;
const CONNECTIONS: u32 = 4000;
const MEMORY_MB: u32 = 64;
/// The MTU of the link for AF_XDP. One packet can hold a value of several kilobytes.
const MTU: u32 = 9000;
const MINUTE: Duration = Duration::from_secs(60);

/// Tests two servers under load and disturbances. One server's memory does not hold all items, and
/// three kvblasters verify its values. The other server holds all items, and may lose none. With
/// --moving or --bypass, tests only one server. The exit status is 1 if a fault is found.
#[derive(Debug, clap::Parser)]
struct Options {
    /// Duration in minutes
    #[arg(long, default_value_t = 1)]
    minutes: u32,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 32))]
    seed: u64,
    /// Requests per second that each kvblaster sends
    #[arg(long = "rate", default_value_t = 5000)]
    rate_per_s: u32,
    /// Test one server, and move its whole load to a random thread each second
    #[arg(long)]
    moving: bool,
    /// Test one server over AF_XDP, with this value of -o `zero_copy`; needs root
    #[arg(long, value_name = "WHAT", conflicts_with = "moving")]
    bypass: Option<String>,
    /// Test this server program instead of this build's hypostyle
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Cause this fault on purpose; the test must find it
    #[arg(long, value_enum)]
    plant: Option<Plant>,
}

fn main() -> ExitCode {
    measure::run(run)
}

/// With `--bypass`, the server is at one end of a link, and the clients are at the other end.
fn run(options: Options) -> Outcome<()> {
    if options.bypass.is_none() {
        return run_at(&options, None);
    }
    let Some([near, far]) = pair(Veth { mtu: MTU, ..Veth::default() }) else {
        return fail("cannot make a link between two network namespaces".to_owned());
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
    let moving_load = options.moving.then(|| MovingLoad::of(&sites[0])).transpose()?;
    let control = RunControl::default();
    let lines = soak(options, &sites, moving_load.as_ref(), &control);
    for line in &lines {
        say(&format!("{line}\n"))?;
    }
    if control.faults().is_empty() {
        for site in &sites {
            say(&format!("{:>7} {:<12} {} between threads\n", site.name, "moves", site.moves()?))?;
        }
        if let Some(moving_load) = &moving_load {
            say(&format!(" moving {:<12} {}\n", "counts", moving_load.audit()?))?;
        }
        for site in &sites {
            let sound = audit::ask(site)?;
            say(&format!("{:>7} {:<12} {sound}\n", site.name, "audit"))?;
        }
    }
    match &control.faults()[..] {
        [] => {
            say("no wrong value was read, no item was lost, and memory stayed within its bounds\n")
        }
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
        // With this variable, a connection moves to another thread after each turn.
        let moves = ["env", "HYPOSTYLE_MIGRATE_AT_EACH_TURN=1"].map(str::to_owned);
        words.splice(0..0, moves);
    }
    let server = blaster::launch::start(&words, &[])?;
    let limit_bytes = AtomicU64::new(u64::from(MEMORY_MB) << 20);
    let address = server.target.clone();
    Ok(Site { name, server, address, arena_bytes: 0, far: None, loses, limits_mb, limit_bytes })
}

struct Actor<'scope> {
    name: String,
    progress: Arc<Progress>,
    thread: ScopedJoinHandle<'scope, Option<String>>,
}

struct ActorGroup<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    site: &'env Site<'env>,
    control: &'env RunControl,
    actors: Vec<Actor<'scope>>,
}

impl<'scope, 'env> ActorGroup<'scope, 'env> {
    fn add(
        &mut self,
        name: &str,
        act: impl FnOnce(&'env RunControl, &Progress) -> Outcome<String> + Send + 'scope,
    ) {
        let name = format!("{:>7} {name:<12}", self.site.name);
        let progress = Arc::new(Progress::default());
        let (control, its_name, its_progress) = (self.control, name.clone(), Arc::clone(&progress));
        let thread = self.scope.spawn(move || match act(control, &its_progress) {
            Ok(line) => Some(line),
            Err(why) => {
                control.fault(format!("{its_name} {why}"));
                None
            }
        });
        self.actors.push(Actor { name, progress, thread });
    }

    fn start_all_moving(&mut self, options: &'env Options, moving_load: &'env MovingLoad<'env>) {
        let (site, seed) = (self.site, options.seed);
        for number in 0..moving::CLIENTS {
            let name = format!("streams {number}");
            self.add(&name, move |control, progress| moving_load.stream(number, control, progress));
            let name = format!("datagrams {number}");
            self.add(&name, move |control, progress| {
                moving_load.datagrams(number, control, progress)
            });
        }
        if let Some(plant) = options.plant {
            let key = moving::key_of(0);
            self.add("plant", move |control, progress| {
                trouble::plant(site, (plant, &key), control, progress)
            });
        }
        self.add("shifts", move |control, progress| moving_load.shift(seed, control, progress));
    }

    fn start_all(&mut self, options: &'env Options) {
        // The two servers get different seeds, so that their disturbances do not coincide.
        let (site, seed) = (self.site, 2 * options.seed + u64::from(self.site.loses));
        for number in 0..REGISTERS {
            let name = format!("registers {number}");
            self.add(&name, move |control, progress| {
                Registers::new(site, number, seed).run(control, progress)
            });
        }
        if let Some(plant) = options.plant.filter(|_| !site.loses) {
            let key = registers::key_of(0, 1);
            self.add("plant", move |control, progress| {
                trouble::plant(site, (plant, &key), control, progress)
            });
        }
        if site.loses {
            let mut ways = PROTOCOLS.map(|protocol| (protocol, "")).to_vec();
            if let Some(far) = site.far {
                ways.extend(PROTOCOLS.map(|protocol| (protocol, "udp://")));
                self.add("links", move |control, progress| {
                    trouble::links(far, seed, control, progress)
                });
            }
            for (protocol, scheme) in ways {
                let rate_per_s = options.rate_per_s;
                let blaster = Blaster { site, protocol, scheme, seed, rate_per_s };
                let name = format!("kvb. {scheme}{}", protocol.name());
                self.add(&name, move |control, progress| blaster.run(control, progress));
            }
            self.add("flushes", move |control, progress| {
                trouble::flushes(site, seed, control, progress)
            });
        }
        self.add("stallers", move |control, progress| {
            Stallers::new(site, seed).run(control, progress)
        });
        self.add("floods", move |control, progress| floods::run(site, seed, control, progress));
        self.add("churn", move |control, progress| clients::churn(site, seed, control, progress));
        self.add("limits", move |control, progress| trouble::limits(site, seed, control, progress));
        self.add("stops", move |control, progress| trouble::stops(site, seed, control, progress));
        self.add("descriptors", move |control, progress| {
            trouble::descriptors(site, seed, control, progress)
        });
        self.add("memory", move |control, progress| trouble::watch(site, control, progress));
    }
}

fn soak(
    options: &Options,
    sites: &[Site<'_>],
    moving_load: Option<&MovingLoad<'_>>,
    control: &RunControl,
) -> Vec<String> {
    std::thread::scope(|scope| {
        let mut actors = Vec::new();
        for site in sites {
            let mut group = ActorGroup { scope, site, control, actors: Vec::new() };
            match moving_load {
                Some(moving_load) => group.start_all_moving(options, moving_load),
                None => group.start_all(options),
            }
            actors.append(&mut group.actors);
        }
        let start = Instant::now();
        for minute in 1..=options.minutes {
            let due = MINUTE * minute;
            control.pause(due.saturating_sub(start.elapsed()));
            let counts = actors.iter().map(|one| {
                let words: Vec<&str> = one.name.split_whitespace().collect();
                format!("{} {}", words.join(" "), one.progress.count())
            });
            let line = format!("{minute} min: {}\n", counts.collect::<Vec<_>>().join(", "));
            if let Err(why) = say(&line) {
                control.fault(format!("the report cannot be written: {why}"));
            }
            if !control.is_running() {
                break;
            }
        }
        control.stop();
        let tell = |one: Actor<'_>| match one.thread.join() {
            Ok(line) => format!("{} {}", one.name, line.unwrap_or_else(|| "failed".to_owned())),
            Err(_) => {
                control.fault(format!("{} panicked", one.name));
                format!("{} panicked", one.name)
            }
        };
        actors.into_iter().map(tell).collect()
    })
}
