//! Why a request has no response.

use std::io;

/// Why a request has no response. The text is the end of a sentence that begins with the server.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No connection.
    #[error("cannot be reached: {0}")]
    Connect(#[source] io::Error),
    /// No connection through the proxy.
    #[error("cannot be reached through the proxy: {0}")]
    Proxy(#[source] io::Error),
    /// The proxy refused to open a tunnel; with the first line of its response.
    #[error("is refused by the proxy: {0}")]
    ProxyRefused(String),
    /// The connection took too long.
    #[error("cannot be reached: no connection in time")]
    ConnectTimedOut,
    /// The host is neither an address nor a name that a certificate can have.
    #[error("has a host name that is invalid in a certificate")]
    InvalidName,
    /// The TLS handshake failed.
    #[error("is not trusted: {}", chain(.0))]
    Tls(#[source] io::Error),
    /// The request cannot be written as HTTP.
    #[error("is not a valid URL")]
    InvalidRequest,
    /// There is a connection, and the server did not begin to speak HTTP over it.
    #[error("disconnected: {}", chain(.0))]
    Handshake(#[source] hyper::Error),
    /// The connection ended before the response did, or what arrived is not HTTP.
    #[error("disconnected: {}", chain(.0))]
    Disconnected(#[source] hyper::Error),
    /// The response took too long.
    #[error("does not answer")]
    ResponseTimedOut,
    /// The body of the response is longer than the limit.
    #[error("sends more than {bytes_max} bytes")]
    TooLong {
        /// The limit.
        bytes_max: usize,
    },
}

impl HttpError {
    /// The cause alone, for sentences that say themselves what failed.
    pub fn cause(&self) -> String {
        match self {
            Self::Connect(error) | Self::Proxy(error) | Self::Tls(error) => error.to_string(),
            Self::Handshake(error) | Self::Disconnected(error) => error.to_string(),
            Self::ConnectTimedOut => "no connection in time".to_owned(),
            Self::ResponseTimedOut => "no answer in time".to_owned(),
            other => other.to_string(),
        }
    }

    /// The error of the TLS handshake, if it is not one of the connection.
    pub fn tls_error(&self) -> Option<&rustls::Error> {
        match self {
            Self::Tls(error) => error.get_ref()?.downcast_ref(),
            _ => None,
        }
    }
}

/// An error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
