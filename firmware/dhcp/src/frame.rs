//! The guard before the codec.
//!
//! dhcproto ends its option list silently at the first option it cannot read,
//! keeps its assertions about lengths in debug builds, does not follow option
//! overload, and panics when asked for a hardware address longer than 16 bytes.
//! So every frame is first taken apart here: what is no Ethernet DHCP is
//! refused, options are gathered from all areas (RFC 2131 section 4.1, RFC
//! 3396), those of the wrong length are dropped one by one, and only a clean
//! frame of options we use reaches the codec. Option 82 never does: it is kept
//! as bytes, to be returned as they came.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use dhcproto::v4::{DhcpOption, Message, MessageType, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};
use trivet_model::MacAddr;

/// Longest frame we look at. Ours: what fits one Ethernet frame.
pub const FRAME_BYTES_MAX: usize = 1472;

/// Header up to the options (RFC 2131 section 2).
const HEADER_BYTES: usize = 236;

/// RFC 2131 section 3.
const MAGIC: [u8; 4] = [99, 130, 83, 99];

const SNAME: core::ops::Range<usize> = 44..108;
const FILE: core::ops::Range<usize> = 108..236;

/// Option 52 (RFC 2132 section 9.3): options also stand in `file` or `sname`.
const OVERLOAD: u8 = 52;

/// Option 82 (RFC 3046).
const RELAY_INFO: u8 = 82;

/// Option 175, iPXE's own.
pub(crate) const IPXE: u8 = 175;

/// Why a frame got no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Reason {
    /// Shorter than header and cookie.
    #[error("the frame is too short to be DHCP")]
    TooShort,
    /// Longer than [`FRAME_BYTES_MAX`].
    #[error("the frame is longer than {FRAME_BYTES_MAX} bytes")]
    TooLong,
    /// The wrong direction: not a request, or for a client not a reply.
    #[error("the frame goes the other way (operation {0})")]
    WrongDirection(u8),
    /// The hardware is not Ethernet with six bytes of address.
    #[error("the client is not on Ethernet")]
    NotEthernet,
    /// The hardware address is zero or that of a group.
    #[error("the client's hardware address is not that of one machine")]
    NotOneMachine,
    /// The cookie of DHCP is missing.
    #[error("the frame is BOOTP without the cookie of DHCP")]
    NoCookie,
    /// There is no message type.
    #[error("the frame has no message type")]
    NoMessageType,
    /// A message type servers do not answer.
    #[error("message type {0} is not for us")]
    UnknownMessageType(u8),
    /// No subnet of ours fits where it came from.
    #[error("no subnet is set up for where this came from")]
    NoSubnet,
    /// The subnet serves known machines only.
    #[error("the machine is not known and this subnet serves known machines only")]
    UnknownClient,
    /// The client has chosen another server.
    #[error("the client speaks to another server")]
    OtherServer,
    /// The client asks about an address of which we know nothing.
    #[error("we have no record of the address the client asks about")]
    NoRecord,
    /// The message lacks the address it is about.
    #[error("the message names no address")]
    NoAddress,
    /// All addresses are in use.
    #[error("all addresses of the subnet are in use: widen its range or shorten the lease")]
    PoolExhausted,
    /// More offers are open than [`crate::OFFERS_MAX`].
    #[error("too many offers are open")]
    TooManyOffers,
    /// More leases than [`crate::LEASES_MAX`].
    #[error("too many leases")]
    TooManyLeases,
    /// The codec refused our own reply.
    #[error("the reply could not be encoded: check the lengths of the boot settings")]
    NotEncoded,
    /// It needed no answer (a release or a refusal of an address).
    #[error("the message needs no answer")]
    NoAnswerNeeded,
}

/// A frame that passed the guard.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) message: Message,
    pub(crate) mac: MacAddr,
    pub(crate) kind: MessageType,
    /// Option 82 as it came.
    pub(crate) relay_info: Option<Vec<u8>>,
}

/// Takes a frame apart that travels in the direction `operation` (1 to the
/// server, 2 to the client).
pub(crate) fn decode(bytes: &[u8], operation: u8) -> Result<Frame, Reason> {
    if bytes.len() > FRAME_BYTES_MAX {
        return Err(Reason::TooLong);
    }
    let (header, tail) = bytes
        .split_at_checked(HEADER_BYTES)
        .filter(|(_, tail)| tail.len() >= MAGIC.len())
        .ok_or(Reason::TooShort)?;
    if header[0] != operation {
        return Err(Reason::WrongDirection(header[0]));
    }
    if header[1] != 1 || header[2] != 6 {
        return Err(Reason::NotEthernet);
    }
    let mac = MacAddr([
        header[28], header[29], header[30], header[31], header[32], header[33],
    ]);
    if mac.0 == [0; 6] || mac.0[0] & 1 == 1 {
        return Err(Reason::NotOneMachine);
    }
    let options = tail.strip_prefix(&MAGIC).ok_or(Reason::NoCookie)?;
    let mut gathered = gather(header, options);
    let relay_info = gathered.remove(&RELAY_INFO);
    let message = clean(header, &gathered).ok_or(Reason::TooShort)?;
    let kind = message.opts().msg_type().ok_or(Reason::NoMessageType)?;
    Ok(Frame {
        message,
        mac,
        kind,
        relay_info,
    })
}

/// All options, joined where they were split.
fn gather(header: &[u8], options: &[u8]) -> BTreeMap<u8, Vec<u8>> {
    let mut gathered = BTreeMap::new();
    scan(options, &mut gathered);
    let overload = gathered.get(&OVERLOAD).map_or(0, |value| match value[..] {
        [which @ 1..=3] => which,
        _ => 0,
    });
    if overload & 1 != 0 {
        scan(&header[FILE], &mut gathered);
    }
    if overload & 2 != 0 {
        scan(&header[SNAME], &mut gathered);
    }
    gathered
}

fn scan(mut area: &[u8], gathered: &mut BTreeMap<u8, Vec<u8>>) {
    while let [code, rest @ ..] = area {
        match code {
            0 => area = rest,
            255 => return,
            _ => {
                let Some((&len, rest)) = rest.split_first() else {
                    return;
                };
                let Some((value, rest)) = rest.split_at_checked(usize::from(len)) else {
                    return;
                };
                gathered.entry(*code).or_default().extend_from_slice(value);
                area = rest;
            }
        }
    }
}

/// Would the codec read this option, and do we have a use for it?
fn is_good(code: u8, value: &[u8]) -> bool {
    match code {
        53 => value.len() == 1,
        57 => value.len() == 2,
        1 | 50 | 51 | 54 | 58 | 59 => value.len() == 4,
        3 | 6 => !value.is_empty() && value.len().is_multiple_of(4),
        // A list of architectures (RFC 4578); the codec reads the first.
        93 => value.len() >= 2 && value.len().is_multiple_of(2),
        // Type 0 and a UUID.
        97 => value.len() == 17 && value[0] == 0,
        43 | 55 | 60 | 61 | 66 | 67 | 77 | IPXE => !value.is_empty(),
        _ => false,
    }
}

/// Writes a frame of good options only and has the codec read it.
fn clean(header: &[u8], gathered: &BTreeMap<u8, Vec<u8>>) -> Option<Message> {
    let mut bytes = header.to_vec();
    if gathered.contains_key(&OVERLOAD) {
        bytes[SNAME.start..FILE.end].fill(0);
    }
    bytes.extend(MAGIC);
    for (&code, value) in gathered {
        if is_good(code, value) {
            append_option(code, value, &mut bytes);
        }
    }
    bytes.push(255);
    Message::decode(&mut Decoder::new(&bytes)).ok()
}

/// Appends an option, split if it is long (RFC 3396).
fn append_option(code: u8, value: &[u8], bytes: &mut Vec<u8>) {
    for part in value.chunks(255) {
        bytes.extend([code, part.len() as u8]);
        bytes.extend_from_slice(part);
    }
}

/// Encodes a message, with option 82 behind all others (RFC 3046 section 2.1)
/// and padding up to the 300 bytes that old relays insist on (RFC 1542
/// section 2.1). `None` only if the codec refuses its own message.
pub(crate) fn encode(message: &Message, relay_info: Option<&[u8]>) -> Option<Vec<u8>> {
    const PADDED_BYTES: usize = 300;
    let mut bytes = message.to_vec().ok()?;
    if let Some(info) = relay_info {
        if bytes.last() == Some(&255) {
            bytes.pop();
        }
        append_option(RELAY_INFO, info, &mut bytes);
        bytes.push(255);
    }
    if bytes.len() < PADDED_BYTES {
        bytes.resize(PADDED_BYTES, 0);
    }
    Some(bytes)
}

/// A UUID between text order and the order of SMBIOS, in which the first three
/// fields are little-endian (seen from SeaBIOS iPXE and OVMF). Its own inverse.
pub(crate) fn swap_uuid(mut uuid: [u8; 16]) -> [u8; 16] {
    uuid[0..4].reverse();
    uuid[4..6].reverse();
    uuid[6..8].reverse();
    uuid
}

impl Frame {
    fn option(&self, code: OptionCode) -> Option<&DhcpOption> {
        self.message.opts().get(code)
    }

    /// Option 50.
    pub(crate) fn requested(&self) -> Option<Ipv4Addr> {
        match self.option(OptionCode::RequestedIpAddress)? {
            DhcpOption::RequestedIpAddress(address) => Some(*address),
            _ => None,
        }
    }

    /// Option 51.
    pub(crate) fn lease_s(&self) -> Option<u32> {
        match self.option(OptionCode::AddressLeaseTime)? {
            DhcpOption::AddressLeaseTime(seconds) => Some(*seconds),
            _ => None,
        }
    }

    /// Option 54.
    pub(crate) fn server(&self) -> Option<Ipv4Addr> {
        match self.option(OptionCode::ServerIdentifier)? {
            DhcpOption::ServerIdentifier(address) => Some(*address),
            _ => None,
        }
    }

    /// Option 60.
    pub(crate) fn vendor_class(&self) -> Option<&[u8]> {
        match self.option(OptionCode::ClassIdentifier)? {
            DhcpOption::ClassIdentifier(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Option 61.
    pub(crate) fn client_id(&self) -> Option<&[u8]> {
        match self.option(OptionCode::ClientIdentifier)? {
            DhcpOption::ClientIdentifier(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Option 67, or else the `file` field.
    pub(crate) fn boot_file(&self) -> Option<String> {
        let bytes = match self.option(OptionCode::BootfileName) {
            Some(DhcpOption::BootfileName(bytes)) => bytes,
            _ => self.message.fname()?,
        };
        let end = bytes.iter().position(|&byte| byte == 0);
        let bytes = &bytes[..end.unwrap_or(bytes.len())];
        let text = core::str::from_utf8(bytes).ok()?;
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Option 93, first entry; or what the vendor class says (RFC 4578 has both).
    pub(crate) fn arch(&self) -> Option<u16> {
        if let Some(DhcpOption::ClientSystemArchitecture(arch)) =
            self.option(OptionCode::ClientSystemArchitecture)
        {
            return Some(arch.0);
        }
        let class = core::str::from_utf8(self.vendor_class()?).ok()?;
        let (_, tail) = class.split_once(":Arch:")?;
        tail.get(..5)?.parse().ok()
    }

    /// Option 97 as it came: the type and sixteen bytes.
    pub(crate) fn machine_id(&self) -> Option<&[u8]> {
        match self.option(OptionCode::ClientMachineIdentifier)? {
            DhcpOption::ClientMachineIdentifier(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Option 97 as a UUID in text order.
    pub(crate) fn uuid(&self) -> Option<[u8; 16]> {
        let (_, uuid) = self.machine_id()?.split_first()?;
        uuid.try_into().ok().map(swap_uuid)
    }

    /// Is the client iPXE? It sends option 175, and `iPXE` as user class: bare,
    /// not in the counted form of RFC 3004, which is accepted too.
    pub(crate) fn is_ipxe(&self) -> bool {
        if self.message.opts().contains(OptionCode::Unknown(IPXE)) {
            return true;
        }
        match self.option(OptionCode::UserClass) {
            Some(DhcpOption::UserClass(class)) => class == b"iPXE" || class == b"\x04iPXE",
            _ => false,
        }
    }

    /// Does the relay want its answer at the port it sent from? (RFC 8357:
    /// sub-option 19 of option 82.)
    pub(crate) fn relay_port_counts(&self) -> bool {
        let mut parts = BTreeMap::new();
        // The sub-options have the form of options, 0 and 255 excepted, which
        // RFC 3046 does not assign.
        scan(self.relay_info.as_deref().unwrap_or_default(), &mut parts);
        parts.contains_key(&19)
    }
}

#[cfg(test)]
mod tests;
