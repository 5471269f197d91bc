//! A second encoder and decoder of frames, independent of the code under test (RFC 2131 section
//! 2, RFC 2132, RFC 3396).

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

/// Bytes before the options.
pub(crate) const HEADER_BYTES: usize = 236;

const COOKIE: [u8; 4] = [99, 130, 83, 99];
const END: u8 = 255;
const OVERLOAD: u8 = 52;

/// Message types (RFC 2132 section 9.6).
pub(crate) const DISCOVER: u8 = 1;
pub(crate) const OFFER: u8 = 2;
pub(crate) const REQUEST: u8 = 3;
pub(crate) const ACK: u8 = 5;
pub(crate) const NAK: u8 = 6;
pub(crate) const INFORM: u8 = 8;

/// The fields of a frame.
#[derive(Clone, Debug)]
pub(crate) struct FuzzDhcpFrame {
    pub(crate) operation: u8,
    pub(crate) xid: [u8; 4],
    pub(crate) broadcast: bool,
    pub(crate) ciaddr: Ipv4Addr,
    pub(crate) yiaddr: Ipv4Addr,
    pub(crate) giaddr: Ipv4Addr,
    pub(crate) mac: [u8; 6],
    /// All values of one code, joined.
    pub(crate) options: BTreeMap<u8, Vec<u8>>,
}

impl FuzzDhcpFrame {
    /// A request with its type as the only option.
    pub(crate) fn request(mac: [u8; 6], kind: u8) -> Self {
        Self {
            operation: 1,
            xid: [mac[5], 1, 2, 3],
            broadcast: false,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: Ipv4Addr::UNSPECIFIED,
            mac,
            options: BTreeMap::from([(53, vec![kind])]),
        }
    }

    /// The frame's bytes, with `more` after its options.
    pub(crate) fn write(&self, more: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&[self.operation, 1, 6, 0]);
        bytes[4..8].copy_from_slice(&self.xid);
        bytes[10] = u8::from(self.broadcast) << 7;
        bytes[12..16].copy_from_slice(&self.ciaddr.octets());
        bytes[16..20].copy_from_slice(&self.yiaddr.octets());
        bytes[24..28].copy_from_slice(&self.giaddr.octets());
        bytes[28..34].copy_from_slice(&self.mac);
        bytes.extend(COOKIE);
        for (code, value) in &self.options {
            for part in value.chunks(255) {
                bytes.extend([*code, part.len() as u8]);
                bytes.extend(part);
            }
        }
        bytes.extend(more);
        bytes.push(END);
        bytes
    }

    /// Decodes a frame leniently: options from all areas, up to the first that is truncated.
    /// `None` if it is not DHCP over Ethernet.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (header, tail) = bytes.split_at_checked(HEADER_BYTES)?;
        let area = tail.strip_prefix(&COOKIE)?;
        if header[1..3] != [1, 6] {
            return None;
        }
        let mut options = BTreeMap::new();
        collect_options(area, &mut options);
        if let Some([which @ 1..=3]) = options.get(&OVERLOAD).map(|value| &value[..]) {
            let which = *which;
            if which & 1 != 0 {
                collect_options(&header[108..236], &mut options);
            }
            if which & 2 != 0 {
                collect_options(&header[44..108], &mut options);
            }
        }
        let at = |from: usize| Some(Ipv4Addr::from(*header[from..].first_chunk::<4>()?));
        Some(Self {
            operation: header[0],
            xid: *header[4..].first_chunk()?,
            broadcast: header[10] & 0x80 != 0,
            ciaddr: at(12)?,
            yiaddr: at(16)?,
            giaddr: at(24)?,
            mac: *header[28..].first_chunk()?,
            options,
        })
    }

    /// Decodes a frame strictly: every option complete, an end option, and only padding after
    /// it.
    pub(crate) fn read_strictly(bytes: &[u8]) -> Self {
        let frame = Self::read(bytes).expect("a reply is DHCP over Ethernet");
        let mut area = &bytes[HEADER_BYTES + COOKIE.len()..];
        loop {
            match area {
                [0, rest @ ..] => area = rest,
                [END, rest @ ..] => {
                    assert!(
                        rest.iter().all(|&byte| byte == 0),
                        "only padding at the end"
                    );
                    return frame;
                }
                [code, len, rest @ ..] => {
                    let len = usize::from(*len);
                    assert!(rest.len() >= len, "option {code} is truncated");
                    area = &rest[len..];
                }
                _ => panic!("the options have no end"),
            }
        }
    }

    pub(crate) fn message_type(&self) -> Option<u8> {
        match self.options.get(&53)?[..] {
            [kind] => Some(kind),
            _ => None,
        }
    }

    /// An option that contains one address.
    pub(crate) fn address(&self, code: u8) -> Option<Ipv4Addr> {
        let value = self.options.get(&code)?;
        let bytes: [u8; 4] = value[..].try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    }
}

/// The options of one area. A part that follows another part of the same option is joined to it;
/// if that part is truncated, the option is lost with it and the area ends, as in dhcproto.
fn collect_options(mut area: &[u8], options: &mut BTreeMap<u8, Vec<u8>>) {
    while let [code, rest @ ..] = area {
        match *code {
            0 => area = rest,
            END => return,
            code => {
                let mut value: Vec<u8> = Vec::new();
                while area.first() == Some(&code) {
                    let Some((part, rest)) = option_part(&area[1..]) else {
                        return;
                    };
                    value.extend(part);
                    area = rest;
                }
                options.entry(code).or_default().extend(value);
            }
        }
    }
}

/// The value behind an option's code, and what follows it.
fn option_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FuzzDhcpFrame {
        let mut frame = FuzzDhcpFrame::request([2, 0, 0, 0, 0, 9], DISCOVER);
        frame.ciaddr = Ipv4Addr::new(10, 0, 0, 9);
        frame.giaddr = Ipv4Addr::new(10, 0, 2, 254);
        frame.broadcast = true;
        frame.options.insert(60, vec![b'x'; 300]);
        frame
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let bytes = sample().write(&[12, 1, b'a']);
        let read = FuzzDhcpFrame::read_strictly(&bytes);
        assert_eq!(read.options[&60], vec![b'x'; 300]);
        assert_eq!(read.options[&12], b"a");
        assert_eq!(
            (read.message_type(), read.ciaddr),
            (Some(1), sample().ciaddr)
        );
        assert_eq!((read.giaddr, read.mac), (sample().giaddr, sample().mac));
        assert!(read.broadcast);
        assert_eq!(read.address(60), None);
    }

    #[test]
    fn options_in_the_file_field_count_with_overload() {
        let mut bytes = FuzzDhcpFrame::request([2; 6], DISCOVER).write(&[OVERLOAD, 1, 1]);
        bytes[108..113].copy_from_slice(&[12, 1, b'z', END, 7]);
        bytes[44..47].copy_from_slice(&[15, 1, b'y']);
        let read = FuzzDhcpFrame::read(&bytes).unwrap();
        assert_eq!(read.options[&12], b"z");
        assert!(!read.options.contains_key(&15));
    }

    #[test]
    #[should_panic(expected = "option 12 is truncated")]
    fn a_truncated_option_is_detected() {
        FuzzDhcpFrame::read_strictly(
            &FuzzDhcpFrame::request([2; 6], DISCOVER).write(&[12, 9, b'a']),
        );
    }
}
