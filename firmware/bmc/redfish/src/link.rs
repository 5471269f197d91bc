//! Links in a BMC's resources. Only paths on its own origin are followed.

use serde_json::Value;

use crate::BmcHttpOrigin;

/// Longest path that is followed. Ours: those of real BMCs have some 150 characters.
const PATH_BYTES_MAX: usize = 512;

/// The path of a link, if it is on the BMC's own origin. An absolute URL is accepted if it names
/// exactly the origin of this session, as `Location` of some BMCs does.
pub(crate) fn path(link: &str, home: &BmcHttpOrigin) -> Option<String> {
    let path = if link.starts_with('/') {
        link
    } else {
        let rest = strip_origin(link, home)?;
        if rest.is_empty() { "/" } else { rest }
    };
    // The fragment refers to a part of the body, such as `Thermal#/Fans/0`.
    let path = path.split('#').next()?;
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    let good = path.starts_with('/')
        && !path.starts_with("//")
        && path.len() <= PATH_BYTES_MAX
        && path.bytes().all(plain)
        && !path.split(['/', '?']).any(|part| part == "..");
    good.then(|| path.to_owned())
}

fn strip_origin<'a>(link: &'a str, home: &BmcHttpOrigin) -> Option<&'a str> {
    let (scheme, rest) = link.split_once("://")?;
    let wanted = if home.secure { "https" } else { "http" };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let same = home
        .authorities()
        .iter()
        .any(|own| own.eq_ignore_ascii_case(authority));
    (scheme.eq_ignore_ascii_case(wanted) && same).then_some(path)
}

/// The `@odata.id` of a value.
pub(crate) fn id(value: &Value) -> Option<&str> {
    value.get("@odata.id")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn home(text: &str) -> BmcHttpOrigin {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(link: &str, want: Option<&str>) {
        let found = path(link, &home("https://192.0.2.7"));
        assert_eq!(found.as_deref(), want, "{link}");
    }

    #[test]
    fn paths_on_the_own_origin_are_followed() {
        check("/redfish/v1/Systems/1", Some("/redfish/v1/Systems/1"));
        check(
            "/redfish/v1/Chassis/1/Thermal#/Fans/0",
            Some("/redfish/v1/Chassis/1/Thermal"),
        );
        check(
            "https://192.0.2.7/redfish/v1/x?a=b",
            Some("/redfish/v1/x?a=b"),
        );
        check("HTTPS://192.0.2.7:443/x", Some("/x"));
        check("https://192.0.2.7", Some("/"));
    }

    #[test]
    fn nothing_leads_to_another_host() {
        for link in [
            "https://192.0.2.8/redfish/v1",
            "https://192.0.2.7.evil.example/redfish/v1",
            "https://192.0.2.7@evil.example/redfish/v1",
            "https://192.0.2.7:8443/redfish/v1",
            "http://192.0.2.7/redfish/v1",
            "//evil.example/redfish/v1",
            "/\\evil.example",
            "ftp://192.0.2.7/x",
            "https:/x",
            "",
            "redfish/v1",
        ] {
            check(link, None);
        }
    }

    #[test]
    fn nothing_breaks_out_of_a_request_line() {
        for link in [
            "/a b",
            "/a\r\nX: y",
            "/\u{e9}",
            "/a\0",
            "/a/../b",
            "/a?../..",
            "/..",
        ] {
            check(link, None);
        }
        check(
            &format!("/{}", "x".repeat(PATH_BYTES_MAX - 1)),
            Some(&format!("/{}", "x".repeat(PATH_BYTES_MAX - 1))),
        );
        check(&format!("/{}", "x".repeat(PATH_BYTES_MAX)), None);
    }

    #[test]
    fn a_port_of_its_own_is_part_of_the_origin() {
        let home = home("http://[2001:db8::7]:8000");
        assert_eq!(
            path("http://[2001:db8::7]:8000/x", &home).as_deref(),
            Some("/x")
        );
        assert_eq!(path("http://[2001:db8::7]/x", &home), None);
    }

    #[test]
    fn ids_are_texts_or_nothing() {
        assert_eq!(id(&json!({"@odata.id": "/x"})), Some("/x"));
        for value in [json!({"@odata.id": 7}), json!([]), json!(null), json!("x")] {
            assert_eq!(id(&value), None);
        }
    }
}
