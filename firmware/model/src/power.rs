//! Orders to a BMC and what it says back.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::words;

words! {
    /// Whether a machine runs, in Ironic's words.
    PowerState {
        /// It runs.
        On = "power on",
        /// It does not.
        Off = "power off",
    }
}

words! {
    /// Where a machine boots from next.
    BootDevice {
        /// The network.
        Pxe = "pxe",
        /// Its own disk.
        Disk = "disk",
        /// A CD, real or virtual.
        Cdrom = "cdrom",
        /// Its firmware's set-up screen.
        Bios = "bios",
        /// The disk in safe mode.
        Safe = "safe",
    }
}

/// One thing asked of a BMC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PowerOrder {
    /// Read the power state.
    Status,
    /// Switch on.
    On,
    /// Switch off hard.
    Off,
    /// Ask the running system to shut down.
    SoftOff,
    /// Off and on again; on, if it was off.
    Cycle,
    /// Hard reset without power loss.
    Reset,
    /// Read the next boot device.
    ReadBoot,
    /// Choose the next boot device.
    SetBoot {
        /// From where.
        device: BootDevice,
        /// For every boot, not only the next.
        persistent: bool,
        /// As UEFI.
        efi: bool,
    },
    /// Interrupt the running system, so that it dumps its memory.
    Nmi,
    /// Restart the BMC itself; the machine runs on.
    BmcReset {
        /// Keeping what it knows, as far as it can.
        warm: bool,
    },
    /// Say this to the BMC, whatever it means.
    Raw {
        /// Network function, even: requests are.
        netfn: u8,
        /// Command.
        command: u8,
        /// What goes with it.
        data: RawBytes,
    },
}

impl PowerOrder {
    /// Whether doing it twice could do more than doing it once, so that it must
    /// not be said again where nobody knows whether it was heard.
    pub const fn at_most_once(self) -> bool {
        matches!(self, Self::Nmi | Self::BmcReset { .. } | Self::Raw { .. })
    }

    /// What it does to the machine's power, if that is what it is for.
    pub const fn switches(self) -> Option<&'static str> {
        match self {
            Self::On => Some("power on"),
            Self::Off => Some("power off"),
            Self::SoftOff => Some("shut down"),
            Self::Cycle => Some("power off and on"),
            Self::Reset => Some("reset"),
            _ => None,
        }
    }
}

/// Most bytes of a raw command, and of its answer. Ours: messages of IPMI over a
/// LAN are seldom half as long.
pub const RAW_BYTES_MAX: usize = 128;

/// The bytes of a raw command or its answer, at most [`RAW_BYTES_MAX`].
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct RawBytes {
    bytes: [u8; RAW_BYTES_MAX],
    len: u8,
}

impl RawBytes {
    /// These bytes, unless they are too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut all = [0; RAW_BYTES_MAX];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self {
            bytes: all,
            len: u8::try_from(bytes.len()).ok()?,
        })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// As people write them: `0x00 0x04`.
impl fmt::Display for RawBytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.as_slice().iter().enumerate() {
            let gap = if at == 0 { "" } else { " " };
            write!(out, "{gap}0x{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for RawBytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RawBytes({self})")
    }
}

/// What a BMC said when an order went through.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PowerAnswer {
    /// The order was accepted.
    Accepted,
    /// The power state, as the BMC claims it.
    Power(PowerState),
    /// The boot device that is set, if it is one we know.
    Boot {
        /// From where; none when the BMC has no override or an unknown one.
        device: Option<BootDevice>,
        /// For every boot.
        persistent: bool,
        /// As UEFI.
        efi: bool,
    },
    /// The answer to a raw command.
    Raw {
        /// IPMI completion code; zero means done.
        code: u8,
        /// What came with it.
        data: RawBytes,
    },
}

/// What kept a BMC that answers in sentences from carrying an order out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcFailureCause {
    /// No connection, or no answer.
    Unreachable,
    /// Its certificate is not one that the node's record trusts.
    Untrusted,
    /// It does not accept the user or the password.
    Login,
    /// The user may not do this.
    Privilege,
    /// It has no time now.
    Busy,
    /// It refused, with reasons of its own.
    Refused,
    /// It took the order and does not do it.
    NotApplied,
    /// It sent something that its protocol does not allow.
    InvalidResponse,
}

impl BmcFailureCause {
    const fn word(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Untrusted => "untrusted",
            Self::Login => "login",
            Self::Privilege => "privilege",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::NotApplied => "lied",
            Self::InvalidResponse => "nonsense",
        }
    }
}

/// Why an order to a BMC did not go through.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PowerError {
    /// Nothing came back in time.
    #[error(
        "the BMC did not answer within {waited_ms} ms; check its address, cable and that \
         IPMI over LAN is on"
    )]
    NoResponse {
        /// How long we tried.
        waited_ms: u64,
    },
    /// The BMC does not accept the user or the password.
    #[error("the BMC refused the login ({said}); check ipmi_username and ipmi_password")]
    Login {
        /// What it said.
        said: &'static str,
    },
    /// The BMC has as many sessions as it can hold.
    #[error(
        "the BMC has no free session; close other consoles to it, or wait a minute for it to end \
         forgotten ones"
    )]
    NoFreeSession,
    /// The BMC and the box have no cipher suite in common.
    #[error(
        "the BMC refuses our cipher suites; let ipmi_cipher_suite name one that it has, or write \
         ipmi_protocol_version 1.5 where it is too old for any"
    )]
    NoSuite,
    /// The user may not do that.
    #[error(
        "the BMC does not give its user the wanted level; raise the user's limit there, or set \
         ipmi_priv_level to what the user may have"
    )]
    Privilege,
    /// The BMC has other work.
    #[error("the BMC says that it is busy; try again in a minute, or restart the BMC")]
    BmcBusy,
    /// The BMC refused the command.
    #[error("the BMC refused the command with completion code 0x{code:02x}")]
    Refused {
        /// IPMI completion code.
        code: u8,
    },
    /// The BMC sent something that its protocol does not allow.
    #[error("the BMC sent nonsense: {said}")]
    InvalidResponse {
        /// What was wrong with it.
        said: &'static str,
    },
    /// The node's `driver_info` does not say how to reach its BMC.
    #[error("driver_info lacks {missing}")]
    NotConfigured {
        /// The missing key.
        missing: &'static str,
    },
    /// An older node's `driver_info` names the same BMC.
    #[error(
        "another node has the same ipmi_address and ipmi_port, or the same redfish_address and \
         redfish_system_id: {other}; correct driver_info of one of the two, or delete one"
    )]
    SharedBmc {
        /// Name and UUID of that node.
        other: String,
    },
    /// This box does not do that.
    #[error("{said}")]
    Unsupported {
        /// The whole sentence.
        said: &'static str,
    },
    /// The host of a virtual machine did not carry the order out.
    #[error("{said}")]
    Host {
        /// The whole sentence.
        said: String,
        /// Trying again cannot help.
        lasting: bool,
    },
    /// A BMC that answers in sentences did not carry the order out.
    #[error("{said}")]
    Bmc {
        /// What kind of failure it is.
        cause: BmcFailureCause,
        /// The whole sentence.
        said: String,
    },
    /// The BMC accepted requests to change the power, and nothing changed.
    #[error(
        "the BMC accepted {requests} requests to {what}, but after {waited_s} s it still reports \
         the machine as before{}; look at the machine and its BMC, or raise \
         power_state_change_timeout_s if the machine is slower",
        if *bmc_restarted { ", also after a restart of the BMC" } else { "" }
    )]
    NoEffect {
        /// What was asked for, such as `power off`.
        what: &'static str,
        /// How often it was asked.
        requests: u32,
        /// How long ago the first of them was.
        waited_s: u64,
        /// The BMC was restarted in between.
        bmc_restarted: bool,
    },
    /// The BMC failed everything it was asked for a long time.
    #[error("the BMC did not answer as wanted for {waited_s} s; the last error: {last}")]
    Unanswered {
        /// How long.
        waited_s: u64,
        /// The last failure.
        last: Box<PowerError>,
    },
    /// Too many orders wait for this BMC.
    #[error("too many orders wait for this BMC; try again when the present one is done")]
    QueueFull,
}

impl PowerError {
    /// Of which kind it is, in one word for programs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NoResponse { .. } | Self::Unanswered { .. } => "unreachable",
            Self::Login { .. } => "login",
            Self::NoFreeSession | Self::BmcBusy | Self::QueueFull => "busy",
            Self::NoSuite => "no_suite",
            Self::Privilege => "privilege",
            Self::Refused { .. } => "refused",
            Self::InvalidResponse { .. } => "nonsense",
            Self::NotConfigured { .. } | Self::SharedBmc { .. } => "not_configured",
            Self::Unsupported { .. } => "unsupported",
            Self::Host { .. } => "host",
            Self::Bmc { cause, .. } => cause.word(),
            Self::NoEffect { .. } => "no_effect",
        }
    }

    /// Whether the BMC could not be heard at all.
    pub const fn is_no_response(&self) -> bool {
        matches!(
            self,
            Self::NoResponse { .. }
                | Self::Bmc {
                    cause: BmcFailureCause::Unreachable,
                    ..
                }
        )
    }

    /// Whether the BMC answered and refused, as it does when a machine that is off is to be
    /// reset.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::Bmc {
                    cause: BmcFailureCause::Refused,
                    ..
                }
        )
    }

    /// Whether trying again cannot help until somebody changes something.
    pub const fn is_lasting(&self) -> bool {
        match self {
            Self::NotConfigured { .. }
            | Self::SharedBmc { .. }
            | Self::Login { .. }
            | Self::NoSuite
            | Self::Privilege
            | Self::Unsupported { .. } => true,
            Self::Host { lasting, .. } => *lasting,
            Self::Bmc { cause, .. } => {
                matches!(
                    cause,
                    BmcFailureCause::Untrusted
                        | BmcFailureCause::Login
                        | BmcFailureCause::Privilege
                )
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_bytes_have_a_bound_and_read_as_people_write_them() {
        let bytes = RawBytes::new(&[0, 0x4f]).unwrap();
        assert_eq!(bytes.as_slice(), [0, 0x4f]);
        assert_eq!(bytes.to_string(), "0x00 0x4f");
        assert_eq!(RawBytes::new(&[]).unwrap().to_string(), "");
        assert!(RawBytes::new(&[1; RAW_BYTES_MAX]).is_some());
        assert!(RawBytes::new(&[1; RAW_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn errors_that_need_the_operator_are_not_retried() {
        let bmc = |cause| PowerError::Bmc {
            cause,
            said: "no".to_owned(),
        };
        for cause in [
            BmcFailureCause::Untrusted,
            BmcFailureCause::Login,
            BmcFailureCause::Privilege,
        ] {
            assert!(bmc(cause).is_lasting());
        }
        for cause in [
            BmcFailureCause::Unreachable,
            BmcFailureCause::Busy,
            BmcFailureCause::Refused,
            BmcFailureCause::NotApplied,
        ] {
            assert!(!bmc(cause).is_lasting());
        }
        assert!(!PowerError::QueueFull.is_lasting());
        assert!(PowerError::Unsupported { said: "no" }.is_lasting());
    }
}
