//! An established session of IPMI 1.5 (section 13.6): messages are not encrypted, but have a
//! sequence number and an authentication code that needs the password.

use md5::{Digest as _, Md5};

use crate::suite::same_code;
use crate::wire::packet::{self, Ipmi15Packet};

use super::IpmiSequenceWindow;

/// The number of MD5 among authentication types (table 13-8).
pub(crate) const MD5: u8 = 0x02;

/// Longest password of IPMI 1.5 (section 22.30).
pub(crate) const KEY_BYTES: usize = 16;

/// How far the next packet's number can be ahead of the last. Ours; the specification has eight
/// (section 6.12.13). Numbers begin at random, so that packets of an earlier session with the same
/// password are rejected.
const AHEAD_MAX: u32 = 16;

fn code(password: &[u8], session_id: u32, sequence: u32, message: &[u8]) -> [u8; 16] {
    let mut key = [0; KEY_BYTES];
    for (slot, byte) in key.iter_mut().zip(password) {
        *slot = *byte;
    }
    let mut hash = Md5::new();
    hash.update(key);
    hash.update(session_id.to_le_bytes());
    hash.update(message);
    hash.update(sequence.to_le_bytes());
    hash.update(key);
    hash.finalize().into()
}

/// An authenticated packet; `None` if the message is too long.
pub(crate) fn sign(
    password: &[u8],
    session_id: u32,
    sequence: u32,
    message: &[u8],
) -> Option<Vec<u8>> {
    packet::emit_ipmi15(&Ipmi15Packet {
        session_id,
        sequence,
        code: code(password, session_id, sequence, message),
        message,
    })
}

/// Whether the authentication code of the packet was made with this password.
pub(crate) fn is_signed(password: &[u8], packet: &Ipmi15Packet<'_>) -> bool {
    let want = code(password, packet.session_id, packet.sequence, packet.message);
    same_code(&packet.code, &want)
}

/// One end of a session.
pub(crate) struct Ipmi15Channel {
    password: Vec<u8>,
    id: u32,
    /// The number of the next packet to send.
    next: u32,
    window: IpmiSequenceWindow,
}

impl Ipmi15Channel {
    /// A session whose next packet to the peer has the number `next`, and whose first packet from
    /// the peer has the number `first`.
    pub(crate) fn new(password: &[u8], id: u32, next: u32, first: u32) -> Self {
        Self {
            password: password.to_vec(),
            id,
            next,
            window: IpmiSequenceWindow::narrow(first, AHEAD_MAX),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Authenticates one message with a new number.
    pub(crate) fn seal(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        // Zero is for packets outside a session, so it is skipped.
        let sequence = self.next.max(1);
        self.next = sequence.wrapping_add(1);
        sign(&self.password, self.id, sequence, message)
    }

    /// The message of a packet that is authentic, belongs to this session and was not received
    /// before.
    pub(crate) fn open(&mut self, packet: &Ipmi15Packet<'_>) -> Option<Vec<u8>> {
        let fits = packet.session_id == self.id && is_signed(&self.password, packet);
        let admitted = fits && self.window.admit(packet.sequence);
        admitted.then(|| packet.message.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::packet::RmcpPacket;

    fn open(channel: &mut Ipmi15Channel, bytes: &[u8]) -> Option<Vec<u8>> {
        match RmcpPacket::parse(bytes)? {
            RmcpPacket::Ipmi15(packet) => channel.open(&packet),
            _ => None,
        }
    }

    fn pair() -> (Ipmi15Channel, Ipmi15Channel) {
        let (here, there) = (500, 9_000);
        (
            Ipmi15Channel::new(b"password", 7, there, here),
            Ipmi15Channel::new(b"password", 7, here, there),
        )
    }

    #[test]
    fn signs_as_an_independent_program_does() {
        // md5 of the padded password, 07000000, "text", 28230000 and the password again.
        let bytes = sign(b"password", 7, 9_000, b"text").unwrap();
        let code: Vec<String> = bytes[13..29].iter().map(|it| format!("{it:02x}")).collect();
        assert_eq!(code.concat(), "1b0d2fe0833002eff4003cd29f931e8d");
    }

    #[test]
    fn refuses_a_packet_with_any_bit_turned_and_one_seen_before() {
        let (mut console, mut managed) = pair();
        let bytes = console.seal(b"text").unwrap();
        // The first bits of the header select the packet type; from the sequence number on, they
        // are authenticated.
        for bit in 5 * 8..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&mut managed, &bad), None, "bit {bit}");
        }
        assert_eq!(open(&mut managed, &bytes), Some(b"text".to_vec()));
        assert_eq!(open(&mut managed, &bytes), None, "seen before");
    }

    #[test]
    fn numbers_from_before_the_session_and_far_ahead_do_not_fit() {
        let (_, mut managed) = pair();
        for (sequence, fits) in [
            (8_999, false),
            (9_017, false),
            (9_015, true),
            (9_002, true),
            (9_016, true),
            (0, false),
        ] {
            let bytes = sign(b"password", 7, sequence, b"text").unwrap();
            assert_eq!(open(&mut managed, &bytes).is_some(), fits, "{sequence}");
        }
    }

    #[test]
    fn a_count_that_comes_round_skips_zero() {
        let mut channel = Ipmi15Channel::new(b"password", 7, u32::MAX, 1);
        for want in [u32::MAX, 1, 2] {
            let bytes = channel.seal(b"x").unwrap();
            let Some(RmcpPacket::Ipmi15(packet)) = RmcpPacket::parse(&bytes) else {
                panic!("a signed packet parses");
            };
            assert_eq!(packet.sequence, want);
        }
    }
}
