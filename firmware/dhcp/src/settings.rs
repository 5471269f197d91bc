//! Settings of the DHCP server. The server accepts any settings without panic;
//! [`DhcpServerSettings::mistakes`] lists those that are invalid.

use core::net::Ipv4Addr;

use trivet_model::LinkMode;

/// Links of one server. Ours.
pub const LINKS_MAX: usize = 64;

/// Subnets of one server. Ours.
pub const SUBNETS_MAX: usize = 64;

/// Name servers of one subnet. Ours.
pub const DNS_MAX: usize = 4;

/// Shortest lease. Ours: with shorter leases, renewals would load the network without need.
pub const LEASE_S_MIN: u32 = 60;

/// Longest loader name or URL: what fits one option (RFC 2132 section 2).
pub const BOOT_TEXT_BYTES_MAX: usize = 255;

/// All settings of the server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DhcpServerSettings {
    /// The links that receive DHCP; a [`LinkId`](trivet_model::LinkId) is an index into these.
    pub links: Vec<DhcpLinkSettings>,
    /// The networks in which this server gives addresses.
    pub subnets: Vec<Subnet>,
}

/// One interface, or one address that relays send to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DhcpLinkSettings {
    /// The interface's name, or the address.
    pub name: String,
    /// The DHCP mode of this link.
    pub mode: LinkMode,
    /// Whether unknown machines get replies too.
    pub discovery: bool,
    /// Our address on this link.
    pub server: Ipv4Addr,
    /// The boot settings where another server gives the addresses (proxy mode).
    pub boot: BootServer,
    /// This entry is for relayed frames, whichever link receives them.
    pub relayed: bool,
    /// The network of its machines and its prefix length, where this server gives addresses.
    pub network: Option<(Ipv4Addr, u8)>,
}

impl DhcpLinkSettings {
    /// Whether this link is for frames of a relay with this address.
    pub(crate) fn serves_relay(&self, relay: Ipv4Addr) -> bool {
        let on_it = |(network, prefix)| (relay & mask(prefix)) == network & mask(prefix);
        self.relayed && self.network.is_none_or(on_it)
    }
}

/// One network and the range that this server gives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Subnet {
    /// The network address.
    pub network: Ipv4Addr,
    /// Length of its prefix.
    pub prefix: u8,
    /// First address to give.
    pub first: Ipv4Addr,
    /// Last address to give.
    pub last: Ipv4Addr,
    /// Our address as the clients see it (option 54).
    pub server: Ipv4Addr,
    /// The default router, if there is one.
    pub router: Option<Ipv4Addr>,
    /// Name servers.
    pub dns: Vec<Ipv4Addr>,
    /// The boot settings.
    pub boot: BootServer,
    /// Whether only known machines get an address.
    pub known_only: bool,
    /// Lease time in seconds.
    pub lease_s: u32,
}

/// Which boot file each firmware type gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BootServer {
    /// The TFTP server of the first loader.
    pub tftp: Ipv4Addr,
    /// First loaders, by firmware.
    pub loaders: LoaderFileNames,
    /// The URL of the iPXE script; `{mac}` in it becomes the client's hardware address.
    pub script_url: String,
    /// Base URL of the same loaders for UEFI HTTP boot, without a slash at the end; without it
    /// such firmware gets an address only.
    pub loaders_url: Option<String>,
}

/// The first loader of each firmware type; firmware without one gets an address only.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LoaderFileNames {
    /// BIOS.
    pub bios: Option<String>,
    /// 64-bit UEFI on x86.
    pub x64: Option<String>,
    /// 32-bit UEFI on x86.
    pub ia32: Option<String>,
    /// 64-bit UEFI on ARM.
    pub arm64: Option<String>,
}

impl LoaderFileNames {
    /// The loaders of Debian's `ipxe` package.
    pub fn default_names() -> Self {
        Self {
            bios: Some("undionly.kpxe".into()),
            x64: Some("snponly.efi".into()),
            ia32: None,
            arm64: None,
        }
    }
}

impl BootServer {
    /// Boot settings with the default loaders.
    pub fn new(tftp: Ipv4Addr, script_url: impl Into<String>) -> Self {
        Self {
            tftp,
            loaders: LoaderFileNames::default_names(),
            script_url: script_url.into(),
            loaders_url: None,
        }
    }
}

fn mask(prefix: u8) -> Ipv4Addr {
    let host_bits = 32_u32.saturating_sub(u32::from(prefix));
    Ipv4Addr::from_bits(u32::MAX.checked_shl(host_bits).unwrap_or(0))
}

impl Subnet {
    /// The network mask.
    pub fn mask(&self) -> Ipv4Addr {
        mask(self.prefix)
    }

    /// The broadcast address of the network.
    pub fn broadcast(&self) -> Ipv4Addr {
        self.network | !self.mask()
    }

    /// Whether the address is in this network.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address & self.mask() == self.network & self.mask()
    }
}

/// One invalid setting.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DhcpSettingsError {
    /// More links than [`LINKS_MAX`].
    #[error("{count} interfaces are more than {LINKS_MAX}: leave some out")]
    TooManyLinks {
        /// How many there are.
        count: usize,
    },
    /// More subnets than [`SUBNETS_MAX`].
    #[error("{count} subnets are more than {SUBNETS_MAX}: leave some out")]
    TooManySubnets {
        /// How many there are.
        count: usize,
    },
    /// The lease is shorter than [`LEASE_S_MIN`].
    #[error("a lease of {lease_s} s in {network} is too short: give at least {LEASE_S_MIN}")]
    LeaseTooShort {
        /// Which subnet.
        network: Ipv4Addr,
        /// As given.
        lease_s: u32,
    },
    /// The prefix leaves no space for hosts.
    #[error("prefix /{prefix} of {network} is not between 8 and 30")]
    BadPrefix {
        /// Which subnet.
        network: Ipv4Addr,
        /// As given.
        prefix: u8,
    },
    /// The network's address has bits set below its prefix.
    #[error("{network}/{prefix} is not a network address: write {want}")]
    NotANetwork {
        /// As given.
        network: Ipv4Addr,
        /// Its prefix.
        prefix: u8,
        /// What it should be.
        want: Ipv4Addr,
    },
    /// The range is empty or leaves the network.
    #[error("the range {first} to {last} is not inside {network}")]
    BadRange {
        /// Which subnet.
        network: Ipv4Addr,
        /// As given.
        first: Ipv4Addr,
        /// As given.
        last: Ipv4Addr,
    },
    /// Two networks share addresses.
    #[error("the networks {one} and {other} overlap: a relay's address must name one of them")]
    Overlap {
        /// One of them.
        one: Ipv4Addr,
        /// The other.
        other: Ipv4Addr,
    },
    /// More name servers than [`DNS_MAX`].
    #[error("{network} has more than {DNS_MAX} name servers: leave some out")]
    TooManyDns {
        /// Which subnet.
        network: Ipv4Addr,
    },
    /// A loader name or URL is empty, too long or not printable.
    #[error("{what} of {network} must be 1 to {BOOT_TEXT_BYTES_MAX} printable ASCII characters")]
    BadBootText {
        /// Which subnet.
        network: Ipv4Addr,
        /// Which field.
        what: &'static str,
    },
}

impl DhcpServerSettings {
    /// All invalid settings; empty if there are none.
    pub fn mistakes(&self) -> Vec<DhcpSettingsError> {
        let mut found = Vec::new();
        if self.links.len() > LINKS_MAX {
            found.push(DhcpSettingsError::TooManyLinks {
                count: self.links.len(),
            });
        }
        if self.subnets.len() > SUBNETS_MAX {
            found.push(DhcpSettingsError::TooManySubnets {
                count: self.subnets.len(),
            });
        }
        for (at, subnet) in self.subnets.iter().enumerate() {
            subnet.mistakes(&mut found);
            for other in &self.subnets[..at] {
                if other.contains(subnet.network) || subnet.contains(other.network) {
                    found.push(DhcpSettingsError::Overlap {
                        one: other.network,
                        other: subnet.network,
                    });
                }
            }
        }
        found
    }
}

impl Subnet {
    fn mistakes(&self, found: &mut Vec<DhcpSettingsError>) {
        let network = self.network;
        if !(8..=30).contains(&self.prefix) {
            found.push(DhcpSettingsError::BadPrefix {
                network,
                prefix: self.prefix,
            });
        } else if network & self.mask() != network {
            found.push(DhcpSettingsError::NotANetwork {
                network,
                prefix: self.prefix,
                want: network & self.mask(),
            });
        }
        if self.first > self.last || !self.contains(self.first) || !self.contains(self.last) {
            found.push(DhcpSettingsError::BadRange {
                network,
                first: self.first,
                last: self.last,
            });
        }
        if self.lease_s < LEASE_S_MIN {
            found.push(DhcpSettingsError::LeaseTooShort {
                network,
                lease_s: self.lease_s,
            });
        }
        if self.dns.len() > DNS_MAX {
            found.push(DhcpSettingsError::TooManyDns { network });
        }
        let texts = [
            ("loader for BIOS", self.boot.loaders.bios.as_ref()),
            ("loader for UEFI x64", self.boot.loaders.x64.as_ref()),
            ("loader for UEFI ia32", self.boot.loaders.ia32.as_ref()),
            ("loader for UEFI arm64", self.boot.loaders.arm64.as_ref()),
            ("script_url", Some(&self.boot.script_url)),
            ("loaders_url", self.boot.loaders_url.as_ref()),
        ];
        for (what, text) in texts {
            let good = |text: &String| {
                (1..=BOOT_TEXT_BYTES_MAX).contains(&text.len())
                    && text.bytes().all(|byte| byte.is_ascii_graphic())
            };
            if !text.is_none_or(good) {
                found.push(DhcpSettingsError::BadBootText { network, what });
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// 10.0.`third`.0/24 with ten addresses to give.
    pub(crate) fn subnet(third: u8) -> Subnet {
        let server = Ipv4Addr::new(10, 0, third, 1);
        Subnet {
            network: Ipv4Addr::new(10, 0, third, 0),
            prefix: 24,
            first: Ipv4Addr::new(10, 0, third, 100),
            last: Ipv4Addr::new(10, 0, third, 109),
            server,
            router: Some(server),
            dns: vec![server],
            boot: BootServer::new(server, "http://10.0.0.1/boot/{mac}/script.ipxe"),
            known_only: false,
            lease_s: 600,
        }
    }

    /// A link on the first network.
    pub(crate) fn link(mode: LinkMode) -> DhcpLinkSettings {
        let Subnet { server, boot, .. } = subnet(0);
        DhcpLinkSettings {
            name: "eth0".into(),
            mode,
            discovery: true,
            server,
            boot,
            relayed: false,
            network: None,
        }
    }

    pub(crate) fn settings() -> DhcpServerSettings {
        DhcpServerSettings {
            links: Vec::new(),
            subnets: vec![subnet(0), subnet(1)],
        }
    }

    #[track_caller]
    fn one_mistake(change: impl FnOnce(&mut DhcpServerSettings)) -> DhcpSettingsError {
        let mut settings = settings();
        change(&mut settings);
        let mut found = settings.mistakes();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn good_settings_have_no_mistakes() {
        assert_eq!(settings().mistakes(), []);
    }

    #[test]
    fn masks_follow_the_prefix() {
        let mut subnet = subnet(7);
        assert_eq!(subnet.mask(), Ipv4Addr::new(255, 255, 255, 0));
        assert_eq!(subnet.broadcast(), Ipv4Addr::new(10, 0, 7, 255));
        subnet.prefix = 0;
        assert_eq!(subnet.mask(), Ipv4Addr::UNSPECIFIED);
        subnet.prefix = 255;
        assert_eq!(subnet.mask(), Ipv4Addr::BROADCAST);
    }

    #[test]
    fn names_each_mistake() {
        let wrong = one_mistake(|settings| settings.subnets[0].lease_s = 59);
        assert!(wrong.to_string().contains("at least 60"), "{wrong}");
        let wrong = one_mistake(|settings| settings.subnets[0].network = [10, 0, 0, 9].into());
        assert!(wrong.to_string().contains("write 10.0.0.0"), "{wrong}");
        let wrong = one_mistake(|settings| settings.subnets[0].last = [10, 0, 1, 9].into());
        assert!(matches!(wrong, DhcpSettingsError::BadRange { .. }));
        let wrong = one_mistake(|settings| settings.subnets[0].last = [10, 0, 0, 9].into());
        assert!(matches!(wrong, DhcpSettingsError::BadRange { .. }));
        let wrong = one_mistake(|settings| {
            settings.subnets[0].prefix = 31;
            settings.subnets[0].last = settings.subnets[0].network;
            settings.subnets[0].first = settings.subnets[0].network;
        });
        assert!(matches!(
            wrong,
            DhcpSettingsError::BadPrefix { prefix: 31, .. }
        ));
        let wrong = one_mistake(|settings| settings.subnets[1] = settings.subnets[0].clone());
        assert!(matches!(wrong, DhcpSettingsError::Overlap { .. }));
    }

    #[test]
    fn bounds_are_mistakes_when_passed() {
        let wrong = one_mistake(|settings| {
            settings.subnets = (0..65).map(subnet).collect();
        });
        assert_eq!(wrong, DhcpSettingsError::TooManySubnets { count: 65 });
        let wrong = one_mistake(|settings| {
            settings.links = (0..65).map(|_| link(LinkMode::Listen)).collect();
        });
        assert_eq!(wrong, DhcpSettingsError::TooManyLinks { count: 65 });
        let wrong = one_mistake(|settings| {
            settings.subnets[0].dns = vec![Ipv4Addr::LOCALHOST; DNS_MAX + 1];
        });
        assert!(matches!(wrong, DhcpSettingsError::TooManyDns { .. }));
        let wrong = one_mistake(|settings| {
            settings.subnets[0].boot.script_url = "x".repeat(BOOT_TEXT_BYTES_MAX + 1);
        });
        assert!(
            wrong.to_string().starts_with("script_url of 10.0.0.0"),
            "{wrong}"
        );
    }
}
