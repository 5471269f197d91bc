//! Microversions: negotiation of a request's version.
//!
//! Only the range and the negotiation are here; field tables, routes and verbs have their own
//! versions.

use core::fmt;

use crate::Request;
use crate::table::error::ApiFault;

/// A microversion `1.N`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Version(pub u16);

/// Oldest supported version, and the version of a request that names none.
pub const VERSION_MIN: Version = Version(1);

/// Newest version whose fields and verbs are supported.
pub const VERSION_MAX: Version = Version(115);

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "1.{}", self.0)
    }
}

/// The version of a request, from either family of headers; OpenStack's counts before Ironic's own.
pub(crate) fn negotiate(request: &Request<'_>) -> Result<Version, ApiFault> {
    let wanted = request.openstack_version.and_then(baremetal);
    let wanted = wanted.or(request.version).unwrap_or_default().trim();
    if wanted.is_empty() {
        return Ok(VERSION_MIN);
    }
    if wanted.eq_ignore_ascii_case("latest") {
        return Ok(VERSION_MAX);
    }
    let version = parse(wanted).filter(|version| (VERSION_MIN..=VERSION_MAX).contains(version));
    version.ok_or_else(|| {
        let odd = if is_version(wanted) {
            ""
        } else {
            "Invalid value for X-OpenStack-Ironic-API-Version header. "
        };
        let sentence = format!(
            "{odd}Version {} was requested but the minor version is not supported by this service. \
             The supported version range is: [{VERSION_MIN}, {VERSION_MAX}].",
            wanted.escape_debug()
        );
        // The document of versions has another form of errors.
        match request.path {
            "" | "/" => ApiFault::not_acceptable(sentence),
            _ => ApiFault::layer(406, "Not Acceptable", sentence),
        }
    })
}

/// The part of `OpenStack-API-Version` for this service type.
fn baremetal(header: &str) -> Option<&str> {
    header.split(',').find_map(|part| {
        let (service, version) = part.trim().split_once(' ')?;
        service.eq_ignore_ascii_case("baremetal").then_some(version)
    })
}

fn is_version(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts = text.split_once('.');
    parts.is_some_and(|(major, minor)| digits(major) && digits(minor))
}

fn parse(text: &str) -> Option<Version> {
    let minor = text.strip_prefix("1.")?;
    let digits = minor.bytes().all(|byte| byte.is_ascii_digit());
    if digits {
        minor.parse().ok().map(Version)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{ApiBench, get};

    #[test]
    fn a_request_without_a_version_has_the_oldest() {
        let response = ApiBench::new().reply(&get("/v1/nodes"));
        assert_eq!(
            response.header("X-OpenStack-Ironic-API-Version"),
            Some("1.1")
        );
    }

    #[test]
    fn both_families_of_headers_work_and_latest_means_the_newest() {
        for (ours, openstack, want) in [
            (Some("1.99"), None, "1.99"),
            (None, Some("baremetal 1.72"), "1.72"),
            (None, Some("compute 2.1, baremetal 1.9"), "1.9"),
            (None, Some("compute 2.1"), "1.1"),
            (Some("latest"), Some("baremetal latest"), "1.115"),
            (Some("1.99"), Some("baremetal 1.72"), "1.72"),
            (Some("1.99"), Some("compute 2.1"), "1.99"),
            (Some(""), None, "1.1"),
            (Some(" "), Some("baremetal 1.9"), "1.9"),
        ] {
            let mut request = get("/v1/nodes");
            request.version = ours;
            request.openstack_version = openstack;
            let response = ApiBench::new().reply(&request);
            assert_eq!(response.status, 200);
            assert_eq!(
                response.header("X-OpenStack-Ironic-API-Version"),
                Some(want)
            );
            let echo = openstack.map(|_| format!("baremetal {want}"));
            assert_eq!(response.header("OpenStack-API-Version"), echo.as_deref());
        }
    }

    #[test]
    fn a_version_out_of_range_is_not_acceptable_and_the_range_is_returned() {
        for version in [
            "1.0",
            "1.116",
            "1.200",
            "2.1",
            "1",
            "1.",
            "1.+5",
            "x",
            "1.99999999",
        ] {
            let response = ApiBench::new().reply(&get("/v1/nodes").at(version));
            assert_eq!(response.status, 406, "{version}");
            assert_eq!(response.header("X-OpenStack-Ironic-API-Version"), None);
            assert_eq!(
                response.header("X-OpenStack-Ironic-API-Minimum-Version"),
                Some("1.1")
            );
            assert_eq!(
                response.header("X-OpenStack-Ironic-API-Maximum-Version"),
                Some("1.115")
            );
            let fault = response.fault();
            assert_eq!(
                (&fault["code"], &fault["title"]),
                (&406.into(), &"Not Acceptable".into())
            );
            let text = fault["description"].as_str().unwrap();
            assert!(text.ends_with("version range is: [1.1, 1.115]."), "{text}");
        }
    }
}
