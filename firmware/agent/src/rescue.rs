//! The rescue password: hashed before it is stored, sent once.

use sha_crypt::{PasswordHasher as _, ShaCrypt};
use trivet_model::Entropy;
use trivet_model::secret::SecretText;

/// The key of the hash in `instance_info`, as in Ironic.
pub(crate) const RESCUE_HASH: &str = "hashed_rescue_password";

/// Longest rescue password. Ours: the hash takes time with the square of it.
pub const RESCUE_PASSWORD_BYTES_MAX: usize = 255;

/// Bytes of salt: encoded they are sixteen characters, the most that crypt uses.
const SALT_BYTES: usize = 12;

/// The password in the format of crypt (SHA-512), which the agent writes into its own
/// `/etc/shadow`; none where it is too long.
pub fn rescue_hash(password: &str, entropy: &mut dyn Entropy) -> Option<SecretText> {
    if password.len() > RESCUE_PASSWORD_BYTES_MAX {
        return None;
    }
    let mut salt = [0; SALT_BYTES];
    entropy.fill(&mut salt);
    let hash = ShaCrypt::default().hash_password_with_salt(password.as_bytes(), &salt);
    hash.ok().map(|hash| SecretText::new(hash.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha_crypt::PasswordVerifier as _;
    use trivet_model::SeededRandom;

    #[test]
    fn a_hash_verifies_its_password_and_no_other() {
        let hash = rescue_hash("hunter2", &mut SeededRandom::new(1)).unwrap();
        assert!(hash.reveal().starts_with("$6$"));
        let verify = |guess: &[u8]| ShaCrypt::default().verify_password(guess, hash.reveal());
        assert!(verify(b"hunter2").is_ok() && verify(b"hunter3").is_err());
        let other = rescue_hash("hunter2", &mut SeededRandom::new(2)).unwrap();
        assert_ne!(hash, other, "the salt differs");
    }

    #[test]
    fn the_hash_is_that_of_crypt() {
        // From the specification of SHA-crypt.
        let known = "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4O\
                     TLiBFdcbYEdFCoEOfaS35inz1";
        let right = ShaCrypt::default().verify_password(b"Hello world!", known);
        assert!(right.is_ok());
    }

    #[test]
    fn a_password_without_end_is_not_hashed() {
        let long = "x".repeat(RESCUE_PASSWORD_BYTES_MAX + 1);
        assert_eq!(rescue_hash(&long, &mut SeededRandom::new(1)), None);
    }
}
