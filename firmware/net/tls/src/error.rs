//! Why TLS could not be set up.

/// Why a certificate, a key or TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
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
    /// rustls rejected the certificate, the key or the protocol settings.
    #[error("TLS could not be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The certificate cannot be used as a root.
    #[error("the certificate cannot be trusted as a root: {0}")]
    Root(#[source] rustls::Error),
    /// No certificates of clients can be verified with the certificate.
    #[error("certificates of clients cannot be verified: {0}")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
    /// The name cannot be in a certificate.
    #[error("the name of a client is not a DNS name")]
    Name,
}
