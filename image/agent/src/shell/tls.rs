//! The certificate of the agent's own API: made at each start, for the address that the
//! appliance calls. The appliance trusts exactly this certificate, which it gets with each
//! heartbeat (`agent_verify_ca`).

use std::net::IpAddr;
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls::ServerConfig;
use time::{Duration, OffsetDateTime};
use trivet_net_tls::{
    BOX_CLIENT_NAME, ClientPolicy, TlsConfigError, mutual_server_config, server_config,
};

/// How far the clock of the appliance may be behind. The stock agent's
/// `auto_tls_allowed_clock_skew`.
const CLOCK_SKEW: Duration = Duration::HOUR;

/// How long the certificate is valid. Ours: longer than a machine with fast track waits.
const VALID_DAYS: i64 = 400;

/// Certificate and key of the agent's own API.
#[derive(Clone, Debug)]
pub struct AgentTlsIdentity {
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// The settings of the listener.
    pub(crate) server: Arc<ServerConfig>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AgentTlsError {
    /// The host is neither a name nor an address.
    #[error("{0} cannot be in a certificate")]
    Name(String),
    /// The key or the certificate could not be made.
    #[error("no certificate for the agent's own API")]
    Make(#[from] rcgen::Error),
    /// The listener does not accept them.
    #[error("no TLS for the agent's own API")]
    Settings(#[from] TlsConfigError),
}

impl AgentTlsIdentity {
    /// Makes a key and a certificate for this host, an address or a name. With the certificate of
    /// a CA (PEM) the listener accepts only the box of that CA.
    pub fn create(
        host: &str,
        now_unix_s: i64,
        ca_pem: Option<&str>,
    ) -> Result<Self, AgentTlsError> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => {
                let name = host.try_into();
                SanType::DnsName(name.map_err(|_| AgentTlsError::Name(host.to_owned()))?)
            }
        };
        let now = OffsetDateTime::from_unix_timestamp(now_unix_s);
        let now = now.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![name];
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, host);
        params.not_before = now - CLOCK_SKEW;
        params.not_after = now + Duration::days(VALID_DAYS);
        let key = KeyPair::generate()?;
        let certificate_pem = params.self_signed(&key)?.pem();
        let key_pem = key.serialize_pem();
        let server = match ca_pem {
            Some(ca) => {
                let callers = ClientPolicy::Named(ca, BOX_CLIENT_NAME);
                mutual_server_config(&certificate_pem, &key_pem, callers)?
            }
            None => server_config(&certificate_pem, &key_pem)?,
        };
        Ok(Self {
            certificate_pem,
            server: Arc::new(server),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_the_address_or_the_name() {
        for host in ["192.0.2.7", "[2001:db8::1]", "node1.example"] {
            let identity = AgentTlsIdentity::create(host, 1_802_000_000, None).unwrap();
            assert!(
                identity
                    .certificate_pem
                    .starts_with("-----BEGIN CERTIFICATE")
            );
        }
        let error = AgentTlsIdentity::create("\u{fc}node", 0, None).unwrap_err();
        assert!(matches!(error, AgentTlsError::Name(_)));
    }
}
