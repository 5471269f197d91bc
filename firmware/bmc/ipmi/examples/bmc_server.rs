//! A simulated BMC on a free UDP port of the loopback interface, for interoperability tests with
//! real IPMI consoles. Prints `port N`, then one line per change of the machine.
//!
//! `bmc_server USER PASSWORD [KG [old]]`, where KG can be empty; `old` adds IPMI 1.5 and suite 0.

use std::env;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};

use trivet_bmc_ipmi::bmc::{
    IpmiChassis, IpmiPrivilege, IpmiSimulator, IpmiSimulatorSetup, IpmiSimulatorUser,
};
use trivet_bmc_ipmi::fru::{self, FruInventory};
use trivet_bmc_ipmi::operation::{AddressSource, IpmiIdentify, IpmiLanConfig};
use trivet_bmc_ipmi::sdr::{SdrFactors, SdrSensor};
use trivet_bmc_ipmi::sel::SelEvent;
use trivet_bmc_ipmi::{BootFlags, IpmiCipherSuite, PACKET_BYTES_MAX};
use trivet_model::{PowerOrder, PowerState};

#[path = "system/entropy.rs"]
mod entropy;

struct IpmiServerMachine {
    power: PowerState,
    boot: BootFlags,
}

/// Prints a line; a write error is ignored, because the reader may have exited.
fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _unread = writeln!(out, "{line}").and_then(|()| out.flush());
}

impl IpmiChassis for IpmiServerMachine {
    fn power(&self) -> PowerState {
        self.power
    }

    fn control(&mut self, order: PowerOrder) {
        print_line(&format!("control {order:?}"));
        self.power = match order {
            PowerOrder::Off | PowerOrder::SoftOff => PowerState::Off,
            _ => PowerState::On,
        };
    }

    fn boot(&self) -> BootFlags {
        self.boot
    }

    fn set_boot(&mut self, flags: BootFlags) {
        print_line(&format!("boot {flags:?}"));
        self.boot = flags;
    }

    fn identify(&mut self, light: IpmiIdentify) {
        print_line(&format!("light {light:?}"));
    }
}

/// Gives the BMC an inventory, two events, three sensors and an address.
fn populate(bmc: &mut IpmiSimulator) {
    let product = fru::FruProduct {
        maker: "Trivet".into(),
        name: "Simulated server".into(),
        part: "TS-1".into(),
        serial: "P0003".into(),
        ..fru::FruProduct::default()
    };
    let board = fru::FruBoard {
        made_minutes: 13_000_000,
        maker: "Trivet".into(),
        name: "Simulated board".into(),
        serial: "B0002".into(),
        ..fru::FruBoard::default()
    };
    bmc.set_fru(&FruInventory {
        chassis: Some(fru::FruChassis {
            kind: 23,
            serial: "C0001".into(),
            ..fru::FruChassis::default()
        }),
        board: Some(board),
        product: Some(product),
    });
    bmc.set_fru_piece(20);
    for asserted in [true, false] {
        let event = SelEvent {
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
        let sensor = SdrSensor {
            owner: 0x20,
            lun: 0,
            number,
            kind,
            reading_type: 1,
            unit_flags: 0,
            unit,
            unit_second: 0,
            factors: Some(SdrFactors {
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
    bmc.set_lan(IpmiLanConfig {
        address: Some([192, 0, 2, 7].into()),
        source: Some(AddressSource::Static),
        mac: Some([2, 0, 0, 0, 0, 7]),
        mask: Some([255, 255, 255, 0].into()),
        gateway: Some([192, 0, 2, 1].into()),
    });
}

/// A number for an address; the BMC identifies its peers by number.
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
    let mut suites = vec![IpmiCipherSuite::Sha1, IpmiCipherSuite::Sha256];
    suites.extend(old.then_some(IpmiCipherSuite::Plain));
    let mut bmc = IpmiSimulator::new(IpmiSimulatorSetup {
        users: vec![IpmiSimulatorUser {
            name,
            password,
            limit: IpmiPrivilege::Administrator,
        }],
        guid: *b"trivet simulated",
        kg,
        suites,
    });
    if old {
        bmc.enable_ipmi15();
    }
    populate(&mut bmc);
    let mut machine = IpmiServerMachine {
        power: PowerState::Off,
        boot: BootFlags::default(),
    };
    let mut entropy = entropy::IpmiExampleEntropy::open()?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    print_line(&format!("port {}", socket.local_addr()?.port()));
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
