//! A TLS client for servers with mostly self-signed certificates, such as BMCs: it trusts
//! authorities, one fingerprint, or any certificate, and reports the fingerprint of the server,
//! so that an operator can compare it and decide.

use std::sync::{Arc, OnceLock};

use ring::digest::{SHA256, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::EndEntityCert;

use crate::TlsConfigError;
use crate::client_identity::key_digest;
use crate::config::{BUNDLE_BYTES_MAX, provider};

/// Which server certificates are trusted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TrustPolicy<'a> {
    /// A certificate signed by one in these PEM texts, or one of them itself. Without any, no
    /// server is trusted.
    Authorities(&'a [String]),
    /// The certificate with this SHA-256.
    Fingerprint([u8; 32]),
    /// A certificate signed by the authority whose public key has this SHA-256. The server sends
    /// that authority's certificate in its chain.
    AuthorityKey([u8; 32]),
    /// Any certificate: disables certificate verification, without protection against a man in
    /// the middle.
    AnyCertificate,
}

/// The SHA-256 of the certificate that the server presented in a handshake.
#[derive(Clone, Debug, Default)]
pub struct PeerFingerprint(Arc<OnceLock<[u8; 32]>>);

impl PeerFingerprint {
    /// Hexadecimal digits, if the server presented one.
    pub fn hex(&self) -> Option<String> {
        let bytes = self.0.get()?;
        let digits = bytes.map(|byte| format!("{byte:02x}"));
        Some(digits.concat())
    }
}

/// TLS for one connection to a server with this policy, and the fingerprint it will have
/// presented.
pub fn verifying_client_config(
    believed: &TrustPolicy<'_>,
) -> Result<(ClientConfig, PeerFingerprint), TlsConfigError> {
    let provider = provider();
    let shown = PeerFingerprint::default();
    let judgement = match believed {
        TrustPolicy::Authorities(bundles) => {
            let mut roots = RootCertStore::empty();
            let mut known = Vec::new();
            for bundle in *bundles {
                let own = authorities(bundle)?;
                // A certificate that cannot be a root may still be the server's own.
                roots.add_parsable_certificates(own.iter().cloned());
                known.extend(own);
            }
            let builder =
                WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
            // Without a root there is no such verifier.
            TrustRule::Signed(builder.build().ok(), known)
        }
        TrustPolicy::Fingerprint(bytes) => TrustRule::Fingerprint(*bytes),
        TrustPolicy::AuthorityKey(key) => TrustRule::AuthorityKey(*key),
        TrustPolicy::AnyCertificate => TrustRule::Any,
    };
    let judge = ServerVerifier {
        rule: judgement,
        fingerprint: shown.clone(),
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(judge))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session would skip the verification.
    config.resumption = rustls::client::Resumption::disabled();
    Ok((config, shown))
}

fn authorities(bundle: &str) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    if bundle.len() > BUNDLE_BYTES_MAX {
        return Err(TlsConfigError::TooLong {
            bytes: bundle.len(),
            most: BUNDLE_BYTES_MAX,
        });
    }
    let list: Vec<_> = CertificateDer::pem_slice_iter(bundle.as_bytes())
        .flatten()
        .collect();
    if list.is_empty() {
        return Err(TlsConfigError::NoCertificates);
    }
    Ok(list)
}

#[derive(Debug)]
enum TrustRule {
    Signed(
        Option<Arc<WebPkiServerVerifier>>,
        Vec<CertificateDer<'static>>,
    ),
    Fingerprint([u8; 32]),
    AuthorityKey([u8; 32]),
    Any,
}

#[derive(Debug)]
struct ServerVerifier {
    rule: TrustRule,
    fingerprint: PeerFingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

/// A verifier that trusts only the authority with this key, if the server has sent it.
fn authority_with_key(
    chain: &[CertificateDer<'_>],
    key: &[u8; 32],
) -> Option<Arc<WebPkiServerVerifier>> {
    let has_key = |certificate: &&CertificateDer<'_>| {
        EndEntityCert::try_from(*certificate).is_ok_and(|read| key_digest(&read) == *key)
    };
    let mut roots = RootCertStore::empty();
    roots
        .add(chain.iter().find(has_key)?.clone().into_owned())
        .ok()?;
    WebPkiServerVerifier::builder_with_provider(roots.into(), provider())
        .build()
        .ok()
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut seen = [0; 32];
        seen.copy_from_slice(digest(&SHA256, end_entity).as_ref());
        let _ = self.fingerprint.0.set(seen);
        let refuse = |why| Err(Error::InvalidCertificate(why));
        match &self.rule {
            TrustRule::Any => Ok(ServerCertVerified::assertion()),
            TrustRule::Fingerprint(wanted) if *wanted == seen => {
                Ok(ServerCertVerified::assertion())
            }
            TrustRule::Fingerprint(_) => refuse(CertificateError::ApplicationVerificationFailure),
            TrustRule::AuthorityKey(key) => match authority_with_key(intermediates, key) {
                Some(root) => {
                    root.verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
                }
                None => refuse(CertificateError::UnknownIssuer),
            },
            TrustRule::Signed(_, known) if known.iter().any(|one| one == end_entity) => {
                Ok(ServerCertVerified::assertion())
            }
            TrustRule::Signed(Some(roots), _) => {
                roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            TrustRule::Signed(None, _) => refuse(CertificateError::UnknownIssuer),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use trivet_certs_authority::Authority;

    use super::*;
    use crate::config::tests::{NOW_UNIX_S, handshake};
    use crate::server_config;

    const SELF_PEM: &str = include_str!("../testdata/agent-p384-sha512.pem");
    const SELF_KEY: &str = include_str!("../testdata/agent-p384.key");

    /// Runs a handshake with a server of this certificate: the presented fingerprint, and the
    /// result.
    fn handshake_with(
        believed: &TrustPolicy<'_>,
        pem: &str,
        key: &str,
    ) -> (Option<String>, Option<Error>) {
        let (config, shown) = verifying_client_config(believed).unwrap();
        let server = server_config(pem, key).unwrap();
        let end = handshake(config, server, "bmc.example").err();
        (shown.hex(), end)
    }

    fn fingerprint(pem: &str) -> [u8; 32] {
        let der = crate::config::one_certificate(pem).unwrap();
        digest(&SHA256, &der).as_ref().try_into().unwrap()
    }

    #[test]
    fn no_server_is_trusted_by_default_and_its_fingerprint_is_reported() {
        let (shown, end) = handshake_with(&TrustPolicy::Authorities(&[]), SELF_PEM, SELF_KEY);
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(end, Some(unknown));
        let digits: String = fingerprint(SELF_PEM)
            .map(|byte| format!("{byte:02x}"))
            .concat();
        assert_eq!(shown, Some(digits));
    }

    #[test]
    fn the_right_fingerprint_is_trusted_and_no_other() {
        let mut pin = fingerprint(SELF_PEM);
        assert_eq!(
            handshake_with(&TrustPolicy::Fingerprint(pin), SELF_PEM, SELF_KEY).1,
            None
        );
        pin[31] ^= 1;
        let (shown, end) = handshake_with(&TrustPolicy::Fingerprint(pin), SELF_PEM, SELF_KEY);
        assert!(end.is_some() && shown.is_some());
    }

    #[test]
    fn any_certificate_is_trusted_where_verification_is_disabled() {
        assert_eq!(
            handshake_with(&TrustPolicy::AnyCertificate, SELF_PEM, SELF_KEY).1,
            None
        );
    }

    #[test]
    fn authorities_are_checked_by_name_and_a_listed_certificate_is_trusted() {
        let site = Authority::create(NOW_UNIX_S, "site").unwrap();
        let bundle = [site.certificate_pem().to_owned()];
        for (name, good) in [("bmc.example", true), ("other.example", false)] {
            let names = [name.to_owned()];
            let (chain, key) = site.server_certificate(&names, &[], NOW_UNIX_S).unwrap();
            let (_, end) = handshake_with(&TrustPolicy::Authorities(&bundle), &chain, &key);
            assert_eq!(end.is_none(), good, "{name}");
        }
        assert!(
            handshake_with(&TrustPolicy::Authorities(&bundle), SELF_PEM, SELF_KEY)
                .1
                .is_some()
        );
        let own = [SELF_PEM.to_owned()];
        assert_eq!(
            handshake_with(&TrustPolicy::Authorities(&own), SELF_PEM, SELF_KEY).1,
            None
        );
    }

    #[test]
    fn an_authority_is_recognized_by_its_key_and_another_one_is_refused() {
        let site = Authority::create(NOW_UNIX_S, "site").unwrap();
        let other = Authority::create(NOW_UNIX_S, "site").unwrap();
        let names = ["bmc.example".to_owned()];
        let (chain, key) = site.server_certificate(&names, &[], NOW_UNIX_S).unwrap();
        let pinned = TrustPolicy::AuthorityKey(site.key_digest());
        assert_eq!(handshake_with(&pinned, &chain, &key).1, None);
        let wrong = TrustPolicy::AuthorityKey(other.key_digest());
        let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(
            handshake_with(&wrong, &chain, &key).1,
            Some(unknown.clone())
        );
        // The right authority beside a certificate that it did not sign.
        let (theirs, key) = other.server_certificate(&names, &[], NOW_UNIX_S).unwrap();
        let end = "-----END CERTIFICATE-----\n";
        let leaf = &theirs[..theirs.find(end).unwrap() + end.len()];
        let mixed = format!("{leaf}{}", site.certificate_pem());
        assert!(handshake_with(&pinned, &mixed, &key).1.is_some());
        // The name counts, and an authority that is not in the chain is unknown.
        let names = ["other.example".to_owned()];
        let (chain, key) = site.server_certificate(&names, &[], NOW_UNIX_S).unwrap();
        assert!(handshake_with(&pinned, &chain, &key).1.is_some());
        let alone = &chain[..chain.find(end).unwrap() + end.len()];
        assert_eq!(handshake_with(&pinned, alone, &key).1, Some(unknown));
    }

    /// A certificate is public: presenting it proves nothing.
    #[test]
    fn a_right_certificate_with_a_wrong_key_is_refused_by_every_policy() {
        let wrong = Authority::create(NOW_UNIX_S, "other").unwrap();
        let key = crate::config::private_key(&wrong.key_pem()).unwrap();
        let key = provider().key_provider.load_private_key(key).unwrap();
        let chain = vec![crate::config::one_certificate(SELF_PEM).unwrap()];
        let certified = rustls::sign::CertifiedKey::new(chain, key);
        let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
        for believed in [
            TrustPolicy::Fingerprint(fingerprint(SELF_PEM)),
            TrustPolicy::AnyCertificate,
        ] {
            for versions in [&[&rustls::version::TLS13], &[&rustls::version::TLS12]] {
                let server = rustls::ServerConfig::builder_with_provider(provider())
                    .with_protocol_versions(versions)
                    .unwrap()
                    .with_no_client_auth()
                    .with_cert_resolver(resolver.clone());
                let (config, _) = verifying_client_config(&believed).unwrap();
                assert!(handshake(config, server, "bmc.example").is_err());
            }
        }
    }

    #[test]
    fn texts_without_a_certificate_are_an_error() {
        for text in [
            String::new(),
            "hello".to_owned(),
            "x".repeat(BUNDLE_BYTES_MAX + 1),
        ] {
            assert!(verifying_client_config(&TrustPolicy::Authorities(&[text])).is_err());
        }
    }
}
