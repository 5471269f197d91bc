//! Cipher suites 0, 3 and 17 (table 22-20) and their key exchange (sections 13.28 to 13.32).
//! Handles keys and bytes, not messages.

use cbc::cipher::block_padding::NoPadding;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Bytes of one AES block.
pub(crate) const BLOCK_BYTES: usize = 16;

/// The set of algorithms that protects a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IpmiCipherSuite {
    /// Suite 0: no authentication, no encryption. Used only if the operator selects it.
    Plain,
    /// Suite 3: RAKP-HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128.
    Sha1,
    /// Suite 17: RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128.
    Sha256,
}

impl IpmiCipherSuite {
    /// The suite with this number, if it is supported.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Plain),
            3 => Some(Self::Sha1),
            17 => Some(Self::Sha256),
            _ => None,
        }
    }

    /// Its number in the specification.
    pub fn number(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Sha1 => 3,
            Self::Sha256 => 17,
        }
    }

    /// Authentication, integrity, confidentiality (tables 13-17 to 13-19).
    pub(crate) fn algorithms(self) -> [u8; 3] {
        match self {
            Self::Plain => [0, 0, 0],
            Self::Sha1 => [1, 1, 1],
            Self::Sha256 => [3, 4, 1],
        }
    }

    pub(crate) fn from_algorithms(algorithms: [u8; 3]) -> Option<Self> {
        [Self::Plain, Self::Sha1, Self::Sha256]
            .into_iter()
            .find(|suite| suite.algorithms() == algorithms)
    }

    /// Whether packets of its sessions are encrypted and authenticated.
    pub(crate) fn protects(self) -> bool {
        self != Self::Plain
    }

    /// Bytes of the authentication code of each packet and of RAKP message 4.
    pub(crate) fn code_bytes(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Sha1 => 12,
            Self::Sha256 => 16,
        }
    }

    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Plain => Vec::new(),
            Self::Sha1 => hmac::<Hmac<Sha1>>(key, parts),
            Self::Sha256 => hmac::<Hmac<Sha256>>(key, parts),
        }
    }

    /// The truncated authentication code of a packet or of RAKP message 4.
    pub(crate) fn code(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut code = self.hmac(key, parts);
        code.truncate(self.code_bytes());
        code
    }
}

fn hmac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of every length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

/// Whether two codes are equal, compared in constant time.
pub(crate) fn same_code(one: &[u8], two: &[u8]) -> bool {
    one.ct_eq(two).into()
}

/// The data that both ends have exchanged when the keys are derived.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RakpExchange {
    pub(crate) suite: IpmiCipherSuite,
    pub(crate) console_id: u32,
    pub(crate) managed_id: u32,
    pub(crate) console_random: [u8; 16],
    pub(crate) managed_random: [u8; 16],
    pub(crate) guid: [u8; 16],
    pub(crate) role: u8,
    pub(crate) username: Vec<u8>,
}

/// The keys of one session.
#[derive(Clone, Eq, PartialEq)]
pub(crate) struct IpmiSessionKeys {
    pub(crate) session: Vec<u8>,
    pub(crate) integrity: Vec<u8>,
    pub(crate) cipher: [u8; BLOCK_BYTES],
}

impl RakpExchange {
    fn name(&self) -> Vec<u8> {
        let mut name = vec![self.role, self.username.len() as u8];
        name.extend(&self.username);
        name
    }

    /// The code that proves that the BMC knows the password.
    pub(crate) fn rakp2_code(&self, password: &[u8]) -> Vec<u8> {
        let parts: [&[u8]; 6] = [
            &self.console_id.to_le_bytes(),
            &self.managed_id.to_le_bytes(),
            &self.console_random,
            &self.managed_random,
            &self.guid,
            &self.name(),
        ];
        self.suite.hmac(password, &parts)
    }

    /// The code that proves that the console knows the password.
    pub(crate) fn rakp3_code(&self, password: &[u8]) -> Vec<u8> {
        let id = self.console_id.to_le_bytes();
        self.suite
            .hmac(password, &[&self.managed_random, &id, &self.name()])
    }

    /// The code that proves that the BMC derived the same session key.
    pub(crate) fn rakp4_code(&self, keys: &IpmiSessionKeys) -> Vec<u8> {
        let id = self.managed_id.to_le_bytes();
        self.suite
            .code(&keys.session, &[&self.console_random, &id, &self.guid])
    }

    /// The keys of the session. A BMC without K_g uses the password in its place (section 13.31).
    pub(crate) fn keys(&self, password: &[u8], kg: Option<&[u8]>) -> IpmiSessionKeys {
        let parts: [&[u8]; 3] = [&self.console_random, &self.managed_random, &self.name()];
        let session = self.suite.hmac(kg.unwrap_or(password), &parts);
        let integrity = self.suite.hmac(&session, &[&[1; 20]]);
        let second = self.suite.hmac(&session, &[&[2; 20]]);
        let cipher = second.first_chunk().copied().unwrap_or_default();
        IpmiSessionKeys {
            session,
            integrity,
            cipher,
        }
    }
}

/// Encrypts a payload: initialization vector, then blocks; the pad counts up from one and its
/// length is the last byte (section 13.29.2).
pub(crate) fn encrypt(key: &[u8; BLOCK_BYTES], vector: [u8; BLOCK_BYTES], text: &[u8]) -> Vec<u8> {
    let pad = (BLOCK_BYTES - (text.len() + 1) % BLOCK_BYTES) % BLOCK_BYTES;
    let mut padded = text.to_vec();
    padded.extend((1..=pad).map(|count| count as u8));
    padded.push(pad as u8);
    let cipher = cbc::Encryptor::<aes::Aes128>::new(&(*key).into(), &vector.into());
    let mut out = vector.to_vec();
    out.extend(cipher.encrypt_padded_vec::<NoPadding>(&padded));
    out
}

/// Decrypts a payload. The pad's content is not verified: the packet was authenticated before, and
/// some BMCs do not set the pad.
pub(crate) fn decrypt(key: &[u8; BLOCK_BYTES], payload: &[u8]) -> Option<Vec<u8>> {
    let (vector, blocks) = payload.split_first_chunk::<BLOCK_BYTES>()?;
    if blocks.is_empty() {
        return None;
    }
    let cipher = cbc::Decryptor::<aes::Aes128>::new(&(*key).into(), &(*vector).into());
    let mut text = cipher.decrypt_padded_vec::<NoPadding>(blocks).ok()?;
    let pad = usize::from(text.pop()?);
    let end = text.len().checked_sub(pad)?;
    (pad < BLOCK_BYTES).then(|| {
        text.truncate(end);
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(suite: IpmiCipherSuite) -> RakpExchange {
        RakpExchange {
            suite,
            console_id: 0xa1b2_c3d4,
            managed_id: 0x0102_0304,
            console_random: core::array::from_fn(|at| at as u8),
            managed_random: core::array::from_fn(|at| 0x40 + at as u8),
            guid: core::array::from_fn(|at| 0x80 + at as u8),
            role: 0x14,
            username: b"admin".to_vec(),
        }
    }

    fn hex(bytes: &[u8]) -> String {
        use std::fmt::Write;
        bytes.iter().fold(String::new(), |mut out, byte| {
            write!(out, "{byte:02x}").unwrap();
            out
        })
    }

    #[test]
    fn suite_3_makes_the_codes_and_keys_an_independent_program_makes() {
        let exchange = exchange(IpmiCipherSuite::Sha1);
        assert_eq!(
            hex(&exchange.rakp2_code(b"password")),
            "08143a2b11c3c52550b20ad71181ea3060c9ec1a"
        );
        assert_eq!(
            hex(&exchange.rakp3_code(b"password")),
            "46946158686f8fb4ab0335407dac0f358c282229"
        );
        let keys = exchange.keys(b"password", None);
        assert_eq!(
            hex(&keys.session),
            "d0a85db0b4ad0ef38cdc5bdac78dfed20bfc0b0d"
        );
        assert_eq!(hex(&exchange.rakp4_code(&keys)), "5e1c0301959b641b95432dda");
        assert_eq!(
            hex(&keys.integrity),
            "e680a9c647651d7a040938184ebbf6b32fa8d3b9"
        );
        assert_eq!(hex(&keys.cipher), "c4e095d2ab9d2c931b11743e5b1c44d8");
    }

    #[test]
    fn suite_17_makes_the_codes_and_keys_an_independent_program_makes() {
        let exchange = exchange(IpmiCipherSuite::Sha256);
        assert_eq!(
            hex(&exchange.rakp2_code(b"password")),
            "b146d099b845445cd68ea1b4be2bf53c7a7dcc6197af77ba3c9681ef9fece7d8"
        );
        assert_eq!(
            hex(&exchange.rakp3_code(b"password")),
            "77a68c83d8a5ae7f2132d48d63bb61214e8857191c57d63e3687a3be2289b733"
        );
        let keys = exchange.keys(b"password", None);
        assert_eq!(
            hex(&keys.session),
            "21f9d857aab90169bc6f8abc815f27d9489c8dc900de251222dfce8d66e56816"
        );
        assert_eq!(
            hex(&exchange.rakp4_code(&keys)),
            "35add894688d6bd017b903498f31961f"
        );
        assert_eq!(
            hex(&keys.integrity),
            "903f238c001371db61d023b3a110c119aa994f503f4320cb8e13f9221fa4dfc7"
        );
        assert_eq!(hex(&keys.cipher), "e679344dc7e42c8620141ad62b0bbeda");
    }

    #[test]
    fn the_key_of_the_bmc_changes_the_session_key() {
        for (suite, code, cipher) in [
            (
                IpmiCipherSuite::Sha1,
                "526abac027632ceb50615ed6",
                "5168850be797be5b75e0cc51bfbe6ae5",
            ),
            (
                IpmiCipherSuite::Sha256,
                "d86ed4aec6d8d779fe2860c9093026dc",
                "d2f079afea2af4119b6d5ce06be59226",
            ),
        ] {
            let exchange = exchange(suite);
            let keys = exchange.keys(b"password", Some(b"rack key"));
            assert_eq!(hex(&exchange.rakp4_code(&keys)), code);
            assert_eq!(hex(&keys.cipher), cipher);
        }
    }

    #[test]
    fn decrypts_what_it_encrypts_at_every_length() {
        let (key, vector) = ([3; 16], [9; 16]);
        for length in 0..70 {
            let text = vec![0x5a; length];
            let sealed = encrypt(&key, vector, &text);
            assert_eq!(sealed.len() % BLOCK_BYTES, 0);
            assert_eq!(decrypt(&key, &sealed), Some(text));
        }
    }

    #[test]
    fn refuses_payloads_of_odd_length_and_impossible_pads() {
        let key = [3; 16];
        for length in 0..80 {
            // Only whole blocks after the initialization vector can be decrypted.
            let got = decrypt(&key, &vec![1; length]);
            assert!(got.is_none() || (length > 16 && length % 16 == 0));
        }
        let cipher = cbc::Encryptor::<aes::Aes128>::new(&key.into(), &[0; 16].into());
        let mut payload = vec![0; 16];
        payload.extend(cipher.encrypt_padded_vec::<NoPadding>(&[0xff; 16]));
        assert_eq!(decrypt(&key, &payload), None);
    }

    #[test]
    fn suites_are_found_by_their_algorithms_and_numbers() {
        for suite in [
            IpmiCipherSuite::Plain,
            IpmiCipherSuite::Sha1,
            IpmiCipherSuite::Sha256,
        ] {
            assert_eq!(
                IpmiCipherSuite::from_algorithms(suite.algorithms()),
                Some(suite)
            );
            assert_eq!(IpmiCipherSuite::from_number(suite.number()), Some(suite));
        }
        assert_eq!(IpmiCipherSuite::from_algorithms([1, 4, 1]), None);
        assert_eq!(IpmiCipherSuite::from_algorithms([0, 1, 0]), None);
        assert_eq!(IpmiCipherSuite::from_number(1), None);
    }
}
