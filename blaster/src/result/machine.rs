//! The machine that measured: kernel, CPUs, memory, network interfaces.
//!
//! Where: in the manifest. Invariant: what cannot be read is absent; nothing here can fail.
//! Source: uname(2), /proc/cpuinfo, /proc/meminfo, /sys/class/net.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Interfaces that are listed.
const NICS_MAX: usize = 32;

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's name, release and build.
    pub kernel: String,
    /// The architecture.
    pub architecture: String,
    /// The model of its CPUs.
    pub cpu_model: Option<String>,
    /// CPUs that this process may run on.
    pub cpus: u32,
    /// Who decides on their frequency.
    pub governor: Option<String>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Network interfaces, loopback included.
    pub nics: Vec<Nic>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// `up`, `down` or `unknown`.
    pub state: Option<String>,
    /// The longest packet.
    pub mtu: Option<u32>,
    /// Megabits a second.
    pub speed_mbps: Option<u32>,
    /// Its driver.
    pub driver: Option<String>,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Nanoseconds that merging of received packets waits.
    pub gro_flush_timeout: Option<u64>,
    /// Polls without packets before interrupts are on again.
    pub napi_defer_hard_irqs: Option<u64>,
    /// Whether it is polled by threads of its own.
    pub threaded: Option<bool>,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn here() -> Machine {
        let name = rustix::system::uname();
        let part = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Machine {
            kernel: [name.sysname(), name.release(), name.version()].map(part).join(" "),
            architecture: part(name.machine()),
            cpu_model: cpu_model(&read("/proc/cpuinfo")),
            cpus: std::thread::available_parallelism()
                .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
            governor: word(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            nics: nics(Path::new("/sys/class/net")),
        }
    }
}

/// The first model that is named.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| {
        ["model name", "Model", "cpu model", "Processor"].iter().any(|name| line.starts_with(name))
    })?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn nics(folder: &Path) -> Vec<Nic> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.truncate(NICS_MAX);
    paths.iter().map(|path| nic(path)).collect()
}

fn nic(path: &Path) -> Nic {
    let queues = |kind: &str| {
        let Ok(entries) = fs::read_dir(path.join("queues")) else { return 0 };
        let names =
            entries.flatten().filter(|one| one.file_name().to_string_lossy().starts_with(kind));
        u32::try_from(names.count()).unwrap_or(u32::MAX)
    };
    let driver = fs::read_link(path.join("device/driver")).ok();
    let number = |name: &str| word(&path.join(name)).and_then(|text| text.parse().ok());
    Nic {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        state: word(&path.join("operstate")),
        mtu: word(&path.join("mtu")).and_then(|text| text.parse().ok()),
        // -1 where it is not known.
        speed_mbps: word(&path.join("speed")).and_then(|text| text.parse().ok()),
        driver: driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned())),
        rx_queues: queues("rx-"),
        tx_queues: queues("tx-"),
        gro_flush_timeout: number("gro_flush_timeout"),
        napi_defer_hard_irqs: number("napi_defer_hard_irqs"),
        threaded: number("threaded").map(|threaded| threaded != 0),
    }
}

/// A file's one word; none where there is none.
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
        assert_eq!(memory_bytes("MemTotal:       24 kB\nMemFree: 1 kB\n"), Some(24 << 10));
        assert_eq!(memory_bytes("MemTotal: much"), None);
    }

    #[test]
    fn interfaces_are_read_from_their_folders() {
        let folder = std::env::temp_dir().join(format!("kvblaster-nics-{}", std::process::id()));
        let eth = folder.join("eth7");
        for queue in ["rx-0", "rx-1", "tx-0"] {
            fs::create_dir_all(eth.join("queues").join(queue)).unwrap();
        }
        fs::create_dir_all(eth.join("device")).unwrap();
        std::os::unix::fs::symlink("../../drivers/virtio_net", eth.join("device/driver")).unwrap();
        for (name, text) in
            [("mtu", "9000\n"), ("speed", "-1\n"), ("operstate", "up\n"), ("threaded", "0\n")]
        {
            fs::write(eth.join(name), text).unwrap();
        }
        let found = nics(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let expected = Nic {
            name: "eth7".to_owned(),
            state: Some("up".to_owned()),
            mtu: Some(9000),
            driver: Some("virtio_net".to_owned()),
            rx_queues: 2,
            tx_queues: 1,
            threaded: Some(false),
            ..Nic::default()
        };
        assert_eq!(found, [expected]);
        assert_eq!(nics(Path::new("/nowhere")), []);
    }

    #[test]
    fn this_machine_has_a_kernel() {
        let here = Machine::here();
        assert!(here.kernel.starts_with("Linux ") && here.cpus > 0, "{here:?}");
    }
}
