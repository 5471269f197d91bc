//! Boot flags: parameter 5 of the boot options (table 28-14), as five bytes and as fields.

use trivet_model::BootDevice;

const BIT_VALID: u8 = 0x80;
const BIT_PERSISTENT: u8 = 0x40;
const BIT_EFI: u8 = 0x20;

/// The boot settings that a BMC passes to the firmware.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BootFlags {
    /// Whether the other flags are in effect. Firmware clears it when it has used one-shot flags.
    pub valid: bool,
    /// For every boot, not only the next.
    pub persistent: bool,
    /// Boot in UEFI mode.
    pub efi: bool,
    /// The boot device; `None` for no override, or for a device that is not supported here.
    pub device: Option<BootDevice>,
}

impl BootFlags {
    pub(crate) fn emit(self) -> [u8; 5] {
        let mut first = 0;
        for (set, bit) in [
            (self.valid, BIT_VALID),
            (self.persistent, BIT_PERSISTENT),
            (self.efi, BIT_EFI),
        ] {
            first |= if set { bit } else { 0 };
        }
        let device = match self.device {
            None => 0,
            Some(BootDevice::Pxe) => 1,
            Some(BootDevice::Disk) => 2,
            Some(BootDevice::Safe) => 3,
            Some(BootDevice::Cdrom) => 5,
            Some(BootDevice::Bios) => 6,
        };
        [first, device << 2, 0, 0, 0]
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let &[first, second, _, _, _, ..] = bytes else {
            return None;
        };
        let device = match second >> 2 & 0x0f {
            1 => Some(BootDevice::Pxe),
            2 => Some(BootDevice::Disk),
            3 => Some(BootDevice::Safe),
            // Eight is a CD drive of a remote console.
            5 | 8 => Some(BootDevice::Cdrom),
            6 => Some(BootDevice::Bios),
            _ => None,
        };
        Some(Self {
            valid: first & BIT_VALID != 0,
            persistent: first & BIT_PERSISTENT != 0,
            efi: first & BIT_EFI != 0,
            device,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_bytes_ipmitool_writes() {
        for (flags, want) in [
            ((false, false, BootDevice::Pxe), [0x80, 0x04, 0, 0, 0]),
            ((true, true, BootDevice::Pxe), [0xe0, 0x04, 0, 0, 0]),
            ((true, false, BootDevice::Disk), [0xc0, 0x08, 0, 0, 0]),
            ((false, false, BootDevice::Safe), [0x80, 0x0c, 0, 0, 0]),
            ((false, false, BootDevice::Cdrom), [0x80, 0x14, 0, 0, 0]),
            ((false, false, BootDevice::Bios), [0x80, 0x18, 0, 0, 0]),
        ] {
            let (persistent, efi, device) = flags;
            let flags = BootFlags {
                valid: true,
                persistent,
                efi,
                device: Some(device),
            };
            assert_eq!(flags.emit(), want);
            assert_eq!(BootFlags::parse(&want), Some(flags));
        }
    }

    #[test]
    fn an_unknown_device_is_none_and_a_short_body_is_refused() {
        assert_eq!(BootFlags::parse(&[0; 5]), Some(BootFlags::default()));
        assert_eq!(
            BootFlags::parse(&[0, 0x3c, 0, 0, 0]),
            Some(BootFlags::default())
        );
        assert_eq!(BootFlags::parse(&[0x80, 0x04, 0, 0]), None);
    }
}
