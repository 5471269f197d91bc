//! A client that accepts one certificate, byte for byte.
//!
//! The Ironic Python Agent makes its own certificate at boot and sends it with its heartbeat.
//! It is signed ecdsa-with-SHA512, which `ring` does not verify, so it cannot be a root. It
//! need not be one: a server that presents exactly these bytes and signs the handshake with
//! their key is the agent that sent them. Names and dates in it are ignored, since the node's
//! clock may be wrong.

use ring::digest::{SHA256, digest};
use rustls::ClientConfig;

use crate::config::one_certificate;
use crate::{TlsConfigError, TrustPolicy, verifying_client_config};

/// TLS for a client that connects to the owner of exactly this certificate.
pub fn pinned_client_config(pem: &str) -> Result<ClientConfig, TlsConfigError> {
    let certificate = one_certificate(pem)?;
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest(&SHA256, &certificate).as_ref());
    let (config, _) = verifying_client_config(&TrustPolicy::Fingerprint(fingerprint))?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::sign::{CertifiedKey, SingleCertAndKey};
    use rustls::{CertificateError, Error, ProtocolVersion, ServerConfig};
    use trivet_certs_authority::Authority;

    use super::*;
    use crate::config::tests::{NOW_UNIX_S, handshake};
    use crate::config::{private_key, provider};
    use crate::{server_config, trusting_client_config};

    /// As the stock agent makes it with OpenSSL: curve P-384, signed ecdsa-with-SHA512.
    const AGENT_PEM: &str = include_str!("../testdata/agent-p384-sha512.pem");
    const AGENT_KEY: &str = include_str!("../testdata/agent-p384.key");

    fn agent() -> ServerConfig {
        server_config(AGENT_PEM, AGENT_KEY).unwrap()
    }

    fn other_server() -> ServerConfig {
        let authority = Authority::create(NOW_UNIX_S, "other").unwrap();
        let names = ["192.0.2.77".to_owned()];
        let (chain, key) = authority
            .server_certificate(&names, &[], NOW_UNIX_S)
            .unwrap();
        server_config(&chain, &key).unwrap()
    }

    #[test]
    fn the_agents_own_certificate_is_accepted_under_any_name() {
        for name in ["192.0.2.77", "127.0.0.1", "node.example"] {
            let pair = handshake(pinned_client_config(AGENT_PEM).unwrap(), agent(), name).unwrap();
            assert_eq!(
                pair.client.protocol_version(),
                Some(ProtocolVersion::TLSv1_3)
            );
        }
    }

    #[test]
    fn tls_1_2_checks_the_signature_as_well() {
        let key = provider()
            .key_provider
            .load_private_key(private_key(AGENT_KEY).unwrap());
        let chain = vec![one_certificate(AGENT_PEM).unwrap()];
        let certified = CertifiedKey::new(chain, key.unwrap());
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        let client = pinned_client_config(AGENT_PEM).unwrap();
        let pair = handshake(client, server, "node.example").unwrap();
        assert_eq!(
            pair.client.protocol_version(),
            Some(ProtocolVersion::TLSv1_2)
        );
    }

    #[test]
    fn another_server_is_refused() {
        let client = pinned_client_config(AGENT_PEM).unwrap();
        let error = handshake(client, other_server(), "192.0.2.77")
            .err()
            .unwrap();
        let want = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        assert_eq!(error, want);
    }

    /// The certificate is public: presenting it proves nothing without its key.
    #[test]
    fn the_right_certificate_with_a_wrong_key_is_refused() {
        let wrong = Authority::create(NOW_UNIX_S, "other").unwrap().key_pem();
        let key = provider()
            .key_provider
            .load_private_key(private_key(&wrong).unwrap());
        for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
            let chain = vec![one_certificate(AGENT_PEM).unwrap()];
            let certified = CertifiedKey::new(chain, key.clone().unwrap());
            let server = ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(versions)
                .unwrap()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
            let client = pinned_client_config(AGENT_PEM).unwrap();
            assert!(handshake(client, server, "192.0.2.77").is_err());
        }
    }

    #[test]
    fn a_certificate_of_the_box_can_be_pinned_too() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let names = ["node".to_owned()];
        let (chain, key) = authority
            .server_certificate(&names, &[], NOW_UNIX_S)
            .unwrap();
        let end = "-----END CERTIFICATE-----\n";
        let leaf = &chain[..chain.find(end).unwrap() + end.len()];
        let server = server_config(&chain, &key).unwrap();
        handshake(pinned_client_config(leaf).unwrap(), server, "10.0.0.1").unwrap();
    }

    #[test]
    fn text_that_is_not_a_single_certificate_cannot_be_pinned() {
        for text in ["", "hello", AGENT_KEY, &format!("{AGENT_PEM}{AGENT_PEM}")] {
            assert!(pinned_client_config(text).is_err());
        }
    }

    /// Why the pin exists: as a root the same certificate does not work.
    #[test]
    fn the_agents_certificate_does_not_work_as_a_root() {
        let trusting = trusting_client_config(AGENT_PEM);
        assert!(trusting.is_err() || handshake(trusting.unwrap(), agent(), "192.0.2.77").is_err());
    }
}
