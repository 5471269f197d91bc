//! The faults that the rules of the diagnosis explain, at least one for each rule.

use trivet_model::MacAddr;

/// A fault that lasts for the whole run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiagnosedFault {
    /// The settings name no kernel and ramdisk.
    NoAgent,
    /// The URL of the API is a loopback address.
    LoopbackApi,
    /// The URL of the API is on another network, and there is no router.
    ApiElsewhere,
    /// The BMC does not answer.
    BmcSilent,
    /// No machine has the address of the BMC.
    BmcAbsent,
    /// The machine at the address of the BMC has no IPMI.
    BmcPortClosed,
    /// The BMC answers the first request and no login.
    BmcNoSession,
    /// The record has a wrong password of the BMC.
    BmcPassword,
    /// The machine is on, and its cable is out.
    CableOut,
    /// The port has another hardware address than the machine.
    OtherMac,
    /// The box only listens on the network of the machine.
    ListenOnly,
    /// Another DHCP server is faster.
    OtherServer,
    /// TFTP requests of the machine are lost.
    TftpBlocked,
    /// All packets of a TFTP transfer but the first are lost.
    TftpCut,
    /// Each datagram of a TFTP transfer to the machine takes seconds.
    TftpSlow,
    /// The loader has no driver for the network card.
    LoaderWithoutDriver,
    /// The kernel is not where the settings say.
    KernelAbsent,
    /// Requests of the agent to the API are lost.
    AgentSilent,
    /// The agent sees other network cards than the firmware.
    OtherCards,
    /// Connections to the agent are refused.
    AgentRefusesCalls,
    /// The root device hints fit no disk.
    WrongHint,
    /// The source has another image.
    ImageChanged,
    /// The firmware boots from the network first, and the BMC forgets the boot device.
    NetworkFirst,
    /// The record names the BMC of another, older node.
    SharedBmc,
    /// The port of another node has the hardware address of the machine.
    PortOfOtherNode,
    /// The link of the machine is twelve times slower than those of the others.
    SlowLink,
}

/// Each fault with the name of the rule that explains it.
pub const DIAGNOSED_FAULTS: [(DiagnosedFault, &str); 26] = [
    (DiagnosedFault::NoAgent, "agent-missing"),
    (DiagnosedFault::LoopbackApi, "api-address"),
    (DiagnosedFault::ApiElsewhere, "api-address"),
    (DiagnosedFault::BmcSilent, "bmc-silent"),
    (DiagnosedFault::BmcAbsent, "bmc-silent"),
    (DiagnosedFault::BmcPortClosed, "bmc-silent"),
    (DiagnosedFault::BmcNoSession, "bmc-silent"),
    (DiagnosedFault::BmcPassword, "bmc-login"),
    (DiagnosedFault::CableOut, "no-packet"),
    (DiagnosedFault::OtherMac, "unknown-machine"),
    (DiagnosedFault::ListenOnly, "dhcp-not-served"),
    (DiagnosedFault::OtherServer, "address-from-other-server"),
    (DiagnosedFault::TftpBlocked, "loader-not-requested"),
    (DiagnosedFault::TftpCut, "loader-incomplete"),
    (DiagnosedFault::TftpSlow, "loader-incomplete"),
    (
        DiagnosedFault::LoaderWithoutDriver,
        "loader-without-network",
    ),
    (DiagnosedFault::KernelAbsent, "boot-file-refused"),
    (DiagnosedFault::AgentSilent, "agent-silent"),
    (DiagnosedFault::OtherCards, "lookup-unmatched"),
    (DiagnosedFault::AgentRefusesCalls, "agent-not-callable"),
    (DiagnosedFault::WrongHint, "disk-not-found"),
    (DiagnosedFault::ImageChanged, "image-unusable"),
    (DiagnosedFault::NetworkFirst, "network-boot-again"),
    (DiagnosedFault::SharedBmc, "bmc-shared"),
    (DiagnosedFault::PortOfOtherNode, "port-of-other-node"),
    (DiagnosedFault::SlowLink, "slow-link"),
];

impl DiagnosedFault {
    /// How many machines the rack has.
    pub(crate) fn machines(self) -> usize {
        match self {
            Self::SharedBmc | Self::PortOfOtherNode => 2,
            Self::SlowLink | Self::TftpSlow => 5,
            _ => 1,
        }
    }

    /// Whether the diagnosis is one of a job that goes on.
    pub(crate) fn is_passing(self) -> bool {
        self == Self::TftpSlow
    }
}

/// A hardware address that no simulated machine has otherwise.
pub(crate) const OTHER_MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0x77, 0xff, 1]);

/// The rates of links in bytes per millisecond: of a slow one, and of all others.
const SLOW_BYTES_PER_MS: u64 = 9000;
const USUAL_BYTES_PER_MS: u64 = 110_000;

/// The time that bytes take on the link of a machine.
pub(crate) fn transfer_ms(is_slow: bool, bytes: u64) -> u64 {
    let rate = if is_slow {
        SLOW_BYTES_PER_MS
    } else {
        USUAL_BYTES_PER_MS
    };
    bytes / rate
}
