//! The inventory of the machine that the agent runs on.
//!
//! The fields and their formats are those of the Ironic Python Agent 13, which gets them from
//! `lsblk`, `udev`, `lscpu`, `lshw`, `dmidecode` and `ipmitool`. Here no program is run: what
//! they read is read directly. Parsers take the contents of files and replies and return typed
//! values; [`SystemRoot`] reads the files below a directory, and [`SystemCalls`] is all that is
//! not a file, so both can be replaced in tests. What is missing or malformed is left out: an
//! inventory never fails.

mod bmc;
mod by_path;
mod collect;
mod cpu;
mod disks;
mod dmi;
mod interfaces;
mod lldp;
mod logs;
mod memory;
mod numa;
mod pci;
mod smbios;
mod system;
#[cfg(test)]
mod testing;
mod usb;
mod vpd;

pub use bmc::{BmcLanAddresses, read_bmc_lan};
pub use collect::{CollectorOptions, InventoryCollector, collect_document, collect_inventory};
pub use cpu::parse_cpuinfo;
pub use disks::{DiskIdentity, list_disks};
pub use dmi::dmi_document;
pub use lldp::{LLDP_TLVS_MAX, LldpTlv, lldp_document, parse_lldp_frame};
pub use logs::{LogFile, log_archive};
pub use smbios::{SmbiosStructure, SmbiosTable};
pub use system::{LinuxCalls, SystemCalls, SystemRoot};
pub use vpd::{AtaIdentity, ScsiDesignator, parse_ata_identity, parse_designators};
