//! The manifest of a run: servers, settings, machine.
//!
//! Where: made when a run is over, and written with its result.
//! Invariant: the manifest is sufficient to repeat the run: it contains the whole workload, and
//! every flag that differs from its default.

use super::context::RunContext;
use super::plan::Plan;
use crate::measure::owner;
use crate::result::manifest::{Manifest, TargetRecord};
use crate::target::version::ServerInfo;
use crate::target::{Place, Target};
use crate::words::ns;
use procfs::process::Process;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Maximum number of characters recorded of a server's command line or list of CPUs.
const COMMAND_CHARS_MAX: usize = 4096;

pub(crate) fn manifest(plan: &Plan, context: &RunContext) -> Manifest {
    let servers = &context.servers;
    let names: Vec<&str> = servers.targets.iter().map(|target| target.name.as_str()).collect();
    let targets = servers.targets.iter().zip(&servers.infos);
    let record =
        |(target, info): (&Target, &ServerInfo)| record(plan, context, (target, &info.version));
    let mut manifest = Manifest {
        label: plan.label.clone().unwrap_or_else(|| names.join(" ")),
        seed: plan.seed,
        workload_toml: plan.workload.to_toml(),
        targets: targets.map(record).collect(),
        protocol: servers.protocol.name().to_owned(),
        driven: if plan.is_open() { "open" } else { "closed" }.to_owned(),
        schedule: plan.schedule.to_string(),
        threads: plan.threads,
        late_limit_ns: ns(plan.late),
        ..Manifest::here()
    };
    manifest.set("workload", &plan.workload_name);
    manifest.set("connections", plan.connections);
    match plan.rate_per_s {
        Some(rate) if rate.is_nan() => manifest.set("rate", "own"),
        Some(rate) => manifest.set("rate", rate),
        None if plan.is_open() => {}
        None => manifest.set("depth", plan.depth),
    }
    if plan.is_open() {
        manifest.set("outstanding", plan.outstanding_max);
    }
    manifest.set("timeout", format!("{:?}", plan.timeout));
    if let Some(requests) = plan.churn_requests {
        manifest.set("churn", requests);
    }
    if let Some(steer) = plan.steer {
        manifest.set("steer", steer.name());
    }
    if let Some(columns) = plan.columns {
        manifest.set("columns", columns);
    }
    if let Some(requests) = plan.requests {
        manifest.set("requests", requests);
    }
    if let Some(rate) = plan.fill_rate_per_s {
        manifest.set("fill-rate", rate);
    }
    if let Some(limit) = plan.warm {
        manifest.set("warm", format!("{limit:?}"));
    }
    for (name, is_on) in [
        ("verify", plan.verify),
        ("gso", plan.gso),
        ("spin", plan.spin),
        ("no-populate", !plan.populate),
        ("force", plan.force),
        ("keep", plan.keep),
    ] {
        if is_on {
            manifest.set(name, is_on);
        }
    }
    for (name, cpus) in [("cpus", &plan.cpus), ("receive-cpus", &plan.receive_cpus)] {
        if !cpus.is_empty() {
            let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
            manifest.set(name, cpus.join(","));
        }
    }
    manifest
}

fn record(
    plan: &Plan,
    context: &RunContext,
    (target, version): (&Target, &Option<String>),
) -> TargetRecord {
    let place = match &target.place {
        Place::Tcp(address) => format!("tcp {address}"),
        Place::Udp(address) => format!("udp {address}"),
        Place::Xdp(bypass, address) => format!("xdp {} {address}", bypass.interface),
        Place::Unix(path) => format!("unix {}", path.display()),
    };
    let pids = match plan.server_pids.is_empty() && context.agents.is_none() {
        true => owner::owners(&target.place),
        false => plan.server_pids.clone(),
    };
    TargetRecord {
        name: target.name.clone(),
        place,
        weight: target.weight,
        version: version.clone(),
        command_line: pids.first().and_then(|pid| command_line(*pid)),
        cpus: pids.first().and_then(|pid| cpus(*pid)),
        pids,
        interface: if context.agents.is_none() { interface(&target.place) } else { None },
    }
}

/// Returns the interface of this machine that sends the requests to `place`.
fn interface(place: &Place) -> Option<String> {
    let to = match place {
        Place::Tcp(address) | Place::Udp(address) => *address,
        Place::Xdp(bypass, _) => return Some(bypass.interface.clone()),
        Place::Unix(_) => return None,
    };
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // `connect` sends nothing on a UDP socket; it only chooses the local address by the route.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    let own = socket.local_addr().ok()?.ip().to_canonical();
    // The kernel sends packets to this machine's own addresses over loopback.
    let own = if own == to.ip().to_canonical() { Ipv4Addr::LOCALHOST.into() } else { own };
    let all = net::own_addresses().ok()?;
    all.into_iter().find(|one| one.ip == own).map(|one| one.interface)
}

fn process(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

/// Returns the CPUs that a process may run on, as a list such as 0-3,8.
pub(super) fn cpus(pid: u32) -> Option<String> {
    Some(listed(&process(pid)?.status().ok()?.cpus_allowed_list?))
}

/// Returns all CPUs of a thread that may run on a CPU outside `cpus`. `None` if no thread may.
pub(super) fn strays(pid: u32, cpus: &[usize]) -> Option<String> {
    let is_own = |cpu: u32| cpus.contains(&(cpu as usize));
    let is_free = |ranges: &Ranges| !ranges.iter().all(|(from, to)| (*from..=*to).all(is_own));
    let threads = process(pid)?.tasks().ok()?.filter_map(Result::ok);
    let mut allowed = threads.filter_map(|thread| thread.status().ok()?.cpus_allowed_list);
    allowed.find(is_free).map(|ranges| listed(&ranges))
}

type Ranges = Vec<(u32, u32)>;

fn listed(ranges: &Ranges) -> String {
    let range = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let list = ranges.iter().map(range).collect::<Vec<_>>().join(",");
    list.chars().take(COMMAND_CHARS_MAX).collect()
}

/// Returns the command line of a process. `None` if this process may not read it.
fn command_line(pid: u32) -> Option<String> {
    let text = process(pid)?.cmdline().ok()?.join(" ");
    let text: String = text.trim().chars().take(COMMAND_CHARS_MAX).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_reaches_itself_over_loopback_and_a_path_over_no_network() {
        let to = |address: &str| Place::Udp(address.parse().unwrap());
        assert_eq!(interface(&to("127.0.0.1:11211")).as_deref(), Some("lo"));
        let needs_scope = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let all = net::own_addresses().unwrap();
        for own in all.into_iter().filter(|own| !needs_scope(&own.ip)) {
            let place = Place::Tcp((own.ip, 11211).into());
            assert_eq!(interface(&place).as_deref(), Some("lo"), "{own:?}");
        }
        assert_eq!(interface(&Place::Unix("/tmp/a".into())), None);
    }
}
