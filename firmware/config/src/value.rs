//! Strings with a meaning: addresses, networks, URLs, names, paths.
//!
//! Each reader takes the section and the key, so that a mistake names both, and its
//! message shows a valid value.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::mistake::SettingsMistakes;
use crate::reader::{LocatedValue, SettingsSection};
use crate::settings::Ipv4Network;

/// Most addresses one service listens on. Ours.
pub const LISTEN_MAX: usize = 16;

/// Longest host name: RFC 1035, section 2.3.4, without the root's dot.
const HOST_NAME_BYTES_MAX: usize = 253;

/// Longest label of a host name: RFC 1035, section 2.3.4.
const LABEL_BYTES_MAX: usize = 63;

/// Longest interface name: Linux' IFNAMSIZ without the closing zero.
const INTERFACE_BYTES_MAX: usize = 15;

/// Longest name of a loader: the field `file` of a DHCP message without its closing
/// zero (RFC 2131, section 2).
pub const LOADER_BYTES_MAX: usize = 127;

/// The addresses under `key`: one `IP:PORT` or a list; the port may be left out.
pub(crate) fn listen(
    section: &SettingsSection<'_>,
    key: &str,
    default_port: u16,
    mistakes: &mut SettingsMistakes,
) -> Option<Vec<LocatedValue<SocketAddr>>> {
    let texts = section.texts(key, LISTEN_MAX, mistakes)?;
    let mut addresses = Vec::new();
    for text in &texts {
        match socket_address(text.value, default_port) {
            Ok(value) => addresses.push(LocatedValue { value, at: text.at }),
            Err(sentence) => mistakes.add(text.at, &section.key(key), sentence),
        }
    }
    (addresses.len() == texts.len()).then_some(addresses)
}

/// `IP:PORT`, `[IPV6]:PORT`, or an address alone with the default port.
pub(crate) fn socket_address(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 {
            Err(bad_port(text))
        } else {
            Ok(address)
        };
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    if let Some(address) = bare.and_then(|bare| bare.parse::<Ipv6Addr>().ok()) {
        return Ok(SocketAddr::new(IpAddr::V6(address), default_port));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, default_port));
    }
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    if host.parse::<Ipv4Addr>().is_ok() || host.ends_with(']') {
        return Err(bad_port(text));
    }
    Err(format!(
        "`{text}` is not an address: write IP:PORT, such as 127.0.0.1:{default_port}"
    ))
}

fn bad_port(text: &str) -> String {
    format!("the port of `{text}` must lie between 1 and 65535")
}

/// An IPv4 address.
pub(crate) fn ipv4(
    section: &SettingsSection<'_>,
    key: &str,
    mistakes: &mut SettingsMistakes,
) -> Option<LocatedValue<Ipv4Addr>> {
    let text = section.text(key, mistakes)?;
    if let Ok(value) = text.value.parse() {
        return Some(LocatedValue { value, at: text.at });
    }
    mistakes.add(text.at, &section.key(key), not_ipv4(text.value));
    None
}

/// The message for a string that is not an IPv4 address.
pub(crate) fn not_ipv4(text: &str) -> String {
    format!("`{text}` is not an IPv4 address: write four numbers, such as 192.0.2.1")
}

/// An IPv4 network with its prefix, written with its first address.
pub(crate) fn network(
    section: &SettingsSection<'_>,
    key: &str,
    mistakes: &mut SettingsMistakes,
) -> Option<LocatedValue<Ipv4Network>> {
    let text = section.text(key, mistakes)?;
    match parse_network(text.value) {
        Ok(value) => Some(LocatedValue { value, at: text.at }),
        Err(sentence) => {
            mistakes.add(text.at, &section.key(key), sentence);
            None
        }
    }
}

/// A list of IPv4 networks.
pub(crate) fn networks(
    section: &SettingsSection<'_>,
    key: &str,
    max: usize,
    mistakes: &mut SettingsMistakes,
) -> Vec<Ipv4Network> {
    let mut networks = Vec::new();
    for text in section.texts(key, max, mistakes).unwrap_or_default() {
        match parse_network(text.value) {
            Ok(network) => networks.push(network),
            Err(sentence) => mistakes.add(text.at, &section.key(key), sentence),
        }
    }
    networks
}

fn parse_network(text: &str) -> Result<Ipv4Network, String> {
    let parts = text.split_once('/').and_then(|(address, prefix)| {
        Some((
            address.parse::<Ipv4Addr>().ok()?,
            prefix.parse::<u8>().ok()?,
        ))
    });
    let Some((address, prefix)) = parts else {
        return Err(format!(
            "`{text}` is not a network: write it as 192.0.2.0/24"
        ));
    };
    // A /31 has no address for a node besides the box, and more than a /8 is a mistake.
    if !(8..=30).contains(&prefix) {
        return Err(format!(
            "the prefix of `{text}` must lie between /8 and /30"
        ));
    }
    let whole = Ipv4Network { address, prefix };
    let base = Ipv4Addr::from(u32::from(address) & u32::from(whole.mask()));
    if base == address {
        return Ok(whole);
    }
    Err(format!(
        "`{text}` names a host: the network starts at {base}/{prefix}"
    ))
}

/// A path; the daemon checks whether it exists.
pub(crate) fn path(
    section: &SettingsSection<'_>,
    key: &str,
    mistakes: &mut SettingsMistakes,
) -> Option<PathBuf> {
    section
        .text(key, mistakes)
        .map(|text| PathBuf::from(text.value))
}

/// The name of a loader below the directory of loaders. An empty string means that such
/// firmware has none; without the key the default is kept.
pub(crate) fn loader(
    section: &SettingsSection<'_>,
    key: &str,
    name: &mut Option<String>,
    mistakes: &mut SettingsMistakes,
) {
    let Some(text) = section.text_or_empty(key, mistakes) else {
        return;
    };
    if text.value.is_empty() {
        *name = None;
    } else if is_loader(text.value) {
        *name = Some(text.value.to_owned());
    } else {
        let sentence = format!(
            "is not a file below boot.loaders: at most {LOADER_BYTES_MAX} letters, digits and any \
             of . _ + - with slashes between, such as \"snponly.efi\""
        );
        mistakes.add(text.at, &section.key(key), sentence);
    }
}

/// It becomes part of a TFTP path and of a URL, and must not leave its directory.
fn is_loader(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    let word = |word: &str| !["", ".", ".."].contains(&word) && word.bytes().all(plain);
    text.len() <= LOADER_BYTES_MAX && text.split('/').all(word)
}

/// `http://HOST[:PORT][/PATH]` or `https://..`, without a slash at the end.
pub(crate) fn url(
    section: &SettingsSection<'_>,
    key: &str,
    mistakes: &mut SettingsMistakes,
) -> Option<String> {
    let text = section.text(key, mistakes)?;
    match parse_url(text.value) {
        Ok(url) => Some(url),
        Err(reason) => {
            let sentence =
                format!("{reason}: write it as http://192.0.2.1:8080 or https://HOST/PATH");
            mistakes.add(text.at, &section.key(key), sentence);
            None
        }
    }
}

fn parse_url(text: &str) -> Result<String, &'static str> {
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))
        .ok_or("the URL must start with http:// or https://")?;
    // It is put into kernel command lines and loader scripts, where a space ends it.
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the URL contains a space or a character that is not ASCII");
    }
    if text.contains(['?', '#', '@', '"', '\'', '\\', '$', '`']) {
        return Err("the URL contains a user, a query, a fragment or a quote");
    }
    let authority = rest.split('/').next().unwrap_or_default();
    if !is_authority(authority) {
        return Err("the URL has no valid host and port");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn is_authority(text: &str) -> bool {
    if text
        .parse::<SocketAddr>()
        .is_ok_and(|address| address.port() != 0)
    {
        return true;
    }
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    if bare.is_some_and(|bare| bare.parse::<Ipv6Addr>().is_ok()) {
        return true;
    }
    match text.split_once(':') {
        None => is_host_name(text),
        Some((host, port)) => is_host_name(host) && port.parse::<u16>().is_ok_and(|port| port != 0),
    }
}

/// A host name of letters, digits, hyphens and dots.
pub(crate) fn host_name(
    section: &SettingsSection<'_>,
    key: &str,
    mistakes: &mut SettingsMistakes,
) -> Option<String> {
    let text = section.text(key, mistakes)?;
    if is_host_name(text.value) {
        return Some(text.value.to_owned());
    }
    let sentence = "is not a host name: letters, digits, hyphens and dots only";
    mistakes.add(text.at, &section.key(key), sentence);
    None
}

/// A list of host names.
pub(crate) fn host_names(
    section: &SettingsSection<'_>,
    key: &str,
    max: usize,
    mistakes: &mut SettingsMistakes,
) -> Vec<String> {
    let mut names = Vec::new();
    for text in section.texts(key, max, mistakes).unwrap_or_default() {
        if is_host_name(text.value) {
            names.push(text.value.to_owned());
        } else {
            let sentence = "is not a host name: letters, digits, hyphens and dots only";
            mistakes.add(text.at, &section.key(key), sentence);
        }
    }
    names
}

fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= HOST_NAME_BYTES_MAX && text.split('.').all(label)
}

/// The name of a network interface.
pub(crate) fn interface(
    section: &SettingsSection<'_>,
    key: &str,
    mistakes: &mut SettingsMistakes,
) -> Option<LocatedValue<String>> {
    let text = section.text(key, mistakes)?;
    let plain = text
        .value
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if plain && text.value.len() <= INTERFACE_BYTES_MAX && ![".", ".."].contains(&text.value) {
        return Some(LocatedValue {
            value: text.value.to_owned(),
            at: text.at,
        });
    }
    let sentence = format!(
        "is not an interface name: at most {INTERFACE_BYTES_MAX} characters without space or slash"
    );
    mistakes.add(text.at, &section.key(key), sentence);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn address(text: &str, want: &str) {
        assert_eq!(
            socket_address(text, 69),
            Ok(want.parse().unwrap()),
            "{text}"
        );
    }

    #[test]
    fn reads_addresses_with_and_without_port() {
        address("127.0.0.1:6385", "127.0.0.1:6385");
        address("127.0.0.1", "127.0.0.1:69");
        address("[::1]:7", "[::1]:7");
        address("[::1]", "[::1]:69");
        address("::", "[::]:69");
    }

    #[test]
    fn refuses_ports_out_of_range() {
        for text in [
            "127.0.0.1:0",
            "127.0.0.1:65536",
            "[::]:70000",
            "10.0.0.1:",
            "10.0.0.1:-1",
        ] {
            let sentence = socket_address(text, 69).unwrap_err();
            assert!(
                sentence.contains("between 1 and 65535"),
                "{text}: {sentence}"
            );
        }
    }

    #[test]
    fn refuses_names_where_addresses_belong() {
        for text in ["localhost:80", ":80", "1.2.3:80", "", "host"] {
            let sentence = socket_address(text, 69).unwrap_err();
            assert!(sentence.contains("127.0.0.1:69"), "{text}: {sentence}");
        }
    }

    #[test]
    fn reads_networks_and_refuses_hosts_in_them() {
        let want = Ipv4Network {
            address: Ipv4Addr::new(192, 0, 2, 0),
            prefix: 24,
        };
        assert_eq!(parse_network("192.0.2.0/24"), Ok(want));
        assert!(
            parse_network("192.0.2.5/24")
                .unwrap_err()
                .contains("192.0.2.0/24")
        );
        for text in ["192.0.2.0", "192.0.2.0/", "/24", "a/24", "192.0.2.0/x"] {
            assert!(
                parse_network(text).unwrap_err().contains("not a network"),
                "{text}"
            );
        }
        for text in ["0.0.0.0/0", "10.0.0.0/7", "192.0.2.0/31", "192.0.2.0/99"] {
            assert!(
                parse_network(text).unwrap_err().contains("/8 and /30"),
                "{text}"
            );
        }
    }

    #[test]
    fn reads_urls_and_cuts_the_last_slash() {
        for (text, want) in [
            ("http://192.0.2.1:8080/", "http://192.0.2.1:8080"),
            ("https://box.example", "https://box.example"),
            ("https://[2001:db8::1]/x", "https://[2001:db8::1]/x"),
            ("http://[::1]:80", "http://[::1]:80"),
            ("http://box:6385", "http://box:6385"),
        ] {
            assert_eq!(parse_url(text).as_deref(), Ok(want));
        }
    }

    #[test]
    fn refuses_urls_that_a_loader_script_cannot_contain() {
        for text in [
            "192.0.2.1:8080",
            "ftp://192.0.2.1",
            "http://",
            "http:///x",
            "http://a b",
            "http://box:0",
            "http://box:99999",
            "http://user@box",
            "http://box/?q",
            "http://box/${net0/mac}",
            "http://b\u{fc}x",
            "http://-box",
        ] {
            assert!(parse_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_loader_is_a_file_below_its_directory() {
        for text in [
            "snponly.efi",
            "shim/shimx64.efi",
            "x86_64-efi/ipxe.efi",
            "a..b",
        ] {
            assert!(is_loader(text), "{text}");
        }
        let long = "x".repeat(LOADER_BYTES_MAX + 1);
        for text in [
            "/a", "a/", "a//b", "../a", "a/./b", "a b", "a\\b", "a%2e", "a?", &long,
        ] {
            assert!(!is_loader(text), "{text}");
        }
    }

    #[test]
    fn distinguishes_host_names_from_others() {
        for text in ["box", "box-1.rack.example", "1", &"a".repeat(63)] {
            assert!(is_host_name(text), "{text}");
        }
        let long_name = ["a".repeat(60).as_str(); 5].join(".");
        for text in [
            "",
            "-a",
            "a-",
            "a..b",
            "a_b",
            "a b",
            &"a".repeat(64),
            &long_name,
        ] {
            assert!(!is_host_name(text), "{text}");
        }
    }
}
