//! Identification of SCSI and ATA disks: vital product data (SPC-4, section 7.8) and ATA's
//! IDENTIFY DEVICE (ACS-3, section 7.12.7), which the kernel keeps in sysfs.
//!
//! The names made from them are those of udev's `scsi_id` and `ata_id`, because the stock agent
//! reports them.

use crate::lldp::hex;

/// Most designators of a page. Ours; the page has some.
const DESIGNATORS_MAX: usize = 64;

/// Where IDENTIFY DEVICE begins in page 89h (SAT-3, section 12.4.2).
const ATA_PAGE_IDENTIFY: usize = 60;

/// Bytes of IDENTIFY DEVICE.
const IDENTIFY_BYTES: usize = 512;

/// A designator of a logical unit in page 83h.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScsiDesignator {
    /// Its type: 0 vendor specific, 1 T10 vendor ID, 2 EUI-64, 3 NAA.
    pub kind: u8,
    /// Its value is text, not binary.
    pub is_text: bool,
    /// Its value.
    pub value: Vec<u8>,
}

impl ScsiDesignator {
    /// The preference of `scsi_id`; the lowest is used.
    fn rank(&self) -> u8 {
        match (self.kind, self.value.first().map(|byte| byte >> 4)) {
            (3, Some(6)) => 0,
            (3, Some(5)) => 1,
            (3, _) => 2,
            (2, _) => 3,
            (1, _) => 4,
            _ => 5,
        }
    }

    /// `ID_SERIAL_SHORT`.
    pub(crate) fn text(&self) -> String {
        if self.is_text {
            clean(&self.value)
        } else {
            hex(&self.value)
        }
    }
}

/// The names of a disk as udev gives them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct UdevNames {
    pub(crate) serial: Option<String>,
    pub(crate) wwn: Option<String>,
    pub(crate) wwn_vendor_extension: Option<String>,
    pub(crate) wwn_with_extension: Option<String>,
}

/// What an ATA disk says about itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AtaIdentity {
    /// Its model.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its world wide name, if it has one.
    pub wwn: Option<u64>,
}

/// The designators of the logical unit in page 83h. Those of ports and of the device are left
/// out, as in `scsi_id`.
pub fn parse_designators(page: &[u8]) -> Vec<ScsiDesignator> {
    let mut designators = Vec::new();
    let Some((header, rest)) = page.split_first_chunk::<4>() else {
        return designators;
    };
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let mut rest = &rest[..length.min(rest.len())];
    while let Some((&[code_set, kind, _, length], after)) = rest.split_first_chunk::<4>() {
        let Some((value, after)) = after.split_at_checked(usize::from(length)) else {
            break;
        };
        rest = after;
        if kind & 0x30 == 0 && !value.is_empty() && designators.len() < DESIGNATORS_MAX {
            designators.push(ScsiDesignator {
                kind: kind & 0x0f,
                is_text: matches!(code_set & 0x0f, 2 | 3),
                value: value.to_vec(),
            });
        }
    }
    designators
}

/// The serial number in page 80h.
pub(crate) fn unit_serial(page: &[u8]) -> Option<String> {
    let length = u16::from_be_bytes([*page.get(2)?, *page.get(3)?]);
    let serial = clean(page.get(4..4 + usize::from(length))?);
    (!serial.is_empty()).then_some(serial)
}

/// The names of a SCSI disk: its world wide name is the best NAA designator.
pub(crate) fn scsi_names(page_83: &[u8], page_80: &[u8]) -> UdevNames {
    let designators = parse_designators(page_83);
    let best = designators.iter().min_by_key(|one| one.rank());
    let serial = unit_serial(page_80).or_else(|| best.map(ScsiDesignator::text));
    let mut names = UdevNames {
        serial: serial.filter(|serial| !serial.is_empty()),
        ..UdevNames::default()
    };
    if let Some(best) = best.filter(|best| best.kind == 3 && best.value.len() >= 8) {
        let digits = hex(&best.value);
        let (wwn, extension) = digits.split_at(16);
        names.wwn = Some(format!("0x{wwn}"));
        if extension.is_empty() {
            names.wwn_with_extension = names.wwn.clone();
        } else {
            names.wwn_vendor_extension = Some(format!("0x{extension}"));
            names.wwn_with_extension = Some(format!("0x{digits}"));
        }
    }
    names
}

/// The ATA identity in page 89h.
pub fn parse_ata_identity(page: &[u8]) -> Option<AtaIdentity> {
    let identify = page.get(ATA_PAGE_IDENTIFY..ATA_PAGE_IDENTIFY + IDENTIFY_BYTES)?;
    let word = |number: usize| u16::from_le_bytes([identify[number * 2], identify[number * 2 + 1]]);
    let text = |first: usize, words: usize| {
        // Each word has its first character in its high byte.
        let bytes: Vec<u8> = (first..first + words)
            .flat_map(|number| word(number).to_be_bytes())
            .collect();
        let text = clean(&bytes);
        (!text.is_empty()).then_some(text)
    };
    // Word 87: bit 14 one and bit 15 zero say that the word is valid, bit 8 that there is a name.
    let named = word(87) & 0xc100 == 0x4100;
    let wwn = (108..112).fold(0, |name, number| name << 16 | u64::from(word(number)));
    Some(AtaIdentity {
        model: text(27, 20),
        serial: text(10, 10),
        wwn: named.then_some(wwn).filter(|&wwn| wwn != 0),
    })
}

/// The names of an ATA disk.
pub(crate) fn ata_names(identity: &AtaIdentity) -> UdevNames {
    let wwn = identity.wwn.map(|wwn| format!("0x{wwn:016x}"));
    UdevNames {
        serial: identity.serial.clone(),
        wwn_with_extension: wwn.clone(),
        wwn,
        wwn_vendor_extension: None,
    }
}

/// Printable characters, with single spaces between words.
fn clean(bytes: &[u8]) -> String {
    let printable = |&byte: &u8| {
        if byte.is_ascii_graphic() {
            char::from(byte)
        } else {
            ' '
        }
    };
    let text: String = bytes.iter().map(printable).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A page 83h with these designators: code set, type with association, value.
    pub(crate) fn page_83(designators: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (code_set, kind, value) in designators {
            body.extend([*code_set, *kind, 0, value.len() as u8]);
            body.extend(*value);
        }
        let mut page = vec![0, 0x83];
        page.extend((body.len() as u16).to_be_bytes());
        page.extend(body);
        page
    }

    /// A page 80h.
    pub(crate) fn page_80(serial: &str) -> Vec<u8> {
        let mut page = vec![0, 0x80, 0, serial.len() as u8];
        page.extend(serial.bytes());
        page
    }

    /// A page 89h with this model, serial number and name.
    pub(crate) fn page_89(model: &str, serial: &str, wwn: Option<u64>) -> Vec<u8> {
        let mut words = [0_u16; 256];
        let mut put = |first: usize, count: usize, text: &str| {
            let bytes = format!("{text:width$}", width = count * 2).into_bytes();
            for (word, pair) in words[first..first + count].iter_mut().zip(bytes.chunks(2)) {
                *word = u16::from_be_bytes([pair[0], pair[1]]);
            }
        };
        put(27, 20, model);
        put(10, 10, serial);
        if let Some(wwn) = wwn {
            words[87] = 0x4100;
            for (at, word) in words[108..112].iter_mut().enumerate() {
                *word = (wwn >> (48 - 16 * at)) as u16;
            }
        }
        let mut page = vec![0; ATA_PAGE_IDENTIFY];
        page.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        page
    }

    #[test]
    fn the_extended_name_is_divided_as_udev_does() {
        let naa6 = [0x6c, 0, 0, 0, 0, 0, 0, 1, 0xaa, 0, 0, 0, 0, 0, 0, 0xbb];
        let page = page_83(&[
            (2, 1, b"DELL    PERC"),
            (1, 3, &[0x50, 0, 0, 0, 0, 0, 0, 9]),
            (1, 3, &naa6),
            (1, 0x13, &[0x5f; 8]),
        ]);
        let names = scsi_names(&page, &page_80("00ab  "));
        assert_eq!(names.serial.as_deref(), Some("00ab"));
        assert_eq!(names.wwn.as_deref(), Some("0x6c00000000000001"));
        assert_eq!(
            names.wwn_vendor_extension.as_deref(),
            Some("0xaa000000000000bb")
        );
        assert_eq!(
            names.wwn_with_extension.as_deref(),
            Some("0x6c00000000000001aa000000000000bb")
        );
    }

    #[test]
    fn a_short_name_has_no_extension_and_is_the_serial_without_page_80() {
        let page = page_83(&[(1, 3, &[0x50, 1, 2, 3, 4, 5, 6, 7])]);
        let names = scsi_names(&page, &[]);
        assert_eq!(names.wwn.as_deref(), Some("0x5001020304050607"));
        assert_eq!(names.wwn_with_extension, names.wwn);
        assert_eq!(names.wwn_vendor_extension, None);
        assert_eq!(names.serial.as_deref(), Some("5001020304050607"));
    }

    #[test]
    fn a_disk_of_qemu_has_only_a_vendor_specific_designator() {
        let names = scsi_names(&page_83(&[(2, 0, b"drive-scsi0")]), &[]);
        assert_eq!(names.serial.as_deref(), Some("drive-scsi0"));
        assert_eq!(names.wwn, None);
    }

    #[test]
    fn an_ata_disk_has_its_whole_model() {
        let page = page_89(
            "Samsung SSD 860 EVO 1TB",
            "S3Z8NB0K",
            Some(0x5002_538e_4000_0001),
        );
        let identity = parse_ata_identity(&page).unwrap();
        assert_eq!(identity.model.as_deref(), Some("Samsung SSD 860 EVO 1TB"));
        assert_eq!(identity.serial.as_deref(), Some("S3Z8NB0K"));
        let names = ata_names(&identity);
        assert_eq!(names.wwn.as_deref(), Some("0x5002538e40000001"));
        assert_eq!(names.wwn_with_extension, names.wwn);
        let unnamed = parse_ata_identity(&page_89("QEMU HARDDISK", "QM00001", None)).unwrap();
        assert_eq!(unnamed.wwn, None);
    }

    #[test]
    fn truncated_pages_give_what_is_whole() {
        let page = page_83(&[(2, 0, b"one"), (2, 1, b"two")]);
        assert_eq!(parse_designators(&page).len(), 2);
        assert_eq!(parse_designators(&page[..page.len() - 1]).len(), 1);
        assert!(parse_designators(&page[..3]).is_empty());
        assert_eq!(unit_serial(&[0, 0x80, 0, 9, b'x']), None);
        assert_eq!(unit_serial(&page_80("   ")), None);
        assert_eq!(parse_ata_identity(&[0; 571]), None);
        assert_eq!(parse_ata_identity(&[0; 572]), Some(AtaIdentity::default()));
    }
}
