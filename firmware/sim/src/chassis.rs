//! Power and boot flags of a machine, as its BMC sees them.

use trivet_bmc_ipmi::BootFlags;
use trivet_bmc_ipmi::bmc::IpmiChassis;
use trivet_model::{BootDevice, PowerOrder, PowerState};

/// Power and boot flags of one machine.
#[derive(Clone, Debug)]
pub struct SimChassis {
    power: PowerState,
    flags: BootFlags,
    /// Counts power changes: the simulation restarts the machine when it increases.
    power_changes: u64,
}

impl Default for SimChassis {
    fn default() -> Self {
        Self {
            power: PowerState::Off,
            flags: BootFlags::default(),
            power_changes: 0,
        }
    }
}

impl SimChassis {
    /// Number of power changes.
    pub fn power_changes(&self) -> u64 {
        self.power_changes
    }

    /// Whether the power is on.
    pub fn is_on(&self) -> bool {
        self.power == PowerState::On
    }

    /// The device that the firmware boots from now. One-shot flags are cleared, as by real
    /// firmware; without flags a machine with an installed disk boots the disk.
    pub fn boot_device(&mut self, installed: bool) -> BootDevice {
        let requested = self.flags.device.filter(|_| self.flags.valid);
        if !self.flags.persistent {
            self.flags.valid = false;
        }
        requested.unwrap_or(if installed {
            BootDevice::Disk
        } else {
            BootDevice::Pxe
        })
    }

    /// The machine switches itself off.
    pub fn power_off(&mut self) {
        self.set_power(PowerState::Off);
    }

    /// The machine restarts itself.
    pub fn restart(&mut self) {
        self.power_changes += u64::from(self.is_on());
    }

    fn set_power(&mut self, power: PowerState) {
        self.power_changes += u64::from(self.power != power);
        self.power = power;
    }
}

impl IpmiChassis for SimChassis {
    fn power(&self) -> PowerState {
        self.power
    }

    fn control(&mut self, order: PowerOrder) {
        match order {
            PowerOrder::On => self.set_power(PowerState::On),
            PowerOrder::Off | PowerOrder::SoftOff => self.set_power(PowerState::Off),
            PowerOrder::Cycle | PowerOrder::Reset => self.restart(),
            _ => {}
        }
    }

    fn boot(&self) -> BootFlags {
        self.flags
    }

    fn set_boot(&mut self, flags: BootFlags) {
        self.flags = flags;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(device: BootDevice, persistent: bool) -> BootFlags {
        BootFlags {
            valid: true,
            persistent,
            efi: false,
            device: Some(device),
        }
    }

    #[test]
    fn switching_on_twice_is_one_power_change() {
        let mut case = SimChassis::default();
        case.control(PowerOrder::On);
        case.control(PowerOrder::On);
        assert_eq!((case.power_changes(), case.is_on()), (1, true));
        case.control(PowerOrder::Reset);
        assert_eq!((case.power_changes(), case.is_on()), (2, true));
        case.power_off();
        assert_eq!((case.power_changes(), case.is_on()), (3, false));
    }

    #[test]
    fn one_shot_flags_count_once_and_persistent_ones_stay() {
        let mut case = SimChassis::default();
        case.set_boot(flags(BootDevice::Pxe, false));
        assert_eq!(case.boot_device(true), BootDevice::Pxe);
        assert_eq!(case.boot_device(true), BootDevice::Disk);
        case.set_boot(flags(BootDevice::Disk, true));
        assert_eq!(case.boot_device(false), BootDevice::Disk);
        assert_eq!(case.boot_device(false), BootDevice::Disk);
    }

    #[test]
    fn an_empty_machine_boots_from_the_network() {
        assert_eq!(SimChassis::default().boot_device(false), BootDevice::Pxe);
    }
}
