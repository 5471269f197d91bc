//! The proof that the owner of a token made a signing request.
//!
//! The proof is HMAC-SHA256 (RFC 2104) with the token as key, over a fixed text and the request
//! in DER. It is bound to the key in the request: a proof that somebody recorded leads to a
//! certificate only for that key.

use core::fmt;

use ring::{digest, hmac};

use crate::token::EnrolmentToken;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

/// Longest signing request, in bytes. Ours: one with a P-256 key has about 300.
pub const CSR_BYTES_MAX: usize = 2048;

/// What is hashed before the request, so that the token proves nothing else.
const DOMAIN: &[u8] = b"trivet enrolment 1\0";

/// Why a token was not redeemed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RedeemRefusal {
    /// The signing request is empty or too long.
    RequestSize,
    /// The proof was not made with this token, or is for another request.
    WrongProof,
    /// The token was redeemed for another request.
    Redeemed,
}

impl RedeemRefusal {
    /// The reason, for a note on the node.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::RequestSize => "its signing request is empty or longer than 2048 bytes",
            Self::WrongProof => "its proof was not made with the token of this boot",
            Self::Redeemed => {
                "the token of this boot was redeemed for another key; only one of the two callers \
                 is the node's machine"
            }
        }
    }
}

impl fmt::Display for RedeemRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.reason())
    }
}

impl core::error::Error for RedeemRefusal {}

fn context(key: &[u8], csr: &[u8]) -> hmac::Context {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    context.update(DOMAIN);
    context.update(csr);
    context
}

/// The proof for a signing request in DER.
pub fn prove(token: &EnrolmentToken, csr: &[u8]) -> [u8; PROOF_BYTES] {
    let mut proof = [0; PROOF_BYTES];
    proof.copy_from_slice(context(token.reveal(), csr).sign().as_ref());
    proof
}

/// Redeems a token for a signing request. `redeemed_for` is the result of the first time: the
/// same request may be repeated, because its answer may be lost, and any other is refused.
/// Returns what to store.
pub fn redeem(
    token: &EnrolmentToken,
    redeemed_for: Option<&[u8; 32]>,
    csr: &[u8],
    proof: &[u8],
) -> Result<[u8; 32], RedeemRefusal> {
    if !(1..=CSR_BYTES_MAX).contains(&csr.len()) {
        return Err(RedeemRefusal::RequestSize);
    }
    // Compared in constant time.
    let expected = prove(token, csr);
    if !bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..], proof)) {
        return Err(RedeemRefusal::WrongProof);
    }
    let mut request = [0; 32];
    request.copy_from_slice(digest::digest(&digest::SHA256, csr).as_ref());
    match redeemed_for {
        Some(first) if *first != request => Err(RedeemRefusal::Redeemed),
        _ => Ok(request),
    }
}

#[cfg(test)]
mod tests {
    use trivet_model::SeededRandom;

    use super::*;

    const CSR: &[u8] = b"a signing request";

    const OPENSSL: &str = "9fef23a838c3a89671dee9b0b8e89c4f57a1b1793239da73c6810f61ba0da93e";

    fn token(seed: u64) -> EnrolmentToken {
        EnrolmentToken::mint(&mut SeededRandom::new(seed))
    }

    #[test]
    fn the_proof_is_hmac_sha256_over_the_fixed_text_and_the_request() {
        // Computed with `openssl dgst -sha256 -mac HMAC -macopt hexkey:00..17`.
        let mut key = [0; 24];
        key.iter_mut().zip(0..).for_each(|(byte, at)| *byte = at);
        let proof = prove(&EnrolmentToken::from(key), CSR);
        let digits: String = proof.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(digits, OPENSSL);
    }

    #[test]
    fn only_the_right_token_and_the_same_request_redeem() {
        let proof = prove(&token(1), CSR);
        assert!(redeem(&token(1), None, CSR, &proof).is_ok());
        let wrong = Err(RedeemRefusal::WrongProof);
        assert_eq!(redeem(&token(2), None, CSR, &proof), wrong);
        assert_eq!(redeem(&token(1), None, b"a swapped request", &proof), wrong);
        assert_eq!(redeem(&token(1), None, CSR, b""), wrong);
        assert_eq!(redeem(&token(1), None, CSR, &proof[..31]), wrong);
        assert_eq!(redeem(&token(1), None, CSR, &[0; PROOF_BYTES]), wrong);
        for bit in 0..PROOF_BYTES * 8 {
            let mut guess = proof;
            guess[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(redeem(&token(1), None, CSR, &guess), wrong, "bit {bit}");
        }
    }

    #[test]
    fn a_token_is_redeemed_once_and_a_lost_answer_can_be_repeated() {
        let first = redeem(&token(1), None, CSR, &prove(&token(1), CSR)).unwrap();
        let again = redeem(&token(1), Some(&first), CSR, &prove(&token(1), CSR));
        assert_eq!(again, Ok(first));
        let other = b"another request";
        let refused = redeem(&token(1), Some(&first), other, &prove(&token(1), other));
        assert_eq!(refused, Err(RedeemRefusal::Redeemed));
        // Without a valid proof a caller does not learn that it was redeemed.
        let refused = redeem(&token(1), Some(&first), other, &[0; PROOF_BYTES]);
        assert_eq!(refused, Err(RedeemRefusal::WrongProof));
    }

    #[test]
    fn requests_have_a_limit() {
        for (length, good) in [
            (0, false),
            (1, true),
            (CSR_BYTES_MAX, true),
            (CSR_BYTES_MAX + 1, false),
        ] {
            let csr = vec![0x30; length];
            let redeemed = redeem(&token(1), None, &csr, &prove(&token(1), &csr));
            assert_eq!(redeemed.is_ok(), good, "{length}");
        }
        let limit = CSR_BYTES_MAX.to_string();
        assert!(RedeemRefusal::RequestSize.to_string().contains(&limit));
    }
}
