//! TLS to the box: which certificates are trusted.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

use crate::connection::CliServerTrust;
use crate::fault::CliFault;

/// Where systems store the CA certificates they trust.
const SYSTEM_FILES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Longest such file. Ours: those of distributions have about 250 KB.
const SYSTEM_BYTES_MAX: u64 = 16 << 20;

pub(super) fn connector(trust: &CliServerTrust) -> Result<TlsConnector, CliFault> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| CliFault::usage(format!("TLS cannot be set up: {error}")))?;
    let mut config = match trust {
        CliServerTrust::AnyCertificate => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
            .with_no_client_auth(),
        CliServerTrust::Authorities(pem) => {
            let roots = roots(pem.as_bytes());
            if roots.is_empty() {
                return Err(CliFault::usage("--ca: the file contains no CA certificate"));
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        CliServerTrust::System => builder
            .with_root_certificates(system()?)
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The name that the certificate must have.
pub(super) fn name(host: &str) -> Result<ServerName<'static>, CliFault> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| CliFault::usage("the address of the box has an invalid host name"))
}

fn roots(pem: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    roots.add_parsable_certificates(certificates);
    roots
}

fn system() -> Result<RootCertStore, CliFault> {
    let chosen = std::env::var("SSL_CERT_FILE").ok();
    let files = chosen.as_deref().into_iter().chain(SYSTEM_FILES);
    for file in files {
        let short = std::fs::metadata(file).is_ok_and(|found| found.len() <= SYSTEM_BYTES_MAX);
        if let Ok(pem) = std::fs::read(file)
            && short
        {
            return Ok(roots(&pem));
        }
    }
    Err(CliFault::usage(
        "this system has no list of trusted CAs: give the box's with --ca FILE",
    ))
}

/// Trusts every certificate, but verifies that the peer has its key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_file_without_certificates_is_a_mistake() {
        for text in [
            "",
            "hello",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let fault = connector(&CliServerTrust::Authorities(text.to_owned()))
                .err()
                .unwrap();
            assert_eq!(fault.exit, Exit::Usage);
        }
        assert!(connector(&CliServerTrust::AnyCertificate).is_ok());
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        for host in ["box", "box.example", "192.0.2.1", "::1"] {
            assert!(name(host).is_ok(), "{host}");
        }
        assert!(name("a b").is_err());
    }
}
