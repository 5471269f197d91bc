//! What a machine is told to load, from how its firmware describes itself.

use core::net::Ipv4Addr;

use crate::frame::Frame;
use crate::settings::{BootServer, Loaders};

/// The boot part of a reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer<'a> {
    /// An address and nothing else.
    Nothing,
    /// PXE firmware fetches its loader by TFTP.
    Tftp { server: Ipv4Addr, file: &'a str },
    /// iPXE fetches its script.
    Script { server: Ipv4Addr, url: String },
    /// UEFI fetches its loader by HTTP.
    Http { url: String },
}

impl Answer<'_> {
    /// What is to be loaded, a name or an address.
    pub(crate) fn file(&self) -> Option<&str> {
        match self {
            Self::Nothing => None,
            Self::Tftp { file, .. } => Some(file),
            Self::Script { url, .. } | Self::Http { url } => Some(url),
        }
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// Firmware that loads by TFTP.
    Pxe,
    /// Firmware that loads by HTTP.
    Http,
    /// The loader that asks for a script.
    Ipxe,
    /// Anything else: a system that runs, or a BMC, or a printer.
    System,
}

/// What it runs on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Machine {
    Bios,
    X64,
    Ia32,
    Arm64,
    Unknown,
}

/// Who speaks, on what.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Firmware {
    pub(crate) stage: Stage,
    pub(crate) machine: Machine,
}

impl Firmware {
    pub(crate) fn of(frame: &Frame<'_>) -> Self {
        let class = frame.vendor_class().unwrap_or_default();
        let stage = if frame.is_ipxe() {
            Stage::Ipxe
        } else if class.starts_with(b"HTTPClient") {
            Stage::Http
        } else if class.starts_with(b"PXEClient") {
            Stage::Pxe
        } else {
            Stage::System
        };
        // The IANA registry of processor architecture types, which corrects RFC 4578:
        // UEFI x64 is 7; some firmware sends 9. 15, 16 and 19 boot by HTTP.
        let machine = match frame.arch() {
            Some(0) => Machine::Bios,
            Some(6 | 15) => Machine::Ia32,
            Some(7 | 9 | 16) => Machine::X64,
            Some(11 | 19) => Machine::Arm64,
            _ => Machine::Unknown,
        };
        Self { stage, machine }
    }

    /// For notes.
    pub(crate) fn name(self) -> &'static str {
        use Machine::{Arm64, Bios, Ia32, Unknown, X64};
        match (self.stage, self.machine) {
            (Stage::Ipxe, Bios) => "iPXE (BIOS)",
            (Stage::Ipxe, X64) => "iPXE (UEFI x64)",
            (Stage::Ipxe, Ia32) => "iPXE (UEFI ia32)",
            (Stage::Ipxe, Arm64) => "iPXE (UEFI arm64)",
            (Stage::Ipxe, Unknown) => "iPXE",
            (Stage::Pxe, Bios) => "BIOS PXE",
            (Stage::Pxe, X64) => "UEFI x64 PXE",
            (Stage::Pxe, Ia32) => "UEFI ia32 PXE",
            (Stage::Pxe, Arm64) => "UEFI arm64 PXE",
            (Stage::Pxe, Unknown) => "PXE of an unknown architecture",
            (Stage::Http, X64) => "UEFI x64 HTTP boot",
            (Stage::Http, Ia32) => "UEFI ia32 HTTP boot",
            (Stage::Http, Arm64) => "UEFI arm64 HTTP boot",
            (Stage::Http, Bios | Unknown) => "HTTP boot of an unknown architecture",
            (Stage::System, _) => "operating system",
        }
    }

    /// It does not boot from the network.
    pub(crate) fn is_system(self) -> bool {
        self.stage == Stage::System
    }

    fn loader(self, loaders: &Loaders) -> Option<&str> {
        let loader = match self.machine {
            Machine::Bios => &loaders.bios,
            Machine::X64 => &loaders.x64,
            Machine::Ia32 => &loaders.ia32,
            Machine::Arm64 => &loaders.arm64,
            Machine::Unknown => &None,
        };
        loader.as_deref()
    }

    /// What it is told to load.
    pub(crate) fn answer<'a>(self, frame: &Frame<'_>, boot: &'a BootServer) -> Answer<'a> {
        let loader = self.loader(&boot.loaders);
        match (self.stage, loader, &boot.loaders_url) {
            (Stage::Ipxe, ..) => Answer::Script {
                server: boot.tftp,
                url: boot.script_url.replace("{mac}", &frame.mac.to_string()),
            },
            (Stage::Pxe, Some(file), _) => Answer::Tftp {
                server: boot.tftp,
                file,
            },
            (Stage::Http, Some(file), Some(url)) if self.machine != Machine::Bios => Answer::Http {
                url: format!("{url}/{file}"),
            },
            _ => Answer::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::settings::tests::subnet;
    use trivet_model::{MacAddr, Tick};

    fn boot() -> BootServer {
        let mut boot = subnet(0).boot;
        boot.loaders_url = Some("http://10.0.0.1".into());
        boot.loaders.ia32 = Some("ia32.efi".into());
        boot.loaders.arm64 = Some("arm64.efi".into());
        boot
    }

    #[track_caller]
    fn check(arch: Option<u16>, ipxe: bool, boot: &BootServer, name: &str, file: Option<&str>) {
        let mac = MacAddr([2, 0, 0, 0, 0, 0xab]);
        let mut client = Client::new(mac, arch, ipxe, None, None);
        client.start(Tick(0));
        let bytes = client.transmit().unwrap();
        let frame = crate::frame::decode(&bytes, 1).unwrap();
        let firmware = Firmware::of(&frame);
        assert_eq!(firmware.name(), name);
        assert_eq!(firmware.answer(&frame, boot).file(), file);
    }

    #[test]
    fn each_firmware_gets_its_loader() {
        for (arch, name, file) in [
            (0, "BIOS PXE", "undionly.kpxe"),
            (6, "UEFI ia32 PXE", "ia32.efi"),
            (7, "UEFI x64 PXE", "snponly.efi"),
            (9, "UEFI x64 PXE", "snponly.efi"),
            (11, "UEFI arm64 PXE", "arm64.efi"),
            (15, "UEFI ia32 HTTP boot", "http://10.0.0.1/ia32.efi"),
            (16, "UEFI x64 HTTP boot", "http://10.0.0.1/snponly.efi"),
            (19, "UEFI arm64 HTTP boot", "http://10.0.0.1/arm64.efi"),
        ] {
            check(Some(arch), false, &boot(), name, Some(file));
        }
    }

    #[test]
    fn ipxe_gets_its_script_whatever_the_architecture() {
        let url = "http://10.0.0.1/boot/02:00:00:00:00:ab/script.ipxe";
        for (arch, name) in [
            (Some(0), "iPXE (BIOS)"),
            (Some(6), "iPXE (UEFI ia32)"),
            (Some(7), "iPXE (UEFI x64)"),
            (Some(11), "iPXE (UEFI arm64)"),
            (Some(31), "iPXE"),
        ] {
            check(arch, true, &boot(), name, Some(url));
        }
    }

    #[test]
    fn others_get_an_address_only() {
        check(None, false, &boot(), "operating system", None);
        check(
            Some(2),
            false,
            &boot(),
            "PXE of an unknown architecture",
            None,
        );
        let http = "HTTP boot of an unknown architecture";
        check(Some(18), false, &boot(), http, None);
    }

    #[test]
    fn firmware_without_a_loader_of_its_own_gets_an_address_only() {
        let mut boot = subnet(0).boot;
        check(Some(11), false, &boot, "UEFI arm64 PXE", None);
        check(Some(6), false, &boot, "UEFI ia32 PXE", None);
        check(Some(16), false, &boot, "UEFI x64 HTTP boot", None);
        boot.loaders.bios = None;
        check(Some(0), false, &boot, "BIOS PXE", None);
    }
}
