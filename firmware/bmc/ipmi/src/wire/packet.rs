//! RMCP packets (section 13.1): the presence ping of ASF, the session header of IPMI 1.5 (outside a
//! session, or authenticated with MD5) and that of RMCP+. No keys are used: authentication codes
//! and encrypted payloads are returned unverified.

use super::{PACKET_BYTES_MAX, number_at, sixteen_at};

/// RMCP version 1.0, reserved, no acknowledgement requested (section 13.1.3).
const RMCP_HEAD: [u8; 3] = [0x06, 0x00, 0xff];
const CLASS_ASF: u8 = 0x06;
const CLASS_IPMI: u8 = 0x07;
/// Session header formats (section 13.6).
const FORMAT_NONE: u8 = 0x00;
const FORMAT_MD5: u8 = 0x02;
pub(crate) const FORMAT_RMCP_PLUS: u8 = 0x06;
/// ASF's enterprise number and message types (section 13.2.3).
const ASF_ENTERPRISE: [u8; 4] = [0x00, 0x00, 0x11, 0xbe];
const ASF_PING: u8 = 0x80;
const ASF_PONG: u8 = 0x40;

/// Payload types of RMCP+ (table 13-16).
pub(crate) const KIND_IPMI: u8 = 0x00;
pub(crate) const KIND_OPEN_REQUEST: u8 = 0x10;
pub(crate) const KIND_OPEN_RESPONSE: u8 = 0x11;
pub(crate) const KIND_RAKP_1: u8 = 0x12;
pub(crate) const KIND_RAKP_2: u8 = 0x13;
pub(crate) const KIND_RAKP_3: u8 = 0x14;
pub(crate) const KIND_RAKP_4: u8 = 0x15;
/// The payload type with a longer header, which is not supported.
const KIND_OEM_EXPLICIT: u8 = 0x02;
pub(crate) const BIT_ENCRYPTED: u8 = 0x80;
pub(crate) const BIT_AUTHENTICATED: u8 = 0x40;
/// Bytes of the RMCP+ session header.
pub(crate) const RMCP_PLUS_HEADER_BYTES: usize = 12;

/// One datagram, parsed as far as possible without keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RmcpPacket<'a> {
    /// ASF presence ping.
    Ping { tag: u8 },
    /// An IPMI message in the IPMI 1.5 header, outside any session.
    Sessionless { message: &'a [u8] },
    /// An IPMI message in the IPMI 1.5 header, authenticated.
    Ipmi15(Ipmi15Packet<'a>),
    /// RMCP+.
    RmcpPlus(RmcpPlusPacket<'a>),
}

/// One packet of an IPMI 1.5 session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ipmi15Packet<'a> {
    pub(crate) session_id: u32,
    pub(crate) sequence: u32,
    pub(crate) code: [u8; 16],
    pub(crate) message: &'a [u8],
}

/// One RMCP+ packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RmcpPlusPacket<'a> {
    pub(crate) kind: u8,
    pub(crate) encrypted: bool,
    pub(crate) authenticated: bool,
    pub(crate) session_id: u32,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
    /// Everything after the RMCP header; the authentication code covers all of it except itself.
    pub(crate) whole: &'a [u8],
}

impl<'a> RmcpPacket<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > PACKET_BYTES_MAX || bytes.first() != Some(&RMCP_HEAD[0]) {
            return None;
        }
        let body = bytes.get(4..)?;
        match bytes[3] {
            CLASS_ASF => parse_asf(body),
            CLASS_IPMI => match *body.first()? {
                FORMAT_NONE => parse_sessionless(body),
                FORMAT_MD5 => parse_ipmi15(body).map(RmcpPacket::Ipmi15),
                FORMAT_RMCP_PLUS => parse_rmcp_plus(body).map(RmcpPacket::RmcpPlus),
                _ => None,
            },
            _ => None,
        }
    }
}

fn parse_asf(body: &[u8]) -> Option<RmcpPacket<'_>> {
    let wanted = body.get(..4)? == ASF_ENTERPRISE && *body.get(4)? == ASF_PING;
    wanted.then_some(RmcpPacket::Ping { tag: *body.get(5)? })
}

fn parse_sessionless(body: &[u8]) -> Option<RmcpPacket<'_>> {
    let (sequence, session_id) = (number_at(body, 1)?, number_at(body, 5)?);
    let end = 10 + usize::from(*body.get(9)?);
    let message = body.get(10..end)?;
    (sequence == 0 && session_id == 0).then_some(RmcpPacket::Sessionless { message })
}

fn parse_ipmi15(body: &[u8]) -> Option<Ipmi15Packet<'_>> {
    let end = 26 + usize::from(*body.get(25)?);
    Some(Ipmi15Packet {
        sequence: number_at(body, 1)?,
        session_id: number_at(body, 5)?,
        code: sixteen_at(body, 9)?,
        message: body.get(26..end)?,
    })
}

fn parse_rmcp_plus(whole: &[u8]) -> Option<RmcpPlusPacket<'_>> {
    let kind_byte = *whole.get(1)?;
    let kind = kind_byte & 0x3f;
    if kind == KIND_OEM_EXPLICIT {
        return None;
    }
    let length = u16::from_le_bytes([*whole.get(10)?, *whole.get(11)?]);
    let end = RMCP_PLUS_HEADER_BYTES + usize::from(length);
    Some(RmcpPlusPacket {
        kind,
        encrypted: kind_byte & BIT_ENCRYPTED != 0,
        authenticated: kind_byte & BIT_AUTHENTICATED != 0,
        session_id: number_at(whole, 2)?,
        sequence: number_at(whole, 6)?,
        payload: whole.get(RMCP_PLUS_HEADER_BYTES..end)?,
        whole,
    })
}

fn rmcp(class: u8) -> Vec<u8> {
    let mut out = RMCP_HEAD.to_vec();
    out.push(class);
    out
}

/// The response to a presence ping: IPMI is supported (section 13.2.4).
pub(crate) fn pong(tag: u8) -> Vec<u8> {
    let mut out = rmcp(CLASS_ASF);
    out.extend(ASF_ENTERPRISE);
    out.extend([ASF_PONG, tag, 0, 16]);
    out.extend(ASF_ENTERPRISE);
    out.extend([0; 4]);
    // Entities: IPMI and ASF 1.0; no interactions; six reserved bytes.
    out.extend([0x81, 0, 0, 0, 0, 0, 0, 0]);
    out
}

/// An IPMI message in the IPMI 1.5 header, outside a session. `None` if it is too long for the one
/// length byte.
pub(crate) fn emit_sessionless(message: &[u8]) -> Option<Vec<u8>> {
    let length = u8::try_from(message.len()).ok()?;
    let mut out = rmcp(CLASS_IPMI);
    out.extend([FORMAT_NONE, 0, 0, 0, 0, 0, 0, 0, 0, length]);
    out.extend(message);
    Some(out)
}

/// The same inside a session of IPMI 1.5, authenticated.
pub(crate) fn emit_ipmi15(packet: &Ipmi15Packet<'_>) -> Option<Vec<u8>> {
    let length = u8::try_from(packet.message.len()).ok()?;
    let mut out = rmcp(CLASS_IPMI);
    out.push(FORMAT_MD5);
    out.extend(packet.sequence.to_le_bytes());
    out.extend(packet.session_id.to_le_bytes());
    out.extend(packet.code);
    out.push(length);
    out.extend(packet.message);
    Some(out)
}

/// An RMCP+ packet up to and including its payload; `kind` includes the two flag bits.
pub(crate) fn emit_rmcp_plus(kind: u8, session_id: u32, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = rmcp(CLASS_IPMI);
    out.extend([FORMAT_RMCP_PLUS, kind]);
    out.extend(session_id.to_le_bytes());
    out.extend(sequence.to_le_bytes());
    out.extend((payload.len() as u16).to_le_bytes());
    out.extend(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let bytes = emit_rmcp_plus(KIND_RAKP_1, 0, 0, b"hello");
        let Some(RmcpPacket::RmcpPlus(got)) = RmcpPacket::parse(&bytes) else {
            panic!("an RMCP+ packet parses");
        };
        assert_eq!((got.kind, got.payload), (KIND_RAKP_1, &b"hello"[..]));
        assert!(!got.encrypted && !got.authenticated);
        let bytes = emit_sessionless(b"abc").unwrap();
        assert_eq!(
            RmcpPacket::parse(&bytes),
            Some(RmcpPacket::Sessionless { message: b"abc" })
        );
    }

    #[test]
    fn reads_the_signed_old_header_it_writes_and_no_prefix_of_it() {
        let packet = Ipmi15Packet {
            session_id: 7,
            sequence: 9,
            code: [3; 16],
            message: b"abc",
        };
        let bytes = emit_ipmi15(&packet).unwrap();
        assert_eq!(RmcpPacket::parse(&bytes), Some(RmcpPacket::Ipmi15(packet)));
        for end in 0..bytes.len() {
            assert_eq!(RmcpPacket::parse(&bytes[..end]), None, "{end} bytes");
        }
        let message = &[0; 256];
        assert_eq!(emit_ipmi15(&Ipmi15Packet { message, ..packet }), None);
    }

    #[test]
    fn refuses_a_payload_longer_than_its_packet() {
        let mut bytes = emit_rmcp_plus(KIND_IPMI, 1, 2, b"hello");
        bytes.pop();
        assert_eq!(RmcpPacket::parse(&bytes), None);
        let mut bytes = emit_sessionless(b"abc").unwrap();
        bytes.pop();
        assert_eq!(RmcpPacket::parse(&bytes), None);
    }

    #[test]
    fn refuses_every_prefix_of_a_packet_and_the_explicit_oem_kind() {
        let bytes = emit_rmcp_plus(KIND_IPMI, 1, 2, b"hello");
        for end in 0..bytes.len() {
            assert_eq!(RmcpPacket::parse(&bytes[..end]), None, "{end} bytes");
        }
        assert_eq!(
            RmcpPacket::parse(&emit_rmcp_plus(KIND_OEM_EXPLICIT, 1, 2, &[0; 20])),
            None
        );
    }

    #[test]
    fn refuses_a_packet_over_the_limit() {
        let payload = vec![0; PACKET_BYTES_MAX];
        assert_eq!(
            RmcpPacket::parse(&emit_rmcp_plus(KIND_IPMI, 1, 2, &payload)),
            None
        );
        assert_eq!(emit_sessionless(&[0; 256]), None);
    }

    #[test]
    fn refuses_an_old_header_that_claims_a_session() {
        let mut bytes = emit_sessionless(b"abc").unwrap();
        bytes[9] = 7;
        assert_eq!(RmcpPacket::parse(&bytes), None);
    }

    #[test]
    fn answers_a_ping_with_its_tag() {
        let ping = [6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x80, 0x2a, 0, 0];
        assert_eq!(
            RmcpPacket::parse(&ping),
            Some(RmcpPacket::Ping { tag: 0x2a })
        );
        let pong = pong(0x2a);
        assert_eq!(pong.len(), 28);
        assert_eq!(pong[8..12], [0x40, 0x2a, 0, 16]);
        assert_eq!(RmcpPacket::parse(&pong), None);
    }
}
