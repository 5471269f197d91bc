//! Percent-encoded paths and queries.

use trivet_net::percent;

use crate::table::error::ApiFault;

/// Longest path, in bytes. Ours: the longest path of a correct client names a node and a trait.
pub(crate) const PATH_BYTES_MAX: usize = 2048;

/// The decoded segments of a path. A trailing slash does not count.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, ApiFault> {
    if path.len() > PATH_BYTES_MAX {
        return Err(ApiFault::layer(
            414,
            "URI Too Long",
            format!("A path has at most {PATH_BYTES_MAX} bytes."),
        ));
    }
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok(Vec::new());
    }
    path.split('/').map(decoded).collect()
}

/// The decoded text of a path segment.
fn decoded(text: &str) -> Result<String, ApiFault> {
    percent::decode(text).ok_or_else(bad)
}

/// The decoded text of a key or value in a query.
pub(crate) fn decoded_query(text: &str) -> Result<String, ApiFault> {
    percent::decode_query(text).ok_or_else(bad)
}

fn bad() -> ApiFault {
    ApiFault::bad("The address is not valid percent-encoded UTF-8.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_one_by_one() {
        let path = segments("/v1/nodes/ns%7Ename/a%2Fb/").unwrap();
        assert_eq!(path, ["v1", "nodes", "ns~name", "a/b"]);
        assert!(segments("/").unwrap().is_empty());
        assert!(segments("").unwrap().is_empty());
        assert_eq!(segments("//v1").unwrap(), ["", "v1"]);
    }

    #[test]
    fn refuses_what_is_not_an_encoding() {
        for path in ["/%", "/%4", "/%zz", "/%ff", "/%+1"] {
            assert!(segments(path).is_err(), "{path}");
        }
    }

    #[test]
    fn refuses_a_path_that_is_too_long() {
        assert!(segments(&"/".repeat(PATH_BYTES_MAX)).is_ok());
        assert!(segments(&"/".repeat(PATH_BYTES_MAX + 1)).is_err());
    }
}
