//! Errands as words on a command line, and reports as lines.

use trivet_bmc_ipmi::errand::{Errand, Light, Report};
use trivet_bmc_ipmi::fru::Inventory;

/// The errand a word means, if it means one.
pub(crate) fn errand(word: &str) -> Option<Errand> {
    /// The channel that is spoken on.
    const CHANNEL_THIS: u8 = 14;
    Some(match word {
        "flags" => Errand::BootFlags,
        "mailbox" => Errand::ReadMailbox { blocks: 2 },
        "fru" => Errand::ReadFru { device: 0 },
        "sel-info" => Errand::SelInfo,
        "sel" => Errand::SelList,
        "sel-clear" => Errand::SelClear,
        "sensors" => Errand::Sensors,
        "identify" => Errand::Identify { light: Light::On },
        "guid" => Errand::SystemGuid,
        "device-guid" => Errand::DeviceGuid,
        "lan" => Errand::Lan {
            channel: CHANNEL_THIS,
        },
        "users" => Errand::Users {
            channel: CHANNEL_THIS,
        },
        _ => match word.split_once('=')? {
            ("mailbox", text) => Errand::WriteMailbox { bytes: text.into() },
            ("fru", text) => Errand::WriteFru {
                device: 0,
                offset: 0,
                bytes: product(text).emit(),
            },
            ("identify", seconds) => {
                let seconds = seconds.parse().ok()?;
                let light = Light::For { seconds };
                Errand::Identify { light }
            }
            _ => return None,
        },
    })
}

/// An inventory with a product of this serial number.
fn product(serial: &str) -> Inventory {
    let product = trivet_bmc_ipmi::fru::Product {
        maker: "Trivet".into(),
        name: "Simulated".into(),
        serial: serial.into(),
        ..Default::default()
    };
    Inventory {
        product: Some(product),
        ..Inventory::default()
    }
}

/// A report on one line.
pub(crate) fn words(report: &Report) -> String {
    match report {
        Report::Done => "done".into(),
        Report::Mailbox(bytes) => bytes.escape_ascii().to_string(),
        Report::Fru(bytes) => match Inventory::parse(bytes) {
            Ok(inventory) => format!("{} bytes {inventory:?}", bytes.len()),
            Err(error) => format!("{} bytes, {error}", bytes.len()),
        },
        Report::Sensors(readings) => {
            let one = |it: &trivet_bmc_ipmi::sdr::Reading| {
                let value = it.value.map_or("na".into(), |value| format!("{value:.3}"));
                format!("[{} {value} {} {:?}]", it.name, it.unit, it.state)
            };
            let all: Vec<String> = readings.iter().map(one).collect();
            all.join(" ")
        }
        Report::Sel { info, records } => {
            let events: Vec<_> = records.iter().map(|it| (it.id, it.event)).collect();
            format!("{} of {} {events:?}", records.len(), info.records)
        }
        other => format!("{other:?}"),
    }
}
