//! Percent-encoding (RFC 3986), in paths and queries.

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
    path.split('/')
        .map(|segment| decoded(segment, false))
        .collect()
}

/// The decoded text. In queries a plus sign is a space.
pub(crate) fn decoded(text: &str, plus_is_space: bool) -> Result<String, ApiFault> {
    let bad = || ApiFault::bad("The address is not valid percent-encoded UTF-8.");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || {
                    let byte = rest.next().ok_or_else(bad)?;
                    char::from(byte).to_digit(16).ok_or_else(bad)
                };
                (digit()? * 16 + digit()?) as u8
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// The encoded text: everything but unreserved characters.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    out
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

    #[test]
    fn what_is_encoded_reads_back() {
        for text in ["", "a b+c", "52:54:00", "\u{e9}&=%", "ns~name"] {
            assert_eq!(decoded(&encoded(text), true).unwrap(), text);
        }
    }
}
