//! Checked settings: plain values that can be used without asking again.
//!
//! Nothing here remembers the file. A service that is off is `None` (or is not in
//! the list), so no caller needs to know how it was switched off.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

use crate::power::PowerSettings;

/// Everything a settings file says, defaults filled in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The box itself: `[box]`.
    pub appliance: ApplianceSettings,
    /// Ironic's REST API: `[api]`.
    pub api: Option<ApiSettings>,
    /// The inspector's API: `[inspector]`.
    pub inspector: Option<InspectorSettings>,
    /// Boot files and images over HTTP: `[http]`.
    pub http: Option<HttpSettings>,
    /// Boot files over TFTP: `[tftp]`.
    pub tftp: Option<TftpSettings>,
    /// The web page: `[panel]`.
    pub panel: Option<PanelSettings>,
    /// What nodes are booted with: `[boot]`.
    pub boot: BootSettings,
    /// The cache of images from elsewhere: `[images]`.
    pub images: ImageCacheSettings,
    /// Where DHCP is heard and perhaps answered: every `[[dhcp]]` that is not off.
    pub dhcp: Vec<DhcpSettings>,
    /// No `[[dhcp]]` was written at all, so the box hears every wired interface it
    /// has and says nothing.
    pub listens_on_all_interfaces: bool,
    /// Which kinds of service processors are driven: `[hardware]`.
    pub hardware: HardwareSettings,
    /// How power is switched: `[power]`.
    pub power: PowerSettings,
    /// How long agents may stay silent, and how they are called: `[agent]`.
    pub agent: AgentSettings,
    /// Bounds an operator may move: `[limits]`.
    pub limits: LimitSettings,
}

/// The box itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApplianceSettings {
    /// Directory of the store and the image cache.
    pub data: PathBuf,
    /// Host name shown to people and put into certificates.
    pub name: Option<String>,
    /// Size of the store in MiB, reserved at first start.
    pub store_mib: u32,
}

/// Who may use the API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ApiAuthSettings {
    /// Everybody who can reach it.
    None,
    /// Users with passwords (HTTP basic), and programs with tokens if there are any.
    Basic {
        /// File of lines `user:hash` or `user:hash:role`, argon2 or bcrypt.
        users: PathBuf,
        /// File of lines `name:role:sha256-hex`.
        tokens: Option<PathBuf>,
    },
    /// Programs with tokens only.
    Tokens {
        /// File of lines `name:role:sha256-hex`.
        tokens: PathBuf,
    },
}

impl ApiAuthSettings {
    /// The file of users, if there is one.
    pub fn users(&self) -> Option<&Path> {
        match self {
            Self::Basic { users, .. } => Some(users),
            Self::None | Self::Tokens { .. } => None,
        }
    }

    /// The file of tokens, if there is one.
    pub fn tokens(&self) -> Option<&Path> {
        match self {
            Self::Basic { tokens, .. } => tokens.as_deref(),
            Self::Tokens { tokens } => Some(tokens),
            Self::None => None,
        }
    }
}

/// Ironic's REST API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApiSettings {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Who may use it.
    pub auth: ApiAuthSettings,
    /// Address under which nodes reach it, without a slash at the end.
    pub public_url: Option<String>,
    /// Whether it is served over TLS with a certificate of the box's own authority.
    pub tls: bool,
    /// Whether credentials may travel in plain HTTP beyond loopback.
    pub allow_plain_http: bool,
    /// Names that clients may use for this host, beside `box.name` and its addresses.
    pub host_names: Vec<String>,
}

/// The inspector's API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InspectorSettings {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
}

/// Boot files and images over HTTP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpSettings {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Where it serves the same over TLS with a certificate of the box's own authority.
    pub tls_listen: Vec<SocketAddr>,
    /// Address under which nodes reach it, without a slash at the end.
    pub public_url: Option<String>,
}

/// Boot files over TFTP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TftpSettings {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
}

/// The web page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PanelSettings {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Whether it is served over TLS with a certificate of the box's own authority.
    pub tls: bool,
}

/// What nodes are booted with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BootSettings {
    /// The operator's directory, served at the root by TFTP and under `/files/` by HTTP.
    pub files: Option<PathBuf>,
    /// Directory of the network boot loaders.
    pub loaders: PathBuf,
    /// Which of them each kind of firmware is sent to.
    pub loader: BootLoaderSettings,
    /// Kernel and ramdisk of the agent; absent until the operator has them.
    pub ramdisk: Option<AgentRamdiskSettings>,
    /// Another server boots the agent on the nodes, so the box needs none.
    pub agent_elsewhere: bool,
    /// Added to the agent's kernel line.
    pub kernel_args: String,
}

/// The first loader of each kind of firmware, by its name below the directory of
/// loaders. Firmware without one gets an address and nothing to boot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BootLoaderSettings {
    /// BIOS.
    pub bios: Option<String>,
    /// 64-bit UEFI on x86.
    pub x64: Option<String>,
    /// 32-bit UEFI on x86.
    pub ia32: Option<String>,
    /// 64-bit UEFI on ARM.
    pub arm64: Option<String>,
}

impl Default for BootLoaderSettings {
    /// As Debian's package `ipxe` names them; it has none for the other two.
    fn default() -> Self {
        BootLoaderSettings {
            bios: Some("undionly.kpxe".to_owned()),
            x64: Some("snponly.efi".to_owned()),
            ia32: None,
            arm64: None,
        }
    }
}

/// Kernel and ramdisk of the agent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentRamdiskSettings {
    /// Path of the kernel.
    pub kernel: PathBuf,
    /// Path of the ramdisk.
    pub ramdisk: PathBuf,
}

impl Default for BootSettings {
    fn default() -> Self {
        BootSettings {
            files: None,
            loaders: PathBuf::from("/usr/lib/ipxe"),
            loader: BootLoaderSettings::default(),
            ramdisk: None,
            agent_elsewhere: false,
            kernel_args: String::new(),
        }
    }
}

/// The cache of images from elsewhere.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageCacheSettings {
    /// Authorities that are trusted beside the system's own.
    pub ca: Option<PathBuf>,
    /// A proxy, as `host:port`.
    pub proxy: Option<String>,
    /// How fast all fills together may be.
    pub rate_kib_s: Option<u32>,
    /// When images are fetched that no node waits for.
    pub window: Option<DailyWindow>,
    /// How much the cache may hold.
    pub quota_gib: Option<u32>,
    /// How much of the disk stays free for the store.
    pub reserve_mib: u32,
    /// How long after one look through all images the next one begins.
    pub scrub_s: u32,
}

impl Default for ImageCacheSettings {
    fn default() -> Self {
        ImageCacheSettings {
            ca: None,
            proxy: None,
            rate_kib_s: None,
            window: None,
            quota_gib: None,
            reserve_mib: 256,
            scrub_s: 86_400,
        }
    }
}

/// Hours of the day, in minutes since midnight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DailyWindow {
    /// The first minute.
    pub from_minute: u16,
    /// The minute after the last; before the first it is of the next day.
    pub to_minute: u16,
}

/// Where DHCP requests arrive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DhcpSource {
    /// From nodes on a network interface of the box.
    Interface(String),
    /// From relays, on this address.
    Relayed(SocketAddrV4),
}

/// What the box does where it hears DHCP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DhcpMode {
    /// It hears and never says a word.
    Listen,
    /// It tells machines what to boot; another server gives the addresses.
    Proxy,
    /// It gives addresses to nodes it knows, nobody else.
    Reservations,
    /// It gives addresses to everybody who asks.
    Server,
}

impl DhcpMode {
    /// Every mode, the quietest first.
    pub const ALL: [DhcpMode; 4] = [
        DhcpMode::Listen,
        DhcpMode::Proxy,
        DhcpMode::Reservations,
        DhcpMode::Server,
    ];

    /// As the file spells it.
    pub fn name(self) -> &'static str {
        match self {
            DhcpMode::Listen => "listen",
            DhcpMode::Proxy => "proxy",
            DhcpMode::Reservations => "reservations",
            DhcpMode::Server => "server",
        }
    }

    /// Whether the box gives addresses in this mode.
    pub fn gives_addresses(self) -> bool {
        matches!(self, DhcpMode::Reservations | DhcpMode::Server)
    }
}

/// An IPv4 network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ipv4Network {
    /// Its first address.
    pub address: Ipv4Addr,
    /// Length of the prefix in bits.
    pub prefix: u8,
}

impl Ipv4Network {
    /// The netmask of the prefix.
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from(
            u32::MAX
                .checked_shl(32 - u32::from(self.prefix.min(32)))
                .unwrap_or(0),
        )
    }

    /// The address that reaches every host of the network.
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.address) | !u32::from(self.mask()))
    }

    /// Whether an address lies in the network.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & u32::from(self.mask()) == u32::from(self.address)
    }
}

/// The addresses that are handed out at one place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DhcpPoolSettings {
    /// The network the addresses are of.
    pub network: Ipv4Network,
    /// First address handed out.
    pub first: Ipv4Addr,
    /// Last address handed out.
    pub last: Ipv4Addr,
    /// The nodes' way out, if there is one.
    pub router: Option<Ipv4Addr>,
    /// Their name servers.
    pub dns: Vec<Ipv4Addr>,
}

/// One place where DHCP is heard.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DhcpSettings {
    /// Where requests arrive.
    pub source: DhcpSource,
    /// What the box does there.
    pub mode: DhcpMode,
    /// The box's own address as these nodes see it. Always there where addresses are
    /// given; without it a proxy is known by the first address of its interface.
    pub server: Option<Ipv4Addr>,
    /// What is handed out: there exactly where the mode gives addresses.
    pub pool: Option<DhcpPoolSettings>,
    /// Machines that the box does not know are answered too.
    pub discovery: bool,
    /// Loaders that wait for an IPv6 router are told that there is none.
    pub router_advertisements: bool,
    /// How long an address is a node's.
    pub lease_s: u32,
}

/// A kind of service processor the box can drive.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum HardwareType {
    /// IPMI 2.0 over RMCP+.
    Ipmi,
    /// Redfish.
    Redfish,
    /// A person switches power.
    Manual,
    /// Virtual machines, through their host's SSH.
    Ssh,
    /// No hardware at all: a rehearsal.
    Fake,
}

impl HardwareType {
    /// Every hardware type that is built.
    pub const ALL: [HardwareType; 5] = [
        HardwareType::Ipmi,
        HardwareType::Redfish,
        HardwareType::Manual,
        HardwareType::Ssh,
        HardwareType::Fake,
    ];

    /// Ironic's name of it.
    pub fn name(self) -> &'static str {
        match self {
            HardwareType::Ipmi => "ipmi",
            HardwareType::Redfish => "redfish",
            HardwareType::Manual => "manual-management",
            HardwareType::Ssh => "ssh",
            HardwareType::Fake => "fake-hardware",
        }
    }
}

/// Which kinds of service processors are driven.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HardwareSettings {
    /// Enabled types, each once, never empty.
    pub types: Vec<HardwareType>,
    /// Authorities that Redfish BMCs are trusted by, where a node's record names none.
    pub redfish_ca: Option<PathBuf>,
    /// Where private keys lie that nodes name in `ssh_key_filename`.
    pub ssh_keys: Option<PathBuf>,
    /// Networks of BMCs: no agent is called there.
    pub bmc_networks: Vec<Ipv4Network>,
}

impl Default for HardwareSettings {
    fn default() -> Self {
        HardwareSettings {
            types: HardwareType::ALL.to_vec(),
            redfish_ca: None,
            ssh_keys: None,
            bmc_networks: Vec::new(),
        }
    }
}

/// How long agents may stay silent, and how they are called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AgentSettings {
    /// Longest silence of an agent that has spoken before.
    pub heartbeat_timeout_s: u32,
    /// Longest wait for the first word of a machine that was told to boot.
    pub boot_wait_s: u32,
    /// Longest wait from there to its agent's first heartbeat.
    pub wait_s: u32,
    /// Agents may be called over plain HTTP.
    pub plain_http: bool,
    /// What automated cleaning erases.
    pub erase: CleaningErase,
    /// Agents stay between two jobs, unless a node's `driver_info` says otherwise.
    pub fast_track: bool,
    /// From which addresses agents may call.
    pub address_check: AgentAddressCheck,
}

/// From which addresses agents may call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AgentAddressCheck {
    /// From the address that the box leased to the node; from any other only where the box
    /// leased none, as weakly authenticated.
    #[default]
    Normal,
    /// From the address that the box leased to the node only.
    Strict,
    /// From every address: tests and demonstrations.
    Off,
}

/// What automated cleaning erases.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CleaningErase {
    /// Partition tables and the like: seconds.
    #[default]
    Metadata,
    /// Every byte, as the agent thinks best: up to hours.
    Full,
    /// Nothing.
    None,
}

impl Default for AgentSettings {
    fn default() -> Self {
        AgentSettings {
            heartbeat_timeout_s: 300,
            boot_wait_s: 600,
            wait_s: 1800,
            plain_http: false,
            erase: CleaningErase::default(),
            fast_track: false,
            address_check: AgentAddressCheck::default(),
        }
    }
}

/// Bounds an operator may move.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitSettings {
    /// Most TCP connections open at once, all services together.
    pub connections_max: u32,
    /// Most TFTP transfers at once; without it, as many as memory has room for.
    pub transfers_max: Option<u32>,
    /// How many nodes boot from the network at once; none: as many as the link carries.
    pub boots_at_once: Option<u32>,
    /// How often power states are read that nobody asks for, in seconds; 0 is never.
    pub power_fresh_s: u32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings {
            connections_max: 1024,
            transfers_max: None,
            boots_at_once: None,
            power_fresh_s: 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_mask_broadcast_and_members_of_a_network() {
        let network = Ipv4Network {
            address: Ipv4Addr::new(10, 1, 2, 0),
            prefix: 23,
        };
        assert_eq!(network.mask(), Ipv4Addr::new(255, 255, 254, 0));
        assert_eq!(network.broadcast(), Ipv4Addr::new(10, 1, 3, 255));
        assert!(network.contains(Ipv4Addr::new(10, 1, 3, 7)));
        assert!(!network.contains(Ipv4Addr::new(10, 1, 4, 0)));
    }

    #[test]
    fn a_prefix_of_zero_and_one_out_of_range_do_not_panic() {
        let all = Ipv4Network {
            address: Ipv4Addr::UNSPECIFIED,
            prefix: 0,
        };
        assert_eq!(all.mask(), Ipv4Addr::UNSPECIFIED);
        assert!(all.contains(Ipv4Addr::BROADCAST));
        let odd = Ipv4Network {
            address: Ipv4Addr::LOCALHOST,
            prefix: 200,
        };
        assert_eq!(odd.mask(), Ipv4Addr::BROADCAST);
    }
}
