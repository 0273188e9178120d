//! The file that lists the ports of the server, for `-p -1`, where the system chooses the port.
//!
//! Where: `main` writes the file after the listeners are open.
//! Invariant: `replace` writes the file, so that no program sees a half-written file.
//! Source: memcached 1.6.45 `main`, `server_socket`.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::replace;

/// The environment variable that names the file.
pub const VARIABLE: &str = "MEMCACHED_PORT_FILENAME";

/// Writes the ports of addresses, one line each, to the file that `VARIABLE` names. `ports` has the
/// addresses of each kind of listener. Does nothing if the variable is unset or empty.
///
/// # Errors
/// The file cannot be written; the text says which file and why.
pub fn write(ports: &[(&str, &[SocketAddr])]) -> Result<(), String> {
    let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let path = PathBuf::from(path);
    let text: String = ports.iter().map(|(kind, addresses)| lines(kind, addresses)).collect();
    replace::replace(&path, ".lck", &text)
        .map_err(|text| format!("Failed to open \"{}\": {text}", path.display()))
}

fn lines(kind: &str, addresses: &[SocketAddr]) -> String {
    let mut text = String::new();
    for address in addresses {
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        let _ = writeln!(text, "{kind} {family}: {}", address.port());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_memcacheds() {
        let addresses = ["0.0.0.0:4711".parse().unwrap(), "[::]:4712".parse().unwrap()];
        assert_eq!(lines("TCP", &addresses), "TCP INET: 4711\nTCP INET6: 4712\n");
        assert_eq!(lines("UDP", &addresses[..1]), "UDP INET: 4711\n");
    }
}
