//! Decodes DHCP messages.
//!
//! The input is untrusted: frames other than DHCP over Ethernet are rejected, options are
//! collected from all areas (RFC 2131 section 4.1) and joined where they were split (RFC 3396),
//! and each option is checked by itself, so that one with a wrong length is ignored without
//! losing the others. Unused options are skipped, so the cost of a frame does not grow with
//! their number. dhcproto divides an area into options: its borrowed iterator returns their bytes
//! and decodes no types, because its typed decoder stops at the first option of a wrong length.
//! dhcproto panics on a hardware address longer than 16 bytes, so its `Message` is not used.

use core::net::Ipv4Addr;

use dhcproto::v4::borrowed::{DhcpOption, DhcpOptionIterator};
use trivet_model::MacAddr;

pub(crate) use crate::reason::Reason;

/// Longest frame that is decoded. Ours: the payload that fits one Ethernet frame.
pub const MESSAGE_BYTES_MAX: usize = 1472;

/// Header up to the options (RFC 2131 section 2).
pub(crate) const HEADER_BYTES: usize = 236;

/// RFC 2131 section 3.
pub(crate) const MAGIC: [u8; 4] = [99, 130, 83, 99];

pub(crate) const SNAME: core::ops::Range<usize> = 44..108;
pub(crate) const FILE: core::ops::Range<usize> = 108..236;

/// Option codes (RFC 2132 unless noted otherwise).
pub(crate) mod code {
    pub(crate) const SUBNET_MASK: u8 = 1;
    pub(crate) const ROUTER: u8 = 3;
    pub(crate) const DNS: u8 = 6;
    pub(crate) const BROADCAST: u8 = 28;
    pub(crate) const VENDOR_SPECIFIC: u8 = 43;
    pub(crate) const REQUESTED_ADDRESS: u8 = 50;
    pub(crate) const LEASE_TIME: u8 = 51;
    /// Further options are in `file` or `sname`.
    pub(crate) const OVERLOAD: u8 = 52;
    pub(crate) const MESSAGE_TYPE: u8 = 53;
    pub(crate) const SERVER_ID: u8 = 54;
    pub(crate) const PARAMETER_REQUEST_LIST: u8 = 55;
    pub(crate) const MESSAGE: u8 = 56;
    pub(crate) const MESSAGE_SIZE_MAX: u8 = 57;
    pub(crate) const RENEWAL: u8 = 58;
    pub(crate) const REBINDING: u8 = 59;
    pub(crate) const VENDOR_CLASS: u8 = 60;
    pub(crate) const CLIENT_ID: u8 = 61;
    pub(crate) const TFTP_SERVER: u8 = 66;
    pub(crate) const BOOT_FILE: u8 = 67;
    /// RFC 3004.
    pub(crate) const USER_CLASS: u8 = 77;
    /// RFC 3046.
    pub(crate) const RELAY_INFO: u8 = 82;
    /// RFC 4578, as the next one.
    pub(crate) const ARCH: u8 = 93;
    pub(crate) const MACHINE_ID: u8 = 97;
    /// Private option of iPXE.
    pub(crate) const IPXE: u8 = 175;
}

/// What a message is (option 53).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DhcpMessageType {
    Discover,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
    Inform,
    Other,
}

impl DhcpMessageType {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Discover, "DISCOVER"),
        (Self::Offer, "OFFER"),
        (Self::Request, "REQUEST"),
        (Self::Decline, "DECLINE"),
        (Self::Ack, "ACK"),
        (Self::Nak, "NAK"),
        (Self::Release, "RELEASE"),
        (Self::Inform, "INFORM"),
    ];

    fn read(number: u8) -> Self {
        let at = usize::from(number).wrapping_sub(1);
        Self::ALL.get(at).map_or(Self::Other, |(kind, _)| *kind)
    }

    /// Its value in option 53.
    pub(crate) fn number(self) -> u8 {
        let at = Self::ALL.iter().position(|(kind, _)| *kind == self);
        at.map_or(0, |at| at as u8 + 1)
    }

    /// Its name in RFC 2131.
    pub(crate) fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(kind, _)| *kind == self);
        found.map_or("an unknown message", |(_, name)| name)
    }
}

/// A message whose header was checked.
#[derive(Debug)]
pub(crate) struct DhcpMessage<'a> {
    header: &'a [u8],
    options: Vec<(u8, DhcpOption<'a>)>,
    /// The values of options whose parts were apart.
    joined: Vec<(u8, Vec<u8>)>,
    pub(crate) mac: MacAddr,
    pub(crate) message_type: DhcpMessageType,
}

/// Decodes a frame; `operation` is 1 for messages to the server and 2 for messages to the
/// client.
pub(crate) fn decode(bytes: &[u8], operation: u8) -> Result<DhcpMessage<'_>, Reason> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(Reason::TooLong);
    }
    let (header, tail) = bytes
        .split_at_checked(HEADER_BYTES)
        .filter(|(_, tail)| tail.len() >= MAGIC.len())
        .ok_or(Reason::TooShort)?;
    if header[0] != operation {
        return Err(Reason::WrongDirection);
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
    let mut frame = DhcpMessage {
        header,
        options: Vec::with_capacity(16),
        joined: Vec::new(),
        mac,
        message_type: DhcpMessageType::Other,
    };
    frame.gather(options);
    match frame.get(code::MESSAGE_TYPE) {
        Some([number]) => frame.message_type = DhcpMessageType::read(*number),
        _ => return Err(Reason::NoMessageType),
    }
    Ok(frame)
}

/// Whether the server uses this option.
fn is_read(code: u8) -> bool {
    matches!(
        code,
        code::REQUESTED_ADDRESS
            ..=code::PARAMETER_REQUEST_LIST
                | code::MESSAGE_SIZE_MAX
                | code::VENDOR_CLASS
                | code::CLIENT_ID
                | code::BOOT_FILE
                | code::USER_CLASS
                | code::RELAY_INFO
                | code::ARCH
                | code::MACHINE_ID
                | code::IPXE
    )
}

/// Converts a UUID between text order and SMBIOS order, in which the first three fields are
/// little-endian (seen from SeaBIOS iPXE and OVMF). Its own inverse.
pub(crate) fn swap_uuid(mut uuid: [u8; 16]) -> [u8; 16] {
    uuid[0..4].reverse();
    uuid[4..6].reverse();
    uuid[6..8].reverse();
    uuid
}

impl<'a> DhcpMessage<'a> {
    /// Collects all options that the server uses, joined where they were split.
    fn gather(&mut self, options: &'a [u8]) {
        self.take_area(options);
        let overload = match self.get(code::OVERLOAD) {
            Some([which @ 1..=3]) => *which,
            _ => 0,
        };
        if overload & 1 != 0 {
            self.take_area(&self.header[FILE]);
        }
        if overload & 2 != 0 {
            self.take_area(&self.header[SNAME]);
        }
    }

    /// dhcproto joins the parts of an option that follow each other; parts that are apart, or in
    /// different areas, are joined here.
    fn take_area(&mut self, area: &'a [u8]) {
        for option in DhcpOptionIterator::new(area) {
            let code = u8::from(option.code());
            if !is_read(code) {
                continue;
            }
            if self.get(code).is_none() {
                self.options.push((code, option));
                continue;
            }
            let joined = [self.get(code).unwrap_or_default(), option.data()].concat();
            self.joined.retain(|(other, _)| *other != code);
            self.joined.push((code, joined));
        }
    }

    pub(crate) fn get(&self, code: u8) -> Option<&[u8]> {
        let joined = self.joined.iter().find(|(other, _)| *other == code);
        let whole = || self.options.iter().find(|(other, _)| *other == code);
        match joined {
            Some((_, value)) => Some(value),
            None => whole().map(|(_, option)| option.data()),
        }
    }

    fn address_option(&self, code: u8) -> Option<Ipv4Addr> {
        <[u8; 4]>::try_from(self.get(code)?)
            .ok()
            .map(Ipv4Addr::from)
    }

    fn field<const BYTES: usize>(&self, at: usize) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&self.header[at..at + BYTES]);
        bytes
    }

    /// Transaction id, chosen by the client for one exchange.
    pub(crate) fn xid(&self) -> [u8; 4] {
        self.field(4)
    }

    pub(crate) fn flags(&self) -> [u8; 2] {
        self.field(10)
    }

    /// The broadcast flag: the client cannot receive unicast yet.
    pub(crate) fn wants_broadcast(&self) -> bool {
        self.flags()[0] & 0x80 != 0
    }

    /// The address the client has.
    pub(crate) fn ciaddr(&self) -> Ipv4Addr {
        self.field::<4>(12).into()
    }

    /// The address the client is given.
    pub(crate) fn yiaddr(&self) -> Ipv4Addr {
        self.field::<4>(16).into()
    }

    /// The server of the boot file.
    #[cfg(test)]
    pub(crate) fn siaddr(&self) -> Ipv4Addr {
        self.field::<4>(20).into()
    }

    /// The address of the relay.
    pub(crate) fn giaddr(&self) -> Ipv4Addr {
        self.field::<4>(24).into()
    }

    pub(crate) fn is_relayed(&self) -> bool {
        !self.giaddr().is_unspecified()
    }

    /// Option 50.
    pub(crate) fn requested(&self) -> Option<Ipv4Addr> {
        self.address_option(code::REQUESTED_ADDRESS)
    }

    /// Option 51.
    #[cfg(test)]
    pub(crate) fn lease_s(&self) -> Option<u32> {
        let value = <[u8; 4]>::try_from(self.get(code::LEASE_TIME)?).ok()?;
        Some(u32::from_be_bytes(value))
    }

    /// Option 54.
    pub(crate) fn server(&self) -> Option<Ipv4Addr> {
        self.address_option(code::SERVER_ID)
    }

    /// Whether the client requests this option (option 55).
    pub(crate) fn requests_option(&self, code: u8) -> bool {
        self.get(code::PARAMETER_REQUEST_LIST)
            .is_some_and(|codes| codes.contains(&code))
    }

    /// How many bytes of payload the client accepts. Option 57 includes the headers of IP and
    /// UDP and is never below 576 (RFC 2132 section 9.10).
    pub(crate) fn size_max(&self) -> usize {
        const LEAST: u16 = 576;
        const HEADERS: usize = 28;
        let size = match self.get(code::MESSAGE_SIZE_MAX) {
            Some(&[high, low]) => u16::from_be_bytes([high, low]).max(LEAST),
            _ => LEAST,
        };
        (usize::from(size) - HEADERS).min(MESSAGE_BYTES_MAX)
    }

    /// Option 60.
    pub(crate) fn vendor_class(&self) -> Option<&[u8]> {
        self.get(code::VENDOR_CLASS)
    }

    /// Option 61.
    pub(crate) fn client_id(&self) -> Option<&[u8]> {
        self.get(code::CLIENT_ID).filter(|id| !id.is_empty())
    }

    /// Option 67, or else the `file` field.
    #[cfg(test)]
    pub(crate) fn boot_file(&self) -> Option<&str> {
        let field = || {
            let overloaded = self.get(code::OVERLOAD).is_some();
            (!overloaded).then_some(&self.header[FILE])
        };
        let bytes = self.get(code::BOOT_FILE).or_else(field)?;
        let end = bytes.iter().position(|&byte| byte == 0);
        let text = core::str::from_utf8(&bytes[..end.unwrap_or(bytes.len())]).ok()?;
        (!text.is_empty()).then_some(text)
    }

    /// Option 93, first entry; otherwise the architecture in the vendor class (RFC 4578 has
    /// both).
    pub(crate) fn arch(&self) -> Option<u16> {
        if let Some([high, low, rest @ ..]) = self.get(code::ARCH)
            && rest.len().is_multiple_of(2)
        {
            return Some(u16::from_be_bytes([*high, *low]));
        }
        let class = core::str::from_utf8(self.vendor_class()?).ok()?;
        let (_, tail) = class.split_once(":Arch:")?;
        tail.get(..5)?.parse().ok()
    }

    /// Option 97 as received: type 0 and sixteen bytes.
    pub(crate) fn machine_id(&self) -> Option<&[u8]> {
        let id = self.get(code::MACHINE_ID)?;
        (id.len() == 17 && id[0] == 0).then_some(id)
    }

    /// Option 97 as a UUID in text order.
    pub(crate) fn uuid(&self) -> Option<[u8; 16]> {
        let (_, uuid) = self.machine_id()?.split_first()?;
        uuid.try_into().ok().map(swap_uuid)
    }

    /// Whether the client is iPXE. iPXE sends option 175, and `iPXE` as user class without the
    /// length byte of RFC 3004; the form with the length byte is accepted too.
    pub(crate) fn is_ipxe(&self) -> bool {
        self.get(code::IPXE).is_some_and(|own| !own.is_empty())
            || matches!(self.get(code::USER_CLASS), Some(b"iPXE" | b"\x04iPXE"))
    }

    /// Option 82 as received.
    pub(crate) fn relay_info(&self) -> Option<&[u8]> {
        self.get(code::RELAY_INFO)
    }

    /// Whether the relay requests the reply at its source port (RFC 8357: sub-option 19 of
    /// option 82). The sub-options have the format of options, except for 0 and 255, which RFC
    /// 3046 does not assign.
    pub(crate) fn relay_port_counts(&self) -> bool {
        DhcpOptionIterator::new(self.relay_info().unwrap_or_default())
            .any(|option| u8::from(option.code()) == 19)
    }
}

#[cfg(test)]
mod tests;
