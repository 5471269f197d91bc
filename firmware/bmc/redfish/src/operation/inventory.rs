//! What a machine is, without starting it.

use serde_json::Value;
use trivet_model::MacAddr;
use trivet_model::bmc_request::BmcIdentity;

use crate::fault;
use crate::order::manager;
use crate::script::{RedfishResource, RedfishScriptContext, RedfishScriptResult};

/// Network ports that are looked at. Ours.
const PORTS_MAX: usize = 32;

/// What the BMC says of its machine.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RedfishInventory {
    /// Who made it.
    pub maker: Option<String>,
    /// What it is called.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// The maker's number for what it sold.
    pub sku: Option<String>,
    /// The owner's own number.
    pub asset_tag: Option<String>,
    /// `OK`, `Warning` or `Critical`, as the BMC judges.
    pub health: Option<String>,
    /// Its identifier.
    pub uuid: Option<String>,
    /// The version of its firmware.
    pub bios: Option<String>,
    /// Its memory.
    pub memory_mib: Option<u64>,
    /// Sockets with a processor.
    pub cpus: Option<u64>,
    /// What they are called.
    pub cpu_model: Option<String>,
    /// Hardware addresses of its network ports.
    pub macs: Vec<MacAddr>,
}

pub(super) fn read(book: &mut RedfishScriptContext<'_>) -> RedfishScriptResult<RedfishInventory> {
    let system = book.system()?;
    let text = |keys: &[&str]| text(system, keys);
    let memory = system.at(&["MemorySummary", "TotalSystemMemoryGiB"]);
    let mut found = RedfishInventory {
        maker: text(&["Manufacturer"]),
        model: text(&["Model"]),
        serial: text(&["SerialNumber"]),
        sku: text(&["SKU"]).or_else(|| text(&["PartNumber"])),
        asset_tag: text(&["AssetTag"]),
        health: text(&["Status", "Health"]),
        uuid: text(&["UUID"]),
        bios: text(&["BiosVersion"]),
        memory_mib: memory.and_then(Value::as_f64).and_then(mib),
        cpus: system
            .at(&["ProcessorSummary", "Count"])
            .and_then(Value::as_u64),
        cpu_model: text(&["ProcessorSummary", "Model"]),
        macs: Vec::new(),
    };
    let Some(path) = book.linked(system.at(&["EthernetInterfaces"]))? else {
        return Ok(found);
    };
    for path in book.members(&path)?.into_iter().take(PORTS_MAX) {
        let port = book.get(&path)?;
        let mac = port
            .text(&["PermanentMACAddress"])
            .or(port.text(&["MACAddress"]));
        let mac = mac.and_then(|mac| mac.parse().ok());
        if let Some(mac) = mac.filter(|mac| !found.macs.contains(mac)) {
            found.macs.push(mac);
        }
    }
    Ok(found)
}

fn text(seen: RedfishResource<'_>, keys: &[&str]) -> Option<String> {
    let text = fault::clean(seen.text(keys)?);
    (!text.is_empty()).then_some(text)
}

/// The service's root is what every BMC has; its manager resource says more.
pub(super) fn identity(book: &mut RedfishScriptContext<'_>) -> RedfishScriptResult<BmcIdentity> {
    let root = book.get("/redfish/v1")?;
    let system = book.system()?;
    let path = manager(book)?;
    let manager = book.get(&path)?;
    Ok(BmcIdentity {
        protocol: "redfish".to_owned(),
        protocol_version: text(root, &["RedfishVersion"]),
        firmware_version: text(manager, &["FirmwareVersion"]),
        manufacturer: text(manager, &["Manufacturer"]).or_else(|| text(root, &["Vendor"])),
        model: text(manager, &["Model"]),
        bmc_uuid: text(manager, &["UUID"]),
        system_uuid: text(system, &["UUID"]),
        ..BmcIdentity::default()
    })
}

/// Some BMCs name fractions of a GiB.
fn mib(gib: f64) -> Option<u64> {
    let sane = (0.0..1e9).contains(&gib);
    #[expect(clippy::cast_sign_loss, reason = "it was compared with zero")]
    sane.then(|| (gib * 1024.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_sane_number_or_none() {
        assert_eq!(mib(0.5), Some(512));
        assert_eq!(mib(1024.0), Some(1_048_576));
        for gib in [-1.0, 1e300, f64::NAN, f64::INFINITY] {
            assert_eq!(mib(gib), None);
        }
    }
}
