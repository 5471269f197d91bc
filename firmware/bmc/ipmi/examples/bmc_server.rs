//! A simulated BMC on a free UDP port of the loopback, for real IPMI consoles
//! to talk to. Prints `port N`, then one line per change of the machine.
//!
//! `bmc_server USER PASSWORD [KG [old]]`, where KG may be empty; `old` adds IPMI 1.5 and
//! suite 0.

use std::env;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};

use trivet_bmc_ipmi::bmc::{Bmc, Chassis, Privilege, Setup, User};
use trivet_bmc_ipmi::errand::{AddressSource, Lan, Light};
use trivet_bmc_ipmi::fru::{self, Inventory};
use trivet_bmc_ipmi::sdr::{Factors, Sensor};
use trivet_bmc_ipmi::sel::Event;
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

    fn identify(&mut self, light: Light) {
        tell(&format!("light {light:?}"));
    }
}

/// Gives the BMC an inventory, two events, three sensors and an address.
fn furnish(bmc: &mut Bmc) {
    let product = fru::Product {
        maker: "Trivet".into(),
        name: "Simulated server".into(),
        part: "TS-1".into(),
        serial: "P0003".into(),
        ..fru::Product::default()
    };
    let board = fru::Board {
        made_minutes: 13_000_000,
        maker: "Trivet".into(),
        name: "Simulated board".into(),
        serial: "B0002".into(),
        ..fru::Board::default()
    };
    bmc.set_fru(&Inventory {
        chassis: Some(fru::Chassis {
            kind: 23,
            serial: "C0001".into(),
            ..fru::Chassis::default()
        }),
        board: Some(board),
        product: Some(product),
    });
    bmc.set_fru_piece(20);
    for asserted in [true, false] {
        let event = Event {
            generator: 0x20,
            sensor_type: 1,
            sensor: 1,
            asserted,
            kind: 1,
            data: [0x57, 75, 70],
        };
        bmc.add_event(1_700_000_000, event);
    }
    for (number, kind, unit, (m, exponent), raw, name) in [
        (1, 1, 1, (1, 0), Some(72), "Inlet Temp"),
        (2, 2, 4, (63, -3), Some(192), "P12V"),
        (3, 4, 18, (60, 0), None, "Fan 1"),
    ] {
        let sensor = Sensor {
            owner: 0x20,
            lun: 0,
            number,
            kind,
            reading_type: 1,
            unit_flags: 0,
            unit,
            unit_second: 0,
            factors: Some(Factors {
                format: 0,
                function: 0,
                m,
                b: 0,
                b_exponent: 0,
                result_exponent: exponent,
            }),
            thresholds: [None, None, None, (number == 1).then_some(70), None, None],
            name: name.into(),
        };
        bmc.set_sensor(sensor, raw);
    }
    bmc.set_lan(Lan {
        address: Some([192, 0, 2, 7].into()),
        source: Some(AddressSource::Static),
        mac: Some([2, 0, 0, 0, 0, 7]),
        mask: Some([255, 255, 255, 0].into()),
        gateway: Some([192, 0, 2, 1].into()),
    });
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
            "usage: bmc_server USER PASSWORD [KG [old]]",
        ));
    };
    let kg = arguments.next().filter(|kg| !kg.is_empty());
    let old = arguments.next().is_some_and(|word| word == b"old");
    let mut suites = vec![Suite::Sha1, Suite::Sha256];
    suites.extend(old.then_some(Suite::Plain));
    let mut bmc = Bmc::new(Setup {
        users: vec![User {
            name,
            password,
            limit: Privilege::Administrator,
        }],
        guid: *b"trivet simulated",
        kg,
        suites,
    });
    if old {
        bmc.speak_old();
    }
    furnish(&mut bmc);
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
