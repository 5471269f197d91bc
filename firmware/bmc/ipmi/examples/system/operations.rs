//! Operations as words of a command line, and replies as lines of text.

use trivet_bmc_ipmi::fru::FruInventory;
use trivet_bmc_ipmi::operation::{IpmiIdentify, IpmiOperation, IpmiReply};

/// The operation with this name, if there is one.
pub(crate) fn operation(word: &str) -> Option<IpmiOperation> {
    /// The channel of this session.
    const CHANNEL_THIS: u8 = 14;
    Some(match word {
        "flags" => IpmiOperation::BootFlags,
        "mailbox" => IpmiOperation::ReadMailbox { blocks: 2 },
        "fru" => IpmiOperation::ReadFru { device: 0 },
        "sel-info" => IpmiOperation::SelInfo,
        "sel" => IpmiOperation::SelList,
        "sel-clear" => IpmiOperation::SelClear,
        "sensors" => IpmiOperation::Sensors,
        "identify" => IpmiOperation::Identify {
            identify: IpmiIdentify::On,
        },
        "guid" => IpmiOperation::SystemGuid,
        "device-guid" => IpmiOperation::DeviceGuid,
        "lan" => IpmiOperation::Lan {
            channel: CHANNEL_THIS,
        },
        "users" => IpmiOperation::Users {
            channel: CHANNEL_THIS,
        },
        _ => match word.split_once('=')? {
            ("mailbox", text) => IpmiOperation::WriteMailbox { bytes: text.into() },
            ("fru", text) => IpmiOperation::WriteFru {
                device: 0,
                offset: 0,
                bytes: product(text).emit(),
            },
            ("identify", seconds) => {
                let seconds = seconds.parse().ok()?;
                let light = IpmiIdentify::For { seconds };
                IpmiOperation::Identify { identify: light }
            }
            _ => return None,
        },
    })
}

/// An inventory of a product with this serial number.
fn product(serial: &str) -> FruInventory {
    let product = trivet_bmc_ipmi::fru::FruProduct {
        maker: "Trivet".into(),
        name: "Simulated".into(),
        serial: serial.into(),
        ..Default::default()
    };
    FruInventory {
        product: Some(product),
        ..FruInventory::default()
    }
}

/// A reply as one line.
pub(crate) fn words(report: &IpmiReply) -> String {
    match report {
        IpmiReply::Done => "done".into(),
        IpmiReply::Mailbox(bytes) => bytes.escape_ascii().to_string(),
        IpmiReply::Fru(bytes) => match FruInventory::parse(bytes) {
            Ok(inventory) => format!("{} bytes {inventory:?}", bytes.len()),
            Err(error) => format!("{} bytes, {error}", bytes.len()),
        },
        IpmiReply::Sensors(readings) => {
            let one = |it: &trivet_bmc_ipmi::sdr::SdrReading| {
                let value = it.value.map_or("na".into(), |value| format!("{value:.3}"));
                format!("[{} {value} {} {:?}]", it.name, it.unit, it.state)
            };
            let all: Vec<String> = readings.iter().map(one).collect();
            all.join(" ")
        }
        IpmiReply::Sel { info, records } => {
            let events: Vec<_> = records.iter().map(|it| (it.id, it.event)).collect();
            format!("{} of {} {events:?}", records.len(), info.records)
        }
        other => format!("{other:?}"),
    }
}
