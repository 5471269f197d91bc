//! The box's certificate authority.
//!
//! Decides the content of the box's certificates: names, dates, serials, key usage (RFC 5280). It
//! does not know files or clocks: texts go in and out, and the time is an argument. The TLS
//! settings of listeners and clients are in `trivet-net-tls`.

mod authority;
mod client_certificate;
mod error;

pub use crate::authority::{
    Authority, BACKDATE_DAYS, CA_DAYS, CLOCK_FLOOR_UNIX_S, NAMES_MAX, SERVER_DAYS,
};
pub use crate::client_certificate::{NODE_DAYS, NodeSigningRequest};
pub use crate::error::AuthorityError;
