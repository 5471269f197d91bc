//! TLS settings of listeners and clients: protocol versions, ALPN, resumption, trust.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::TlsConfigError;

/// Longest PEM text that is accepted. Ours: an agent's certificate comes from the network and
/// is about 1 KiB.
pub const PEM_BYTES_MAX: usize = 64 * 1024;

/// The protocol of every listener and client of the box.
const ALPN: &[u8] = b"http/1.1";

/// The cryptography of every listener and client.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// TLS for a listener of the box: a chain and its key, both PEM.
///
/// Sessions are not resumed: a resumed session would keep the client's identity of the first
/// one and would outlive its revocation.
pub fn server_config(chain_pem: &str, key_pem: &str) -> Result<ServerConfig, TlsConfigError> {
    server_config_with(chain_pem, key_pem, WebPkiClientVerifier::no_client_auth())
}

/// The same with a verifier of the certificates of clients.
pub(crate) fn server_config_with(
    chain_pem: &str,
    key_pem: &str,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, TlsConfigError> {
    let chain = certificates(chain_pem)?;
    if chain.is_empty() {
        return Err(TlsConfigError::NoCertificates);
    }
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, private_key(key_pem)?)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// TLS for a client that trusts only one authority.
pub fn trusting_client_config(ca_pem: &str) -> Result<ClientConfig, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    roots
        .add(one_certificate(ca_pem)?)
        .map_err(TlsConfigError::Root)?;
    trusting(roots)
}

fn trusting(roots: RootCertStore) -> Result<ClientConfig, TlsConfigError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// Longest CA bundle that is accepted. Ours; Mozilla's is a quarter of that.
pub const BUNDLE_BYTES_MAX: usize = 1024 * 1024;

/// TLS for a client that trusts every authority in these bundles. Unusable ones are skipped,
/// because bundles of operating systems contain some; a bundle without any usable one is an
/// error.
pub fn bundled_client_config(bundles: &[String]) -> Result<ClientConfig, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for bundle in bundles {
        if bundle.len() > BUNDLE_BYTES_MAX {
            return Err(TlsConfigError::TooLong {
                bytes: bundle.len(),
                most: BUNDLE_BYTES_MAX,
            });
        }
        let list = CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten();
        let (used, _) = roots.add_parsable_certificates(list);
        if used == 0 {
            return Err(TlsConfigError::NoCertificates);
        }
    }
    trusting(roots)
}

pub(crate) fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    check_length(pem)?;
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| TlsConfigError::NoCertificates)
}

/// The certificate in a PEM text that has exactly one.
pub fn one_certificate(pem: &str) -> Result<CertificateDer<'static>, TlsConfigError> {
    check_length(pem)?;
    let mut list = CertificateDer::pem_slice_iter(pem.as_bytes());
    match (list.next(), list.next()) {
        (Some(Ok(only)), None) => Ok(only),
        _ => Err(TlsConfigError::NotOneCertificate),
    }
}

/// The private key in a PEM text.
pub fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    check_length(pem)?;
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| TlsConfigError::NoKey)
}

fn check_length(pem: &str) -> Result<(), TlsConfigError> {
    if pem.len() > PEM_BYTES_MAX {
        return Err(TlsConfigError::TooLong {
            bytes: pem.len(),
            most: PEM_BYTES_MAX,
        });
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io;
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use rustls::time_provider::TimeProvider;
    use rustls::{ClientConnection, ProtocolVersion, ServerConnection};
    use rustls_pki_types::{ServerName, UnixTime};
    use trivet_certs_authority::Authority;

    use super::*;

    pub(crate) const NOW_UNIX_S: u64 = 1_802_000_000;

    /// Both ends after a handshake in memory.
    pub(crate) struct Pair {
        pub(crate) client: ClientConnection,
        pub(crate) server: ServerConnection,
    }

    /// Certificates are verified at `NOW_UNIX_S`, whenever the test runs.
    #[derive(Debug)]
    struct FixedTime;

    impl TimeProvider for FixedTime {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(Duration::from_secs(NOW_UNIX_S)))
        }
    }

    pub(crate) fn fixed_time() -> Arc<dyn TimeProvider> {
        Arc::new(FixedTime)
    }

    /// Runs a handshake in memory: bytes are passed on until neither side has any.
    pub(crate) fn handshake(
        mut client: ClientConfig,
        server: ServerConfig,
        name: &str,
    ) -> Result<Pair, rustls::Error> {
        client.time_provider = Arc::new(FixedTime);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        let mut server = ServerConnection::new(Arc::new(server))?;
        while client.wants_write() || server.wants_write() {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            feed(&mut bytes.as_slice(), |from| server.read_tls(from));
            server.process_new_packets()?;
            let mut bytes = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            feed(&mut bytes.as_slice(), |from| client.read_tls(from));
            client.process_new_packets()?;
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        Ok(Pair { client, server })
    }

    fn feed(bytes: &mut &[u8], mut read: impl FnMut(&mut dyn io::Read) -> io::Result<usize>) {
        while !bytes.is_empty() {
            read(bytes).unwrap();
        }
    }

    fn server(authority: &Authority) -> ServerConfig {
        let names = ["box.example".to_owned()];
        let ips = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))];
        let (chain, key) = authority
            .server_certificate(&names, &ips, NOW_UNIX_S)
            .unwrap();
        server_config(&chain, &key).unwrap()
    }

    #[test]
    fn a_client_that_trusts_the_authority_accepts_names_and_addresses() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        for name in ["box.example", "192.0.2.1"] {
            let client = trusting_client_config(authority.certificate_pem()).unwrap();
            let pair = handshake(client, server(&authority), name).unwrap();
            assert_eq!(pair.client.alpn_protocol(), Some(ALPN));
            assert_eq!(
                pair.server.protocol_version(),
                Some(ProtocolVersion::TLSv1_3)
            );
        }
    }

    #[test]
    fn every_authority_of_a_bundle_is_trusted() {
        let ours = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let theirs = Authority::create(NOW_UNIX_S, "rack 8").unwrap();
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let bundle = [theirs.certificate_pem(), junk, ours.certificate_pem()].concat();
        let client = bundled_client_config(&[bundle]).unwrap();
        handshake(client, server(&ours), "box.example").unwrap();
        assert!(matches!(
            bundled_client_config(&[junk.to_owned()]),
            Err(TlsConfigError::NoCertificates)
        ));
        let long = "x".repeat(BUNDLE_BYTES_MAX + 1);
        assert!(bundled_client_config(&[long]).is_err());
    }

    #[test]
    fn a_name_that_is_not_in_the_certificate_is_refused() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let client = trusting_client_config(authority.certificate_pem()).unwrap();
        assert!(handshake(client, server(&authority), "other.example").is_err());
    }

    #[test]
    fn another_authority_with_the_same_name_is_not_trusted() {
        let ours = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let theirs = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let client = trusting_client_config(ours.certificate_pem()).unwrap();
        assert!(handshake(client, server(&theirs), "box.example").is_err());
    }

    #[test]
    fn certificates_of_a_loaded_authority_verify_with_its_first_certificate() {
        let first = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let loaded = Authority::load(first.certificate_pem(), &first.key_pem()).unwrap();
        let client = trusting_client_config(first.certificate_pem()).unwrap();
        handshake(client, server(&loaded), "box.example").unwrap();
    }

    #[test]
    fn an_expired_certificate_is_refused() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let before_s = NOW_UNIX_S - 401 * 24 * 3600;
        let names = ["box.example".to_owned()];
        let (chain, key) = authority.server_certificate(&names, &[], before_s).unwrap();
        let client = trusting_client_config(authority.certificate_pem()).unwrap();
        let over = server_config(&chain, &key).unwrap();
        assert!(handshake(client, over, "box.example").is_err());
    }

    #[test]
    fn no_session_is_resumed() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let client = trusting_client_config(authority.certificate_pem()).unwrap();
        let server = server(&authority);
        for _ in 0..2 {
            let pair = handshake(client.clone(), server.clone(), "box.example").unwrap();
            assert_eq!(
                pair.client.handshake_kind(),
                Some(rustls::HandshakeKind::Full)
            );
        }
    }

    #[test]
    fn texts_without_certificate_or_key_are_refused() {
        let authority = Authority::create(NOW_UNIX_S, "rack 7").unwrap();
        let (cert, key) = (authority.certificate_pem(), authority.key_pem());
        assert!(matches!(
            server_config("", &key),
            Err(TlsConfigError::NoCertificates)
        ));
        assert!(matches!(
            server_config(cert, cert),
            Err(TlsConfigError::NoKey)
        ));
        let two = format!("{cert}{cert}");
        for text in ["", "-----BEGIN CERTIFICATE-----\n!\n", &two] {
            let error = trusting_client_config(text).unwrap_err();
            assert!(
                matches!(error, TlsConfigError::NotOneCertificate),
                "{error}"
            );
        }
        let junk = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(
            trusting_client_config(junk),
            Err(TlsConfigError::Root(_))
        ));
    }

    #[test]
    fn a_text_over_the_limit_is_not_parsed() {
        let long = " ".repeat(PEM_BYTES_MAX + 1);
        assert!(matches!(
            one_certificate(&long),
            Err(TlsConfigError::TooLong { .. })
        ));
        assert!(matches!(
            certificates(&long),
            Err(TlsConfigError::TooLong { .. })
        ));
        assert!(matches!(
            private_key(&long),
            Err(TlsConfigError::TooLong { .. })
        ));
    }
}
