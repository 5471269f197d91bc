//! `[[dhcp]]` and `[boot]` as the rack wants them: links, subnets, loaders.

use std::fs;
use std::net::Ipv4Addr;

use trivet_config::{self as config, DhcpDoor, DhcpMode, Settings};
use trivet_model::{Fault, LinkMode};
use trivet_rack::dhcp;

/// One place where DHCP is heard, with all that the settings left open filled in.
pub(super) struct Entry {
    pub(super) door: DhcpDoor,
    pub(super) mode: DhcpMode,
    /// Our address there; unspecified where we say nothing.
    pub(super) server: Ipv4Addr,
    discovery: bool,
    pool: Option<config::Pool>,
    lease_s: u32,
}

/// All places, in the order that a [`LinkId`](trivet_model::LinkId) counts them.
pub(super) fn entries(settings: &Settings) -> Vec<Entry> {
    let entry = |dhcp: &config::Dhcp| Entry {
        door: dhcp.door.clone(),
        mode: dhcp.mode,
        server: dhcp.server.unwrap_or(Ipv4Addr::UNSPECIFIED),
        discovery: dhcp.discovery,
        pool: dhcp.pool.clone(),
        lease_s: dhcp.lease_s,
    };
    settings.dhcp.iter().map(entry).collect()
}

/// What the box would do about DHCP, in a line for each place.
pub(crate) fn plan(settings: &Settings) -> String {
    if settings.listens_everywhere {
        return "dhcp: no section, so every wired interface is listened to and nothing is said\n"
            .to_owned();
    }
    if settings.dhcp.is_empty() {
        return "dhcp: off\n".to_owned();
    }
    settings.dhcp.iter().map(plan_of).collect()
}

fn plan_of(dhcp: &config::Dhcp) -> String {
    let place = place(&dhcp.door);
    let mut does = match (dhcp.mode, &dhcp.pool) {
        (DhcpMode::Listen, _) => "hears who serves there and says nothing".to_owned(),
        (DhcpMode::Proxy, _) => "tells machines what to boot, gives no addresses".to_owned(),
        (_, Some(pool)) => format!("gives {} to {}", pool.first, pool.last),
        (_, None) => String::new(),
    };
    if dhcp.mode != DhcpMode::Listen {
        does.push_str(if dhcp.discovery {
            ", to everybody"
        } else {
            ", to known machines only"
        });
    }
    if dhcp.router_advertisements {
        does.push_str("; router advertisements");
    }
    format!("dhcp: {place}: {}: {does}\n", dhcp.mode.name())
}

fn place(door: &DhcpDoor) -> String {
    match door {
        DhcpDoor::Interface(name) => name.clone(),
        DhcpDoor::Relayed(address) => address.to_string(),
    }
}

/// What the DHCP room is told.
pub(super) fn room(entries: &[Entry], boot: &config::Boot, http_url: &str) -> dhcp::Settings {
    let links = entries.iter().map(|entry| dhcp::Link {
        name: place(&entry.door),
        mode: mode(entry.mode),
        discovery: entry.discovery,
        server: entry.server,
        boot: boot_server(entry.server, boot, http_url),
    });
    let subnets = entries.iter().filter_map(|entry| {
        let pool = entry.pool.as_ref()?;
        Some(dhcp::Subnet {
            network: pool.network.address,
            prefix: pool.network.prefix,
            first: pool.first,
            last: pool.last,
            server: entry.server,
            router: pool.router,
            dns: pool.dns.clone(),
            boot: boot_server(entry.server, boot, http_url),
            known_only: !entry.discovery,
            lease_s: entry.lease_s,
        })
    });
    dhcp::Settings {
        links: links.collect(),
        subnets: subnets.collect(),
    }
}

fn mode(mode: DhcpMode) -> LinkMode {
    match mode {
        DhcpMode::Listen => LinkMode::Listen,
        DhcpMode::Proxy => LinkMode::Proxy,
        DhcpMode::Reservations => LinkMode::Reservations,
        DhcpMode::Server => LinkMode::Server,
    }
}

fn boot_server(tftp: Ipv4Addr, boot: &config::Boot, http_url: &str) -> dhcp::BootServer {
    let config::Loaders {
        bios,
        x64,
        ia32,
        arm64,
    } = boot.loader.clone();
    dhcp::BootServer {
        tftp,
        loaders: dhcp::Loaders {
            bios,
            x64,
            ia32,
            arm64,
        },
        script_url: format!("{http_url}/boot/{{mac}}/script"),
        loaders_url: (!http_url.is_empty()).then(|| format!("{http_url}/boot/loaders")),
    }
}

/// The loaders that are named and not there. Nobody misses them where nothing is
/// served.
pub(super) fn missing_loaders(settings: &Settings) -> Vec<Fault> {
    if settings.tftp.is_none() && settings.http.is_none() {
        return Vec::new();
    }
    let config::Loaders {
        bios,
        x64,
        ia32,
        arm64,
    } = &settings.boot.loader;
    let named = [
        (bios, "BIOS firmware"),
        (x64, "64-bit UEFI firmware"),
        (ia32, "32-bit UEFI firmware"),
        (arm64, "ARM UEFI firmware"),
    ];
    let named = named
        .into_iter()
        .filter_map(|(name, firmware)| Some((name.as_ref()?, firmware)));
    let absent = named.filter_map(|(name, firmware)| {
        let path = settings.boot.loaders.join(name);
        let readable = fs::File::open(&path).and_then(|file| file.metadata());
        let there = readable.is_ok_and(|facts| facts.is_file());
        (!there).then(|| Fault::LoaderMissing {
            path: path.display().to_string(),
            firmware,
        })
    });
    absent.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::Scratch;

    const ALL: &str = "[box]\ndata = \"/d\"\n[[dhcp]]\ninterface = \"eth0\"\n\
        [[dhcp]]\ninterface = \"eth1\"\nmode = \"off\"\n\
        [[dhcp]]\ninterface = \"eth2\"\nmode = \"proxy\"\nserver = \"192.0.2.1\"\n\
        [[dhcp]]\nlisten = \"198.51.100.1\"\nmode = \"reservations\"\n\
        network = \"198.51.100.0/24\"\nfirst = \"198.51.100.10\"\nlast = \"198.51.100.20\"\n\
        server = \"198.51.100.1\"\nlease_s = 600\n";

    fn told(text: &str, http_url: &str) -> dhcp::Settings {
        let settings = trivet_config::parse(text).unwrap();
        room(&entries(&settings), &settings.boot, http_url)
    }

    #[test]
    fn every_place_is_a_link_and_only_a_pool_is_a_subnet() {
        let room = told(ALL, "http://192.0.2.1:8080");
        let links: Vec<_> = room
            .links
            .iter()
            .map(|link| (link.name.as_str(), link.mode.as_str(), link.discovery))
            .collect();
        assert_eq!(
            links,
            [
                ("eth0", "listen", false),
                ("eth2", "proxy", false),
                ("198.51.100.1:67", "reservations", false)
            ]
        );
        assert_eq!(room.subnets.len(), 1);
        assert!(room.subnets[0].known_only);
        assert_eq!(room.subnets[0].lease_s, 600);
        assert_eq!(room.mistakes(), []);
    }

    #[test]
    fn the_plan_has_a_line_for_each_place() {
        let said = |text: &str| plan(&trivet_config::parse(text).unwrap());
        assert_eq!(
            said(ALL),
            "dhcp: eth0: listen: hears who serves there and says nothing\n\
             dhcp: eth2: proxy: tells machines what to boot, gives no addresses, to known \
             machines only\n\
             dhcp: 198.51.100.1:67: reservations: gives 198.51.100.10 to 198.51.100.20, to known \
             machines only\n"
        );
        let server = ALL.replace("listen = \"198.51.100.1\"", "interface = \"eth3\"");
        let said_server = said(&server.replace("reservations", "server"));
        assert!(said_server.ends_with(", to everybody; router advertisements\n"));
        assert!(said("[box]\ndata = \"/d\"\n").contains("every wired interface"));
        let off = "[box]\ndata = \"/d\"\n[[dhcp]]\ninterface = \"e\"\nmode = \"off\"\n";
        assert_eq!(said(off), "dhcp: off\n");
    }

    #[test]
    fn a_box_that_only_listens_is_told_so_without_mistakes() {
        let room = told("[box]\ndata = \"/d\"\n[[dhcp]]\ninterface = \"e\"\n", "");
        assert_eq!((room.links.len(), room.subnets.len()), (1, 0));
        assert_eq!(room.mistakes(), []);
    }

    #[test]
    fn loaders_are_told_by_firmware_and_by_address() {
        let text = format!("{ALL}[boot]\nloader_bios = \"\"\nloader_x64 = \"shimx64.efi\"\n");
        let boot = &told(&text, "http://192.0.2.1:8080").links[1].boot;
        assert_eq!(boot.tftp, Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(boot.loaders.bios, None);
        assert_eq!(boot.loaders.x64.as_deref(), Some("shimx64.efi"));
        assert_eq!(
            boot.loaders_url.as_deref(),
            Some("http://192.0.2.1:8080/boot/loaders")
        );
        let without_http = &told(&text, "").links[1].boot;
        assert_eq!(without_http.loaders_url, None);
    }

    #[test]
    fn a_loader_that_is_not_there_is_a_fault_that_says_for_whom() {
        let scratch = Scratch::new();
        scratch.file("snponly.efi", b"x");
        std::fs::create_dir(scratch.0.join("directory")).unwrap();
        let text = format!(
            "[box]\ndata = \"/d\"\n[tftp]\nlisten = \"127.0.0.1\"\n[boot]\nloaders = \"{}\"\n\
             loader_ia32 = \"directory\"\n",
            scratch.0.display()
        );
        let settings = trivet_config::parse(&text).unwrap();
        let said: Vec<_> = missing_loaders(&settings)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("undionly.kpxe is missing, so BIOS firmware"));
        assert!(said[1].contains("directory is missing, so 32-bit UEFI"));
        let silent = Settings {
            tftp: None,
            ..settings
        };
        assert_eq!(missing_loaders(&silent), []);
    }
}
