//! The faults that the rules of the diagnosis explain, one for each rule.

use trivet_model::MacAddr;

/// A fault that lasts for the whole run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiagnosedFault {
    /// The settings name no kernel and ramdisk.
    NoAgent,
    /// The URL of the API is a loopback address.
    LoopbackApi,
    /// The BMC does not answer.
    BmcSilent,
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
    /// The link of the machine is twelve times slower than those of the others.
    SlowLink,
}

/// Each fault with the name of the rule that explains it.
pub const DIAGNOSED_FAULTS: [(DiagnosedFault, &str); 20] = [
    (DiagnosedFault::NoAgent, "agent-missing"),
    (DiagnosedFault::LoopbackApi, "api-address"),
    (DiagnosedFault::BmcSilent, "bmc-silent"),
    (DiagnosedFault::BmcPassword, "bmc-login"),
    (DiagnosedFault::CableOut, "no-packet"),
    (DiagnosedFault::OtherMac, "unknown-machine"),
    (DiagnosedFault::ListenOnly, "dhcp-not-served"),
    (DiagnosedFault::OtherServer, "address-from-other-server"),
    (DiagnosedFault::TftpBlocked, "loader-not-requested"),
    (DiagnosedFault::TftpCut, "loader-incomplete"),
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
    (DiagnosedFault::SlowLink, "slow-link"),
];

impl DiagnosedFault {
    /// How many machines the rack has.
    pub(crate) fn machines(self) -> usize {
        match self {
            Self::SharedBmc => 2,
            Self::SlowLink => 5,
            _ => 1,
        }
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
