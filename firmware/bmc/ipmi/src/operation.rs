//! Operations: BMC requests other than power. Each is a sequence of requests that ends in an
//! [`IpmiReply`].
//!
//! An operation does not handle sessions or time: it returns its next request and receives a
//! completion code and data. It ends after a bounded number of requests, whatever the BMC responds.
//! An operation can be restarted from the beginning when its progress is unknown, unless
//! [`IpmiOperation::at_most_once`] is true.

mod chunk;
mod device;
mod fru;
mod identity;
mod mailbox;
mod sdr;
mod sel;

use trivet_model::PowerError;

use crate::boot::BootFlags;
pub use crate::command::IpmiRequest;
use crate::command::{app, completion};
use crate::sdr::SdrReading;
use crate::sel::{SelInfo, SelRecord};
pub use device::{DeviceId, IpmiIdentity};
pub use fru::FRU_BYTES_MAX;
pub use identity::{
    AddressSource, IpmiIdentify, IpmiIdentifyState, IpmiLanConfig, USERS_MAX, UserEntry,
};
pub use mailbox::{MAILBOX_BLOCK_BYTES, MAILBOX_BLOCKS_MAX, MAILBOX_BYTES_MAX};
pub use sdr::SENSOR_RECORDS_MAX;
pub use sel::EVENTS_MAX;

/// A request to a BMC other than power.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum IpmiOperation {
    /// Read the boot flags unchanged, including the valid bit.
    BootFlags,
    /// Read this many blocks of the boot initiator mailbox from the first one, or as many as there
    /// are.
    ReadMailbox {
        /// At most [`MAILBOX_BLOCKS_MAX`].
        blocks: u8,
    },
    /// Write the boot initiator mailbox from its first block, and verify by reading back.
    WriteMailbox {
        /// One to [`MAILBOX_BYTES_MAX`] bytes; the last block is filled with zeros.
        bytes: Vec<u8>,
    },
    /// Read a FRU inventory device; [`crate::fru::FruInventory`] parses its areas.
    ReadFru {
        /// Its number; zero is the machine's own device.
        device: u8,
    },
    /// Write to a FRU inventory device, and verify by reading back.
    WriteFru {
        /// Its number.
        device: u8,
        /// Offset of the first byte.
        offset: u16,
        /// The bytes to write; they must end within the device and [`FRU_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// Read how full the event log is.
    SelInfo,
    /// Read the event log, at most [`EVENTS_MAX`] records.
    SelList,
    /// Erase the event log.
    SelClear,
    /// Read all sensors, of at most [`SENSOR_RECORDS_MAX`] records.
    Sensors,
    /// Switch the identify LED.
    Identify {
        /// The state to set.
        identify: IpmiIdentify,
    },
    /// Read the state of the identify LED.
    IdentifyState,
    /// Read the device ID of the BMC, and both GUIDs if it has them.
    Identity,
    /// Read the GUID of the machine.
    SystemGuid,
    /// Read the GUID of the BMC.
    DeviceGuid,
    /// Read the network configuration of the BMC.
    Lan {
        /// The channel; 14 for the channel of this session.
        channel: u8,
    },
    /// List the BMC's users.
    Users {
        /// The channel; 14 for the channel of this session.
        channel: u8,
    },
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum IpmiReply {
    /// Done; data that was written has been read back.
    Done,
    /// The boot flags.
    BootFlags(BootFlags),
    /// Consecutive blocks of the mailbox.
    Mailbox(Vec<u8>),
    /// The bytes of a FRU device, at most [`FRU_BYTES_MAX`].
    Fru(Vec<u8>),
    /// How full the event log is.
    SelInfo(SelInfo),
    /// The event log.
    Sel {
        /// How full it was at the start.
        info: SelInfo,
        /// Its records, oldest first.
        records: Vec<SelRecord>,
    },
    /// The sensors, in the order of their records.
    Sensors(Vec<SdrReading>),
    /// The state of the identify LED.
    IdentifyState(IpmiIdentifyState),
    /// Device ID and GUIDs.
    Identity(IpmiIdentity),
    /// A GUID, in the byte order of the wire.
    Guid([u8; 16]),
    /// The network configuration of the BMC.
    Lan(IpmiLanConfig),
    /// The BMC's users, at most [`USERS_MAX`].
    Users(Vec<UserEntry>),
}

/// The result of an operation, or its error.
pub type IpmiOperationResult = Result<IpmiReply, PowerError>;

/// The next action after a response.
#[derive(Clone, Debug, PartialEq)]
pub enum IpmiOperationNext {
    /// The next request.
    Send(IpmiRequest),
    /// The next request, after a pause that the BMC needs.
    SendLater {
        /// The request to send then.
        request: IpmiRequest,
        /// Milliseconds to wait first.
        wait_ms: u64,
    },
    /// The operation is complete.
    Done(IpmiOperationResult),
}

/// One operation in progress.
#[derive(Clone, Debug)]
pub struct IpmiOperationScript(IpmiOperationState);

#[derive(Clone, Debug)]
enum IpmiOperationState {
    Flags,
    MailboxRead(mailbox::MailboxReadScript),
    MailboxWrite(mailbox::MailboxWriteScript),
    Fru(fru::FruScript),
    Sel(sel::SelScript),
    Sdr(sdr::SdrScript),
    Identify,
    IdentifyState,
    Identity(device::IpmiIdentityScript),
    Guid,
    Lan(identity::LanScript),
    Users(identity::UsersScript),
}

impl IpmiOperation {
    /// Whether a repetition can have more effect than one execution: a log that is erased again
    /// loses the records in between.
    pub const fn at_most_once(&self) -> bool {
        matches!(self, Self::SelClear)
    }
}

impl IpmiOperationScript {
    /// Starts an operation and returns its first request; an error if its arguments are invalid for
    /// every BMC.
    pub fn start(operation: IpmiOperation) -> Result<(Self, IpmiRequest), PowerError> {
        let (kind, request) = match operation {
            IpmiOperation::BootFlags => (IpmiOperationState::Flags, mailbox::read_flags()),
            IpmiOperation::ReadMailbox { blocks } => {
                let (script, request) = mailbox::MailboxReadScript::start(blocks)?;
                (IpmiOperationState::MailboxRead(script), request)
            }
            IpmiOperation::WriteMailbox { bytes } => {
                let (script, request) = mailbox::MailboxWriteScript::start(&bytes)?;
                (IpmiOperationState::MailboxWrite(script), request)
            }
            IpmiOperation::SelInfo => Self::start_sel(sel::SelOperation::Info),
            IpmiOperation::SelList => Self::start_sel(sel::SelOperation::List),
            IpmiOperation::SelClear => Self::start_sel(sel::SelOperation::Clear),
            IpmiOperation::Sensors => {
                let (script, request) = sdr::SdrScript::start();
                (IpmiOperationState::Sdr(script), request)
            }
            IpmiOperation::Identify { identify: light } => {
                (IpmiOperationState::Identify, light.request())
            }
            IpmiOperation::IdentifyState => (
                IpmiOperationState::IdentifyState,
                IpmiIdentifyState::request(),
            ),
            IpmiOperation::Identity => {
                let (script, request) = device::IpmiIdentityScript::start();
                (IpmiOperationState::Identity(script), request)
            }
            IpmiOperation::SystemGuid => (
                IpmiOperationState::Guid,
                IpmiRequest::app(app::SYSTEM_GUID, &[]),
            ),
            IpmiOperation::DeviceGuid => (
                IpmiOperationState::Guid,
                IpmiRequest::app(app::DEVICE_GUID, &[]),
            ),
            IpmiOperation::Lan { channel } => {
                let (script, request) = identity::LanScript::start(channel);
                (IpmiOperationState::Lan(script), request)
            }
            IpmiOperation::Users { channel } => {
                let (script, request) = identity::UsersScript::start(channel);
                (IpmiOperationState::Users(script), request)
            }
            IpmiOperation::ReadFru { device } => {
                let (script, request) = fru::FruScript::read(device);
                (IpmiOperationState::Fru(script), request)
            }
            IpmiOperation::WriteFru {
                device,
                offset,
                bytes,
            } => {
                let (script, request) = fru::FruScript::write(device, offset, bytes)?;
                (IpmiOperationState::Fru(script), request)
            }
        };
        Ok((Self(kind), request))
    }

    fn start_sel(want: sel::SelOperation) -> (IpmiOperationState, IpmiRequest) {
        let (script, request) = sel::SelScript::start(want);
        (IpmiOperationState::Sel(script), request)
    }

    /// Processes the completion code and the data of the response to the last request.
    pub fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        match &mut self.0 {
            IpmiOperationState::Flags => IpmiOperationNext::Done(mailbox::parse_flags(code, data)),
            IpmiOperationState::MailboxRead(script) => script.handle_response(code, data),
            IpmiOperationState::MailboxWrite(script) => script.handle_response(code, data),
            IpmiOperationState::Fru(script) => script.handle_response(code, data),
            IpmiOperationState::Sel(script) => script.handle_response(code, data),
            IpmiOperationState::Sdr(script) => script.handle_response(code, data),
            IpmiOperationState::Identify if code == completion::OK => {
                IpmiOperationNext::Done(Ok(IpmiReply::Done))
            }
            IpmiOperationState::Identify => refused(code),
            IpmiOperationState::IdentifyState => {
                IpmiOperationNext::Done(identity::parse_identify_state(code, data))
            }
            IpmiOperationState::Identity(script) => script.handle_response(code, data),
            IpmiOperationState::Guid => IpmiOperationNext::Done(identity::parse_guid(code, data)),
            IpmiOperationState::Lan(script) => script.handle_response(code, data),
            IpmiOperationState::Users(script) => script.handle_response(code, data),
        }
    }
}

fn refused(code: u8) -> IpmiOperationNext {
    IpmiOperationNext::Done(Err(PowerError::Refused { code }))
}

fn invalid_response(message: &'static str) -> IpmiOperationNext {
    IpmiOperationNext::Done(Err(PowerError::InvalidResponse { message }))
}

/// The error for arguments that are invalid for every BMC.
fn unsupported(message: &'static str) -> PowerError {
    PowerError::Unsupported { message }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs an operation to its end with a function as the BMC; returns the requests and the
    /// result.
    #[track_caller]
    pub(crate) fn run_script(
        operation: IpmiOperation,
        mut bmc: impl FnMut(&IpmiRequest) -> Vec<u8>,
    ) -> (Vec<IpmiRequest>, IpmiOperationResult) {
        let (mut dialogue, mut request) =
            IpmiOperationScript::start(operation).expect("its arguments are valid");
        let mut requests = Vec::new();
        loop {
            assert!(requests.len() < 100_000, "no end");
            let body = bmc(&request);
            requests.push(request);
            let (&code, data) = body.split_first().expect("a completion code");
            match dialogue.handle_response(code, data) {
                IpmiOperationNext::Send(next)
                | IpmiOperationNext::SendLater { request: next, .. } => request = next,
                IpmiOperationNext::Done(outcome) => return (requests, outcome),
            }
        }
    }

    pub(crate) fn is_invalid_response(outcome: &IpmiOperationResult) -> bool {
        matches!(outcome, Err(PowerError::InvalidResponse { .. }))
    }
}
