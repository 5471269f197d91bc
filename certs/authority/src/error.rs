//! Errors of certificates and TLS, and what to do then.

/// Why a certificate, key or TLS set-up was not made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// rcgen or the random source reported an error.
    #[error("a certificate could not be made: {0}")]
    Make(#[from] rcgen::Error),
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
    /// The text has no certificate, or more than one where one is expected.
    #[error("the text does not hold exactly one certificate in PEM form")]
    NotOneCertificate,
    /// The text has no certificate chain.
    #[error("the text holds no certificates in PEM form")]
    NoCertificates,
    /// The text has no private key.
    #[error("the text holds no private key in PEM form")]
    NoKey,
    /// The text is longer than the limit.
    #[error("the text is {bytes} bytes long, at most {most} are read")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// Certificate and key belong to different authorities.
    #[error("certificate and key do not belong together: restore both from one backup")]
    KeyMismatch,
    /// The certificate is not allowed to sign others.
    #[error("the certificate is not an authority's: it may not sign certificates")]
    NotAnAuthority,
    /// rustls rejected the certificate, the key or the protocol settings.
    #[error("TLS could not be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The authority's certificate cannot be used as a root.
    #[error("the certificate cannot be trusted as a root: {0}")]
    Root(#[source] rustls::Error),
}
