//! The system inventory as the BMC reports it; the machine need not run.

use serde_json::Value;
use trivet_model::MacAddr;
use trivet_model::bmc_request::BmcIdentity;

use crate::fault;
use crate::order::manager;
use crate::script::{RedfishResource, RedfishScriptContext, RedfishScriptResult};

/// Most network ports that are read. Ours.
const PORTS_MAX: usize = 32;

/// What the BMC reports about its machine.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RedfishInventory {
    /// Manufacturer.
    pub maker: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// Stock keeping unit: the manufacturer's order number.
    pub sku: Option<String>,
    /// The operator's asset tag.
    pub asset_tag: Option<String>,
    /// `OK`, `Warning` or `Critical`, as the BMC reports it.
    pub health: Option<String>,
    /// UUID of the system.
    pub uuid: Option<String>,
    /// Version of the firmware (BIOS or UEFI).
    pub bios: Option<String>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Number of processors.
    pub cpus: Option<u64>,
    /// Model of the processors.
    pub cpu_model: Option<String>,
    /// Hardware addresses of its network ports.
    pub macs: Vec<MacAddr>,
}

pub(super) fn read(
    context: &mut RedfishScriptContext<'_>,
) -> RedfishScriptResult<RedfishInventory> {
    let system = context.system()?;
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
    let Some(path) = context.linked(system.at(&["EthernetInterfaces"]))? else {
        return Ok(found);
    };
    for path in context.members(&path)?.into_iter().take(PORTS_MAX) {
        let port = context.get(&path)?;
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

/// Every BMC has the service root; its manager resource has more details.
pub(super) fn identity(context: &mut RedfishScriptContext<'_>) -> RedfishScriptResult<BmcIdentity> {
    let root = context.get("/redfish/v1")?;
    let system = context.system()?;
    let path = manager(context)?;
    let manager = context.get(&path)?;
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

/// Some BMCs report fractions of a GiB.
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
