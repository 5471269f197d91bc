//! Identity and inventory of a simulated machine.

use serde_json::{Value, json};
use trivet_bmc_ipmi::IpmiCipherSuite;
use trivet_bmc_ipmi::bmc::{IpmiPrivilege, IpmiSimulatorSetup, IpmiSimulatorUser};
use trivet_model::{Entropy, MacAddr, SeededRandom};

/// The user of every simulated BMC.
pub const BMC_USER: &str = "admin";

/// The password of every simulated BMC.
pub const BMC_PASSWORD: &str = "simulated";

/// One machine: the same number always gives the same machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SimHardware {
    /// Position in the rack, starting at one.
    pub number: u16,
    /// Hardware address of its only port.
    pub mac: MacAddr,
    /// SMBIOS UUID.
    pub uuid: [u8; 16],
}

impl SimHardware {
    /// The machine at this position. The hardware address has QEMU's prefix.
    pub fn new(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        let mut uuid = [0; 16];
        SeededRandom::new(u64::from(number)).fill(&mut uuid);
        Self {
            number,
            mac: MacAddr([0x52, 0x54, 0x00, 0x77, high, low]),
            uuid,
        }
    }

    /// Name of its node.
    pub fn name(&self) -> String {
        format!("node-{:02}", self.number)
    }

    /// Settings of its simulated BMC.
    pub fn bmc(&self) -> IpmiSimulatorSetup {
        IpmiSimulatorSetup {
            users: vec![IpmiSimulatorUser {
                name: BMC_USER.into(),
                password: BMC_PASSWORD.into(),
                limit: IpmiPrivilege::Administrator,
            }],
            guid: self.uuid,
            kg: None,
            suites: vec![IpmiCipherSuite::Sha256, IpmiCipherSuite::Sha1],
        }
    }

    /// The inventory that an agent reports.
    pub fn inventory(&self, disk_bytes: u64) -> Value {
        json!({
            "interfaces": [{
                "name": "eth0", "mac_address": self.mac.to_string(), "ipv4_address": null,
                "ipv6_address": null, "has_carrier": true, "lldp": null, "vendor": "0x1af4",
                "product": "0x1000", "client_id": null, "biosdevname": null,
                "speed_mbps": 10_000, "pci_address": "0000:00:02.0", "driver": "virtio_net",
            }],
            "cpu": {
                "model_name": "Simulated CPU", "frequency": "2400.0", "count": 8,
                "architecture": "x86_64", "flags": ["fpu"], "socket_count": 1,
            },
            "disks": [{
                "name": "/dev/vda", "model": "simulated", "size": disk_bytes, "rotational": false,
                "wwn": null, "serial": format!("R{:04}", self.number), "vendor": "trivet",
                "wwn_with_extension": null, "wwn_vendor_extension": null, "hctl": null,
                "by_path": null,
            }],
            "memory": {"total": 17_179_869_184_u64, "physical_mb": 16_384},
            "bmc_address": null, "bmc_v6address": null,
            "system_vendor": {
                "product_name": "Simulated server", "serial_number": format!("S{:04}", self.number),
                "manufacturer": "Trivet",
                "firmware": {"vendor": "Trivet", "version": "1", "build_date": ""},
            },
            "boot": {"current_boot_mode": "uefi", "pxe_interface": self.mac.to_string()},
            "hostname": self.name(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_differ_and_stay_the_same() {
        assert_eq!(SimHardware::new(3), SimHardware::new(3));
        assert_ne!(SimHardware::new(3).mac, SimHardware::new(259).mac);
        assert_ne!(SimHardware::new(3).uuid, SimHardware::new(4).uuid);
        assert_eq!(SimHardware::new(3).name(), "node-03");
    }

    #[test]
    fn the_inventory_has_the_port() {
        let machine = SimHardware::new(3);
        let inventory = machine.inventory(5);
        assert_eq!(
            inventory["interfaces"][0]["mac_address"],
            machine.mac.to_string()
        );
    }
}
