//! TLS to the box: which certificates are trusted.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use trivet_net_tls::{
    TlsConfigError, TrustPolicy, bundled_client_config, system_authorities, verifying_client_config,
};

use crate::connection::CliServerTrust;
use crate::fault::CliFault;

pub(super) fn config(trust: &CliServerTrust) -> Result<Arc<ClientConfig>, CliFault> {
    let invalid = |error: TlsConfigError| CliFault::usage(format!("--ca: {error}"));
    let config = match trust {
        CliServerTrust::AnyCertificate => {
            let config = verifying_client_config(&TrustPolicy::AnyCertificate);
            config.map_err(invalid)?.0
        }
        CliServerTrust::Authorities(pem) => bundled_client_config(std::slice::from_ref(pem))
            .map_err(|error| match error {
                TlsConfigError::NoCertificates => {
                    CliFault::usage("--ca: the file contains no CA certificate")
                }
                other => invalid(other),
            })?,
        CliServerTrust::System => {
            let chosen = std::env::var_os("SSL_CERT_FILE");
            let bundle = system_authorities(chosen.as_deref().map(Path::new));
            let bundle = bundle.ok_or_else(no_authorities)?;
            bundled_client_config(&[bundle]).map_err(|_| no_authorities())?
        }
    };
    Ok(Arc::new(config))
}

fn no_authorities() -> CliFault {
    CliFault::usage("this system has no list of trusted CAs: give the box's with --ca FILE")
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
            let fault = config(&CliServerTrust::Authorities(text.to_owned()))
                .err()
                .unwrap();
            assert_eq!(fault.exit, Exit::Usage);
        }
        assert!(config(&CliServerTrust::AnyCertificate).is_ok());
    }
}
