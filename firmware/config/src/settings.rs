//! Checked settings: plain values that can be used without further checks.
//!
//! Nothing here refers to the file. A service that is off is `None` (or is not in the
//! list), so callers need not know how it was switched off.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

use crate::log::LogSettings;
use crate::power::PowerSettings;
use crate::webhook::{MetricsSettings, WebhookSettings};

/// All settings, with defaults filled in.
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
    /// Boot loaders, kernel and ramdisk for nodes: `[boot]`.
    pub boot: BootSettings,
    /// The cache of images from other servers: `[images]`.
    pub images: ImageCacheSettings,
    /// Registries of images: `[[registry]]`.
    pub registries: Vec<RegistrySettings>,
    /// Where DHCP is received: every `[[dhcp]]` that is not off.
    pub dhcp: Vec<DhcpSettings>,
    /// True if the file has no `[[dhcp]]` at all: the box listens on every wired
    /// interface and sends nothing.
    pub listens_on_all_interfaces: bool,
    /// Which kinds of BMCs are driven: `[hardware]`.
    pub hardware: HardwareSettings,
    /// How power is switched: `[power]`.
    pub power: PowerSettings,
    /// Timeouts and addresses of agents: `[agent]`.
    pub agent: AgentSettings,
    /// Limits that an operator may change: `[limits]`.
    pub limits: LimitSettings,
    /// The log of the process: `[log]`.
    pub log: LogSettings,
    /// Who may read `/metrics`: `[metrics]`.
    pub metrics: MetricsSettings,
    /// URLs that receive events: every `[[webhook]]`.
    pub webhooks: Vec<WebhookSettings>,
}

/// The box itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApplianceSettings {
    /// Directory of the store and the image cache.
    pub data: PathBuf,
    /// Host name for the web page and for certificates.
    pub name: Option<String>,
    /// Size of the store in MiB, reserved at the first start.
    pub store_mib: u32,
}

/// Who may use the API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ApiAuthSettings {
    /// Every client that can reach it.
    None,
    /// Users with passwords (HTTP basic), and programs with tokens if a file is named.
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
    /// The addresses it listens on.
    pub listen: Vec<SocketAddr>,
    /// Who may use it.
    pub auth: ApiAuthSettings,
    /// Address under which nodes reach it, without a slash at the end.
    pub public_url: Option<String>,
    /// Whether it is served over TLS with a certificate of the box's own CA.
    pub tls: bool,
    /// Whether credentials may be sent over plain HTTP beyond loopback.
    pub allow_plain_http: bool,
    /// Host names that clients may use for the API, in addition to `box.name` and its
    /// addresses.
    pub host_names: Vec<String>,
}

/// The inspector's API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InspectorSettings {
    /// The addresses it listens on.
    pub listen: Vec<SocketAddr>,
}

/// Boot files and images over HTTP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpSettings {
    /// The addresses it listens on.
    pub listen: Vec<SocketAddr>,
    /// The addresses that serve the same over TLS with a certificate of the box's own
    /// CA.
    pub tls_listen: Vec<SocketAddr>,
    /// Address under which nodes reach it, without a slash at the end.
    pub public_url: Option<String>,
}

/// Boot files over TFTP.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TftpSettings {
    /// The addresses it listens on.
    pub listen: Vec<SocketAddr>,
}

/// The web page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PanelSettings {
    /// The addresses it listens on.
    pub listen: Vec<SocketAddr>,
    /// Whether it is served over TLS with a certificate of the box's own CA.
    pub tls: bool,
}

/// Boot loaders, kernel and ramdisk for nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BootSettings {
    /// The operator's directory, served at the root by TFTP and under `/files/` by HTTP.
    pub files: Option<PathBuf>,
    /// Directory of the network boot loaders.
    pub loaders: PathBuf,
    /// The loader of each kind of firmware.
    pub loader: BootLoaderSettings,
    /// Kernel and ramdisk of the agent; none until the operator has set them.
    pub ramdisk: Option<AgentRamdiskSettings>,
    /// An ISO image of the agent, for virtual media.
    pub iso: Option<PathBuf>,
    /// Whether another server boots the agent on the nodes, so that the box needs none.
    pub agent_elsewhere: bool,
    /// Added to the agent's kernel command line.
    pub kernel_args: String,
}

/// The first loader of each kind of firmware, by its name below the directory of
/// loaders. Firmware without one gets an address but no boot file.
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
    /// The names in Debian's package `ipxe`, which has none for the other two.
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
            iso: None,
            agent_elsewhere: false,
            kernel_args: String::new(),
        }
    }
}

/// The cache of images from other servers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageCacheSettings {
    /// CA certificates that are trusted in addition to the system's.
    pub ca: Option<PathBuf>,
    /// A proxy, as `host:port`.
    pub proxy: Option<String>,
    /// Rate limit of all fills together, in KiB/s.
    pub rate_kib_s: Option<u32>,
    /// When images are fetched that no node waits for.
    pub window: Option<DailyWindow>,
    /// Size limit of the cache in GiB.
    pub quota_gib: Option<u32>,
    /// How much of the disk stays free for the store, in MiB.
    pub reserve_mib: u32,
    /// The time between two verifications of all images, in seconds.
    pub scrub_s: u32,
    /// Images that are written to idle nodes before a deployment needs them:
    /// `[[images.ahead]]`.
    pub ahead: Vec<ImageAheadSettings>,
}

/// An image that is written to idle nodes before a deployment needs it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageAheadSettings {
    /// Its name.
    pub image: String,
    /// On how many of the nodes that can have it.
    pub nodes: ImageAheadNodes,
    /// Only nodes of this resource class.
    pub resource_class: Option<String>,
}

/// How many nodes have an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageAheadNodes {
    /// This many.
    Count(u32),
    /// This share, in percent.
    Percent(u8),
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
            ahead: Vec::new(),
        }
    }
}

/// A registry of images.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RegistrySettings {
    /// `host` or `host:port`, as references have it.
    pub host: String,
    /// It is reached over plain HTTP.
    pub is_plain: bool,
    /// The user and the file with the password.
    pub login: Option<(String, PathBuf)>,
}

/// A time of day, in minutes since midnight UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DailyWindow {
    /// The first minute.
    pub from_minute: u16,
    /// The minute after the last one; if it is smaller than the first, it is on the
    /// next day.
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

/// What the box does on a DHCP link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DhcpMode {
    /// It receives and never sends.
    Listen,
    /// It sends boot information; another server assigns the addresses.
    Proxy,
    /// It assigns addresses to known nodes only.
    Reservations,
    /// It assigns addresses to every client.
    Server,
}

impl DhcpMode {
    /// Every mode; the one that sends least is first.
    pub const ALL: [DhcpMode; 4] = [
        DhcpMode::Listen,
        DhcpMode::Proxy,
        DhcpMode::Reservations,
        DhcpMode::Server,
    ];

    /// The spelling in the file.
    pub fn name(self) -> &'static str {
        match self {
            DhcpMode::Listen => "listen",
            DhcpMode::Proxy => "proxy",
            DhcpMode::Reservations => "reservations",
            DhcpMode::Server => "server",
        }
    }

    /// Whether the box assigns addresses in this mode.
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

    /// The broadcast address of the network.
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.address) | !u32::from(self.mask()))
    }

    /// Whether an address is in the network.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & u32::from(self.mask()) == u32::from(self.address)
    }
}

/// The addresses that are assigned on one DHCP link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DhcpPoolSettings {
    /// The network of the addresses.
    pub network: Ipv4Network,
    /// First address that is assigned.
    pub first: Ipv4Addr,
    /// Last address that is assigned.
    pub last: Ipv4Addr,
    /// The nodes' default gateway, if there is one.
    pub router: Option<Ipv4Addr>,
    /// Their name servers.
    pub dns: Vec<Ipv4Addr>,
}

/// One DHCP link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DhcpSettings {
    /// Where requests arrive.
    pub source: DhcpSource,
    /// What the box does there.
    pub mode: DhcpMode,
    /// The box's own address on this link. Always set where addresses are assigned;
    /// without it a proxy uses the first address of its interface.
    pub server: Option<Ipv4Addr>,
    /// The address pool: set exactly where the mode assigns addresses.
    pub pool: Option<DhcpPoolSettings>,
    /// Whether unknown machines get replies too.
    pub discovery: bool,
    /// Whether router advertisements are sent, so that loaders do not wait for an IPv6
    /// router.
    pub router_advertisements: bool,
    /// Lease time in seconds.
    pub lease_s: u32,
}

/// A kind of BMC that the box can drive.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum HardwareType {
    /// IPMI 2.0 over RMCP+.
    Ipmi,
    /// Redfish.
    Redfish,
    /// An operator switches power by hand.
    Manual,
    /// Virtual machines, through their host's SSH.
    Ssh,
    /// No hardware: every action succeeds immediately (for testing).
    Fake,
}

impl HardwareType {
    /// Every hardware type that is built in.
    pub const ALL: [HardwareType; 5] = [
        HardwareType::Ipmi,
        HardwareType::Redfish,
        HardwareType::Manual,
        HardwareType::Ssh,
        HardwareType::Fake,
    ];

    /// Ironic's name of the type.
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

/// Which kinds of BMCs are driven.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HardwareSettings {
    /// Enabled types, each once, never empty.
    pub types: Vec<HardwareType>,
    /// CA certificates for Redfish BMCs, where a node's record names none.
    pub redfish_ca: Option<PathBuf>,
    /// The directory of private keys that nodes name in `ssh_key_filename`.
    pub ssh_keys: Option<PathBuf>,
    /// Networks of BMCs: agents in these networks are not called.
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

/// Timeouts and addresses of agents.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AgentSettings {
    /// Heartbeat timeout of an agent, in seconds.
    pub heartbeat_timeout_s: u32,
    /// Longest wait for the first request of a machine after its boot was ordered, in
    /// seconds.
    pub boot_wait_s: u32,
    /// Longest wait from that request to the first heartbeat of its agent, in seconds.
    pub wait_s: u32,
    /// Whether agents may be called over plain HTTP.
    pub plain_http: bool,
    /// What automated cleaning erases.
    pub erase: CleaningErase,
    /// Whether agents stay running between two jobs, unless a node's `driver_info` says
    /// otherwise.
    pub fast_track: bool,
    /// From which addresses agents may call.
    pub address_check: AgentAddressCheck,
    /// Which agents need a certificate for the token in their BMC.
    pub require: AgentRequirement,
}

/// Which agents need a certificate from their first request on. An agent that has enrolled needs
/// it in any case.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AgentRequirement {
    /// None.
    #[default]
    None,
    /// Those of nodes whose BMC has the token of this boot.
    MtlsWithToken,
    /// All.
    Mtls,
}

/// From which addresses agents may call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AgentAddressCheck {
    /// From the address that the box leased to the node; from any other only where the
    /// box leased none, as weakly authenticated.
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
    /// Partition tables and other metadata: takes seconds.
    #[default]
    Metadata,
    /// Every byte, with the method that the agent chooses: takes up to hours.
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
            require: AgentRequirement::default(),
        }
    }
}

/// Limits that an operator may change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitSettings {
    /// Most TCP connections open at once, all services together.
    pub connections_max: u32,
    /// Most TFTP transfers at once; without it, as many as fit into memory.
    pub transfers_max: Option<u32>,
    /// How many nodes boot from the network at once; none: adapts to measured
    /// throughput.
    pub boots_at_once: Option<u32>,
    /// Interval of periodic power readings, in seconds; 0 is never.
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
    fn computes_mask_broadcast_and_members_of_a_network() {
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
