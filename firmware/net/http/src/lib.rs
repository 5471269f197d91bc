//! The HTTP client: one request over one new connection, with deadlines and limits.
//!
//! All requests that the box, its commands and its agent send go through here. The caller decides
//! whom to trust (`trivet-net-tls`), what to retry and which redirects to follow; this crate does
//! none of that. It follows RFC 9110 and RFC 9112, with hyper's codec.

mod body;
mod client;
mod connection;
mod error;
mod proxy;
#[cfg(test)]
mod tests;

pub use body::HttpBody;
pub use client::{HttpClient, HttpServer, HttpTimeouts};
pub use error::HttpError;
