//! Certificates of clients: nodes whose agents have enrolled, and the box when it calls an agent.

use rcgen::{
    CertificateSigningRequestParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SanType,
};
use ring::digest;
use trivet_net_tls::{BOX_CLIENT_NAME, NODE_URI_PREFIX};

use crate::authority::{SERVER_DAYS, params, subject};
use crate::{Authority, AuthorityError};

/// Validity of a node's certificate. It is accepted during one boot of its node; this is for an
/// agent that keeps running, and as long as the stock agent's own certificate.
pub const NODE_DAYS: i64 = 30;

/// A signing request whose signature was verified. Of its content only the public key is used.
#[derive(Clone, Debug)]
pub struct NodeSigningRequest {
    key: rcgen::PublicKey,
}

impl NodeSigningRequest {
    /// Reads a signing request (PKCS #10, DER) and verifies that its sender has the key.
    pub fn parse(der: &[u8]) -> Result<Self, AuthorityError> {
        let request = CertificateSigningRequestParams::from_der(&der.into())
            .map_err(AuthorityError::Request)?;
        Ok(Self {
            key: request.public_key,
        })
    }

    /// SHA-256 of the public key (SubjectPublicKeyInfo, DER).
    pub fn key_digest(&self) -> [u8; 32] {
        key_digest(&self.key.subject_public_key_info())
    }
}

fn key_digest(key: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, key).as_ref());
    bytes
}

impl Authority {
    /// SHA-256 of the authority's public key (SubjectPublicKeyInfo, DER), by which a machine
    /// recognizes the authority.
    pub fn key_digest(&self) -> [u8; 32] {
        key_digest(&self.issuer().key().subject_public_key_info())
    }

    /// A certificate for the agent of a node, PEM. `uuid` is the node's.
    pub fn node_certificate(
        &self,
        request: &NodeSigningRequest,
        uuid: &str,
        now_unix_s: u64,
    ) -> Result<String, AuthorityError> {
        let mut params = client_params(now_unix_s, NODE_DAYS, uuid)?;
        let uri = format!("{NODE_URI_PREFIX}{uuid}");
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        let certificate = params.signed_by(&request.key, self.issuer())?;
        Ok(certificate.pem())
    }

    /// A new certificate for the box as a client of agents: its chain and its key, both PEM.
    pub fn box_client_certificate(
        &self,
        now_unix_s: u64,
    ) -> Result<(String, String), AuthorityError> {
        // Made and renewed together with the server certificate.
        let mut params = client_params(now_unix_s, SERVER_DAYS, "box")?;
        params.subject_alt_names = vec![SanType::DnsName(BOX_CLIENT_NAME.try_into()?)];
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, self.issuer())?;
        let chain = format!("{}{}", certificate.pem(), self.certificate_pem());
        Ok((chain, key.serialize_pem()))
    }
}

fn client_params(
    now_unix_s: u64,
    days: i64,
    name: &str,
) -> Result<rcgen::CertificateParams, AuthorityError> {
    let mut params = params(now_unix_s, days)?;
    params.distinguished_name = subject(name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, DnType};
    use rustls::RootCertStore;
    use rustls::server::WebPkiClientVerifier;
    use rustls_pki_types::{CertificateDer, UnixTime};
    use trivet_net_tls::{one_certificate, provider};
    use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

    use super::*;

    const NOW_UNIX_S: u64 = 1_802_000_000;
    const DAY_S: u64 = 24 * 3600;
    const UUID: &str = "11111111-2222-4333-8444-555555555555";

    fn ours() -> Authority {
        Authority::create(NOW_UNIX_S, "rack 7").unwrap()
    }

    fn request(key: &KeyPair, params: &CertificateParams) -> Vec<u8> {
        params.serialize_request(key).unwrap().der().to_vec()
    }

    fn plain_request(key: &KeyPair) -> NodeSigningRequest {
        NodeSigningRequest::parse(&request(key, &CertificateParams::default())).unwrap()
    }

    fn key() -> KeyPair {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
    }

    /// The certificate of a node, whose key is dropped.
    fn node_certificate(authority: &Authority) -> CertificateDer<'static> {
        let pem = authority.node_certificate(&plain_request(&key()), UUID, NOW_UNIX_S);
        one_certificate(&pem.unwrap()).unwrap()
    }

    fn verify(
        authority: &Authority,
        certificate: &CertificateDer<'_>,
        unix_s: u64,
    ) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        let root = one_certificate(authority.certificate_pem()).unwrap();
        roots.add(root).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let at = UnixTime::since_unix_epoch(Duration::from_secs(unix_s));
        let verified = verifier
            .build()
            .unwrap()
            .verify_client_cert(certificate, &[], at);
        verified.map(drop)
    }

    #[test]
    fn the_certificate_of_a_node_names_only_the_node_and_has_the_requested_key() {
        let (authority, key) = (ours(), key());
        let request = plain_request(&key);
        let pem = authority
            .node_certificate(&request, UUID, NOW_UNIX_S)
            .unwrap();
        let der = one_certificate(&pem).unwrap();
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        let uri = format!("urn:uuid:{UUID}");
        assert_eq!(names.value.general_names, [GeneralName::URI(&uri)]);
        assert_eq!(parsed.public_key().raw, key.subject_public_key_info());
        assert_eq!(request.key_digest(), key_digest(parsed.public_key().raw));
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any);
        assert!(!parsed.is_ca());
    }

    #[test]
    fn a_node_certificate_is_valid_for_its_time_and_for_its_authority() {
        let authority = ours();
        let certificate = node_certificate(&authority);
        for (unix_s, good) in [
            (NOW_UNIX_S, true),
            // A box whose clock was a year ahead when it signed.
            (NOW_UNIX_S - 365 * DAY_S, true),
            (NOW_UNIX_S + 29 * DAY_S, true),
            (NOW_UNIX_S + 31 * DAY_S, false),
        ] {
            let verified = verify(&authority, &certificate, unix_s);
            assert_eq!(verified.is_ok(), good, "{unix_s}");
        }
        assert!(verify(&ours(), &certificate, NOW_UNIX_S).is_err());
    }

    #[test]
    fn a_server_certificate_is_not_one_of_a_client_and_a_nodes_is_not_one_of_a_server() {
        let authority = ours();
        let names = [BOX_CLIENT_NAME.to_owned()];
        let (chain, _) = authority
            .server_certificate(&names, &[], NOW_UNIX_S)
            .unwrap();
        let end = "-----END CERTIFICATE-----\n";
        let leaf = &chain[..chain.find(end).unwrap() + end.len()];
        let server = one_certificate(leaf).unwrap();
        assert!(verify(&authority, &server, NOW_UNIX_S).is_err());
        let (chain, _) = authority.box_client_certificate(NOW_UNIX_S).unwrap();
        let leaf = &chain[..chain.find(end).unwrap() + end.len()];
        let client = one_certificate(leaf).unwrap();
        verify(&authority, &client, NOW_UNIX_S).unwrap();
        let (_, parsed) = X509Certificate::from_der(&client).unwrap();
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(
            names.value.general_names,
            [GeneralName::DNSName(BOX_CLIENT_NAME)]
        );
    }

    #[test]
    fn names_and_rights_in_a_request_have_no_effect() {
        let (authority, key) = (ours(), key());
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![
            SanType::DnsName(BOX_CLIENT_NAME.try_into().unwrap()),
            SanType::URI(
                "urn:uuid:99999999-2222-4333-8444-555555555555"
                    .try_into()
                    .unwrap(),
            ),
        ];
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "admin");
        let request = NodeSigningRequest::parse(&request(&key, &params)).unwrap();
        let pem = authority
            .node_certificate(&request, UUID, NOW_UNIX_S)
            .unwrap();
        let der = one_certificate(&pem).unwrap();
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 1);
        assert!(!parsed.is_ca() && !parsed.key_usage().unwrap().unwrap().value.key_cert_sign());
        assert!(!parsed.subject().to_string().contains("admin"));
    }

    #[test]
    fn a_request_without_the_key_of_its_sender_is_refused() {
        let der = request(&key(), &CertificateParams::default());
        // The last bytes are the signature.
        let mut changed = der.clone();
        *changed.last_mut().unwrap() ^= 1;
        let error = NodeSigningRequest::parse(&changed).unwrap_err();
        assert!(
            error.to_string().starts_with("the signing request"),
            "{error}"
        );
        for wrong in [&b""[..], b"0", &der[..der.len() - 1]] {
            assert!(NodeSigningRequest::parse(wrong).is_err());
        }
        // The public key of somebody else, in a request signed with another key.
        let (mine, theirs) = (key(), key());
        let own = request(&mine, &CertificateParams::default());
        let swapped = replaced(&own, mine.der_bytes(), theirs.der_bytes());
        assert!(NodeSigningRequest::parse(&swapped).is_err());
    }

    fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
        let at = bytes.windows(old.len()).position(|part| part == old);
        let mut bytes = bytes.to_vec();
        bytes[at.unwrap()..][..new.len()].copy_from_slice(new);
        bytes
    }

    #[test]
    fn the_digest_of_an_authority_is_that_of_the_key_in_its_certificate() {
        let authority = ours();
        let der = one_certificate(authority.certificate_pem()).unwrap();
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        assert_eq!(authority.key_digest(), key_digest(parsed.public_key().raw));
        let loaded = Authority::load(authority.certificate_pem(), &authority.key_pem()).unwrap();
        assert_eq!(loaded.key_digest(), authority.key_digest());
        assert_ne!(ours().key_digest(), authority.key_digest());
    }
}
