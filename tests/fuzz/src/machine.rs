//! What the agent's machine gives to the agent: tables of its firmware, pages of its disks,
//! replies of its BMC and frames of its neighbours.

use std::io;
use std::time::Duration;

use trivet_board_linux::InterfaceAddress;
use trivet_image_inventory::{
    LLDP_TLVS_MAX, SmbiosTable, SystemCalls, dmi_document, parse_ata_identity, parse_cpuinfo,
    parse_designators, parse_lldp_frame, read_bmc_lan,
};

use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const SMBIOS: FuzzTarget = FuzzTarget {
    name: "machine_smbios",
    run: smbios,
    seeds: smbios_seeds,
    regressions: &[],
};

pub(crate) const LLDP: FuzzTarget = FuzzTarget {
    name: "machine_lldp",
    run: lldp,
    seeds: lldp_seeds,
    regressions: &[],
};

pub(crate) const BMC_REPLIES: FuzzTarget = FuzzTarget {
    name: "machine_bmc_replies",
    run: bmc_replies,
    seeds: bmc_seeds,
    regressions: &[],
};

pub(crate) const DISK_PAGES: FuzzTarget = FuzzTarget {
    name: "machine_disk_pages",
    run: disk_pages,
    seeds: page_seeds,
    regressions: &[],
};

fn smbios(bytes: &[u8]) {
    let table = SmbiosTable::parse(bytes);
    let document = dmi_document(&table);
    assert!(document["memory"]["devices"].is_array());
    for kind in 0..=u8::MAX {
        for structure in table.of_kind(kind) {
            assert!(structure.bytes.len() >= 4 && structure.bytes.len() <= 255);
            for at in 0..=u8::MAX {
                let at = usize::from(at);
                let within = structure.bytes.len();
                assert_eq!(structure.word(at).is_some(), at + 2 <= within);
                assert_eq!(structure.qword(at).is_some(), at + 8 <= within);
                let string = structure.string(at).map_or(0, str::len);
                assert!(string <= 3 * bytes.len());
            }
        }
    }
}

fn smbios_seeds() -> Vec<Vec<u8>> {
    let mut device = vec![17, 0x28, 1, 0];
    device.resize(0x28, 0);
    device[0x0c] = 0xff;
    device[0x0d] = 0x7f;
    device.extend(b"DIMM 0\0\0");
    let mut system = vec![1, 0x1b, 0, 1, 1, 2, 0, 3];
    system.resize(0x1b, 0);
    system.extend(b"QEMU\0PC\0serial\0\0");
    let end = [127, 4, 2, 0, 0, 0];
    vec![
        system.clone(),
        [system.as_slice(), &device, &end].concat(),
        vec![4, 4, 0, 0, 0, 0],
    ]
}

fn lldp(bytes: &[u8]) {
    let tlvs = parse_lldp_frame(bytes);
    assert!(tlvs.len() <= LLDP_TLVS_MAX);
    let length: usize = tlvs.iter().map(|tlv| 2 + tlv.value.len()).sum();
    assert!(length <= bytes.len());
    // Only the last entry ends a frame.
    let ends = tlvs.iter().position(|tlv| tlv.kind == 0);
    assert!(ends.is_none_or(|at| at + 1 == tlvs.len()));
}

fn lldp_seeds() -> Vec<Vec<u8>> {
    let mut frame = vec![0; 14];
    frame.extend([2, 7, 4, 0x52, 0x54, 0, 0, 0, 1]);
    frame.extend([4, 3, 5, b'e', b'1', 6, 2, 0, 120, 0, 0]);
    vec![frame.clone(), [frame, vec![0; 30]].concat(), vec![0xff; 20]]
}

/// Replies that are parts of the input, in order.
struct InputReplies<'a>(FuzzInput<'a>);

impl SystemCalls for InputReplies<'_> {
    fn permanent_address(&self, _: &str) -> Option<Vec<u8>> {
        None
    }

    fn link_modes(&self, _: &str) -> Option<u32> {
        None
    }

    fn addresses(&self) -> Vec<InterfaceAddress> {
        Vec::new()
    }

    fn lldp_frames(&self, interfaces: &[String], _: Duration) -> Vec<Option<Vec<u8>>> {
        vec![None; interfaces.len()]
    }

    fn has_bmc(&self) -> bool {
        true
    }

    fn bmc_request(&mut self, _: u8, _: u8, _: &[u8]) -> io::Result<Vec<u8>> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(self.0.counted().to_vec())
    }
}

fn bmc_replies(bytes: &[u8]) {
    let found = read_bmc_lan(&mut InputReplies(FuzzInput::new(bytes)));
    let address = found.ipv4.unwrap_or_default();
    assert!(address.parse::<std::net::Ipv4Addr>().is_ok(), "{address}");
    let address = found.ipv6.unwrap_or_default();
    assert!(address == "::/0" || address.parse::<std::net::Ipv6Addr>().is_ok());
    assert!(found.mac.is_none_or(|mac| mac.len() == 17));
}

fn bmc_seeds() -> Vec<Vec<u8>> {
    let replies: [&[u8]; 7] = [
        &[0, 1, 4, 1],
        &[0, 0x11, 192, 0, 2, 9],
        &[0, 0x11, 2],
        &[0, 0x11, 1, 1],
        &[
            0, 0x11, 0, 2, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 64, 0,
        ],
        &[0, 0x11, 2, 0, 0, 0, 0, 1],
        &[0xcc],
    ];
    let counted = |reply: &&[u8]| [&[reply.len() as u8][..], reply].concat();
    vec![replies.iter().flat_map(counted).collect(), vec![1, 0xcc]]
}

fn disk_pages(bytes: &[u8]) {
    let designators = parse_designators(bytes);
    let length: usize = designators.iter().map(|one| 4 + one.value.len()).sum();
    assert!(length <= bytes.len());
    if let Some(identity) = parse_ata_identity(bytes) {
        assert!(identity.model.is_none_or(|model| model.len() <= 40));
        assert!(identity.serial.is_none_or(|serial| serial.len() <= 20));
    }
    let (_, flags) = parse_cpuinfo(&String::from_utf8_lossy(bytes));
    assert!(flags.len() <= bytes.len());
}

fn page_seeds() -> Vec<Vec<u8>> {
    let naa = [0, 0x83, 0, 12, 1, 3, 0, 8, 0x50, 1, 2, 3, 4, 5, 6, 7];
    let mut identify = vec![0; 572];
    identify[60 + 54..60 + 94].fill(b'm');
    identify[60 + 175] = 0x41;
    identify[60 + 216] = 5;
    vec![naa.to_vec(), identify, b"flags : fpu vme\n".to_vec()]
}
