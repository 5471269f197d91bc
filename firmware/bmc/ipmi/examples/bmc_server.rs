//! A simulated BMC on a free UDP port of the loopback, for real IPMI consoles
//! to talk to. Prints `port N`, then one line per change of the machine.
//!
//! `bmc_server USER PASSWORD [KG]`

use std::env;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};

use trivet_bmc_ipmi::bmc::{Bmc, Chassis, Privilege, Setup, User};
use trivet_bmc_ipmi::{BootFlags, PACKET_BYTES_MAX, Suite};
use trivet_model::{PowerOrder, PowerState};

#[path = "system/entropy.rs"]
mod entropy;

struct Machine {
    power: PowerState,
    boot: BootFlags,
}

/// A line for whoever watches; one that is not read does not matter.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let _unread = writeln!(out, "{line}").and_then(|()| out.flush());
}

impl Chassis for Machine {
    fn power(&self) -> PowerState {
        self.power
    }

    fn control(&mut self, order: PowerOrder) {
        tell(&format!("control {order:?}"));
        self.power = match order {
            PowerOrder::Off | PowerOrder::SoftOff => PowerState::Off,
            _ => PowerState::On,
        };
    }

    fn boot(&self) -> BootFlags {
        self.boot
    }

    fn set_boot(&mut self, flags: BootFlags) {
        tell(&format!("boot {flags:?}"));
        self.boot = flags;
    }
}

/// A number for an address, as the BMC wants its peers.
fn peer_number(address: SocketAddr) -> u64 {
    match address {
        SocketAddr::V4(v4) => u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port()),
        SocketAddr::V6(v6) => u64::from(v6.port()),
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = env::args().skip(1).map(String::into_bytes);
    let (Some(name), Some(password)) = (arguments.next(), arguments.next()) else {
        return Err(std::io::Error::other(
            "usage: bmc_server USER PASSWORD [KG]",
        ));
    };
    let mut bmc = Bmc::new(Setup {
        users: vec![User {
            name,
            password,
            limit: Privilege::Administrator,
        }],
        guid: *b"trivet simulated",
        kg: arguments.next(),
        suites: vec![Suite::Sha1, Suite::Sha256],
    });
    let mut machine = Machine {
        power: PowerState::Off,
        boot: BootFlags::default(),
    };
    let mut entropy = entropy::System::open()?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    tell(&format!("port {}", socket.local_addr()?.port()));
    let mut buffer = [0; PACKET_BYTES_MAX + 1];
    loop {
        let (length, from) = socket.recv_from(&mut buffer)?;
        let peer = peer_number(from);
        let answer = bmc.datagram(peer, &buffer[..length], &mut machine, &mut entropy);
        if let Some(bytes) = answer {
            socket.send_to(&bytes, from)?;
        }
    }
}
