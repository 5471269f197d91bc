//! Deviations of known BMCs from the standard. Deviations that every client must tolerate anyway
//! are not listed here: sushy-tools reads "Continuous" back whatever was set, and Supermicro names
//! a virtual CD `UsbCd`.

use serde_json::Value;

/// A deviation from the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RedfishQuirk {
    /// A boot override is applied at the next boot, and reads back unchanged until then.
    BootOverrideDeferred,
}

/// The prefix of the manufacturer's name, and the deviation of its BMCs.
const KNOWN: [(&str, RedfishQuirk); 1] = [("Dell", RedfishQuirk::BootOverrideDeferred)];

/// Whether the system is known to have this deviation.
pub(crate) fn has(system: &Value, quirk: RedfishQuirk) -> bool {
    let maker = system.get("Manufacturer").and_then(Value::as_str);
    let maker = maker.unwrap_or_default();
    // A system that announces it (DSP0266, section 9.10) needs no entry in the table.
    let says =
        quirk == RedfishQuirk::BootOverrideDeferred && system.get("@Redfish.Settings").is_some();
    says || KNOWN
        .iter()
        .any(|(name, known)| *known == quirk && maker.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn makers_and_settings_resources_are_known() {
        assert!(has(
            &json!({"Manufacturer": "Dell Inc."}),
            RedfishQuirk::BootOverrideDeferred
        ));
        assert!(has(
            &json!({"@Redfish.Settings": {}}),
            RedfishQuirk::BootOverrideDeferred
        ));
        for system in [
            json!({}),
            json!({"Manufacturer": 7}),
            json!({"Manufacturer": "Trivet"}),
        ] {
            assert!(!has(&system, RedfishQuirk::BootOverrideDeferred));
        }
    }
}
