//! Names for numbers: sensor types (table 42-3) and BMC manufacturers (IANA's private enterprise
//! numbers).

const SENSORS: [&str; 44] = [
    "temperature",
    "voltage",
    "current",
    "fan",
    "physical_security",
    "platform_security",
    "processor",
    "power_supply",
    "power_unit",
    "cooling_device",
    "other_units",
    "memory",
    "drive_slot",
    "memory_resize",
    "system_firmware",
    "event_log",
    "watchdog_1",
    "system_event",
    "critical_interrupt",
    "button",
    "module",
    "microcontroller",
    "add_in_card",
    "chassis",
    "chip_set",
    "other_fru",
    "cable",
    "terminator",
    "system_boot",
    "boot_error",
    "os_boot",
    "os_stop",
    "slot",
    "acpi_power_state",
    "watchdog_2",
    "platform_alert",
    "entity_presence",
    "monitor_asic",
    "lan",
    "management_health",
    "battery",
    "session_audit",
    "version_change",
    "fru_state",
];

/// The name of this sensor type.
pub(super) fn of_sensor(number: u8) -> String {
    let at = usize::from(number).checked_sub(1);
    let known = at.and_then(|at| SENSORS.get(at));
    match known {
        Some(word) => (*word).to_owned(),
        None if number >= 0xc0 => format!("oem_0x{number:02x}"),
        None => format!("unknown_0x{number:02x}"),
    }
}

const MAKERS: [(u32, &str); 14] = [
    (2, "IBM"),
    (11, "HP"),
    (42, "Sun"),
    (343, "Intel"),
    (674, "Dell"),
    (2011, "Huawei"),
    (5771, "Cisco"),
    (6653, "Tyan"),
    (7244, "Quanta"),
    (10_368, "Fujitsu"),
    (10_876, "Supermicro"),
    (15_370, "Gigabyte"),
    (19_046, "Lenovo"),
    (47_196, "HPE"),
];

/// The manufacturer with this number, if it is one of the usual ones.
pub(super) fn maker(number: u32) -> Option<&'static str> {
    let known = MAKERS.iter().find(|(known, _)| *known == number);
    known.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_ends_are_where_they_should_be() {
        for (number, want) in [
            (0, "unknown_0x00"),
            (1, "temperature"),
            (4, "fan"),
            (0x0c, "memory"),
            (0x10, "event_log"),
            (0x1f, "os_boot"),
            (0x23, "watchdog_2"),
            (0x29, "battery"),
            (0x2c, "fru_state"),
            (0x2d, "unknown_0x2d"),
            (0xc0, "oem_0xc0"),
        ] {
            assert_eq!(of_sensor(number), want);
        }
        assert_eq!(maker(674), Some("Dell"));
        assert_eq!(maker(0), None);
    }
}
