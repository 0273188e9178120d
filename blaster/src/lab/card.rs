//! The network cards of `--interface`, which the lab checks, moves into namespaces, and restores.
//!
//! ```text
//! first namespace: eth1, addresses, routes -> namespace of a link -> first namespace, as before
//! ```
//!
//! Where: `flags` checks the cards; `Link` moves the cards into namespaces for each measurement.
//! Invariant: a card keeps its name. When the link ends, or kvblaster ends in any way, the card is
//! moved back, and its MTU, addresses, state (up or down) and routes are restored.
//! Source: ip-address(8), ip-route(8), ip-link(8).

use super::link::LinkError;
use super::namespace::{FIRST, run};
use std::path::Path;

/// The names of two network cards that a cable joins: kvblaster's card, then the servers' card.
pub(crate) type Pair = [String; 2];

/// The maximum number of pairs of cards.
pub(crate) const PAIRS_MAX: usize = 16;
/// The maximum length of an interface's name in bytes: IFNAMSIZ without the final zero.
const NAME_BYTES_MAX: usize = 15;
/// Words that `ip` shows in a route, but that `ip` does not accept as an argument.
const SHOWN_ONLY: [&str; 4] = ["linkdown", "dead", "offload", "rt_offload"];

/// Parses `NEAR,FAR`. Fails if the text is not the names of two interfaces, separated by a comma.
pub(crate) fn pair(text: &str) -> Result<Pair, String> {
    let is_name = |name: &str| {
        let is_plain = |one: char| one.is_ascii_alphanumeric() || "-_.:@+".contains(one);
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain)
    };
    match text.split(',').collect::<Vec<_>>()[..] {
        [near, far] if is_name(near) && is_name(far) => Ok([near, far].map(str::to_owned)),
        _ => Err("give the names of two network cards: NEAR,FAR".to_owned()),
    }
}

/// Checks that the lab can use the cards. Fails if there are too many pairs; a card is named twice,
/// does not exist, is no Ethernet interface, or belongs to a bridge or bond; or this process is not
/// root.
pub(crate) fn check(pairs: &[Pair]) -> Result<(), String> {
    let refused = |why: String| Err(format!("--interface: {why}"));
    if pairs.len() > PAIRS_MAX {
        return refused(format!("give at most {PAIRS_MAX} pairs of network cards"));
    }
    let names: Vec<&String> = pairs.iter().flatten().collect();
    if let Some(twice) = (1..names.len()).find(|nth| names[..*nth].contains(&names[*nth])) {
        return refused(format!(
            "{} is named twice, but a cable joins two different cards",
            names[twice]
        ));
    }
    for name in names {
        let Ok(shown) = shown(name) else {
            return refused(format!(
                "there is no interface {name} (`ip link` lists all interfaces)"
            ));
        };
        if mac(&shown).is_none() {
            return refused(format!("{name} is no Ethernet interface"));
        }
        if value(&shown, "master").is_some() {
            return refused(format!(
                "{name} belongs to a bridge or bond; first remove the card from the bridge or bond"
            ));
        }
    }
    if !pairs.is_empty() && !rustix::process::geteuid().is_root() {
        let why = "only root can move network cards into namespaces: run kvblaster as root";
        return refused(why.to_owned());
    }
    Ok(())
}

/// True if the interface is a hardware device, so that the lab can set the device's interrupts.
pub(super) fn is_hardware(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("device").exists()
}

/// Returns a line of shell that moves the card to the first namespace, and restores the card's
/// present MTU, addresses, state and routes. The holder of a link's namespace runs this line.
pub(super) fn returning(name: &str) -> Result<String, LinkError> {
    let shown = shown(name)?;
    let mtu = value(&shown, "mtu").unwrap_or("1500");
    let there = format!("nsenter --net={FIRST} ip");
    let mut lines =
        vec![format!("ip link set {name} mtu {mtu}"), format!("ip link set {name} netns {FIRST}")];
    let addresses = run(&format!("ip -o address show dev {name}"))?;
    lines.extend(addresses.lines().filter_map(|line| address(line, name)));
    if is_up(&shown) {
        lines.push(format!("link set {name} up"));
    }
    for family in ["-4", "-6"] {
        let routes = run(&format!("ip {family} route show dev {name}"))?;
        let routes = routes.lines().filter_map(route);
        lines.extend(routes.map(|route| format!("{family} route replace {route} dev {name}")));
    }
    let placed =
        |(nth, line): (usize, String)| if nth < 2 { line } else { format!("{there} {line}") };
    Ok(lines.into_iter().enumerate().map(placed).collect::<Vec<_>>().join("; "))
}

/// Returns the line in which `ip` describes an interface.
fn shown(name: &str) -> Result<String, LinkError> {
    run(&format!("ip -o link show dev {name}"))
}

/// Returns the word that follows `word` in a line that `ip` printed.
pub(super) fn value<'l>(line: &'l str, word: &str) -> Option<&'l str> {
    line.split_whitespace().skip_while(|one| *one != word).nth(1)
}

/// Returns the Ethernet address in a line that `ip link` printed.
pub(super) fn mac(line: &str) -> Option<&str> {
    value(line, "link/ether")
}

fn is_up(line: &str) -> bool {
    let flags = line.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    flags.is_some_and(|(flags, _)| flags.split(',').any(|flag| flag == "UP"))
}

/// Returns the arguments with which `ip` adds an address again. `line` is the line in which `ip`
/// shows the address. `None` if the kernel itself assigns the address (IPv6 link-local).
fn address(line: &str, name: &str) -> Option<String> {
    let (_, words) = line.split_once(" inet")?;
    let (words, is_v6) = words.strip_prefix('6').map_or((words, false), |words| (words, true));
    if is_v6 && value(words, "scope") == Some("link") {
        return None;
    }
    let mut text = format!("address replace {}", words.split_whitespace().next()?);
    for word in ["peer", "brd", "scope", "metric", "valid_lft", "preferred_lft"] {
        if let Some(value) = value(words, word) {
            text += &format!(" {word} {}", value.trim_end_matches('\\').trim_end_matches("sec"));
        }
    }
    for word in words.split_whitespace() {
        let label = word.trim_end_matches('\\');
        if word == "noprefixroute" || word == "nodad" {
            text += &format!(" {word}");
        } else if !is_v6 && label.len() < word.len() && label.starts_with(name) {
            text += &format!(" label {label}");
        }
    }
    Some(format!("{text} dev {name}"))
}

/// Returns the arguments with which `ip` adds a route again. `line` is the line in which `ip` shows
/// the route. `None` if the kernel itself makes the route.
fn route(line: &str) -> Option<String> {
    if value(line, "proto") == Some("kernel") {
        return None;
    }
    let mut words: Vec<&str> = line.split_whitespace().collect();
    words.retain(|word| !SHOWN_ONLY.contains(word));
    if let Some(at) = words.iter().position(|word| *word == "expires") {
        words.drain(at..words.len().min(at + 2));
    }
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_are_a_pair() {
        assert_eq!(pair("eth1,enp3s0f0").unwrap(), ["eth1", "enp3s0f0"]);
        for wrong in ["eth1", "eth1,", ",", "a,b,c", "a b,c", "$(a),b", "an_interface_of_16,b"] {
            assert!(pair(wrong).unwrap_err().contains("NEAR,FAR"), "{wrong}");
        }
    }

    #[test]
    fn an_address_is_added_as_it_was() {
        let rows = [
            (
                "3: e    inet 10.0.0.1/24 brd 10.0.0.255 scope global dynamic e\\       \
                 valid_lft 86sec preferred_lft 80sec",
                Some(
                    "address replace 10.0.0.1/24 brd 10.0.0.255 scope global valid_lft 86 \
                     preferred_lft 80 label e dev e",
                ),
            ),
            (
                "3: e    inet6 fd00::2/64 scope global nodad \\       valid_lft forever \
                 preferred_lft forever",
                Some(
                    "address replace fd00::2/64 scope global valid_lft forever preferred_lft \
                     forever nodad dev e",
                ),
            ),
            ("3: e    inet6 fe80::1/64 scope link \\       valid_lft forever", None),
        ];
        for (line, expected) in rows {
            assert_eq!(address(line, "e").as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_route_of_the_user_is_added_again_and_one_of_the_kernel_is_not() {
        let rows = [
            ("default via 10.0.0.9 proto dhcp linkdown ", Some("default via 10.0.0.9 proto dhcp")),
            (
                "default via fe80::1 proto ra metric 100 expires 17sec pref medium",
                Some("default via fe80::1 proto ra metric 100 pref medium"),
            ),
            ("10.0.0.0/24 proto kernel scope link src 10.0.0.1", None),
        ];
        for (line, expected) in rows {
            assert_eq!(route(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn a_shown_interface_is_read() {
        let line = "4: e: <BROADCAST,MULTICAST,LOWER_UP> mtu 1400 qdisc noop state UP\\    \
                    link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff";
        assert_eq!((value(line, "mtu"), is_up(line)), (Some("1400"), false));
        assert_eq!(mac(line), Some("02:fc:00:00:00:01"));
        assert!(is_up(&line.replace("LOWER_UP", "UP")));
    }
}
