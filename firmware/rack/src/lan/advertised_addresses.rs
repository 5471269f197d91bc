//! The addresses at which machines reach the box. Where the services listen on all addresses of
//! a box with several networks, each machine is sent the box's address in its own network.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;

use crate::Settings;

/// Services that listen on every address of the box.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WildcardListeners {
    /// Scheme and port of the API.
    pub api: Option<(&'static str, u16)>,
    /// Port of boot files and images.
    pub http: Option<u16>,
    /// The same over TLS.
    pub https: Option<u16>,
}

/// API and file server URLs as one machine reaches them, without a slash at the end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AdvertisedUrls {
    pub(crate) api: String,
    pub(crate) http: String,
    pub(crate) https: String,
}

impl Settings {
    /// The URLs for a machine with this address; the configured ones if it is in none of our
    /// networks.
    pub(crate) fn urls_for(&self, peer: Option<IpAddr>) -> AdvertisedUrls {
        let server = peer.and_then(|peer| self.server_for(peer));
        let url = |usual: &String, anywhere: Option<(&str, u16)>| match (server, anywhere) {
            (Some(server), Some((scheme, port))) => format!("{scheme}://{server}:{port}"),
            _ => usual.clone(),
        };
        AdvertisedUrls {
            api: url(&self.api_url, self.wildcard_listeners.api),
            http: url(
                &self.http_url,
                self.wildcard_listeners.http.map(|port| ("http", port)),
            ),
            https: url(
                &self.https_url,
                self.wildcard_listeners.https.map(|port| ("https", port)),
            ),
        }
    }

    fn server_for(&self, peer: IpAddr) -> Option<Ipv4Addr> {
        let IpAddr::V4(peer) = peer else { return None };
        let mut subnets = self.dhcp.iter().flat_map(|dhcp| &dhcp.subnets);
        let subnet = subnets.find(|subnet| subnet.contains(peer))?;
        Some(subnet.server)
    }

    /// A step names its image at the configured address of the box. This replaces that address
    /// by the one that the agent at this URL reaches: over TLS if its node has closed files.
    pub(crate) fn rewrite_urls(&self, args: &mut Value, agent_url: &str, closed: bool) {
        let urls = self.urls_for(host(agent_url));
        let to = if closed { urls.https } else { urls.http };
        if to == self.http_url || self.http_url.is_empty() {
            return;
        }
        replace(args, &self.http_url, &to);
    }
}

/// The IP address in a URL; none where its host is a name.
pub(crate) fn host(url: &str) -> Option<IpAddr> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => authority.split(':').next()?,
    };
    let address: IpAddr = host.parse().ok()?;
    Some(address.to_canonical())
}

/// In all strings where `from` is the whole string or is followed by a path.
fn replace(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) => {
            if let Some(rest) = text.strip_prefix(from)
                && rest.starts_with('/')
            {
                *text = format!("{to}{rest}");
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|one| replace(one, from, to)),
        Value::Object(values) => {
            for one in values.values_mut() {
                replace(one, from, to);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::settings;
    use serde_json::json;

    fn two_networks() -> Settings {
        let mut settings = settings();
        let dhcp = settings.dhcp.as_mut().expect("the bench serves DHCP");
        let mut second = dhcp.subnets[0].clone();
        second.network = Ipv4Addr::new(10, 51, 0, 0);
        second.prefix = 24;
        second.server = Ipv4Addr::new(10, 51, 0, 1);
        dhcp.subnets.push(second);
        settings.wildcard_listeners = WildcardListeners {
            api: Some(("https", 6385)),
            http: Some(8080),
            https: None,
        };
        settings
    }

    #[test]
    fn a_machine_receives_the_address_in_its_own_network() {
        let settings = two_networks();
        let there = settings.urls_for(Some([10, 51, 0, 9].into()));
        assert_eq!(there.http, "http://10.51.0.1:8080");
        assert_eq!(there.api, "https://10.51.0.1:6385");
        let usual = settings.urls_for(None);
        assert_eq!(usual.http, settings.http_url);
        assert_eq!(settings.urls_for(Some([192, 0, 2, 9].into())), usual);
        let one_place = Settings {
            wildcard_listeners: WildcardListeners::default(),
            ..two_networks()
        };
        assert_eq!(one_place.urls_for(Some([10, 51, 0, 9].into())), usual);
    }

    #[test]
    fn addresses_are_found_in_urls_of_agents() {
        let of = |url| host(url).map(|host| host.to_string());
        assert_eq!(of("https://10.51.0.9:9999").as_deref(), Some("10.51.0.9"));
        assert_eq!(of("http://10.51.0.9/x").as_deref(), Some("10.51.0.9"));
        assert_eq!(of("http://[::1]:9999").as_deref(), Some("::1"));
        assert_eq!((of("http://name:1"), of("nonsense")), (None, None));
    }

    #[test]
    fn only_whole_addresses_of_ours_are_replaced() {
        let mut args = json!({"image_info": {"urls": ["http://a:1/images/x"], "id": "http://a:12"},
            "other": ["http://b/http://a:1/", 7]});
        replace(&mut args, "http://a:1", "http://c:1");
        let want = json!({"image_info": {"urls": ["http://c:1/images/x"], "id": "http://a:12"},
            "other": ["http://b/http://a:1/", 7]});
        assert_eq!(args, want);
    }
}
