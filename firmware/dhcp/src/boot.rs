//! Selects the boot file of a reply from the firmware type and architecture of the client.

use core::net::Ipv4Addr;

use crate::message::DhcpMessage;
use crate::settings::{BootServer, LoaderFileNames};

/// The boot part of a reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum DhcpBootInfo<'a> {
    /// An address without a boot file.
    Nothing,
    /// PXE firmware fetches its loader by TFTP.
    Tftp { server: Ipv4Addr, file: &'a str },
    /// iPXE fetches its script.
    Script { server: Ipv4Addr, url: String },
    /// UEFI fetches its loader by HTTP.
    Http { url: String },
}

impl DhcpBootInfo<'_> {
    /// The file name (TFTP) or URL to load.
    pub(crate) fn file(&self) -> Option<&str> {
        match self {
            Self::Nothing => None,
            Self::Tftp { file, .. } => Some(file),
            Self::Script { url, .. } | Self::Http { url } => Some(url),
        }
    }
}

/// The program that sends the DHCP message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ClientBootStage {
    /// Firmware that loads by TFTP.
    Pxe,
    /// Firmware that loads by HTTP.
    Http,
    /// The iPXE loader, which requests a script.
    Ipxe,
    /// Any other client: an operating system, a BMC or a printer.
    System,
}

/// The processor architecture of the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ClientArch {
    Bios,
    X64,
    Ia32,
    Arm64,
    Unknown,
}

/// The boot stage and architecture of the client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ClientFirmware {
    pub(crate) stage: ClientBootStage,
    pub(crate) arch: ClientArch,
}

impl ClientFirmware {
    pub(crate) fn of(frame: &DhcpMessage<'_>) -> Self {
        let class = frame.vendor_class().unwrap_or_default();
        let stage = if frame.is_ipxe() {
            ClientBootStage::Ipxe
        } else if class.starts_with(b"HTTPClient") {
            ClientBootStage::Http
        } else if class.starts_with(b"PXEClient") {
            ClientBootStage::Pxe
        } else {
            ClientBootStage::System
        };
        // The IANA registry of processor architecture types, which corrects RFC 4578:
        // UEFI x64 is 7; some firmware sends 9. 15, 16 and 19 boot by HTTP.
        let machine = match frame.arch() {
            Some(0) => ClientArch::Bios,
            Some(6 | 15) => ClientArch::Ia32,
            Some(7 | 9 | 16) => ClientArch::X64,
            Some(11 | 19) => ClientArch::Arm64,
            _ => ClientArch::Unknown,
        };
        Self {
            stage,
            arch: machine,
        }
    }

    /// Name for the notes on a node's timeline.
    pub(crate) fn name(self) -> &'static str {
        use ClientArch::{Arm64, Bios, Ia32, Unknown, X64};
        match (self.stage, self.arch) {
            (ClientBootStage::Ipxe, Bios) => "iPXE (BIOS)",
            (ClientBootStage::Ipxe, X64) => "iPXE (UEFI x64)",
            (ClientBootStage::Ipxe, Ia32) => "iPXE (UEFI ia32)",
            (ClientBootStage::Ipxe, Arm64) => "iPXE (UEFI arm64)",
            (ClientBootStage::Ipxe, Unknown) => "iPXE",
            (ClientBootStage::Pxe, Bios) => "BIOS PXE",
            (ClientBootStage::Pxe, X64) => "UEFI x64 PXE",
            (ClientBootStage::Pxe, Ia32) => "UEFI ia32 PXE",
            (ClientBootStage::Pxe, Arm64) => "UEFI arm64 PXE",
            (ClientBootStage::Pxe, Unknown) => "PXE of an unknown architecture",
            (ClientBootStage::Http, X64) => "UEFI x64 HTTP boot",
            (ClientBootStage::Http, Ia32) => "UEFI ia32 HTTP boot",
            (ClientBootStage::Http, Arm64) => "UEFI arm64 HTTP boot",
            (ClientBootStage::Http, Bios | Unknown) => "HTTP boot of an unknown architecture",
            (ClientBootStage::System, _) => "operating system",
        }
    }

    /// Whether the client does not boot from the network.
    pub(crate) fn is_system(self) -> bool {
        self.stage == ClientBootStage::System
    }

    fn loader(self, loaders: &LoaderFileNames) -> Option<&str> {
        let loader = match self.arch {
            ClientArch::Bios => &loaders.bios,
            ClientArch::X64 => &loaders.x64,
            ClientArch::Ia32 => &loaders.ia32,
            ClientArch::Arm64 => &loaders.arm64,
            ClientArch::Unknown => &None,
        };
        loader.as_deref()
    }

    /// The boot file for this client, if the settings have one.
    pub(crate) fn boot_info<'a>(
        self,
        frame: &DhcpMessage<'_>,
        boot: &'a BootServer,
    ) -> DhcpBootInfo<'a> {
        let loader = self.loader(&boot.loaders);
        match (self.stage, loader, &boot.loaders_url) {
            (ClientBootStage::Ipxe, ..) => DhcpBootInfo::Script {
                server: boot.tftp,
                url: boot.script_url.replace("{mac}", &frame.mac.to_string()),
            },
            (ClientBootStage::Pxe, Some(file), _) => DhcpBootInfo::Tftp {
                server: boot.tftp,
                file,
            },
            (ClientBootStage::Http, Some(file), Some(url)) if self.arch != ClientArch::Bios => {
                DhcpBootInfo::Http {
                    url: format!("{url}/{file}"),
                }
            }
            _ => DhcpBootInfo::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::DhcpClient;
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
        let mut client = DhcpClient::new(mac, arch, ipxe, None, None);
        client.start(Tick(0));
        let bytes = client.transmit().unwrap();
        let frame = crate::message::decode(&bytes, 1).unwrap();
        let firmware = ClientFirmware::of(&frame);
        assert_eq!(firmware.name(), name);
        assert_eq!(firmware.boot_info(&frame, boot).file(), file);
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
    fn ipxe_gets_its_script_on_every_architecture() {
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
