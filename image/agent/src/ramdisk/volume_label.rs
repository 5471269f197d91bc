//! The label of a file system on virtual media: ISO 9660 and FAT.
//!
//! Bytes go in and a label comes out; nothing is read from a device here.

/// How many bytes of a device have all labels: the descriptors of ISO 9660 begin at sector 16.
pub const LABEL_BYTES: usize = 34 * 1024;

/// Where the primary volume descriptor is (ECMA-119, section 6.7.1), and its label.
const ISO_DESCRIPTOR_AT: usize = 16 * 2048;
const ISO_LABEL: core::ops::Range<usize> = ISO_DESCRIPTOR_AT + 40..ISO_DESCRIPTOR_AT + 72;

/// Where the extended boot record and its label are in FAT12 and FAT16, and in FAT32.
const FAT_LABELS: [(usize, usize); 2] = [(38, 43), (66, 71)];

/// The signature of an extended boot record.
const FAT_SIGNATURE: u8 = 0x29;

/// Bytes of a FAT label.
const FAT_LABEL_BYTES: usize = 11;

/// The label of the file system that begins with these bytes.
pub fn volume_label(bytes: &[u8]) -> Option<String> {
    iso_label(bytes).or_else(|| fat_label(bytes))
}

fn iso_label(bytes: &[u8]) -> Option<String> {
    // A type of 1 and the standard identifier.
    let kind = bytes.get(ISO_DESCRIPTOR_AT..ISO_DESCRIPTOR_AT + 6)?;
    if kind != b"\x01CD001" {
        return None;
    }
    text(bytes.get(ISO_LABEL)?)
}

fn fat_label(bytes: &[u8]) -> Option<String> {
    if bytes.get(510..512)? != [0x55, 0xaa] {
        return None;
    }
    FAT_LABELS.into_iter().find_map(|(signature, label)| {
        // The name of the file system follows the label.
        let kind = bytes.get(label + FAT_LABEL_BYTES..label + FAT_LABEL_BYTES + 3)?;
        if bytes.get(signature) != Some(&FAT_SIGNATURE) || kind != b"FAT" {
            return None;
        }
        text(bytes.get(label..label + FAT_LABEL_BYTES)?)
    })
}

fn text(bytes: &[u8]) -> Option<String> {
    let text = core::str::from_utf8(bytes).ok()?.trim_matches([' ', '\0']);
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(label: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; LABEL_BYTES];
        bytes[ISO_DESCRIPTOR_AT..][..6].copy_from_slice(b"\x01CD001");
        bytes[ISO_LABEL].fill(b' ');
        bytes[ISO_LABEL][..label.len()].copy_from_slice(label);
        bytes
    }

    fn fat(which: usize, label: &[u8; 11]) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        let (signature, at) = FAT_LABELS[which];
        bytes[signature] = FAT_SIGNATURE;
        bytes[at..at + 11].copy_from_slice(label);
        bytes[at + 11..at + 16].copy_from_slice(b"FAT12");
        bytes[510..].copy_from_slice(&[0x55, 0xaa]);
        bytes
    }

    #[test]
    fn reads_the_labels_of_both_file_systems() {
        assert_eq!(volume_label(&iso(b"config-2")).as_deref(), Some("config-2"));
        let label = volume_label(&fat(0, b"ir-vfd-dev "));
        assert_eq!(label.as_deref(), Some("ir-vfd-dev"));
        assert_eq!(
            volume_label(&fat(1, b"LABEL      ")).as_deref(),
            Some("LABEL")
        );
    }

    #[test]
    fn other_bytes_have_no_label() {
        let mut unsigned = fat(0, b"ir-vfd-dev ");
        unsigned[511] = 0;
        let mut other = iso(b"x");
        other[ISO_DESCRIPTOR_AT] = 2;
        for bytes in [
            &[][..],
            &[0; 600],
            &unsigned,
            &other,
            &iso(b""),
            &iso(b"\xff\xfe"),
            &fat(0, b"           "),
            &iso(b"short")[..ISO_DESCRIPTOR_AT + 50],
        ] {
            assert_eq!(volume_label(bytes), None);
        }
    }
}
