//! Errands: what is asked of a BMC besides power. Each is a dialogue of
//! requests, one after the other, that ends in a [`Report`].
//!
//! A dialogue knows nothing of sessions or time: it says its next request and
//! hears a completion code and data. Whatever a BMC answers, it ends after a
//! bounded number of requests. An errand may be begun again from the start
//! when nobody knows how far it came, unless it counts ([`Errand::counts`]).

mod device;
mod fru;
mod identity;
mod mailbox;
mod piece;
mod sdr;
mod sel;

use trivet_model::PowerError;

use crate::boot::BootFlags;
pub use crate::command::Request;
use crate::command::{app, completion};
use crate::sdr::Reading;
use crate::sel::{Record, SelInfo};
pub use device::{DeviceId, Identity};
pub use fru::FRU_BYTES_MAX;
pub use identity::{AddressSource, Lan, Light, LightNow, USERS_MAX, UserEntry};
pub use mailbox::{MAILBOX_BLOCK_BYTES, MAILBOX_BLOCKS_MAX, MAILBOX_BYTES_MAX};
pub use sdr::SENSOR_RECORDS_MAX;
pub use sel::EVENTS_MAX;

/// Something to ask of a BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Errand {
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
        light: Light,
    },
    /// Ask what that light does.
    LightNow,
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
pub enum Report {
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
        records: Vec<Record>,
    },
    /// The sensors, in the order of their records.
    Sensors(Vec<Reading>),
    /// What the light does.
    Light(LightNow),
    /// Who the BMC is.
    Identity(Identity),
    /// An identifier, as it went over the wire.
    Guid([u8; 16]),
    /// The BMC's place in the network.
    Lan(Lan),
    /// The BMC's users, at most [`USERS_MAX`].
    Users(Vec<UserEntry>),
}

/// How an errand ends.
pub type Outcome = Result<Report, PowerError>;

/// What comes after an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The next request.
    Ask(Request),
    /// The next request, after a pause that the BMC needs.
    Later {
        /// What to ask then.
        request: Request,
        /// How long to wait before.
        wait_ms: u64,
    },
    /// The end.
    Done(Outcome),
}

/// One errand under way.
#[derive(Clone, Debug)]
pub struct Dialogue(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Flags,
    Reading(mailbox::Reading),
    Writing(mailbox::Writing),
    Fru(fru::Script),
    Sel(sel::Script),
    Sdr(sdr::Script),
    Light,
    LightNow,
    Identity(device::Script),
    Guid,
    Lan(identity::LanScript),
    Users(identity::UsersScript),
}

impl Errand {
    /// Whether doing it twice could do more than doing it once: a log that is erased
    /// again loses what came between.
    pub const fn counts(&self) -> bool {
        matches!(self, Self::SelClear)
    }
}

impl Dialogue {
    /// The dialogue of an errand and its first request; refused where no BMC
    /// could do it.
    pub fn start(errand: Errand) -> Result<(Self, Request), PowerError> {
        let (kind, request) = match errand {
            Errand::BootFlags => (Kind::Flags, mailbox::read_flags()),
            Errand::ReadMailbox { blocks } => {
                let (script, request) = mailbox::Reading::start(blocks)?;
                (Kind::Reading(script), request)
            }
            Errand::WriteMailbox { bytes } => {
                let (script, request) = mailbox::Writing::start(&bytes)?;
                (Kind::Writing(script), request)
            }
            Errand::SelInfo => Self::log(sel::Want::Info),
            Errand::SelList => Self::log(sel::Want::List),
            Errand::SelClear => Self::log(sel::Want::Clear),
            Errand::Sensors => {
                let (script, request) = sdr::Script::start();
                (Kind::Sdr(script), request)
            }
            Errand::Identify { light } => (Kind::Light, light.request()),
            Errand::LightNow => (Kind::LightNow, LightNow::request()),
            Errand::Identity => {
                let (script, request) = device::Script::start();
                (Kind::Identity(script), request)
            }
            Errand::SystemGuid => (Kind::Guid, Request::app(app::SYSTEM_GUID, &[])),
            Errand::DeviceGuid => (Kind::Guid, Request::app(app::DEVICE_GUID, &[])),
            Errand::Lan { channel } => {
                let (script, request) = identity::LanScript::start(channel);
                (Kind::Lan(script), request)
            }
            Errand::Users { channel } => {
                let (script, request) = identity::UsersScript::start(channel);
                (Kind::Users(script), request)
            }
            Errand::ReadFru { device } => {
                let (script, request) = fru::Script::read(device);
                (Kind::Fru(script), request)
            }
            Errand::WriteFru {
                device,
                offset,
                bytes,
            } => {
                let (script, request) = fru::Script::write(device, offset, bytes)?;
                (Kind::Fru(script), request)
            }
        };
        Ok((Self(kind), request))
    }

    fn log(want: sel::Want) -> (Kind, Request) {
        let (script, request) = sel::Script::start(want);
        (Kind::Sel(script), request)
    }

    /// Takes the completion code and the data of the answer to the last request.
    pub fn hear(&mut self, code: u8, data: &[u8]) -> Next {
        match &mut self.0 {
            Kind::Flags => Next::Done(mailbox::flags(code, data)),
            Kind::Reading(script) => script.hear(code, data),
            Kind::Writing(script) => script.hear(code, data),
            Kind::Fru(script) => script.hear(code, data),
            Kind::Sel(script) => script.hear(code, data),
            Kind::Sdr(script) => script.hear(code, data),
            Kind::Light if code == completion::OK => Next::Done(Ok(Report::Done)),
            Kind::Light => refused(code),
            Kind::LightNow => Next::Done(identity::light(code, data)),
            Kind::Identity(script) => script.hear(code, data),
            Kind::Guid => Next::Done(identity::guid(code, data)),
            Kind::Lan(script) => script.hear(code, data),
            Kind::Users(script) => script.hear(code, data),
        }
    }
}

fn refused(code: u8) -> Next {
    Next::Done(Err(PowerError::Refused { code }))
}

fn nonsense(said: &'static str) -> Next {
    Next::Done(Err(PowerError::Nonsense { said }))
}

/// Too much or too little to ask of any BMC.
fn impossible(said: &'static str) -> PowerError {
    PowerError::Unsupported { said }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Plays an errand to its end with a function in the BMC's place; gives the
    /// requests and the outcome.
    #[track_caller]
    pub(crate) fn play(
        errand: Errand,
        mut bmc: impl FnMut(&Request) -> Vec<u8>,
    ) -> (Vec<Request>, Outcome) {
        let (mut dialogue, mut request) = Dialogue::start(errand).expect("it can be asked");
        let mut asked = Vec::new();
        loop {
            assert!(asked.len() < 100_000, "no end");
            let body = bmc(&request);
            asked.push(request);
            let (&code, data) = body.split_first().expect("a completion code");
            match dialogue.hear(code, data) {
                Next::Ask(next) | Next::Later { request: next, .. } => request = next,
                Next::Done(outcome) => return (asked, outcome),
            }
        }
    }

    pub(crate) fn nonsense_of(outcome: &Outcome) -> bool {
        matches!(outcome, Err(PowerError::Nonsense { .. }))
    }
}
