//! Identifiers of sixteen bytes. IPMI writes them with the last byte first (section 20.8), SMBIOS
//! writes only three groups so, RFC 4122 none; BMCs use any of these. The version field of the
//! identifier shows which byte order is the right one.

use core::fmt::Write as _;

/// The identifier in its text form.
pub(super) fn read(wire: [u8; 16]) -> String {
    let readings = [smbios(wire), reversed(wire), wire];
    let sound = readings.iter().find(|bytes| is_sound(bytes));
    text(sound.unwrap_or(&readings[0]))
}

fn reversed(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes.reverse();
    bytes
}

fn smbios(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

/// Whether it has a version from one to five and the variant of RFC 4122.
fn is_sound(bytes: &[u8; 16]) -> bool {
    (1..=5).contains(&(bytes[6] >> 4)) && bytes[8] >> 6 == 0b10
}

fn text(bytes: &[u8; 16]) -> String {
    let mut out = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        let _never = write!(out, "{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [u8; 16] = [
        0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0x4d, 0xef, 0x81, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd,
        0xef,
    ];
    const TEXT: &str = "01234567-89ab-4def-8123-456789abcdef";

    #[test]
    fn the_version_field_selects_the_byte_order() {
        assert_eq!(read(smbios(PLAIN)), TEXT);
        assert_eq!(read(reversed(PLAIN)), TEXT);
        assert_eq!(read(PLAIN), TEXT);
    }

    #[test]
    fn one_without_a_version_is_read_as_smbios_has_it() {
        let wire = [
            0, 1, 2, 3, 4, 5, 0xf6, 0xf7, 8, 0xf9, 10, 11, 12, 13, 14, 15,
        ];
        assert_eq!(read(wire), "03020100-0504-f7f6-08f9-0a0b0c0d0e0f");
    }
}
