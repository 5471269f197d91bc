//! Encodes DHCP messages, of the server and of simulated machines.

use core::net::Ipv4Addr;

use trivet_model::MacAddr;

use crate::message::{FILE, HEADER_BYTES, MAGIC, MESSAGE_BYTES_MAX, code};

/// A message that grows by options, up to its size limit.
#[derive(Clone, Debug)]
pub(crate) struct DhcpMessageWriter {
    bytes: Vec<u8>,
    /// Its size limit, without the end option and option 82.
    size_max: usize,
}

impl DhcpMessageWriter {
    /// A message from or to this machine; `operation` is 1 to the server and 2 to the client.
    pub(crate) fn new(operation: u8, xid: [u8; 4], mac: MacAddr) -> Self {
        let mut bytes = Vec::with_capacity(512);
        bytes.extend([operation, 1, 6, 0]);
        bytes.extend(xid);
        bytes.resize(28, 0);
        bytes.extend(mac.0);
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(MAGIC);
        Self {
            bytes,
            size_max: MESSAGE_BYTES_MAX - 1,
        }
    }

    /// Limits the size to what the client accepts, and with option 82 to one frame; the relay
    /// removes that option, so it does not count for the client.
    pub(crate) fn limit(&mut self, client_bytes: usize, relay_info: Option<&[u8]>) {
        let info = relay_info.map_or(0, encoded_bytes);
        let frame = MESSAGE_BYTES_MAX.saturating_sub(info);
        self.size_max = client_bytes.min(frame).saturating_sub(1);
    }

    pub(crate) fn flags(&mut self, flags: [u8; 2]) {
        self.bytes[10..12].copy_from_slice(&flags);
    }

    /// Sets the broadcast flag.
    pub(crate) fn broadcast(&mut self) {
        self.bytes[10] |= 0x80;
    }

    pub(crate) fn ciaddr(&mut self, address: Ipv4Addr) {
        self.bytes[12..16].copy_from_slice(&address.octets());
    }

    pub(crate) fn yiaddr(&mut self, address: Ipv4Addr) {
        self.bytes[16..20].copy_from_slice(&address.octets());
    }

    pub(crate) fn siaddr(&mut self, address: Ipv4Addr) {
        self.bytes[20..24].copy_from_slice(&address.octets());
    }

    pub(crate) fn giaddr(&mut self, address: Ipv4Addr) {
        self.bytes[24..28].copy_from_slice(&address.octets());
    }

    /// Writes the `file` field, if the text and its terminating zero fit.
    pub(crate) fn file(&mut self, text: &str) {
        if text.len() < FILE.len() {
            self.bytes[FILE.start..FILE.start + text.len()].copy_from_slice(text.as_bytes());
        }
    }

    /// Appends an option, split if it is long (RFC 3396). False, and nothing is written, if
    /// there is no space.
    pub(crate) fn option(&mut self, code: u8, value: &[u8]) -> bool {
        let fits = self.bytes.len() + encoded_bytes(value) <= self.size_max;
        if fits {
            self.append(code, value);
        }
        fits
    }

    pub(crate) fn address_option(&mut self, code: u8, address: Ipv4Addr) -> bool {
        self.option(code, &address.octets())
    }

    fn append(&mut self, code: u8, value: &[u8]) {
        for part in value.chunks(255) {
            self.bytes.extend([code, part.len() as u8]);
            self.bytes.extend_from_slice(part);
        }
    }

    /// The frame, with option 82 behind all others (RFC 3046 section 2.1) and
    /// padding up to the 300 bytes that old relays insist on (RFC 1542 section
    /// 2.1).
    pub(crate) fn finish(mut self, relay_info: Option<&[u8]>) -> Vec<u8> {
        const PADDED_BYTES: usize = 300;
        self.append(code::RELAY_INFO, relay_info.unwrap_or_default());
        self.bytes.push(255);
        if self.bytes.len() < PADDED_BYTES {
            self.bytes.resize(PADDED_BYTES, 0);
        }
        self.bytes
    }
}

fn encoded_bytes(value: &[u8]) -> usize {
    value.len() + 2 * value.len().div_ceil(255)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message;

    fn fresh() -> DhcpMessageWriter {
        let mut writer = DhcpMessageWriter::new(1, [1, 2, 3, 4], MacAddr([2; 6]));
        writer.option(code::MESSAGE_TYPE, &[1]);
        writer
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut writer = fresh();
        writer.broadcast();
        writer.ciaddr(Ipv4Addr::new(1, 0, 0, 1));
        writer.yiaddr(Ipv4Addr::new(1, 0, 0, 2));
        writer.siaddr(Ipv4Addr::new(1, 0, 0, 3));
        writer.giaddr(Ipv4Addr::new(1, 0, 0, 4));
        writer.file("loader");
        let bytes = writer.finish(None);
        let frame = message::decode(&bytes, 1).unwrap();
        assert_eq!(frame.xid(), [1, 2, 3, 4]);
        assert_eq!(frame.mac, MacAddr([2; 6]));
        assert!(frame.wants_broadcast());
        let fields = [
            frame.ciaddr(),
            frame.yiaddr(),
            frame.siaddr(),
            frame.giaddr(),
        ];
        assert_eq!(fields.map(|field| field.octets()[3]), [1, 2, 3, 4]);
        assert_eq!(frame.boot_file(), Some("loader"));
        assert_eq!(bytes.len(), 300);
    }

    #[test]
    fn an_option_longer_than_255_and_the_relays_survive() {
        let mut writer = fresh();
        assert!(writer.option(code::VENDOR_CLASS, &[5; 300]));
        let bytes = writer.finish(Some(&[6; 300]));
        let frame = message::decode(&bytes, 1).unwrap();
        assert_eq!(frame.vendor_class(), Some([5; 300].as_slice()));
        assert_eq!(frame.relay_info(), Some([6; 300].as_slice()));
    }

    #[test]
    fn an_option_that_does_not_fit_is_omitted_whole() {
        let mut writer = fresh();
        writer.limit(400, None);
        assert!(!writer.option(code::VENDOR_CLASS, &[5; 155]));
        assert!(writer.option(code::CLIENT_ID, &[5; 154]));
        assert_eq!(writer.finish(None).len(), 400);
    }

    #[test]
    fn with_the_relay_option_it_is_still_one_frame() {
        let info = [7; 1000];
        let mut writer = fresh();
        writer.limit(MESSAGE_BYTES_MAX, Some(&info));
        while writer.option(code::VENDOR_CLASS, &[5; 20]) {}
        let len = writer.finish(Some(&info)).len();
        assert!(
            (MESSAGE_BYTES_MAX - 21..=MESSAGE_BYTES_MAX).contains(&len),
            "{len}"
        );
    }

    #[test]
    fn a_file_too_long_for_its_field_is_not_cut() {
        let mut writer = fresh();
        writer.file(&"x".repeat(128));
        let bytes = writer.finish(None);
        assert_eq!(message::decode(&bytes, 1).unwrap().boot_file(), None);
    }
}
