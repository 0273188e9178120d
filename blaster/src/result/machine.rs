//! The measuring machine: kernel, CPUs, memory, network interfaces, and their settings.
//!
//! Where: in the manifest. Invariant: a value that cannot be read is absent, and causes no error.
//! Source: uname(2), /proc/cpuinfo, /proc/meminfo, /proc/sys/net, /sys/class/net, ethtool, the
//! kernel's admin-guide for /sys/devices/system/cpu.

use super::manifest::Setting;
use procfs::{Current, Meminfo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const NICS_MAX: usize = 32;
/// Longer values of settings are cut to this number of characters.
const VALUE_CHARS_MAX: usize = 200;
/// Names of settings, and the files that contain their values.
const FILES: [(&str, &str); 19] = [
    ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("smt", "/sys/devices/system/cpu/smt/active"),
    ("boost", "/sys/devices/system/cpu/cpufreq/boost"),
    ("no-turbo", "/sys/devices/system/cpu/intel_pstate/no_turbo"),
    ("frequency-driver", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"),
    ("idle-driver", "/sys/devices/system/cpu/cpuidle/current_driver"),
    ("online-cpus", "/sys/devices/system/cpu/online"),
    ("isolated-cpus", "/sys/devices/system/cpu/isolated"),
    ("transparent-hugepages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("net.core.busy_poll", "/proc/sys/net/core/busy_poll"),
    ("net.core.busy_read", "/proc/sys/net/core/busy_read"),
    ("net.core.default_qdisc", "/proc/sys/net/core/default_qdisc"),
    ("net.core.netdev_max_backlog", "/proc/sys/net/core/netdev_max_backlog"),
    ("net.core.rmem_max", "/proc/sys/net/core/rmem_max"),
    ("net.core.somaxconn", "/proc/sys/net/core/somaxconn"),
    ("net.core.wmem_max", "/proc/sys/net/core/wmem_max"),
    ("net.ipv4.tcp_congestion_control", "/proc/sys/net/ipv4/tcp_congestion_control"),
    ("net.ipv4.tcp_rmem", "/proc/sys/net/ipv4/tcp_rmem"),
    ("net.ipv4.tcp_wmem", "/proc/sys/net/ipv4/tcp_wmem"),
];
/// Kernel parameters that affect performance. Other parameters may be private and are left out.
const BOOT_WORDS: [&str; 8] = [
    "mitigations",
    "isolcpus",
    "nohz",
    "nohz_full",
    "rcu_nocbs",
    "idle",
    "preempt",
    "intel_pstate",
];

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's name, release and build.
    pub kernel: String,
    /// The architecture.
    pub architecture: String,
    /// The CPUs' model.
    pub cpu_model: Option<String>,
    /// Number of CPUs on which this process may run.
    pub cpus: u32,
    /// The CPUs' frequency governor.
    pub governor: Option<String>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Other settings that affect performance: mitigations, clock, limits of sockets.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// Network interfaces, loopback included.
    pub nics: Vec<Nic>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// The interface's name, such as `eth0`.
    pub name: String,
    /// `up`, `down` or `unknown`.
    pub state: Option<String>,
    /// Size of the largest packet in bytes.
    pub mtu: Option<u32>,
    /// Speed in megabits per second.
    pub speed_mbps: Option<u32>,
    /// The interface's driver.
    pub driver: Option<String>,
    /// Number of receive queues.
    pub rx_queues: u32,
    /// Number of transmit queues.
    pub tx_queues: u32,
    /// Nanoseconds for which GRO holds packets, to merge later packets with them.
    pub gro_flush_timeout: Option<u64>,
    /// Number of polls without packets after which interrupts are enabled again.
    pub napi_defer_hard_irqs: Option<u64>,
    /// True if the kernel polls the interface in dedicated threads.
    pub threaded: Option<bool>,
    /// The CPUs that handle a card's interrupts, such as `0-3,8`. `None` if there is no card.
    pub interrupt_cpus: Option<String>,
    /// Offloads (1 is on), coalescing, rings and channels, as ethtool names them; packet steering.
    #[serde(default)]
    pub settings: Vec<Setting>,
}

impl Machine {
    /// Describes this machine.
    pub fn here() -> Machine {
        let name = rustix::system::uname();
        let part = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        Machine {
            kernel: [name.sysname(), name.release(), name.version()].map(part).join(" "),
            architecture: part(name.machine()),
            cpu_model: cpu_model(&cpuinfo()),
            cpus: std::thread::available_parallelism()
                .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
            governor: word(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            memory_bytes: Meminfo::current().ok().map(|memory| memory.mem_total),
            settings: settings(),
            nics: nics(Path::new("/sys/class/net"), Path::new("/proc/irq")),
        }
    }
}

/// The system's settings, except for the settings of network interfaces.
fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        settings.extend(value.map(|value| setting(name, &value)));
    };
    add("boot", boot(&procfs::cmdline().unwrap_or_default()));
    let is_guest = cpuinfo().split_whitespace().any(|word| word == "hypervisor");
    add("virtual", is_guest.then(|| "yes".to_owned()));
    for (name, path) in FILES {
        add(name, word(Path::new(path)));
    }
    for (name, state) in vulnerabilities(Path::new("/sys/devices/system/cpu/vulnerabilities")) {
        add(&name, Some(state));
    }
    settings
}

fn setting(name: &str, value: &str) -> Setting {
    let printable = value.split_whitespace().collect::<Vec<_>>().join(" ");
    let value = printable.chars().take(VALUE_CHARS_MAX).collect();
    Setting { name: name.to_owned(), value }
}

fn boot(words: &[String]) -> Option<String> {
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let is_known = |word: &&String| BOOT_WORDS.contains(&name(word).as_str());
    let known: Vec<&str> = words.iter().filter(is_known).map(String::as_str).collect();
    (!known.is_empty()).then(|| known.join(" "))
}

fn vulnerabilities(folder: &Path) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(String, String)> = entries
        .flatten()
        .filter_map(|entry| {
            let state = word(&entry.path()).filter(|state| state != "Not affected")?;
            Some((entry.file_name().to_string_lossy().into_owned(), state))
        })
        .collect();
    found.sort();
    found
}

/// Reads /proc/cpuinfo. The procfs crate would panic if no CPU is listed, and omits ARM models.
fn cpuinfo() -> String {
    fs::read_to_string("/proc/cpuinfo").unwrap_or_default()
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| {
        ["model name", "Model", "cpu model", "Processor"].iter().any(|name| line.starts_with(name))
    })?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn nics(folder: &Path, interrupts: &Path) -> Vec<Nic> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.truncate(NICS_MAX);
    paths.iter().map(|path| nic(path, interrupts)).collect()
}

/// The CPUs that handle the interrupts of the interface's card. `None` for a card without
/// message-signalled interrupts. `interrupts` has a folder for each interrupt.
fn interrupt_cpus(nic: &Path, interrupts: &Path) -> Option<String> {
    let device = fs::canonicalize(nic.join("device")).ok()?;
    // A virtio card's interrupts are listed at the device above the card.
    let listed =
        device.ancestors().take(2).find_map(|it| fs::read_dir(it.join("msi_irqs")).ok())?;
    let mut cpus = BTreeSet::new();
    for entry in listed.flatten() {
        let own = interrupts.join(entry.file_name());
        let list = word(&own.join("effective_affinity_list"));
        let list = list.or_else(|| word(&own.join("smp_affinity_list"))).unwrap_or_default();
        cpus.extend(crate::words::values::cpus(&list).unwrap_or_default());
    }
    let cpus: Vec<usize> = cpus.into_iter().collect();
    (!cpus.is_empty()).then(|| crate::words::values::cpu_list(&cpus))
}

fn nic(path: &Path, interrupts: &Path) -> Nic {
    let queues = |kind: &str| {
        let Ok(entries) = fs::read_dir(path.join("queues")) else { return 0 };
        let names =
            entries.flatten().filter(|one| one.file_name().to_string_lossy().starts_with(kind));
        u32::try_from(names.count()).unwrap_or(u32::MAX)
    };
    let driver = fs::read_link(path.join("device/driver")).ok();
    let number = |name: &str| word(&path.join(name)).and_then(|text| text.parse().ok());
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let ethtool = net::nic_settings(&name).into_iter();
    let mut settings: Vec<Setting> =
        ethtool.map(|(name, value)| setting(name, &value.to_string())).collect();
    for (name, file) in [
        ("tx-queue-length", "tx_queue_len"),
        ("rx-0 rps-cpus", "queues/rx-0/rps_cpus"),
        ("tx-0 xps-cpus", "queues/tx-0/xps_cpus"),
    ] {
        settings.extend(word(&path.join(file)).map(|value| setting(name, &value)));
    }
    Nic {
        name,
        state: word(&path.join("operstate")),
        mtu: word(&path.join("mtu")).and_then(|text| text.parse().ok()),
        // If the speed is unknown, the kernel reports -1, which is not parsed.
        speed_mbps: word(&path.join("speed")).and_then(|text| text.parse().ok()),
        driver: driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
        rx_queues: queues("rx-"),
        tx_queues: queues("tx-"),
        gro_flush_timeout: number("gro_flush_timeout"),
        napi_defer_hard_irqs: number("napi_defer_hard_irqs"),
        threaded: number("threaded").map(|threaded| threaded != 0),
        interrupt_cpus: interrupt_cpus(path, interrupts),
        settings,
    }
}

/// A file's trimmed text; `None` if the file cannot be read or is empty.
fn word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_read_of_several_architectures() {
        let x86 =
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
        assert_eq!(cpu_model(x86).as_deref(), Some("AMD EPYC"));
        let arm = "processor\t: 0\nBogoMIPS\t: 50\n\nModel\t\t: Raspberry Pi 4\n";
        assert_eq!(cpu_model(arm).as_deref(), Some("Raspberry Pi 4"));
        assert_eq!(cpu_model("processor: 0"), None);
    }

    #[test]
    fn interfaces_are_read_from_their_folders() {
        let folder = std::env::temp_dir().join(format!("kvblaster-nics-{}", std::process::id()));
        let eth = folder.join("net/eth7");
        for queue in ["rx-0", "rx-1", "tx-0"] {
            fs::create_dir_all(eth.join("queues").join(queue)).unwrap();
        }
        let device = folder.join("bus/pci7/virtio7");
        fs::create_dir_all(&device).unwrap();
        std::os::unix::fs::symlink(&device, eth.join("device")).unwrap();
        std::os::unix::fs::symlink("../../drivers/virtio_net", eth.join("device/driver")).unwrap();
        for (name, text) in
            [("mtu", "9000\n"), ("speed", "-1\n"), ("operstate", "up\n"), ("threaded", "0\n")]
        {
            fs::write(eth.join(name), text).unwrap();
        }
        fs::write(eth.join("queues/rx-0/rps_cpus"), "3\n").unwrap();
        // eth7 is a virtio card, so its interrupts are listed at the device above the card.
        let bus = folder.join("bus/pci7");
        for (interrupt, list) in [("24", "0-1\n"), ("25", "1\n"), ("27", "7\n")] {
            fs::create_dir_all(bus.join("msi_irqs")).unwrap();
            fs::write(bus.join("msi_irqs").join(interrupt), "msix\n").unwrap();
            let own = folder.join("irq").join(interrupt);
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("effective_affinity_list"), list).unwrap();
        }
        let mut found = nics(&folder.join("net"), &folder.join("irq"));
        // If this machine really has an eth7, removes the settings that ethtool returned for it.
        found[0].settings.retain(|setting| setting.name.contains("rps"));
        fs::remove_dir_all(&folder).unwrap();
        let expected = Nic {
            name: "eth7".to_owned(),
            state: Some("up".to_owned()),
            mtu: Some(9000),
            driver: Some("virtio_net".to_owned()),
            rx_queues: 2,
            tx_queues: 1,
            threaded: Some(false),
            interrupt_cpus: Some("0-1,7".to_owned()),
            settings: vec![setting("rx-0 rps-cpus", "3")],
            ..Nic::default()
        };
        assert_eq!(found, [expected]);
        assert_eq!(nics(Path::new("/nowhere"), Path::new("/nowhere")), []);
    }

    #[test]
    fn this_machine_has_a_kernel_and_settings() {
        let here = Machine::here();
        assert!(here.kernel.starts_with("Linux ") && here.cpus > 0, "{here:?}");
        let has = |name: &str| here.settings.iter().any(|setting| setting.name == name);
        assert!(has("net.core.somaxconn"), "{:?}", here.settings);
        let lo = here.nics.iter().find(|nic| nic.name == "lo").unwrap();
        assert!(lo.settings.iter().any(|setting| setting.name == "gso"), "{lo:?}");
    }

    #[test]
    fn only_what_matters_of_the_command_line_is_kept() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1 mitigations=off quiet isolcpus=2,3 key=secret";
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(boot(&words(line)).as_deref(), Some("mitigations=off isolcpus=2,3"));
        assert_eq!(boot(&words("quiet mitigationsx=1")), None);
        let folder = std::env::temp_dir().join(format!("kvblaster-vuln-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("meltdown"), "Not affected\n").unwrap();
        fs::write(folder.join("spectre_v2"), "Mitigation: Retpolines\n").unwrap();
        let found = vulnerabilities(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [("spectre_v2".to_owned(), "Mitigation: Retpolines".to_owned())]);
        assert_eq!(setting("a", &"b c\n".repeat(100)).value.len(), VALUE_CHARS_MAX);
    }
}
