//! The box's key, which encrypts secrets at rest, and the trait for its storage on a board.

use std::error::Error;
use std::fmt;

use zeroize::Zeroize;

/// Length of the key in bytes.
pub const BOX_KEY_BYTES: usize = 32;

/// The key of one box. It is not printed and is zeroed on drop.
#[derive(Clone)]
pub struct BoxKey([u8; BOX_KEY_BYTES]);

impl BoxKey {
    /// A key of these bytes, which must come from a cryptographic random source.
    pub fn new(bytes: [u8; BOX_KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, to derive other keys from or to store them.
    pub fn expose(&self) -> &[u8; BOX_KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for BoxKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("BoxKey(..)")
    }
}

impl Drop for BoxKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// The storage of a box's key on a board.
pub trait KeyVault {
    /// The key; `None` if it was never made or is lost.
    fn key(&mut self) -> Result<Option<BoxKey>, KeyError>;

    /// Makes a new key if there is none. It is durable when this returns.
    fn make_key(&mut self) -> Result<BoxKey, KeyError>;
}

/// A key in memory is its own storage.
impl KeyVault for BoxKey {
    fn key(&mut self) -> Result<Option<BoxKey>, KeyError> {
        Ok(Some(self.clone()))
    }

    fn make_key(&mut self) -> Result<BoxKey, KeyError> {
        Ok(self.clone())
    }
}

/// The key cannot be read or stored. The source gives the reason.
#[derive(Debug, thiserror::Error)]
#[error("the box's key cannot be used")]
pub struct KeyError(#[source] pub Box<dyn Error + Send + Sync>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_printed() {
        let shown = format!("{:?}", BoxKey::new([0x5a; 32]));
        assert_eq!(shown, "BoxKey(..)");
    }

    #[test]
    fn a_key_in_memory_is_never_replaced() {
        let mut vault = BoxKey::new([7; 32]);
        let held = vault.key().expect("it is there").expect("it is held");
        assert_eq!(held.expose(), &[7; 32]);
        let made = vault.make_key().expect("it is there");
        assert_eq!(made.expose(), &[7; 32]);
    }
}
