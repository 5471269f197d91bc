//! Protection of an established session: every packet is encrypted and has an authentication code
//! and a sequence number; other packets are dropped. In suite 0, which the operator must select
//! explicitly, packets have only sequence numbers.

pub(crate) mod ipmi15;

use trivet_model::Entropy;

use crate::suite::{BLOCK_BYTES, IpmiCipherSuite, IpmiSessionKeys, decrypt, encrypt, same_code};
use crate::wire::packet::{
    self, BIT_AUTHENTICATED, BIT_ENCRYPTED, KIND_IPMI, RMCP_PLUS_HEADER_BYTES, RmcpPacket,
    RmcpPlusPacket,
};

/// Bytes of the RMCP header, which the authentication code does not cover.
const RMCP_BYTES: usize = 4;
/// The last byte before the authentication code, always this value (section 13.28.4).
const NEXT_HEADER: u8 = 0x07;

/// The console's end of an established session of either protocol version.
pub(crate) enum IpmiChannel {
    /// IPMI 2.0.
    RmcpPlus(Box<RmcpPlusChannel>),
    /// IPMI 1.5.
    Ipmi15(Box<ipmi15::Ipmi15Channel>),
}

impl IpmiChannel {
    /// The peer's identifier of this session.
    pub(crate) fn peer_id(&self) -> u32 {
        match self {
            Self::RmcpPlus(channel) => channel.peer_id,
            Self::Ipmi15(channel) => channel.id(),
        }
    }

    /// Protects one message; `None` if it is too long for this protocol version.
    pub(crate) fn seal(&mut self, text: &[u8], entropy: &mut dyn Entropy) -> Option<Vec<u8>> {
        match self {
            Self::RmcpPlus(channel) => Some(channel.seal(KIND_IPMI, text, entropy)),
            Self::Ipmi15(channel) => channel.seal(text),
        }
    }

    /// The message in a packet, if the peer sent it in this session.
    pub(crate) fn open(&mut self, packet: &RmcpPacket<'_>) -> Option<Vec<u8>> {
        match (self, packet) {
            (Self::RmcpPlus(channel), RmcpPacket::RmcpPlus(plus)) if plus.kind == KIND_IPMI => {
                channel.open(plus)
            }
            (Self::Ipmi15(channel), RmcpPacket::Ipmi15(packet)) => channel.open(packet),
            _ => None,
        }
    }
}

/// One end of an established session.
pub(crate) struct RmcpPlusChannel {
    suite: IpmiCipherSuite,
    keys: IpmiSessionKeys,
    own_id: u32,
    peer_id: u32,
    sequence: u32,
    window: IpmiSequenceWindow,
}

impl RmcpPlusChannel {
    pub(crate) fn new(
        suite: IpmiCipherSuite,
        keys: IpmiSessionKeys,
        own_id: u32,
        peer_id: u32,
    ) -> Self {
        Self {
            suite,
            keys,
            own_id,
            peer_id,
            sequence: 0,
            window: IpmiSequenceWindow::default(),
        }
    }

    /// Protects one payload for the peer, with a new sequence number.
    pub(crate) fn seal(&mut self, kind: u8, text: &[u8], entropy: &mut dyn Entropy) -> Vec<u8> {
        // Zero is for packets outside a session, so it is skipped.
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        if !self.suite.protects() {
            return packet::emit_rmcp_plus(kind, self.peer_id, self.sequence, text);
        }
        let mut vector = [0; BLOCK_BYTES];
        entropy.fill(&mut vector);
        let payload = encrypt(&self.keys.cipher, vector, text);
        let kind = kind | BIT_ENCRYPTED | BIT_AUTHENTICATED;
        let mut out = packet::emit_rmcp_plus(kind, self.peer_id, self.sequence, &payload);
        let pad = (4 - (out.len() - RMCP_BYTES + 2) % 4) % 4;
        out.extend(core::iter::repeat_n(0xff, pad));
        out.extend([pad as u8, NEXT_HEADER]);
        let code = self.suite.code(&self.keys.integrity, &[&out[RMCP_BYTES..]]);
        out.extend(code);
        out
    }

    /// The payload of a packet, if it is authentic, belongs to this session and was not received
    /// before. The window moves only for such packets, so forged ones cannot move it.
    pub(crate) fn open(&mut self, packet: &RmcpPlusPacket<'_>) -> Option<Vec<u8>> {
        let protects = self.suite.protects();
        if (packet.encrypted, packet.authenticated) != (protects, protects)
            || packet.session_id != self.own_id
        {
            return None;
        }
        if !protects {
            let admitted = self.window.admit(packet.sequence);
            return admitted.then(|| packet.payload.to_vec());
        }
        let signed_bytes = packet.whole.len().checked_sub(self.suite.code_bytes())?;
        let (signed, code) = packet.whole.split_at(signed_bytes);
        if signed.len() < RMCP_PLUS_HEADER_BYTES + packet.payload.len() + 2 {
            return None;
        }
        if !same_code(code, &self.suite.code(&self.keys.integrity, &[signed])) {
            return None;
        }
        let text = decrypt(&self.keys.cipher, packet.payload)?;
        self.window.admit(packet.sequence).then_some(text)
    }
}

/// The sequence numbers that were received. A number that is older than the newest by more than the
/// width of `seen` is rejected. Section 6.12.13 also bounds jumps forward; only authentic packets
/// are checked here, so a jump means lost packets.
#[derive(Clone, Copy, Debug)]
struct IpmiSequenceWindow {
    newest: u32,
    /// Bit `n` is set if `newest - n` was received.
    seen: u64,
    /// How far the next number can be ahead of the newest.
    ahead_max: u32,
}

impl Default for IpmiSequenceWindow {
    fn default() -> Self {
        Self {
            newest: 0,
            seen: 0,
            ahead_max: (1 << 31) - 1,
        }
    }
}

impl IpmiSequenceWindow {
    /// A window that begins with `first` and accepts only numbers close to it.
    fn narrow(first: u32, ahead_max: u32) -> Self {
        Self {
            newest: first.wrapping_sub(1),
            seen: u64::MAX,
            ahead_max,
        }
    }

    fn admit(&mut self, sequence: u32) -> bool {
        if sequence == 0 {
            return false;
        }
        let ahead = sequence.wrapping_sub(self.newest);
        if ahead != 0 && ahead <= self.ahead_max {
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
            self.newest = sequence;
            return true;
        }
        let behind = self.newest.wrapping_sub(sequence);
        if behind >= u64::BITS || self.seen >> behind & 1 != 0 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::RakpExchange;
    use crate::wire::packet::{KIND_IPMI, RmcpPacket};
    use trivet_model::SeededRandom;

    struct CountingEntropy;

    impl Entropy for CountingEntropy {
        fn fill(&mut self, out: &mut [u8]) {
            for (at, byte) in out.iter_mut().enumerate() {
                *byte = 0x10 + at as u8;
            }
        }
    }

    fn keys(suite: IpmiCipherSuite) -> IpmiSessionKeys {
        let exchange = RakpExchange {
            suite,
            console_id: 0xa1b2_c3d4,
            managed_id: 0x0102_0304,
            console_random: core::array::from_fn(|at| at as u8),
            managed_random: core::array::from_fn(|at| 0x40 + at as u8),
            guid: core::array::from_fn(|at| 0x80 + at as u8),
            role: 0x14,
            username: b"admin".to_vec(),
        };
        exchange.keys(b"password", None)
    }

    fn pair(suite: IpmiCipherSuite) -> (RmcpPlusChannel, RmcpPlusChannel) {
        let keys = keys(suite);
        (
            RmcpPlusChannel::new(suite, keys.clone(), 1, 0x0102_0304),
            RmcpPlusChannel::new(suite, keys, 0x0102_0304, 1),
        )
    }

    fn open(channel: &mut RmcpPlusChannel, bytes: &[u8]) -> Option<Vec<u8>> {
        match RmcpPacket::parse(bytes)? {
            RmcpPacket::RmcpPlus(plus) => channel.open(&plus),
            _ => None,
        }
    }

    #[test]
    fn writes_the_packets_an_independent_program_writes() {
        let message = [0x20, 0x00, 0xe0, 0x81, 0x04, 0x01, 0x7a];
        for (suite, want) in [
            (
                IpmiCipherSuite::Sha1,
                "0600ff0706c004030201010000002000101112131415161718191a1b1c1d1e1f\
                 8b0d5c4d9dfadc8f083f979c589e14b2ffff02073a60bcde7d9f5c6032f9c125",
            ),
            (
                IpmiCipherSuite::Sha256,
                "0600ff0706c004030201010000002000101112131415161718191a1b1c1d1e1f\
                 92a22de6dcb3df7b568d6b84c56686abffff0207740bf9f27e7f34a6e1cc253f621af1c7",
            ),
        ] {
            let (mut console, mut managed) = pair(suite);
            let bytes = console.seal(KIND_IPMI, &message, &mut CountingEntropy);
            let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex.concat(), want);
            assert_eq!(open(&mut managed, &bytes), Some(message.to_vec()));
        }
    }

    #[test]
    fn refuses_a_packet_with_any_bit_turned() {
        let mut entropy = SeededRandom::new(1);
        for suite in [IpmiCipherSuite::Sha1, IpmiCipherSuite::Sha256] {
            let (mut console, mut managed) = pair(suite);
            let bytes = console.seal(KIND_IPMI, b"text", &mut entropy);
            for bit in RMCP_BYTES * 8..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(open(&mut managed, &bad), None, "bit {bit}");
            }
            assert_eq!(open(&mut managed, &bytes), Some(b"text".to_vec()));
            assert_eq!(open(&mut managed, &bytes), None, "seen before");
        }
    }

    #[test]
    fn refuses_what_is_plain_or_for_another_session() {
        let (mut console, mut managed) = pair(IpmiCipherSuite::Sha256);
        let plain = packet::emit_rmcp_plus(KIND_IPMI, 0x0102_0304, 1, b"text");
        assert_eq!(open(&mut managed, &plain), None);
        let bytes = console.seal(KIND_IPMI, b"text", &mut SeededRandom::new(1));
        assert_eq!(open(&mut console, &bytes), None);
    }

    #[test]
    fn the_window_accepts_each_number_once_in_any_near_order() {
        let mut window = IpmiSequenceWindow::default();
        assert!(!window.admit(0));
        for sequence in [5, 3, 4, 70, 69, 7] {
            assert!(window.admit(sequence), "{sequence}");
            assert!(!window.admit(sequence), "{sequence} again");
        }
        assert!(!window.admit(6), "too far behind");
        assert!(window.admit(1000));
        assert!(!window.admit(70));
    }

    #[test]
    fn the_window_continues_past_the_largest_number() {
        let mut window = IpmiSequenceWindow {
            newest: u32::MAX - 1,
            seen: 1,
            ..IpmiSequenceWindow::default()
        };
        assert!(window.admit(u32::MAX));
        assert!(window.admit(1));
        assert!(!window.admit(u32::MAX));
        let (mut console, mut managed) = pair(IpmiCipherSuite::Sha1);
        console.sequence = u32::MAX;
        managed.window = IpmiSequenceWindow {
            newest: u32::MAX,
            seen: 1,
            ..IpmiSequenceWindow::default()
        };
        let bytes = console.seal(KIND_IPMI, b"text", &mut SeededRandom::new(1));
        assert_eq!(console.sequence, 1);
        assert!(open(&mut managed, &bytes).is_some());
    }

    proptest::proptest! {
        #[test]
        fn every_text_opens_as_it_was_sealed(
            text in proptest::collection::vec(0..=u8::MAX, 0..300),
            seed: u64,
        ) {
            for suite in [IpmiCipherSuite::Sha1, IpmiCipherSuite::Sha256] {
                let (mut console, mut managed) = pair(suite);
                let bytes = console.seal(KIND_IPMI, &text, &mut SeededRandom::new(seed));
                assert_eq!((bytes.len() - RMCP_BYTES - suite.code_bytes()) % 4, 0);
                assert_eq!(open(&mut managed, &bytes), Some(text.clone()));
            }
        }
    }
}
