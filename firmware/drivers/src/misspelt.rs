//! Keys of `driver_info` that are most likely misspelt.
//!
//! Ironic stores any key, and clients store keys that no driver reads, so an unknown key alone is
//! not a mistake. A key is reported only if it differs from a known key by one or two characters.

use trivet_model::edit_distance;

use crate::{ALL, HardwareTypeSpec};

/// Keys that Ironic's drivers and its clients use and this box does not read.
const READ_BY_IRONIC: [&str; 23] = [
    "agent_verify_ca",
    "bootloader",
    "config_via_removable",
    "deploy_forces_oob_reboot",
    "deploy_iso",
    "force_persistent_boot_device",
    "image_http_proxy",
    "image_https_proxy",
    "image_no_proxy",
    "ipmi_bridging",
    "ipmi_disable_boot_timeout",
    "ipmi_force_boot_device",
    "ipmi_local_address",
    "ipmi_target_address",
    "ipmi_target_channel",
    "ipmi_terminal_port",
    "ipmi_transit_address",
    "ipmi_transit_channel",
    "redfish_root_prefix",
    "rescue_iso",
    "ssh_password",
    "ssh_terminal_port",
    "vbox_use_headless",
];

/// Known keys of at least this many characters may differ by two, shorter ones by one:
/// `ipmi_host` is not `ipmi_port`. Ours.
const LONG_CHARS_MIN: usize = 12;

/// The key of this hardware type that was most likely meant by `key`. `None` if any driver knows
/// `key`, and if no known key is similar.
pub fn suggested_key(hardware: &HardwareTypeSpec, key: &str) -> Option<&'static str> {
    let mut known = ALL.iter().flat_map(HardwareTypeSpec::properties);
    if READ_BY_IRONIC.contains(&key) || known.any(|(name, _)| name == key) {
        return None;
    }
    let key = key.to_lowercase();
    let near = hardware.properties().filter_map(|(name, _)| {
        let most = if name.len() < LONG_CHARS_MIN { 1 } else { 2 };
        // Checked before the table is built, because a key can be as long as a request body.
        if key.len().abs_diff(name.len()) > most {
            return None;
        }
        let distance = edit_distance(&key, name);
        (distance <= most).then_some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(driver: &str, key: &str) -> Option<&'static str> {
        suggested_key(crate::named(driver).unwrap(), key)
    }

    #[test]
    fn a_misspelt_key_has_a_suggestion() {
        for (driver, key, want) in [
            ("ipmi", "ipmi_adress", "ipmi_address"),
            ("ipmi", "impi_address", "ipmi_address"),
            ("ipmi", "ipmi_usrename", "ipmi_username"),
            ("ipmi", "ipmi-password", "ipmi_password"),
            ("ipmi", "IPMI_Address", "ipmi_address"),
            ("ipmi", "deploy_kernl", "deploy_kernel"),
            ("redfish", "redfish_adres", "redfish_address"),
            ("redfish", "redfish_systemid", "redfish_system_id"),
            ("ssh", "ssh_adress", "ssh_address"),
        ] {
            assert_eq!(of(driver, key), Some(want), "{key}");
        }
    }

    #[test]
    fn known_keys_and_other_keys_have_none() {
        for hardware in &ALL {
            for (name, _) in ALL.iter().flat_map(HardwareTypeSpec::properties) {
                assert_eq!(
                    suggested_key(hardware, name),
                    None,
                    "{name} of {}",
                    hardware.name
                );
            }
            for name in READ_BY_IRONIC {
                assert_eq!(
                    suggested_key(hardware, name),
                    None,
                    "{name} of {}",
                    hardware.name
                );
            }
        }
        let long = "ipmi_address".repeat(1000);
        for key in [
            "",
            "a",
            "ipmi_host",
            "bmc_note",
            "fake_password",
            long.as_str(),
        ] {
            assert_eq!(of("ipmi", key), None, "{key}");
        }
        assert_eq!(of("fake-hardware", "ipmi_adress"), None, "it reads no key");
    }

    #[test]
    fn a_swap_counts_once() {
        for (left, right, want) in [
            ("", "ab", 2),
            ("ab", "ba", 1),
            ("abc", "abd", 1),
            ("a", "a", 0),
        ] {
            assert_eq!(edit_distance(left, right), want, "{left} {right}");
        }
    }
}
