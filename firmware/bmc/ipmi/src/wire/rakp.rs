//! Payloads of the session handshake (sections 13.17 to 13.23): Open Session
//! and the four messages of the Remote Authenticated Key-exchange Protocol.

use crate::suite::IpmiCipherSuite;

use super::{number_at, sixteen_at};

/// Longest user name (section 22.28).
pub(crate) const USERNAME_BYTES_MAX: usize = 16;
/// Longest password and longest BMC key (sections 22.30 and 13.31).
pub(crate) const PASSWORD_BYTES_MAX: usize = 20;
pub(crate) const KG_BYTES_MAX: usize = 20;
/// The bit for a user lookup by name alone, independent of the level.
pub(crate) const ROLE_NAME_ONLY: u8 = 0x10;

/// Status codes of RMCP+ and RAKP (table 13-15): those that are sent or handled specially here.
pub(crate) mod status {
    use trivet_model::PowerError;

    pub(crate) const OK: u8 = 0x00;
    pub(crate) const NO_RESOURCES: u8 = 0x01;
    pub(crate) const BAD_SESSION_ID: u8 = 0x02;
    pub(crate) const BAD_AUTHENTICATION: u8 = 0x04;
    pub(crate) const BAD_INTEGRITY: u8 = 0x05;
    pub(crate) const NO_AUTHENTICATION_MATCH: u8 = 0x06;
    pub(crate) const NO_INTEGRITY_MATCH: u8 = 0x07;
    pub(crate) const ROLE_REFUSED: u8 = 0x0a;
    pub(crate) const NO_RESOURCES_AT_ROLE: u8 = 0x0b;
    pub(crate) const BAD_NAME_LENGTH: u8 = 0x0c;
    pub(crate) const NAME_REFUSED: u8 = 0x0d;
    pub(crate) const BAD_CHECK_VALUE: u8 = 0x0f;
    pub(crate) const BAD_CONFIDENTIALITY: u8 = 0x10;
    pub(crate) const NO_SUITE_MATCH: u8 = 0x11;
    pub(crate) const BAD_PARAMETER: u8 = 0x12;

    /// Whether the refusal is about algorithms, so that others can be tried.
    pub(crate) fn is_about_algorithms(code: u8) -> bool {
        matches!(
            code,
            BAD_AUTHENTICATION
                | BAD_INTEGRITY
                | NO_AUTHENTICATION_MATCH
                | NO_INTEGRITY_MATCH
                | BAD_CONFIDENTIALITY
                | NO_SUITE_MATCH
                | BAD_PARAMETER
        )
    }

    /// Whether the refusal means that no session is free.
    pub(crate) fn is_no_free_session(code: u8) -> bool {
        matches!(code, NO_RESOURCES | NO_RESOURCES_AT_ROLE)
    }

    /// The error for a refusal.
    pub(crate) fn error(code: u8) -> PowerError {
        let message = match code {
            _ if is_no_free_session(code) => return PowerError::NoFreeSession,
            _ if is_about_algorithms(code) => return PowerError::NoSuite,
            0x09 | ROLE_REFUSED => return PowerError::Privilege,
            BAD_SESSION_ID | 0x08 => "it does not know the session",
            BAD_NAME_LENGTH | NAME_REFUSED | 0x0e => "it does not know the user",
            BAD_CHECK_VALUE => "the password is wrong",
            _ => "unknown status code",
        };
        PowerError::Login { message }
    }
}

/// The three algorithm numbers of a suite: authentication, integrity,
/// confidentiality.
pub(crate) type RakpAlgorithms = [u8; 3];

fn emit_algorithms(out: &mut Vec<u8>, algorithms: RakpAlgorithms) {
    for (kind, algorithm) in algorithms.into_iter().enumerate() {
        out.extend([kind as u8, 0, 0, 8, algorithm, 0, 0, 0]);
    }
}

/// Parses three payload records of eight bytes, each naming one algorithm. A record of length zero
/// lets the peer choose; the client always names an algorithm, so such a record reads as the none
/// algorithm and is refused.
fn parse_algorithms(bytes: &[u8]) -> Option<RakpAlgorithms> {
    let mut algorithms = [0; 3];
    for (kind, slot) in algorithms.iter_mut().enumerate() {
        let record = bytes.get(kind * 8..kind * 8 + 8)?;
        if usize::from(record[0]) != kind {
            return None;
        }
        if record[3] == 8 {
            *slot = record[4] & 0x3f;
        }
    }
    Some(algorithms)
}

/// The Open Session request of a console; it does not name the user.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OpenSessionRequest {
    pub(crate) tag: u8,
    pub(crate) privilege: u8,
    pub(crate) console_id: u32,
    pub(crate) algorithms: RakpAlgorithms,
}

impl OpenSessionRequest {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = vec![self.tag, self.privilege, 0, 0];
        out.extend(self.console_id.to_le_bytes());
        emit_algorithms(&mut out, self.algorithms);
        out
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            tag: *bytes.first()?,
            privilege: *bytes.get(1)? & 0x0f,
            console_id: number_at(bytes, 4)?,
            algorithms: parse_algorithms(bytes.get(8..)?)?,
        })
    }
}

/// The common header of the BMC's three handshake messages, and the remaining bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RakpReply<'a> {
    pub(crate) tag: u8,
    pub(crate) status: u8,
    pub(crate) console_id: u32,
    pub(crate) rest: &'a [u8],
}

impl<'a> RakpReply<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        Some(Self {
            tag: *bytes.first()?,
            status: *bytes.get(1)?,
            console_id: number_at(bytes, 4)?,
            rest: bytes.get(8..)?,
        })
    }

    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = vec![self.tag, self.status, 0, 0];
        out.extend(self.console_id.to_le_bytes());
        out.extend(self.rest);
        out
    }
}

/// The rest of a successful Open Session response.
pub(crate) fn emit_opened(managed_id: u32, algorithms: RakpAlgorithms) -> Vec<u8> {
    let mut out = managed_id.to_le_bytes().to_vec();
    emit_algorithms(&mut out, algorithms);
    out
}

/// The BMC's session identifier and the algorithms it accepted.
pub(crate) fn parse_opened(rest: &[u8]) -> Option<(u32, RakpAlgorithms)> {
    Some((number_at(rest, 0)?, parse_algorithms(rest.get(4..)?)?))
}

/// RAKP message 1.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Rakp1 {
    pub(crate) tag: u8,
    pub(crate) managed_id: u32,
    pub(crate) console_random: [u8; 16],
    pub(crate) role: u8,
    pub(crate) username: Vec<u8>,
}

impl Rakp1 {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = vec![self.tag, 0, 0, 0];
        out.extend(self.managed_id.to_le_bytes());
        out.extend(self.console_random);
        out.extend([self.role, 0, 0, self.username.len() as u8]);
        out.extend(&self.username);
        out
    }

    /// A name longer than [`USERNAME_BYTES_MAX`] is parsed, so that the BMC can refuse it with the
    /// right status.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = 28 + usize::from(*bytes.get(27)?);
        Some(Self {
            tag: bytes[0],
            managed_id: number_at(bytes, 4)?,
            console_random: sixteen_at(bytes, 8)?,
            role: bytes[24],
            username: bytes.get(28..end)?.to_vec(),
        })
    }
}

/// The rest of a successful RAKP message 2.
pub(crate) fn parse_rakp2(rest: &[u8]) -> Option<([u8; 16], [u8; 16], &[u8])> {
    Some((sixteen_at(rest, 0)?, sixteen_at(rest, 16)?, rest.get(32..)?))
}

/// RAKP message 3.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Rakp3 {
    pub(crate) tag: u8,
    pub(crate) status: u8,
    pub(crate) managed_id: u32,
    pub(crate) code: Vec<u8>,
}

impl Rakp3 {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = vec![self.tag, self.status, 0, 0];
        out.extend(self.managed_id.to_le_bytes());
        out.extend(&self.code);
        out
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            tag: *bytes.first()?,
            status: *bytes.get(1)?,
            managed_id: number_at(bytes, 4)?,
            code: bytes.get(8..)?.to_vec(),
        })
    }
}

/// One record of Get Channel Cipher Suites (section 22.15.1).
pub(crate) fn suite_record(suite: IpmiCipherSuite) -> [u8; 5] {
    let [authentication, integrity, confidentiality] = suite.algorithms();
    [
        0xc0,
        suite.number(),
        authentication,
        0x40 | integrity,
        0x80 | confidentiality,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_an_open_request_it_wrote_and_no_prefix_of_it() {
        let request = OpenSessionRequest {
            tag: 3,
            privilege: 4,
            console_id: 0x0102_0304,
            algorithms: IpmiCipherSuite::Sha256.algorithms(),
        };
        let bytes = request.emit();
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[4..8], [4, 3, 2, 1]);
        assert_eq!(bytes[24..32], [2, 0, 0, 8, 1, 0, 0, 0]);
        assert_eq!(OpenSessionRequest::parse(&bytes), Some(request));
        for end in 0..bytes.len() {
            assert_eq!(OpenSessionRequest::parse(&bytes[..end]), None);
        }
    }

    #[test]
    fn an_algorithm_left_open_reads_as_none() {
        let mut bytes = emit_opened(9, IpmiCipherSuite::Sha1.algorithms());
        bytes[4 + 3] = 0;
        assert_eq!(parse_opened(&bytes), Some((9, [0, 1, 1])));
        bytes[4] = 1;
        assert_eq!(parse_opened(&bytes), None);
    }

    #[test]
    fn reads_the_rakp_messages_it_wrote() {
        let one = Rakp1 {
            tag: 1,
            managed_id: 2,
            console_random: [7; 16],
            role: 0x14,
            username: b"admin".to_vec(),
        };
        let bytes = one.emit();
        assert_eq!(Rakp1::parse(&bytes), Some(one));
        for end in 0..bytes.len() {
            assert_eq!(Rakp1::parse(&bytes[..end]), None);
        }
        let three = Rakp3 {
            tag: 1,
            status: 0,
            managed_id: 2,
            code: vec![5; 20],
        };
        assert_eq!(Rakp3::parse(&three.emit()), Some(three));
        let reply = RakpReply {
            tag: 1,
            status: 0,
            console_id: 4,
            rest: &[1; 40],
        };
        let bytes = reply.emit();
        assert_eq!(RakpReply::parse(&bytes), Some(reply));
        assert_eq!(
            parse_rakp2(reply.rest),
            Some(([1; 16], [1; 16], &[1; 8][..]))
        );
        assert_eq!(parse_rakp2(&[1; 31]), None);
    }

    #[test]
    fn every_status_means_something() {
        for code in 0..=u8::MAX {
            assert!(!status::error(code).to_string().is_empty());
        }
        let full = status::error(status::NO_RESOURCES);
        assert_eq!(full, trivet_model::PowerError::NoFreeSession);
        assert!(status::is_about_algorithms(status::NO_SUITE_MATCH));
        assert!(!status::is_about_algorithms(status::NAME_REFUSED));
    }

    #[test]
    fn suite_records_are_those_of_the_specification() {
        assert_eq!(
            suite_record(IpmiCipherSuite::Sha1),
            [0xc0, 3, 1, 0x41, 0x81]
        );
        assert_eq!(
            suite_record(IpmiCipherSuite::Sha256),
            [0xc0, 17, 3, 0x44, 0x81]
        );
    }
}
