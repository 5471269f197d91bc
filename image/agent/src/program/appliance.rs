//! Finds the appliance: which of its URLs answers, its newest microversion and its time.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::DATE;
use rustls::ClientConfig;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::sleep;
use trivet_agent_wire::VersionDocument;
use trivet_net_tls::{
    TrustPolicy, bundled_client_config, system_authorities, verifying_client_config,
};

use super::log;
use crate::parameters::AgentParameters;
use crate::shell::AgentHttpClient;

/// What the stock agent assumes when the appliance does not say.
const MINOR_ASSUMED: u32 = 31;

/// Pause after no URL answered, and the longest one. Ours.
const RETRY_MS: u64 = 500;
const RETRY_MS_MAX: u64 = 10_000;

/// What the appliance says about itself.
#[derive(Clone, Debug)]
pub(super) struct ApplianceFacts {
    /// The URL that answered.
    pub(super) url: String,
    /// Its newest microversion: 68 for 1.68.
    pub(super) minor: u32,
    /// Its time, in seconds since 1970.
    pub(super) date_unix_s: Option<i64>,
}

/// Whom requests trust; nothing if all URLs are without TLS.
pub(super) fn trust(parameters: &AgentParameters) -> Result<Option<Arc<ClientConfig>>, String> {
    if parameters.insecure {
        let made = verifying_client_config(&TrustPolicy::AnyCertificate);
        let (config, _) = made.map_err(|error| error.to_string())?;
        return Ok(Some(Arc::new(config)));
    }
    let Some(bundle) = bundle(parameters) else {
        return Ok(None);
    };
    let config = bundled_client_config(&[bundle]).map_err(|error| error.to_string())?;
    Ok(Some(Arc::new(config)))
}

/// The authorities of the parameters, or of the system.
pub(super) fn bundle(parameters: &AgentParameters) -> Option<String> {
    system_authorities(parameters.ca_file.as_deref().map(Path::new))
}

/// Asks the URLs in turn, again and again, until one answers. Any answer counts.
pub(super) async fn find(urls: &[String], client: &AgentHttpClient) -> ApplianceFacts {
    let mut wait_ms = RETRY_MS;
    loop {
        for url in urls {
            match client
                .exchange(("GET", &format!("{url}/")), None, Vec::new())
                .await
            {
                Ok(response) => {
                    let date = response.headers().get(DATE);
                    return ApplianceFacts {
                        url: url.clone(),
                        minor: newest_minor(response.body()).unwrap_or(MINOR_ASSUMED),
                        date_unix_s: date.and_then(|date| unix_s(date.to_str().ok()?)),
                    };
                }
                Err(reason) => log(&reason),
            }
        }
        sleep(Duration::from_millis(wait_ms)).await;
        wait_ms = (wait_ms * 2).min(RETRY_MS_MAX);
    }
}

/// The newest microversion of the root document.
fn newest_minor(body: &[u8]) -> Option<u32> {
    let document: VersionDocument = serde_json::from_slice(body).ok()?;
    let (major, minor) = document.default_version.version.split_once('.')?;
    (major == "1").then(|| minor.parse().ok()).flatten()
}

fn unix_s(date: &str) -> Option<i64> {
    let time = httpdate::parse_http_date(date).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

/// The address from which this machine reaches a URL. No packet is sent.
pub(super) async fn own_address(url: &str) -> Option<IpAddr> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(80);
    let peer = lookup_host((host, port)).await.ok()?.next()?;
    let local = match peer {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(local).await.ok()?;
    socket.connect(peer).await.ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_microversion_comes_from_the_root_document() {
        let body = br#"{"default_version": {"id": "v1", "version": "1.115"}}"#;
        assert_eq!(newest_minor(body), Some(115));
        for other in [
            &b""[..],
            b"{}",
            br#"{"default_version": {"version": "2.1"}}"#,
        ] {
            assert_eq!(newest_minor(other), None);
        }
    }

    #[test]
    fn a_date_of_http_is_a_time() {
        assert_eq!(unix_s("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(unix_s("yesterday"), None);
    }

    #[tokio::test]
    async fn the_own_address_is_the_one_towards_the_appliance() {
        let own = own_address("http://127.0.0.1:6385").await;
        assert_eq!(own, Some(IpAddr::from([127, 0, 0, 1])));
        assert_eq!(own_address("no url").await, None);
    }
}
