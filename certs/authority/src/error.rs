//! Errors of certificates, and what to do then.

use trivet_net_tls::TlsConfigError;

/// Why a certificate was not made or an authority not loaded.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// rcgen or the random source reported an error.
    #[error("a certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
    /// A signing request cannot be read, or its signature is wrong.
    #[error("the signing request cannot be used: {0}")]
    Request(#[source] rcgen::Error),
    /// The operating system gave no random bytes.
    #[error("no random bytes for a serial number: wait until the random pool is ready")]
    Random,
    /// The clock is outside the range of certificates.
    #[error("the clock says {now_unix_s} s after 1970, which no certificate can hold: set it")]
    Clock {
        /// The time given.
        now_unix_s: u64,
    },
    /// A server certificate without a name.
    #[error("a server certificate needs at least one name or address")]
    NoNames,
    /// More names than fit.
    #[error("{count} names and addresses for one certificate, at most {most} fit")]
    TooManyNames {
        /// How many were given.
        count: usize,
        /// How many are allowed.
        most: usize,
    },
    /// A PEM text cannot be used.
    #[error(transparent)]
    Pem(#[from] TlsConfigError),
    /// Certificate and key belong to different authorities.
    #[error("certificate and key do not belong together: restore both from one backup")]
    KeyMismatch,
    /// The certificate is not allowed to sign others.
    #[error("the certificate is not an authority's: it may not sign certificates")]
    NotAnAuthority,
    /// rustls rejected the key.
    #[error("the key cannot be used: {0}")]
    Key(#[from] rustls::Error),
}
