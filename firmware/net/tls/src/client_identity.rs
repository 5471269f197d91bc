//! Certificates of clients: which a listener asks for, whom they name, and how a client shows
//! its own.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use webpki::EndEntityCert;

use crate::TlsConfigError;
use crate::config::{certificates, one_certificate, private_key, provider, server_config_with};

/// The name in the certificate that the box shows to agents. Certificates of nodes have no DNS
/// names, so no node can pose as the box.
pub const BOX_CLIENT_NAME: &str = "box.trivet.internal";

/// What precedes the UUID of a node in its certificate (RFC 9562, section 4).
pub const NODE_URI_PREFIX: &str = "urn:uuid:";

/// Which certificates of clients a listener accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClientPolicy<'a> {
    /// One of this authority (PEM), or none. Another one ends the handshake.
    Optional(&'a str),
    /// One of this authority (PEM) with this DNS name. Without it the handshake fails.
    Named(&'a str, &'a str),
}

/// TLS for a listener that asks for certificates of clients: a chain and its key, both PEM.
pub fn mutual_server_config(
    chain_pem: &str,
    key_pem: &str,
    clients: ClientPolicy<'_>,
) -> Result<ServerConfig, TlsConfigError> {
    let (ClientPolicy::Optional(ca_pem) | ClientPolicy::Named(ca_pem, _)) = clients;
    let mut roots = RootCertStore::empty();
    roots
        .add(one_certificate(ca_pem)?)
        .map_err(TlsConfigError::Root)?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let verifier: Arc<dyn ClientCertVerifier> = match clients {
        ClientPolicy::Optional(_) => builder
            .allow_unauthenticated()
            .build()
            .map_err(TlsConfigError::Verifier)?,
        ClientPolicy::Named(_, name) => Arc::new(NamedClientVerifier {
            signed: builder.build().map_err(TlsConfigError::Verifier)?,
            name: ServerName::try_from(name.to_owned()).map_err(|_| TlsConfigError::Name)?,
        }),
    };
    server_config_with(chain_pem, key_pem, verifier)
}

/// Verifies the signature of the authority, and the name.
#[derive(Debug)]
struct NamedClientVerifier {
    signed: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NamedClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .signed
            .verify_client_cert(end_entity, intermediates, now)?;
        let refuse = |_| Error::InvalidCertificate(CertificateError::NotValidForName);
        let certificate = EndEntityCert::try_from(end_entity).map_err(refuse)?;
        let named = certificate.verify_is_valid_for_subject_name(&self.name);
        named.map_err(refuse)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// What a verified certificate of a client says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerCertificate {
    /// The only URI that it names, if it names one.
    pub uri: Option<String>,
    /// SHA-256 of its public key (SubjectPublicKeyInfo, DER).
    pub key: [u8; 32],
}

impl PeerCertificate {
    /// Reads a certificate that was verified in a handshake.
    pub fn read(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(certificate).ok()?;
        let mut uris = certificate.valid_uri_names();
        let uri = uris.next().filter(|_| uris.next().is_none());
        Some(Self {
            uri: uri.map(str::to_owned),
            key: key_digest(&certificate),
        })
    }
}

/// SHA-256 of the public key of a certificate.
pub(crate) fn key_digest(certificate: &EndEntityCert<'_>) -> [u8; 32] {
    let mut key = [0; 32];
    let info = certificate.subject_public_key_info();
    key.copy_from_slice(digest(&SHA256, &info).as_ref());
    key
}

/// The certificate that a client shows, with its key.
#[derive(Clone, Debug)]
pub struct ClientIdentity(Arc<SingleCertAndKey>);

impl ClientIdentity {
    /// A chain and its key, both PEM.
    pub fn load(chain_pem: &str, key_pem: &str) -> Result<Self, TlsConfigError> {
        let chain = certificates(chain_pem)?;
        if chain.is_empty() {
            return Err(TlsConfigError::NoCertificates);
        }
        let key = provider()
            .key_provider
            .load_private_key(private_key(key_pem)?)?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match()?;
        Ok(Self(Arc::new(certified.into())))
    }

    /// The same settings for a client that shows this certificate.
    #[must_use]
    pub fn shown_by(&self, mut client: ClientConfig) -> ClientConfig {
        client.client_auth_cert_resolver = self.0.clone();
        client
    }
}

#[cfg(test)]
mod tests {
    use trivet_certs_authority::{Authority, NodeSigningRequest};

    use super::*;
    use crate::config::tests::{NOW_UNIX_S, handshake};
    use crate::{pinned_client_config, trusting_client_config};

    const UUID: &str = "11111111-2222-4333-8444-555555555555";

    /// The key of a node, and its signing request.
    const NODE_KEY: &str = include_str!("../testdata/node.key");
    const NODE_CSR: &str = include_str!("../testdata/node.csr");

    fn node_identity(authority: &Authority, now_unix_s: u64) -> ClientIdentity {
        let pem = node_certificate(authority, now_unix_s);
        ClientIdentity::load(&pem, NODE_KEY).unwrap()
    }

    fn node_certificate(authority: &Authority, now_unix_s: u64) -> String {
        let digits: String = NODE_CSR.split_whitespace().collect();
        let bytes: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        let request = NodeSigningRequest::parse(&bytes).unwrap();
        authority
            .node_certificate(&request, UUID, now_unix_s)
            .unwrap()
    }

    fn server(authority: &Authority, clients: ClientPolicy<'_>) -> ServerConfig {
        let names = ["box.example".to_owned()];
        let (chain, key) = authority
            .server_certificate(&names, &[], NOW_UNIX_S)
            .unwrap();
        let mut server = mutual_server_config(&chain, &key, clients).unwrap();
        server.time_provider = crate::config::tests::fixed_time();
        server
    }

    fn client(authority: &Authority) -> ClientConfig {
        trusting_client_config(authority.certificate_pem()).unwrap()
    }

    fn connect(
        client: ClientConfig,
        server: ServerConfig,
    ) -> Result<Option<PeerCertificate>, Error> {
        let pair = handshake(client, server, "box.example")?;
        let chain = pair.server.peer_certificates();
        Ok(chain.and_then(|chain| PeerCertificate::read(&chain[0])))
    }

    #[test]
    fn a_certificate_is_optional_and_names_its_node() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let policy = ClientPolicy::Optional(authority.certificate_pem());
        let none = connect(client(&authority), server(&authority, policy)).unwrap();
        assert_eq!(none, None);
        let node = node_identity(&authority, NOW_UNIX_S).shown_by(client(&authority));
        let shown = connect(node, server(&authority, policy)).unwrap().unwrap();
        assert_eq!(shown.uri, Some(format!("urn:uuid:{UUID}")));
        let der = one_certificate(&node_certificate(&authority, NOW_UNIX_S)).unwrap();
        assert_eq!(PeerCertificate::read(&der).unwrap().key, shown.key);
    }

    #[test]
    fn expired_foreign_and_server_certificates_end_the_handshake() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let other = Authority::create(NOW_UNIX_S, "rack 8").unwrap();
        let names = ["node".to_owned()];
        let (chain, key) = authority
            .server_certificate(&names, &[], NOW_UNIX_S)
            .unwrap();
        let long_ago = NOW_UNIX_S - 31 * 24 * 3600;
        for wrong in [
            node_identity(&authority, long_ago),
            node_identity(&other, NOW_UNIX_S),
            ClientIdentity::load(&chain, &key).unwrap(),
        ] {
            let policy = ClientPolicy::Optional(authority.certificate_pem());
            let client = wrong.shown_by(client(&authority));
            assert!(connect(client, server(&authority, policy)).is_err());
        }
    }

    #[test]
    fn only_the_box_is_accepted_by_an_agent() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let (chain, key) = authority.box_client_certificate(NOW_UNIX_S).unwrap();
        let the_box = ClientIdentity::load(&chain, &key).unwrap();
        let policy = ClientPolicy::Named(authority.certificate_pem(), BOX_CLIENT_NAME);
        let calls = |client| connect(client, server(&authority, policy));
        calls(the_box.shown_by(client(&authority))).unwrap();
        assert!(calls(client(&authority)).is_err(), "no certificate");
        let node = node_identity(&authority, NOW_UNIX_S);
        assert!(calls(node.shown_by(client(&authority))).is_err(), "a node");
        let other = Authority::create(NOW_UNIX_S, "rack 8").unwrap();
        let (chain, key) = other.box_client_certificate(NOW_UNIX_S).unwrap();
        let other_box = ClientIdentity::load(&chain, &key).unwrap();
        assert!(calls(other_box.shown_by(client(&authority))).is_err());
    }

    /// The box calls an agent whose certificate it pins, and shows its own.
    #[test]
    fn a_pinned_client_can_show_a_certificate() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let agent = include_str!("../testdata/agent-p384-sha512.pem");
        let key = include_str!("../testdata/agent-p384.key");
        let policy = ClientPolicy::Named(authority.certificate_pem(), BOX_CLIENT_NAME);
        let mut server = mutual_server_config(agent, key, policy).unwrap();
        server.time_provider = crate::config::tests::fixed_time();
        let (chain, key) = authority.box_client_certificate(NOW_UNIX_S).unwrap();
        let the_box = ClientIdentity::load(&chain, &key).unwrap();
        let client = the_box.shown_by(pinned_client_config(agent).unwrap());
        handshake(client, server, "192.0.2.7").unwrap();
    }

    #[test]
    fn texts_that_do_not_belong_together_are_refused() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let pem = node_certificate(&authority, NOW_UNIX_S);
        let (_, key) = authority.box_client_certificate(NOW_UNIX_S).unwrap();
        assert!(ClientIdentity::load(&pem, &key).is_err());
        assert!(ClientIdentity::load("", NODE_KEY).is_err());
        assert!(ClientIdentity::load(&pem, "").is_err());
        let policy = ClientPolicy::Named(authority.certificate_pem(), "not a name");
        assert!(mutual_server_config(&pem, NODE_KEY, policy).is_err());
    }
}
