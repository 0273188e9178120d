//! Warns of settings of the machine that make a run slower, or the run's times less steady.
//!
//! Where: added to the self-check of a run without agents.
//! Invariant: a remark only warns. An unknown setting or rate leads to no remark, because loopback
//! and virtual interfaces have no interrupts and no coalescing.
//! Source: Pavlik's thesis, chapter 3 (interrupts on a server's CPUs); the kernel's
//! networking/scaling.rst and admin-guide/pm/cpufreq.rst.

use super::machine::Nic;
use super::manifest::{Manifest, Setting};
use crate::measure::Interval;
use crate::measure::verdict::{Remark, Severity};
use crate::words::grouped;
use crate::words::values::cpus;
use std::collections::BTreeSet;

/// The governor under which CPUs always run at their highest frequency.
const GOVERNOR: &str = "performance";
/// ethtool's settings that make a driver adapt its interrupt coalescing to the traffic.
const ADAPTIVE: [&str; 2] = ["adaptive-rx", "adaptive-tx"];
/// The settings that pin driving threads to CPUs.
const PINNED: [&str; 2] = ["cpus", "receive-cpus"];

/// Up to this rate, interrupts do not matter: at 2 µs each, they take 0.2 % of a CPU's time.
const INTERRUPTS_PER_S_MAX: f64 = 1000.0;

/// Returns the remarks on a run's machine. `merged` has all traffic; `None` without traffic.
pub(crate) fn remarks(manifest: &Manifest, merged: Option<&Interval>) -> Vec<Remark> {
    let nics = &manifest.machine.nics;
    let governor = manifest.machine.governor.as_deref();
    let governor = governor.filter(|governor| *governor != GOVERNOR).map(|governor| {
        let sentence = format!(
            "the CPUs' frequency governor is {governor}, not {GOVERNOR}: CPUs that are not busy \
             run at a lower frequency, and answer more slowly"
        );
        warning("governor", sentence)
    });
    let carries = |nic: &&Nic| {
        let mut interfaces = manifest.targets.iter().filter_map(|one| one.interface.as_ref());
        interfaces.any(|interface| *interface == nic.name)
    };
    let adaptive = nics.iter().filter(carries).filter_map(adaptive);
    let interrupts = [("server", server_cpus(manifest)), ("generator", generator_cpus(manifest))];
    let interrupts =
        interrupts.iter().filter_map(|(name, cpus)| on_cpus((nics, merged?), name, cpus));
    governor.into_iter().chain(adaptive).chain(interrupts).collect()
}

fn warning(rule: &str, sentence: String) -> Remark {
    Remark { rule: rule.to_owned(), severity: Severity::Warning, sentence }
}

fn value<'s>(settings: &'s [Setting], name: &str) -> Option<&'s str> {
    settings.iter().find(|one| one.name == name).map(|one| one.value.as_str())
}

fn adaptive(nic: &Nic) -> Option<Remark> {
    let is_on = |name: &&&str| value(&nic.settings, name).is_some_and(|value| value != "0");
    let on: Vec<&str> = ADAPTIVE.iter().filter(is_on).copied().collect();
    let sentence = format!(
        "the network card {} carries the requests, and its adaptive coalescing of interrupts is on \
         ({}): the card's delays change with the load. ethtool -C turns adaptive coalescing off",
        nic.name,
        on.join(", ")
    );
    (!on.is_empty()).then(|| warning("adaptive-coalescing", sentence))
}

/// The CPUs to which servers are pinned. A server is pinned if it may not run on all CPUs.
fn server_cpus(manifest: &Manifest) -> BTreeSet<usize> {
    let Some(all) = value(&manifest.machine.settings, "online-cpus").map(set) else {
        return BTreeSet::new();
    };
    let each = manifest.targets.iter().filter_map(|one| one.cpus.as_deref().map(set));
    each.filter(|cpus| !cpus.is_superset(&all)).flatten().collect()
}

fn generator_cpus(manifest: &Manifest) -> BTreeSet<usize> {
    PINNED.iter().filter_map(|name| value(&manifest.settings, name)).flat_map(set).collect()
}

fn set(list: &str) -> BTreeSet<usize> {
    cpus(list).unwrap_or_default().into_iter().collect()
}

/// Returns a remark if one of `cpus` handles a network card's interrupts, and has handled many
/// interrupts. The kernel counts the interrupts of all devices together for each CPU.
fn on_cpus(
    (nics, merged): (&[Nic], &Interval),
    name: &str,
    cpus: &BTreeSet<usize>,
) -> Option<Remark> {
    let cores = merged.usage.machine.iter().flat_map(|machine| &machine.cores);
    let rates = cores.filter_map(|core| {
        Some((core.cpu as usize, core.network.as_ref()?.device_interrupts_per_s))
    });
    let mut busy = rates.filter(|(cpu, rate)| cpus.contains(cpu) && *rate > INTERRUPTS_PER_S_MAX);
    let handles =
        |nic: &Nic, cpu| nic.interrupt_cpus.as_deref().is_some_and(|it| set(it).contains(&cpu));
    let (cpu, rate, nic) =
        busy.find_map(|(cpu, rate)| Some((cpu, rate, nics.iter().find(|nic| handles(nic, cpu))?)))?;
    let whose = if name == "server" { "a server is" } else { "kvblaster's threads are" };
    let sentence = format!(
        "CPU {cpu}, to which {whose} pinned, handled {} device interrupts a second, and this CPU \
         also receives the interrupts of the network card {}: move the interrupts to another CPU \
         (/proc/irq/*/smp_affinity_list), or pin the threads to other CPUs",
        grouped(rate),
        nic.name
    );
    Some(warning(&format!("interrupts-on-{name}"), sentence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::cpu::{Core, CpuShares};
    use crate::measure::interrupts::CoreNetwork;
    use crate::result::manifest::TargetRecord;
    use crate::result::sample;

    /// Returns a manifest with a server on CPU 1 of four CPUs, reached over eth0. The CPUs
    /// `interrupts` handle the interrupts of eth0.
    fn made(interrupts: &str) -> Manifest {
        let setting = |name: &str, value: &str| Setting { name: name.into(), value: value.into() };
        let mut manifest = Manifest::default();
        manifest.machine.governor = Some(GOVERNOR.to_owned());
        manifest.machine.settings = vec![setting("online-cpus", "0-3")];
        let nic = |name: &str| Nic { name: name.to_owned(), ..Nic::default() };
        let adaptive = |on| vec![setting("adaptive-rx", on), setting("adaptive-tx", "0")];
        let eth0 = Nic { settings: adaptive("0"), ..nic("eth0") };
        let eth0 = Nic { interrupt_cpus: Some(interrupts.to_owned()), ..eth0 };
        let eth1 = Nic { settings: adaptive("1"), ..nic("eth1") };
        manifest.machine.nics = vec![nic("lo"), eth0, eth1];
        let cpus = Some("1".to_owned());
        let interface = Some("eth0".to_owned());
        manifest.targets = vec![TargetRecord { cpus, interface, ..TargetRecord::default() }];
        manifest
    }

    /// Traffic during which each of four CPUs handled this many interrupts per second.
    fn traffic(device_interrupts_per_s: f64) -> Interval {
        let network = Some(CoreNetwork { device_interrupts_per_s, ..CoreNetwork::default() });
        let cores = [0, 1, 2, 3].map(|cpu| Core { cpu, network, ..Core::default() }).into();
        let mut merged = sample::result("ours", 50).merged.unwrap();
        merged.usage.machine = Some(CpuShares { cores, ..CpuShares::default() });
        merged
    }

    fn sentences(manifest: &Manifest) -> Vec<String> {
        let remarks = remarks(manifest, Some(&traffic(12_345.0)));
        remarks.into_iter().map(|one| one.sentence).collect()
    }

    fn rules(manifest: &Manifest) -> Vec<String> {
        let remarks = remarks(manifest, Some(&traffic(12_345.0))).into_iter();
        remarks.inspect(|one| assert_eq!(one.severity, Severity::Warning)).map(|o| o.rule).collect()
    }

    #[test]
    fn a_quiet_machine_and_one_that_tells_nothing_have_no_remarks() {
        assert_eq!(rules(&made("2-3")), [""; 0]);
        assert_eq!(rules(&Manifest::default()), [""; 0]);
        assert_eq!(rules(&made("x")), [""; 0]);
    }

    #[test]
    fn interrupts_on_the_cpus_of_a_server_or_a_thread_are_told() {
        let on_server = made("0-2");
        assert_eq!(rules(&on_server), ["interrupts-on-server"]);
        let sentence = &sentences(&on_server)[0];
        let begin = "CPU 1, to which a server is pinned, handled 12,345 device interrupts";
        assert!(sentence.starts_with(begin), "{sentence}");
        // Few interrupts, or an unknown number of interrupts, lead to no remark.
        let few = traffic(INTERRUPTS_PER_S_MAX);
        assert!(remarks(&on_server, Some(&few)).is_empty());
        assert!(remarks(&on_server, None).is_empty());
        // A server that may run on all CPUs is not pinned.
        let mut free = on_server.clone();
        free.targets[0].cpus = Some("0-3".to_owned());
        assert_eq!(rules(&free), [""; 0]);
        free.set("receive-cpus", "2,3");
        assert_eq!(rules(&free), ["interrupts-on-generator"]);
        let sentence = &sentences(&free)[0];
        assert!(sentence.starts_with("CPU 2, to which kvblaster's threads are"), "{sentence}");
        free.machine.nics[1].interrupt_cpus = None;
        assert_eq!(rules(&free), [""; 0]);
    }

    #[test]
    fn adaptive_coalescing_counts_only_where_requests_pass() {
        let mut manifest = made("2");
        manifest.targets[0].interface = Some("eth1".to_owned());
        assert_eq!(rules(&manifest), ["adaptive-coalescing"]);
        assert!(sentences(&manifest)[0].contains("eth1 carries the requests"));
        assert!(sentences(&manifest)[0].contains("on (adaptive-rx):"));
        manifest.targets[0].interface = None;
        assert_eq!(rules(&manifest), [""; 0]);
    }

    #[test]
    fn a_governor_that_saves_power_is_told() {
        let mut manifest = made("2");
        manifest.machine.governor = Some("powersave".to_owned());
        assert_eq!(rules(&manifest), ["governor"]);
        manifest.machine.governor = None;
        assert_eq!(rules(&manifest), [""; 0]);
    }
}
