//! What a machine is told to load, from how its firmware describes itself.

use core::net::Ipv4Addr;

use trivet_model::MacAddr;

use crate::frame::Frame;
use crate::settings::BootServer;

/// The boot part of a reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    /// An address and nothing else.
    Nothing,
    /// PXE firmware fetches its loader by TFTP.
    Tftp { server: Ipv4Addr, file: String },
    /// iPXE fetches its script.
    Script { server: Ipv4Addr, url: String },
    /// UEFI fetches its loader by HTTP.
    Http { url: String },
}

/// Client architectures (RFC 4578 section 2.1 as corrected by its errata, and
/// the IANA registry). UEFI x64 is 7; some firmware sends 9.
const BIOS: u16 = 0;
const UEFI_X64: [u16; 2] = [7, 9];
const UEFI_X64_HTTP: u16 = 16;

pub(crate) fn answer(frame: &Frame, boot: &BootServer) -> Answer {
    let class = frame.vendor_class().unwrap_or_default();
    let arch = frame.arch();
    if frame.is_ipxe() {
        return Answer::Script {
            server: boot.tftp,
            url: script_url(&boot.script_url, frame.mac),
        };
    }
    if class.starts_with(b"HTTPClient") {
        return match (&boot.loaders_url, &boot.loaders.x64) {
            (Some(url), Some(file)) if arch == Some(UEFI_X64_HTTP) => Answer::Http {
                url: format!("{url}/{file}"),
            },
            _ => Answer::Nothing,
        };
    }
    let file = match arch {
        Some(BIOS) => &boot.loaders.bios,
        Some(arch) if UEFI_X64.contains(&arch) => &boot.loaders.x64,
        _ => return Answer::Nothing,
    };
    let Some(file) = file else {
        return Answer::Nothing;
    };
    if !class.starts_with(b"PXEClient") {
        return Answer::Nothing;
    }
    Answer::Tftp {
        server: boot.tftp,
        file: file.clone(),
    }
}

fn script_url(template: &str, mac: MacAddr) -> String {
    template.replace("{mac}", &mac.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::settings::tests::subnet;
    use trivet_model::Tick;

    fn boot() -> BootServer {
        let mut boot = subnet(0).boot;
        boot.loaders_url = Some("http://10.0.0.1".into());
        boot
    }

    fn answer_to(arch: Option<u16>, ipxe: bool) -> Answer {
        let mac = MacAddr([2, 0, 0, 0, 0, 0xab]);
        let mut client = Client::new(mac, arch, ipxe, None, None);
        client.start(Tick(0));
        let frame = crate::frame::decode(&client.transmit().unwrap(), 1).unwrap();
        answer(&frame, &boot())
    }

    fn by_tftp(file: &str) -> Answer {
        Answer::Tftp {
            server: boot().tftp,
            file: file.into(),
        }
    }

    #[test]
    fn each_firmware_gets_its_loader() {
        assert_eq!(answer_to(Some(0), false), by_tftp("undionly.kpxe"));
        assert_eq!(answer_to(Some(7), false), by_tftp("snponly.efi"));
        assert_eq!(answer_to(Some(9), false), by_tftp("snponly.efi"));
        let url = "http://10.0.0.1/snponly.efi".into();
        assert_eq!(answer_to(Some(16), false), Answer::Http { url });
    }

    #[test]
    fn ipxe_gets_its_script_whatever_the_architecture() {
        for arch in [0, 7, 11] {
            let url = "http://10.0.0.1/boot/02:00:00:00:00:ab/script.ipxe".into();
            let server = boot().tftp;
            assert_eq!(answer_to(Some(arch), true), Answer::Script { server, url });
        }
    }

    #[test]
    fn others_get_an_address_only() {
        assert_eq!(answer_to(None, false), Answer::Nothing);
        assert_eq!(answer_to(Some(11), false), Answer::Nothing);
        assert_eq!(answer_to(Some(19), false), Answer::Nothing);
    }
}
