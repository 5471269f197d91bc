//! TLS settings of the box's listeners and clients.
//!
//! This crate decides which server certificates a client trusts: authorities (`config.rs`), one
//! certificate (`pin.rs`), one fingerprint or any certificate (`server_verifier.rs`). One
//! provider, `ring`, is named everywhere: none is installed for the whole process. Texts go in
//! and settings come out; only `system.rs` reads files. The handshake is that of RFC 8446.

mod client_identity;
mod config;
mod error;
mod pin;
mod server_verifier;
mod system;

pub use crate::client_identity::{
    BOX_CLIENT_NAME, ClientIdentity, ClientPolicy, NODE_URI_PREFIX, PeerCertificate,
    mutual_server_config,
};
pub use crate::config::{
    BUNDLE_BYTES_MAX, PEM_BYTES_MAX, bundled_client_config, one_certificate, private_key, provider,
    server_config, trusting_client_config,
};
pub use crate::error::TlsConfigError;
pub use crate::pin::pinned_client_config;
pub use crate::server_verifier::{PeerFingerprint, TrustPolicy, verifying_client_config};
pub use crate::system::system_authorities;
