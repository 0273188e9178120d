//! Interrupts and received packets by CPU.
//!
//! Where: the run reads the tables before and after each report.
//! Invariant: a table that cannot be read leads to absent figures, and no content of a table makes
//! reading fail.
//! Source: proc_interrupts(5); /proc/softirqs; net/core/net-procfs.c of the kernel, for
//! /proc/net/softnet_stat; Pavlik's thesis, chapter 3.

use super::cpu::{CPUS_MAX, CpuShares};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The counts of one CPU since the system started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    device_interrupts: u64,
    net_rx: u64,
    packets: u64,
    dropped: u64,
    squeezed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterruptCounts(BTreeMap<u32, Counts>);

/// The interrupts and packets of one CPU during a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreNetwork {
    /// Interrupts of devices per second, without timers and interrupts between CPUs.
    pub device_interrupts_per_s: f64,
    /// Software interrupts that receive packets, per second.
    pub net_rx_per_s: f64,
    /// Packets that software interrupts received.
    pub packets: u64,
    /// Packets dropped because the CPU's backlog was full.
    pub packets_dropped: u64,
    /// Software interrupts that ended before all packets were handled, for lack of time or budget.
    pub squeezed: u64,
}

impl CoreNetwork {
    /// Merges the figures of two spans of time, of lengths `seconds` and `other_seconds`.
    pub(crate) fn merged_with(
        &self,
        seconds: f64,
        other: &CoreNetwork,
        other_seconds: f64,
    ) -> CoreNetwork {
        let all = (seconds + other_seconds).max(f64::MIN_POSITIVE);
        let mean = |ours: f64, theirs: f64| (ours * seconds + theirs * other_seconds) / all;
        CoreNetwork {
            device_interrupts_per_s: mean(
                self.device_interrupts_per_s,
                other.device_interrupts_per_s,
            ),
            net_rx_per_s: mean(self.net_rx_per_s, other.net_rx_per_s),
            ..self.with_counts_of(other)
        }
    }

    /// Adds the figures of another CPU.
    pub(crate) fn plus(&self, other: &CoreNetwork) -> CoreNetwork {
        CoreNetwork {
            device_interrupts_per_s: self.device_interrupts_per_s + other.device_interrupts_per_s,
            net_rx_per_s: self.net_rx_per_s + other.net_rx_per_s,
            ..self.with_counts_of(other)
        }
    }

    fn with_counts_of(self, other: &CoreNetwork) -> CoreNetwork {
        CoreNetwork {
            packets: self.packets + other.packets,
            packets_dropped: self.packets_dropped + other.packets_dropped,
            squeezed: self.squeezed + other.squeezed,
            ..self
        }
    }
}

impl InterruptCounts {
    /// Reads the counts of all CPUs. The result is empty if a table cannot be read.
    pub(crate) fn read() -> InterruptCounts {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let tables = (
            read("/proc/interrupts"),
            read("/proc/softirqs"),
            read("/proc/thread-self/net/softnet_stat"),
        );
        let (Some(interrupts), Some(softirqs), Some(softnet)) = tables else {
            return InterruptCounts::default();
        };
        InterruptCounts::parse(&interrupts, &softirqs, &softnet)
    }

    fn parse(interrupts: &str, softirqs: &str, softnet: &str) -> InterruptCounts {
        let mut counts = BTreeMap::<u32, Counts>::new();
        // An interrupt without a number is a timer, an error or an interrupt between CPUs. On ARM
        // and RISC-V timers have numbers, but a timer's line ends with `timer`.
        let is_device = |name: &str, line: &str| {
            let is_number = name.parse::<u32>().is_ok();
            let device = line.split_ascii_whitespace().next_back().unwrap_or_default();
            is_number && !device.ends_with("timer")
        };
        add_table(interrupts, is_device, |cpu, more| {
            counts.entry(cpu).or_default().device_interrupts += more;
        });
        let is_net_rx = |name: &str, _: &str| name == "NET_RX";
        add_table(softirqs, is_net_rx, |cpu, more| counts.entry(cpu).or_default().net_rx += more);
        for (line, nth) in softnet.lines().take(CPUS_MAX).zip(0..) {
            let figures: Vec<u64> = line
                .split_ascii_whitespace()
                .map_while(|f| u64::from_str_radix(f, 16).ok())
                .collect();
            let [packets, dropped, squeezed, ..] = figures[..] else { continue };
            // Linux before 5.10 does not report the CPU's number, so the line's number is used.
            let cpu = figures.get(12).and_then(|cpu| u32::try_from(*cpu).ok()).unwrap_or(nth);
            let own = counts.entry(cpu).or_default();
            (own.packets, own.dropped, own.squeezed) = (packets, dropped, squeezed);
        }
        InterruptCounts(counts)
    }

    /// Adds to `shares` each CPU's figures since the reading `before`, which is `seconds` older.
    pub(crate) fn add_to(&self, shares: &mut CpuShares, before: &InterruptCounts, seconds: f64) {
        for core in &mut shares.cores {
            let both = self.0.get(&core.cpu).zip(before.0.get(&core.cpu));
            core.network = both.map(|(now, then)| now.since(then, seconds));
        }
    }
}

impl Counts {
    fn since(&self, before: &Counts, seconds: f64) -> CoreNetwork {
        // A counter of interrupts decreases if its device is removed. The counters of packets have
        // 32 bits and wrap around.
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let wrapped = |now: u64, then: u64| now.wrapping_sub(then) & u64::from(u32::MAX);
        let per_s = |count: u64| count as f64 / seconds.max(f64::MIN_POSITIVE);
        CoreNetwork {
            device_interrupts_per_s: per_s(since(self.device_interrupts, before.device_interrupts)),
            net_rx_per_s: per_s(since(self.net_rx, before.net_rx)),
            packets: wrapped(self.packets, before.packets),
            packets_dropped: wrapped(self.dropped, before.dropped),
            squeezed: wrapped(self.squeezed, before.squeezed),
        }
    }
}

/// Calls `add` with each CPU's number and count, for each line whose name and rest fulfil
/// `is_counted`. The first line names the CPUs: `CPU0 CPU2`.
fn add_table(text: &str, is_counted: impl Fn(&str, &str) -> bool, mut add: impl FnMut(u32, u64)) {
    let mut lines = text.lines();
    let names = lines.next().unwrap_or_default().split_ascii_whitespace().take(CPUS_MAX);
    let cpus: Vec<u32> = names.map_while(|name| name.strip_prefix("CPU")?.parse().ok()).collect();
    for line in lines {
        let Some((name, counts)) = line.split_once(':') else { continue };
        if !is_counted(name.trim(), counts) {
            continue;
        }
        let counts = counts.split_ascii_whitespace().map_while(|count| count.parse().ok());
        cpus.iter().zip(counts).for_each(|(cpu, count)| add(*cpu, count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::cpu::Core;

    /// Contents of the kernel's tables, recorded under Linux 6.18 and shortened. CPU 1 is offline.
    const INTERRUPTS: &str = "           CPU0       CPU2       
 26:          0         13  IO-APIC   4-edge      ttyS0
 41:      27872          5 PCI-MSIX-0000:00:04.0   1-edge      virtio3-rx
NMI:          1          0   Non-maskable interrupts
LOC:   26986446   26981408   Local timer interrupts
ERR:          0
";
    const SOFTIRQS: &str = "                    CPU0       CPU1       CPU2       
          HI:          0          0          0
      NET_TX:      41351      40906          7
      NET_RX:  235546940  223037907        100
";
    const SOFTNET: &str = "\
fffffffe 00000076 00000068 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
00000000 00000000 00000000 00000000
0000000a 00000000 00000065 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
00000000 00000002 00000000 00000000
";

    fn shares() -> CpuShares {
        let cores = [0, 1, 2, 3].map(|cpu| Core { cpu, ..Core::default() });
        CpuShares { cores: cores.into(), ..CpuShares::default() }
    }

    fn told(now: &InterruptCounts, before: &InterruptCounts) -> Vec<Option<CoreNetwork>> {
        let mut shares = shares();
        now.add_to(&mut shares, before, 2.0);
        shares.cores.into_iter().map(|core| core.network).collect()
    }

    #[test]
    fn each_cpu_has_what_came_to_it_between_two_readings() {
        let before = InterruptCounts::parse(INTERRUPTS, SOFTIRQS, SOFTNET);
        let interrupts = INTERRUPTS.replace("27872", "28072").replace("26981408", "99999999");
        let softirqs = SOFTIRQS.replace("       100", "       500");
        let softnet =
            SOFTNET.replace("fffffffe 00000076", "00000004 0000007a").replace("65 ", "67 ");
        let after = InterruptCounts::parse(&interrupts, &softirqs, &softnet);
        let first = CoreNetwork {
            device_interrupts_per_s: 100.0,
            packets: 6,
            packets_dropped: 4,
            ..CoreNetwork::default()
        };
        let third = CoreNetwork { net_rx_per_s: 200.0, squeezed: 2, ..CoreNetwork::default() };
        let none = CoreNetwork::default();
        assert_eq!(told(&after, &before), [Some(first), Some(none), Some(third), None]);
        let both = first.merged_with(1.0, &third, 3.0);
        assert_eq!((both.device_interrupts_per_s, both.net_rx_per_s), (25.0, 150.0));
        assert_eq!((both.packets, both.packets_dropped, both.squeezed), (6, 4, 2));
        let sum = first.plus(&third);
        assert_eq!((sum.device_interrupts_per_s, sum.net_rx_per_s, sum.packets), (100.0, 200.0, 6));
    }

    #[test]
    fn a_softnet_table_without_cpus_is_in_their_order_and_strange_text_tells_nothing() {
        let old = "00000005 00000000 00000000\n00000007 00000001 00000000\nx\n1 2\n";
        let counts = InterruptCounts::parse("", "", old);
        let packets: Vec<_> = counts.0.iter().map(|(cpu, own)| (*cpu, own.packets)).collect();
        assert_eq!(packets, [(0, 5), (1, 7)]);
        let strange = InterruptCounts::parse("CPUx\n1: 2", " CPU0\n: 3\n7", "\u{0}\n");
        assert_eq!(told(&strange, &counts), [None; 4]);
    }

    #[test]
    fn timers_do_not_count_as_devices() {
        // Interrupt 11 is from Linux on ARM, where the interrupts of timers have numbers.
        let table = "\
           CPU0       CPU1
 11:      18843      20017     GICv3  27 Level     arch_timer
 24:          7          0   IO-APIC   2-edge      timer
 41:         10          0       MSI 524289 Edge      virtio1-input.0, eth-timer0
IPI0:      2046       2211       Rescheduling interrupts
   :          5          0
";
        let counts = InterruptCounts::parse(table, SOFTIRQS, SOFTNET);
        assert_eq!(counts.0[&0].device_interrupts, 10);
        assert_eq!(counts.0[&1].device_interrupts, 0);
    }

    #[test]
    fn this_machine_tells_something() {
        let counts = InterruptCounts::read();
        let received: u64 = counts.0.values().map(|own| own.net_rx).sum();
        assert!(counts.0.is_empty() || received > 0, "{counts:?}");
    }
}
