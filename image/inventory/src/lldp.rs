//! LLDP frames (IEEE 802.1AB) in the format of the collector `lldp`: the type and the value, in
//! hexadecimal digits, of each TLV.

use serde_json::{Map, Value, json};

/// Most TLVs of a frame: a frame of 1600 bytes has no space for more than this.
pub const LLDP_TLVS_MAX: usize = 800;

/// The Ethernet header before the data unit.
const ETHERNET_BYTES: usize = 14;

/// One entry of a data unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LldpTlv {
    /// Its type, seven bits.
    pub kind: u8,
    /// Its value, at most 511 bytes.
    pub value: Vec<u8>,
}

/// The TLVs of an Ethernet frame, with the one that ends it. What follows the end is padding,
/// and a value that is longer than the frame is dropped with all after it.
pub fn parse_lldp_frame(frame: &[u8]) -> Vec<LldpTlv> {
    let mut rest = frame.get(ETHERNET_BYTES..).unwrap_or_default();
    let mut tlvs = Vec::new();
    while tlvs.len() < LLDP_TLVS_MAX
        && let Some((header, after)) = rest.split_first_chunk::<2>()
    {
        let header = u16::from_be_bytes(*header);
        let length = usize::from(header & 0x01ff);
        let Some((value, after)) = after.split_at_checked(length) else {
            break;
        };
        let kind = (header >> 9) as u8;
        tlvs.push(LldpTlv {
            kind,
            value: value.to_vec(),
        });
        if kind == 0 {
            break;
        }
        rest = after;
    }
    tlvs
}

/// The value of `lldp_raw`: a list of TLVs for each interface, empty where no frame came.
pub fn lldp_document(frames: &[(String, Option<Vec<u8>>)]) -> Value {
    let listed = |frame: &Option<Vec<u8>>| {
        let tlvs = parse_lldp_frame(frame.as_deref().unwrap_or_default());
        let entry = |tlv: LldpTlv| json!([tlv.kind, hex(&tlv.value)]);
        tlvs.into_iter().map(entry).collect::<Value>()
    };
    let entries = frames
        .iter()
        .map(|(name, frame)| (name.clone(), listed(frame)));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(u32::from(digit), 16))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A frame with these TLVs.
    pub(crate) fn frame(tlvs: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; ETHERNET_BYTES];
        for (kind, value) in tlvs {
            let header = u16::from(*kind) << 9 | value.len() as u16;
            bytes.extend(header.to_be_bytes());
            bytes.extend(*value);
        }
        bytes
    }

    #[test]
    fn the_frame_of_the_transcript_is_listed_as_the_stock_agent_does() {
        let bytes = frame(&[
            (1, &[4, 0x52, 0x54, 0, 0xcc, 0, 1]),
            (2, b"\x05Ethernet1/7"),
            (3, &[0, 0x78]),
            (127, &[0, 0x80, 0xc2, 1, 0, 5]),
            (0, &[]),
        ]);
        let document =
            lldp_document(&[("eth0".to_owned(), Some(bytes)), ("eth1".to_owned(), None)]);
        assert_eq!(
            document,
            json!({"eth0": [
                [1, "04525400cc0001"], [2, "0545746865726e6574312f37"], [3, "0078"],
                [127, "0080c2010005"], [0, ""]], "eth1": []})
        );
    }

    #[test]
    fn padding_after_the_end_is_not_listed() {
        let mut bytes = frame(&[(3, &[0, 1]), (0, &[])]);
        bytes.extend([0; 46]);
        assert_eq!(parse_lldp_frame(&bytes).len(), 2);
    }

    #[test]
    fn a_value_longer_than_the_frame_is_dropped() {
        let whole = frame(&[(3, &[0, 1]), (5, b"switch")]);
        assert_eq!(parse_lldp_frame(&whole[..whole.len() - 1]).len(), 1);
        assert_eq!(parse_lldp_frame(&whole[..=ETHERNET_BYTES]).len(), 0);
        assert_eq!(parse_lldp_frame(&[]).len(), 0);
    }

    #[test]
    fn a_frame_has_a_bounded_number_of_entries() {
        let one: (u8, &[u8]) = (9, &[]);
        assert_eq!(
            parse_lldp_frame(&frame(&vec![one; 1000])).len(),
            LLDP_TLVS_MAX
        );
    }
}
