//! Errands: what is asked of a BMC besides power. Each is a dialogue of
//! requests, one after the other, that ends in a [`Report`].
//!
//! A dialogue knows nothing of sessions or time: it says its next request and
//! hears a completion code and data. Whatever a BMC answers, it ends after a
//! bounded number of requests. An errand may be begun again from the start
//! when nobody knows how far it came, unless it counts ([`Errand::counts`]).

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

/// Something to ask of a BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum IpmiOperation {
    /// Read the boot flags as they are, the valid bit too.
    BootFlags,
    /// Read so many blocks of the boot initiator mailbox, from the first on, or as many
    /// as there are.
    ReadMailbox {
        /// At most [`MAILBOX_BLOCKS_MAX`].
        blocks: u8,
    },
    /// Write the boot initiator mailbox from its first block on, and read it back.
    WriteMailbox {
        /// One to [`MAILBOX_BYTES_MAX`] bytes; the last block is filled with zeros.
        bytes: Vec<u8>,
    },
    /// Read a FRU inventory device; [`crate::fru::Inventory`] knows its areas.
    ReadFru {
        /// Its number; zero is the machine's own.
        device: u8,
    },
    /// Write to a FRU inventory device, and read it back.
    WriteFru {
        /// Its number.
        device: u8,
        /// Where to begin.
        offset: u16,
        /// What to write; it must end within the device and [`FRU_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// Ask how full the event log is.
    SelInfo,
    /// Read the event log, at most [`EVENTS_MAX`] records.
    SelList,
    /// Erase the event log.
    SelClear,
    /// Read all sensors, of at most [`SENSOR_RECORDS_MAX`] records.
    Sensors,
    /// Switch the light that marks the machine.
    Identify {
        /// What it is to do.
        identify: IpmiIdentify,
    },
    /// Ask what that light does.
    IdentifyState,
    /// Ask who the BMC is, with both identifiers as far as it has them.
    Identity,
    /// Ask for the machine's identifier.
    SystemGuid,
    /// Ask for the BMC's own identifier.
    DeviceGuid,
    /// Ask for the BMC's place in the network.
    Lan {
        /// The channel; 14 for the one that is spoken on.
        channel: u8,
    },
    /// List the BMC's users.
    Users {
        /// The channel; 14 for the one that is spoken on.
        channel: u8,
    },
}

/// What an errand brought back.
#[derive(Clone, Debug, PartialEq)]
pub enum IpmiReply {
    /// It is done, and where it wrote something, that was read back.
    Done,
    /// The boot flags.
    BootFlags(BootFlags),
    /// Blocks of the mailbox, one after the other.
    Mailbox(Vec<u8>),
    /// The bytes of a FRU device, at most [`FRU_BYTES_MAX`].
    Fru(Vec<u8>),
    /// How full the event log is.
    SelInfo(SelInfo),
    /// The event log.
    Sel {
        /// How full it was at the start.
        info: SelInfo,
        /// What is in it, oldest first.
        records: Vec<SelRecord>,
    },
    /// The sensors, in the order of their records.
    Sensors(Vec<SdrReading>),
    /// What the light does.
    IdentifyState(IpmiIdentifyState),
    /// Who the BMC is.
    Identity(IpmiIdentity),
    /// An identifier, as it went over the wire.
    Guid([u8; 16]),
    /// The BMC's place in the network.
    Lan(IpmiLanConfig),
    /// The BMC's users, at most [`USERS_MAX`].
    Users(Vec<UserEntry>),
}

/// How an errand ends.
pub type IpmiOperationResult = Result<IpmiReply, PowerError>;

/// What comes after an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum IpmiOperationNext {
    /// The next request.
    Send(IpmiRequest),
    /// The next request, after a pause that the BMC needs.
    SendLater {
        /// What to ask then.
        request: IpmiRequest,
        /// How long to wait before.
        wait_ms: u64,
    },
    /// The end.
    Done(IpmiOperationResult),
}

/// One errand under way.
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
    /// Whether doing it twice could do more than doing it once: a log that is erased
    /// again loses what came between.
    pub const fn at_most_once(&self) -> bool {
        matches!(self, Self::SelClear)
    }
}

impl IpmiOperationScript {
    /// The dialogue of an errand and its first request; refused where no BMC
    /// could do it.
    pub fn start(errand: IpmiOperation) -> Result<(Self, IpmiRequest), PowerError> {
        let (kind, request) = match errand {
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

    /// Takes the completion code and the data of the answer to the last request.
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

fn invalid_response(said: &'static str) -> IpmiOperationNext {
    IpmiOperationNext::Done(Err(PowerError::InvalidResponse { said }))
}

/// Too much or too little to ask of any BMC.
fn unsupported(said: &'static str) -> PowerError {
    PowerError::Unsupported { said }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Plays an errand to its end with a function in the BMC's place; gives the
    /// requests and the outcome.
    #[track_caller]
    pub(crate) fn play(
        errand: IpmiOperation,
        mut bmc: impl FnMut(&IpmiRequest) -> Vec<u8>,
    ) -> (Vec<IpmiRequest>, IpmiOperationResult) {
        let (mut dialogue, mut request) =
            IpmiOperationScript::start(errand).expect("it can be asked");
        let mut asked = Vec::new();
        loop {
            assert!(asked.len() < 100_000, "no end");
            let body = bmc(&request);
            asked.push(request);
            let (&code, data) = body.split_first().expect("a completion code");
            match dialogue.handle_response(code, data) {
                IpmiOperationNext::Send(next)
                | IpmiOperationNext::SendLater { request: next, .. } => request = next,
                IpmiOperationNext::Done(outcome) => return (asked, outcome),
            }
        }
    }

    pub(crate) fn is_invalid_response(outcome: &IpmiOperationResult) -> bool {
        matches!(outcome, Err(PowerError::InvalidResponse { .. }))
    }
}
