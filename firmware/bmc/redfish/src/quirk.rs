//! Where known BMCs deviate. What every client must stand anyhow has no line here: that
//! sushy-tools reads "Continuous" back whatever was set, or that Supermicro calls a
//! virtual CD `UsbCd`.

use serde_json::Value;

/// A deviation from what the protocol promises.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RedfishQuirk {
    /// A boot override is kept back until the next start, and reads as before until then.
    BootOverrideDeferred,
}

/// How a maker's name begins, and what is known of its BMCs.
const KNOWN: [(&str, RedfishQuirk); 1] = [("Dell", RedfishQuirk::BootOverrideDeferred)];

/// Whether the system is one that is known for this.
pub(crate) fn has(system: &Value, quirk: RedfishQuirk) -> bool {
    let maker = system.get("Manufacturer").and_then(Value::as_str);
    let maker = maker.unwrap_or_default();
    // A system that says so itself (DSP0266, section 9.10) needs no table.
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
