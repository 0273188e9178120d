//! Settings of the interface at the servers' end: queues, packet steering, interrupts, coalescing.
//!
//! Where: applied to a `Link` before its servers start; an experiment names the settings.
//! Invariant: the holder of the namespace restores each setting, as `Namespace` explains. If an
//! interface lacks a setting, the record has this reason instead of a row.
//! Source: Linux, Documentation/networking/scaling.rst (RPS), Documentation/core-api/irq/
//! irq-affinity.rst; ethtool(8).

use super::link::LinkError;
use super::namespace::Namespace;
use crate::words::quoted;
use std::fs;
use std::path::Path;

/// Number of CPUs in one group of digits of a CPU mask; commas separate the groups.
const GROUP_CPUS: usize = 32;

/// Settings of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// The CPUs that process received packets (RPS). An empty list changes nothing.
    pub rps: Vec<usize>,
    /// The CPUs for interrupts: the CPU at index n handles queue n. An empty list changes nothing.
    pub irq: Vec<usize>,
    /// Microseconds for which the card may delay a received packet's interrupt. `None`: unchanged.
    pub coalesce_us: Option<usize>,
}

impl Tuning {
    /// Applies the settings to an interface. Returns commands that do the same.
    pub(super) fn apply(&self, end: &Namespace, name: &str) -> Result<Vec<String>, LinkError> {
        let mut commands = Vec::new();
        if !self.rps.is_empty() {
            let files = queue_files(end, name)?;
            for file in files {
                commands.push(write(end, &format!("{file}/rps_cpus"), &mask(&self.rps))?);
            }
        }
        if !self.irq.is_empty() {
            let interrupts = interrupts(&end.files_of(name), Path::new("/proc/irq"), name);
            if interrupts.is_empty() {
                return Err(LinkError(format!("kvblaster finds no interrupts of {name}")));
            }
            for (interrupt, queue) in interrupts {
                let cpu = self.irq[queue % self.irq.len()];
                let file = format!("/proc/irq/{interrupt}/smp_affinity_list");
                commands.push(write(end, &file, &cpu.to_string())?);
            }
        }
        if let Some(us) = self.coalesce_us {
            commands.extend(coalesce(end, name, us)?);
        }
        Ok(commands)
    }
}

/// Gives a card `queues` queues, unless `queues` is `None`. Returns a command that does the same.
pub(super) fn queues(
    end: &Namespace,
    name: &str,
    queues: Option<usize>,
) -> Result<Option<String>, LinkError> {
    let Some(queues) = queues else { return Ok(None) };
    let has = queue_files(end, name)?.len();
    if has == queues {
        return Ok(None);
    }
    end.undo(&format!("ethtool -L {name} combined {has}"))?;
    let command = format!("ethtool -L {name} combined {queues}");
    end.run(&command)?;
    Ok(Some(command))
}

/// Returns the folders of an interface's receive queues, by their paths in the namespace.
fn queue_files(end: &Namespace, name: &str) -> Result<Vec<String>, LinkError> {
    let failed = |error| LinkError(format!("the queues of {name} cannot be read: {error}"));
    let entries = fs::read_dir(end.files_of(name).join("queues")).map_err(failed)?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|queue| queue.starts_with("rx-")).collect();
    names.sort();
    Ok(names.iter().map(|queue| format!("/sys/class/net/{name}/queues/{queue}")).collect())
}

/// Writes a setting to a file of the namespace. Returns a command that does the same.
fn write(end: &Namespace, file: &str, value: &str) -> Result<String, LinkError> {
    let failed = |error| LinkError(format!("{file}: {error}"));
    let seen = end.seen(file);
    let before = fs::read_to_string(&seen).map_err(failed)?;
    end.undo(&format!("echo {} > {file}", quoted(before.trim())))?;
    fs::write(&seen, value).map_err(failed)?;
    Ok(format!("echo {value} > {file}"))
}

/// Returns a CPU mask for the kernel: groups of eight hexadecimal digits, the highest CPUs first.
fn mask(cpus: &[usize]) -> String {
    let groups = cpus.iter().max().map_or(1, |most| most / GROUP_CPUS + 1);
    let mut bits = vec![0_u32; groups];
    cpus.iter().for_each(|cpu| bits[cpu / GROUP_CPUS] |= 1 << (cpu % GROUP_CPUS));
    bits.iter().rev().map(|group| format!("{group:08x}")).collect::<Vec<_>>().join(",")
}

/// Returns each interrupt of an interface with its queue's number, which is in the interrupt's
/// name: `eth1-TxRx-3`, `virtio2-input.3`, `mlx5_comp3@pci:0000:01:00.0`.
fn interrupts(files: &Path, all: &Path, name: &str) -> Vec<(usize, usize)> {
    // The interrupts of a virtio card are in the folder of the parent device, a PCI device.
    let folders = ["device/msi_irqs", "device/../msi_irqs"];
    let entries = folders.iter().find_map(|folder| fs::read_dir(files.join(folder)).ok());
    let numbers = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut found: Vec<(usize, usize)> = numbers
        .flat_map(|number: usize| {
            let folders =
                fs::read_dir(all.join(number.to_string())).into_iter().flatten().flatten();
            let folders = folders.filter(|entry| entry.path().is_dir());
            let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
            names
                .filter_map(move |action| Some((number, queue(&action, name)?)))
                .collect::<Vec<_>>()
        })
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(number, _)| *number);
    found
}

/// Returns the queue in an interrupt's name. A card's only interrupt has the card's name: queue 0.
fn queue(action: &str, name: &str) -> Option<usize> {
    if action == name {
        return Some(0);
    }
    let action = action.split('@').next().unwrap_or(action);
    let digits = action.len() - action.trim_end_matches(|one: char| one.is_ascii_digit()).len();
    action[action.len() - digits..].parse().ok()
}

/// Sets the coalescing of received packets.
fn coalesce(end: &Namespace, name: &str, us: usize) -> Result<Vec<String>, LinkError> {
    let shown = end.run(&format!("ethtool -c {name}"))?;
    let value = |word: &str| {
        let line = shown.lines().find_map(|line| line.trim().strip_prefix(word));
        line.and_then(|rest| rest.split_whitespace().next())
    };
    let before = value("rx-usecs:").filter(|word| word.parse::<usize>().is_ok());
    let Some(before) = before else {
        return Err(LinkError(format!("the interrupt coalescing of {name} cannot be set")));
    };
    let mut commands = Vec::new();
    if value("Adaptive RX:") == Some("on") {
        end.undo(&format!("ethtool -C {name} adaptive-rx on"))?;
        commands.push(format!("ethtool -C {name} adaptive-rx off"));
    }
    if before != us.to_string() {
        end.undo(&format!("ethtool -C {name} rx-usecs {before}"))?;
        commands.push(format!("ethtool -C {name} rx-usecs {us}"));
    }
    commands.iter().try_for_each(|command| end.run(command).map(drop))?;
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_bit_for_each_cpu() {
        assert_eq!(mask(&[0, 1, 5]), "00000023");
        assert_eq!(mask(&[31, 64]), "00000001,00000000,80000000");
    }

    #[test]
    fn an_interrupt_is_named_after_its_queue() {
        let rows = [
            ("eth1-TxRx-3", Some(3)),
            ("virtio2-input.11", Some(11)),
            ("mlx5_comp2@pci:0000:01:00.0", Some(2)),
            ("ena-mgmnt@pci:0000:00:05.0", None),
            ("virtio2-config", None),
            ("eth1", Some(0)),
        ];
        for (action, expected) in rows {
            assert_eq!(queue(action, "eth1"), expected, "{action}");
        }
    }

    /// The test makes files like those in /sys and /proc of a virtio card with two queues.
    #[test]
    fn the_interrupts_of_a_card_are_found() {
        let root = std::env::temp_dir().join(format!("kvblaster-irq-{}", std::process::id()));
        let device = root.join("pci/virtio2");
        fs::create_dir_all(device.join("net/eth1")).unwrap();
        std::os::unix::fs::symlink("../..", device.join("net/eth1/device")).unwrap();
        let actions = ["virtio2-config", "virtio2-input.0", "virtio2-input.1", "virtio2-output.1"];
        for (number, action) in (40..).zip(actions) {
            fs::create_dir_all(root.join(format!("irq/{number}/{action}"))).unwrap();
            fs::create_dir_all(root.join("pci/msi_irqs")).unwrap();
            fs::write(root.join(format!("pci/msi_irqs/{number}")), "msix\n").unwrap();
        }
        let found = interrupts(&device.join("net/eth1"), &root.join("irq"), "eth1");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [(41, 0), (42, 1), (43, 1)]);
    }
}
