//! IPMI messages on a LAN (section 13.8): addresses, network function, sequence number, command,
//! two checksums. In a response the first byte of the body is the completion code.

/// The address of a BMC, and that of a remote console.
pub(crate) const BMC_ADDRESS: u8 = 0x20;
pub(crate) const CONSOLE_ADDRESS: u8 = 0x81;
/// Requester's sequence numbers have six bits.
pub(crate) const SEQUENCE_MASK: u8 = 0x3f;

/// One message, request or response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct IpmiMessage {
    pub(crate) to: u8,
    pub(crate) to_lun: u8,
    pub(crate) from: u8,
    pub(crate) from_lun: u8,
    pub(crate) netfn: u8,
    pub(crate) sequence: u8,
    pub(crate) command: u8,
    pub(crate) body: Vec<u8>,
}

impl IpmiMessage {
    /// A request of the console to the BMC.
    pub(crate) fn request(netfn: u8, sequence: u8, command: u8, body: &[u8]) -> Self {
        Self {
            to: BMC_ADDRESS,
            to_lun: 0,
            from: CONSOLE_ADDRESS,
            from_lun: 0,
            netfn,
            sequence: sequence & SEQUENCE_MASK,
            command,
            body: body.to_vec(),
        }
    }

    /// The response to this request.
    pub(crate) fn response(&self, body: Vec<u8>) -> Self {
        Self {
            to: self.from,
            to_lun: self.from_lun,
            from: self.to,
            from_lun: self.to_lun,
            netfn: self.netfn | 1,
            sequence: self.sequence,
            command: self.command,
            body,
        }
    }

    pub(crate) fn is_request(&self) -> bool {
        self.netfn & 1 == 0
    }

    /// Whether this message is the response to `request`.
    pub(crate) fn answers(&self, request: &Self) -> bool {
        self.netfn == request.netfn | 1
            && self.sequence == request.sequence
            && self.command == request.command
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let &[
            to,
            netfn_lun,
            head_sum,
            from,
            sequence_lun,
            command,
            ref rest @ ..,
        ] = bytes
        else {
            return None;
        };
        let (&tail_sum, body) = rest.split_last()?;
        let sums = head_sum == checksum(&[to, netfn_lun])
            && tail_sum == checksum(&bytes[3..bytes.len() - 1]);
        sums.then(|| Self {
            to,
            to_lun: netfn_lun & 3,
            from,
            from_lun: sequence_lun & 3,
            netfn: netfn_lun >> 2,
            sequence: sequence_lun >> 2,
            command,
            body: body.to_vec(),
        })
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let head = [self.to, self.netfn << 2 | self.to_lun];
        let mut out = vec![head[0], head[1], checksum(&head)];
        out.extend([self.from, self.sequence << 2 | self.from_lun, self.command]);
        out.extend(&self.body);
        out.push(checksum(&out[3..]));
        out
    }
}

/// The byte that makes the sum of all bytes zero.
fn checksum(bytes: &[u8]) -> u8 {
    bytes
        .iter()
        .fold(0_u8, |sum, &byte| sum.wrapping_add(byte))
        .wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_bytes_of_a_known_request() {
        let request = IpmiMessage::request(0x06, 0, 0x38, &[0x8e, 0x04]);
        assert_eq!(
            request.emit(),
            [0x20, 0x18, 0xc8, 0x81, 0x00, 0x38, 0x8e, 0x04, 0xb5]
        );
    }

    #[test]
    fn reads_what_it_writes_and_knows_its_answer() {
        let request = IpmiMessage::request(0x00, 0x7f, 0x01, &[]);
        assert_eq!(request.sequence, 0x3f);
        let answer = request.response(vec![0, 1]);
        let read = IpmiMessage::parse(&answer.emit()).unwrap();
        assert_eq!(read, answer);
        assert!(read.answers(&request) && !read.is_request());
        assert!(!read.answers(&IpmiMessage::request(0x00, 0x3e, 0x01, &[])));
        assert!(!read.answers(&IpmiMessage::request(0x00, 0x3f, 0x02, &[])));
        assert!(!request.answers(&request));
    }

    #[test]
    fn refuses_a_wrong_sum_and_every_prefix() {
        let bytes = IpmiMessage::request(0x06, 9, 0x01, &[1, 2]).emit();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert_eq!(IpmiMessage::parse(&bad), None, "byte {at}");
            assert_eq!(IpmiMessage::parse(&bytes[..at]), None, "{at} bytes");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_message_reads_as_it_was_written(
            netfn in 0..0x40_u8,
            sequence in 0..0x40_u8,
            command: u8,
            body in proptest::collection::vec(0..=u8::MAX, 0..200),
        ) {
            let request = IpmiMessage::request(netfn, sequence, command, &body);
            assert_eq!(IpmiMessage::parse(&request.emit()), Some(request));
        }

        #[test]
        fn what_parses_is_written_back_byte_for_byte(
            bytes in proptest::collection::vec(0..=u8::MAX, 0..40),
        ) {
            if let Some(message) = IpmiMessage::parse(&bytes) {
                assert_eq!(message.emit(), bytes);
            }
        }
    }
}
