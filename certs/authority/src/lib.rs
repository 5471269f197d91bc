//! The box's certificate authority and its TLS settings.
//!
//! Decides the content of the box's certificates (names, dates, serials, key usage) and the TLS
//! settings of the listeners. One provider, `ring`, is named everywhere: none is installed for
//! the whole process. It does not know files or clocks: texts go in and out, and the time is an
//! argument. Certificates follow RFC 5280, the handshake RFC 8446.

mod authority;
mod error;
mod pin;
mod server_verifier;
mod tls;

pub use crate::authority::{
    Authority, BACKDATE_DAYS, CA_DAYS, CLOCK_FLOOR_UNIX_S, NAMES_MAX, SERVER_DAYS,
};
pub use crate::error::AuthorityError;
pub use crate::pin::pinned_client_config;
pub use crate::server_verifier::{PeerFingerprint, TrustPolicy, verifying_client_config};
pub use crate::tls::{
    BUNDLE_BYTES_MAX, PEM_BYTES_MAX, bundled_client_config, server_config, trusting_client_config,
};
