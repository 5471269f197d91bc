//! Finds the process that has a port open, for the message that it is in use.

use std::fs;
use std::net::{IpAddr, SocketAddr};

/// The protocol of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PortProtocol {
    Tcp,
    Udp,
}

impl std::fmt::Display for PortProtocol {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// `program (pid)` of the process that has the port open, if we may see it.
pub(crate) fn owner_of(protocol: PortProtocol, address: SocketAddr) -> Option<String> {
    let tables: [&str; 2] = match protocol {
        PortProtocol::Tcp => ["/proc/net/tcp", "/proc/net/tcp6"],
        PortProtocol::Udp => ["/proc/net/udp", "/proc/net/udp6"],
    };
    let inodes: Vec<_> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|text| inodes(&text, protocol, address))
        .collect();
    process_with(&inodes)
}

/// Inodes of sockets that conflict with this address, from one of the kernel's tables.
fn inodes(table: &str, protocol: PortProtocol, address: SocketAddr) -> Vec<String> {
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let cells: Vec<_> = line.split_whitespace().collect();
            let (local, state, inode) = (cells.get(1)?, cells.get(3)?, cells.get(9)?);
            // State 0A is a listening TCP socket; UDP sockets have no such state.
            let holds = matches!(protocol, PortProtocol::Udp) || *state == "0A";
            (holds && clashes(local, address)?).then(|| (*inode).to_owned())
        })
        .collect()
}

/// Whether a socket at `local`, in the kernel's notation, conflicts with one at
/// `address`: the same port, and the same address or one of them is the wildcard.
fn clashes(local: &str, address: SocketAddr) -> Option<bool> {
    let (ip, port) = local.split_once(':')?;
    if u16::from_str_radix(port, 16).ok()? != address.port() {
        return Some(false);
    }
    // Words of 32 bits, each in the machine's byte order.
    let mut bytes = Vec::new();
    for at in (0..ip.len()).step_by(8) {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    let (ip, wanted) = (ip.to_canonical(), address.ip().to_canonical());
    Some(ip == wanted || ip.is_unspecified() || wanted.is_unspecified())
}

fn process_with(inodes: &[String]) -> Option<String> {
    let wanted: Vec<_> = inodes
        .iter()
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let holds = fs::read_dir(entry.path().join("fd"))
            .ok()?
            .flatten()
            .any(|descriptor| {
                fs::read_link(descriptor.path())
                    .is_ok_and(|link| wanted.iter().any(|name| link.to_str() == Some(name)))
            });
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        holds.then(|| format!("{} (pid {pid})", name.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_this_process_for_a_port_it_listens_on() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let message = owner_of(PortProtocol::Tcp, listener.local_addr().unwrap()).unwrap();
        assert!(
            message.contains(&format!("pid {}", std::process::id())),
            "{message}"
        );
    }

    #[test]
    fn reads_the_kernels_table() {
        let table = "sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode ref\n\
                     0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 0 0 4711 1\n\
                     1: 0100007F:1F90 0100007F:9999 01 0:0 00:0 0 0 0 4712 1\n";
        let found = |address: &str| inodes(table, PortProtocol::Tcp, address.parse().unwrap());
        assert_eq!(found("127.0.0.1:8080"), ["4711"]);
        assert_eq!(found("0.0.0.0:8080"), ["4711"]);
        assert_eq!(found("127.0.0.1:8081"), [""; 0]);
        assert_eq!(found("127.0.0.2:8080"), [""; 0]);
    }

    #[test]
    fn a_wildcard_socket_conflicts_with_every_address() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for every in ["00000000:1F90", "00000000000000000000000000000000:1F90"] {
            assert_eq!(clashes(every, at("192.0.2.1:8080")), Some(true));
            assert_eq!(clashes(every, at("192.0.2.1:80")), Some(false));
        }
        for broken in ["", "1F90", "0100007F:x", "01:1F90", "0100007F0100007F:1F90"] {
            assert_eq!(clashes(broken, at("127.0.0.1:8080")), None, "{broken}");
        }
    }
}
