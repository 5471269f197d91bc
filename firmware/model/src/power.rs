//! Orders to a BMC and its replies.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::words;

words! {
    /// Whether a machine is on, spelled as in Ironic.
    PowerState {
        /// It is on.
        On = "power on",
        /// It is off.
        Off = "power off",
    }
}

words! {
    /// The state of a machine's hardware as its BMC reports it, spelled as in Ironic and Redfish.
    HardwareHealth {
        /// No fault.
        Ok = "OK",
        /// A fault that needs attention.
        Warning = "Warning",
        /// A fault that needs attention at once.
        Critical = "Critical",
    }
}

words! {
    /// The boot device of a machine.
    BootDevice {
        /// The network.
        Pxe = "pxe",
        /// Its own disk.
        Disk = "disk",
        /// A CD, real or virtual.
        Cdrom = "cdrom",
        /// The firmware's setup menu.
        Bios = "bios",
        /// The disk in safe mode.
        Safe = "safe",
    }
}

/// One order to a BMC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PowerOrder {
    /// Read the power state.
    Status,
    /// Switch on.
    On,
    /// Switch off without a shutdown.
    Off,
    /// Request the running system to shut down.
    SoftOff,
    /// Power off and on again; on, if it was off.
    Cycle,
    /// Hard reset without power loss.
    Reset,
    /// Read the next boot device.
    ReadBoot,
    /// Choose the next boot device.
    SetBoot {
        /// The device.
        device: BootDevice,
        /// For every boot, not only the next.
        persistent: bool,
        /// In UEFI mode.
        efi: bool,
    },
    /// Interrupt the running system, so that it dumps its memory.
    Nmi,
    /// Restart the BMC itself; the machine keeps running.
    BmcReset {
        /// A warm restart, which keeps the BMC's state as far as possible.
        warm: bool,
    },
    /// Send this command to the BMC unchanged.
    Raw {
        /// Network function; even numbers are requests.
        netfn: u8,
        /// Command number.
        command: u8,
        /// Its data bytes.
        data: RawBytes,
    },
}

impl PowerOrder {
    /// Whether a repetition could have another effect, so that the order must not be sent again
    /// when it is unknown whether the BMC received it.
    pub const fn at_most_once(self) -> bool {
        matches!(self, Self::Nmi | Self::BmcReset { .. } | Self::Raw { .. })
    }

    /// The name of the power change, if the order is one.
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

/// Most bytes of a raw command, and of its reply. Ours: messages of IPMI over a LAN are rarely
/// half as long.
pub const RAW_BYTES_MAX: usize = 128;

/// The bytes of a raw command or its reply, at most [`RAW_BYTES_MAX`].
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct RawBytes {
    bytes: [u8; RAW_BYTES_MAX],
    len: u8,
}

impl RawBytes {
    /// Copies these bytes; none if there are too many.
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

/// In the usual notation: `0x00 0x04`.
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

/// The reply of a BMC to a successful order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PowerAnswer {
    /// The order was accepted.
    Accepted,
    /// The power state that the BMC reports.
    Power(PowerState),
    /// The boot device that is set, if it is a known one.
    Boot {
        /// The device; none when the BMC has no override or an unknown one.
        device: Option<BootDevice>,
        /// For every boot.
        persistent: bool,
        /// In UEFI mode.
        efi: bool,
    },
    /// The reply to a raw command.
    Raw {
        /// IPMI completion code; zero means success.
        code: u8,
        /// Its data bytes.
        data: RawBytes,
    },
}

/// Why a BMC with error messages of its own did not carry out an order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcFailureCause {
    /// No connection, or no reply.
    Unreachable,
    /// No machine has its address, or there is no route to it.
    NoHost,
    /// The connection is refused.
    PortClosed,
    /// Its certificate is not one that the node's record trusts.
    Untrusted,
    /// It does not accept the user or the password.
    Login,
    /// The user has no permission for this.
    Privilege,
    /// It is busy now.
    Busy,
    /// It refused, with a reason of its own.
    Refused,
    /// It has nothing of that name.
    Missing,
    /// It accepted the order but did not carry it out.
    NotApplied,
    /// It sent something that its protocol does not allow.
    InvalidResponse,
}

impl BmcFailureCause {
    const fn word(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::NoHost => "no_host",
            Self::PortClosed => "port_closed",
            Self::Untrusted => "untrusted",
            Self::Login => "login",
            Self::Privilege => "privilege",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Missing => "missing",
            Self::NotApplied => "lied",
            Self::InvalidResponse => "nonsense",
        }
    }
}

/// Why a datagram did not get to a BMC, as the network reports it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UndeliveredReason {
    /// No machine has the address, or there is no route to it.
    NoHost,
    /// A machine has the address, and no program there uses the port.
    PortClosed,
}

impl UndeliveredReason {
    const fn text(self) -> &'static str {
        match self {
            Self::NoHost => "no machine has its address; check the address, the cable and the VLAN",
            Self::PortClosed => {
                "its port is closed; check that the address is that of the BMC and that IPMI over \
                 LAN is on"
            }
        }
    }
}

/// Why an order to a BMC failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PowerError {
    /// No reply in time.
    #[error(
        "the BMC did not answer within {waited_ms} ms; check its address, cable and that \
         IPMI over LAN is on"
    )]
    NoResponse {
        /// How long the box tried, in ms.
        waited_ms: u64,
    },
    /// No reply in time, and the network reports why.
    #[error("the BMC did not answer within {waited_ms} ms: {}", .reason.text())]
    Undelivered {
        /// How long the box tried, in ms.
        waited_ms: u64,
        /// What the network reports.
        reason: UndeliveredReason,
    },
    /// It answered the first message, and not the login.
    #[error(
        "the BMC answers, but opened no session within {waited_ms} ms; close other consoles to it, \
         or restart it"
    )]
    NoSession {
        /// How long the box tried, in ms.
        waited_ms: u64,
    },
    /// The BMC does not accept the user or the password.
    #[error("the BMC refused the login ({message}); check ipmi_username and ipmi_password")]
    Login {
        /// The BMC's error.
        message: &'static str,
    },
    /// The BMC has no free session.
    #[error(
        "the BMC has no free session; close other consoles to it, or wait a minute until it closes \
         unused ones"
    )]
    NoFreeSession,
    /// The BMC and the box have no cipher suite in common.
    #[error(
        "the BMC refuses our cipher suites; let ipmi_cipher_suite name one that it has, or write \
         ipmi_protocol_version 1.5 where it is too old for any"
    )]
    NoSuite,
    /// The user has no permission for this.
    #[error(
        "the BMC does not give its user the wanted level; raise the user's limit there, or set \
         ipmi_priv_level to what the user may have"
    )]
    Privilege,
    /// The BMC reports that it is busy.
    #[error("the BMC reports that it is busy; try again in a minute, or restart the BMC")]
    BmcBusy,
    /// The BMC refused the command.
    #[error("the BMC refused the command with completion code 0x{code:02x}")]
    Refused {
        /// IPMI completion code.
        code: u8,
    },
    /// The BMC sent something that its protocol does not allow.
    #[error("the BMC sent an invalid response: {message}")]
    InvalidResponse {
        /// The error in the message.
        message: &'static str,
    },
    /// The node's `driver_info` lacks a key that is needed to reach its BMC.
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
    /// This box does not support that.
    #[error("{message}")]
    Unsupported {
        /// The whole error message.
        message: &'static str,
    },
    /// The SSH host of a virtual machine did not carry out the order.
    #[error("{message}")]
    Host {
        /// The whole error message.
        message: String,
        /// A retry cannot help.
        lasting: bool,
    },
    /// A BMC with error messages of its own did not carry out the order.
    #[error("{message}")]
    Bmc {
        /// The kind of failure.
        cause: BmcFailureCause,
        /// The whole error message.
        message: String,
    },
    /// The BMC accepted requests to change the power, and nothing changed.
    #[error(
        "the BMC accepted {requests} requests to {what}, but after {waited_s} s it still reports \
         the machine as before{}; look at the machine and its BMC, or raise \
         power_state_change_timeout_s if the machine is slower",
        if *bmc_restarted { ", also after a restart of the BMC" } else { "" }
    )]
    NoEffect {
        /// The requested change, such as `power off`.
        what: &'static str,
        /// How often it was requested.
        requests: u32,
        /// Seconds since the first request.
        waited_s: u64,
        /// The BMC was restarted between the requests.
        bmc_restarted: bool,
    },
    /// The BMC failed all requests for a long time.
    #[error("the BMC did not answer as wanted for {waited_s} s; the last error: {last}")]
    Unanswered {
        /// That time in seconds.
        waited_s: u64,
        /// The last failure.
        last: Box<PowerError>,
    },
    /// Too many orders are queued for this BMC.
    #[error("too many orders wait for this BMC; try again when the present one is done")]
    QueueFull,
}

impl PowerError {
    /// The kind of error, as one word for programs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NoResponse { .. } | Self::Unanswered { .. } => "unreachable",
            Self::Undelivered { reason, .. } => match reason {
                UndeliveredReason::NoHost => "no_host",
                UndeliveredReason::PortClosed => "port_closed",
            },
            Self::NoSession { .. } => "no_session",
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

    /// The last failure, where the error is that all requests failed.
    pub fn root(&self) -> &Self {
        match self {
            Self::Unanswered { last, .. } => last.root(),
            other => other,
        }
    }

    /// Whether the BMC did not reply at all.
    pub const fn is_no_response(&self) -> bool {
        matches!(
            self,
            Self::NoResponse { .. }
                | Self::Undelivered { .. }
                | Self::NoSession { .. }
                | Self::Bmc {
                    cause: BmcFailureCause::Unreachable
                        | BmcFailureCause::NoHost
                        | BmcFailureCause::PortClosed,
                    ..
                }
        )
    }

    /// Whether the BMC replied with a refusal, as it does when a machine that is off is to be
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

    /// Whether a retry cannot help until an operator changes something.
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
    fn the_kind_of_a_long_failure_is_that_of_its_last_error() {
        let last = Box::new(PowerError::Unanswered {
            waited_s: 80,
            last: Box::new(PowerError::Privilege),
        });
        let error = PowerError::Unanswered {
            waited_s: 240,
            last,
        };
        assert_eq!(error.kind(), "unreachable");
        assert_eq!(error.root().kind(), "privilege");
        assert_eq!(PowerError::QueueFull.root(), &PowerError::QueueFull);
    }

    #[test]
    fn an_error_of_the_network_has_a_kind_of_its_own_and_is_no_response() {
        for (reason, kind) in [
            (UndeliveredReason::NoHost, "no_host"),
            (UndeliveredReason::PortClosed, "port_closed"),
        ] {
            let error = PowerError::Undelivered {
                waited_ms: 5,
                reason,
            };
            assert_eq!(error.kind(), kind);
            assert!(error.is_no_response() && !error.is_lasting());
        }
        let error = PowerError::NoSession { waited_ms: 5 };
        assert_eq!(error.kind(), "no_session");
        assert!(error.is_no_response());
    }

    #[test]
    fn errors_that_need_the_operator_are_not_retried() {
        let bmc = |cause| PowerError::Bmc {
            cause,
            message: "no".to_owned(),
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
        assert!(PowerError::Unsupported { message: "no" }.is_lasting());
    }
}
