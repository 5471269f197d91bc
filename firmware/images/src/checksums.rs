//! Checksum files: `SHA256SUMS` in the format of coreutils or BSD, or a single digest.

use trivet_model::Digest;

/// The longest checksum file that is accepted. Ours; Debian's has a few hundred lines.
pub const SUMS_BYTES_MAX: usize = 1024 * 1024;

/// Why a checksum file gives no digest.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChecksumFileError {
    /// It has no line for the file.
    #[error("the checksum file has no SHA-256 or SHA-512 for {name}")]
    Absent {
        /// The file name.
        name: String,
    },
    /// It has two different digests.
    #[error("the checksum file has two different digests for {name}")]
    Ambiguous {
        /// The file name.
        name: String,
    },
}

/// The digest of the file of this name. If the checksum file is only one digest, that one.
/// SHA-512 is preferred if both are there.
pub fn find(text: &str, name: &str) -> Result<Digest, ChecksumFileError> {
    if let [word] = text.split_whitespace().take(2).collect::<Vec<_>>()[..]
        && let Ok(digest) = word.parse()
    {
        return Ok(digest);
    }
    let mut found: Vec<Digest> = Vec::new();
    for line in text.lines() {
        if let Some((digest, of)) = line_of(line)
            && of.rsplit('/').next() == Some(name)
            && !found.contains(&digest)
        {
            found.push(digest);
        }
    }
    found.sort_by_key(|digest| digest.algorithm() != "sha512");
    let name = name.to_owned();
    match found[..] {
        [] => Err(ChecksumFileError::Absent { name }),
        [one] => Ok(one),
        [first, second, ..] if first.algorithm() == second.algorithm() => {
            Err(ChecksumFileError::Ambiguous { name })
        }
        [first, ..] => Ok(first),
    }
}

fn line_of(line: &str) -> Option<(Digest, &str)> {
    let line = line.trim_end();
    // BSD: SHA256 (name) = digest.
    if let Some((head, digest)) = line.rsplit_once(") = ") {
        let (_, name) = head.split_once(" (")?;
        return Some((digest.trim().parse().ok()?, name));
    }
    // coreutils: digest, a space, a space or a star, name.
    let (digest, name) = line.split_once(' ')?;
    let name = name.strip_prefix([' ', '*']).unwrap_or(name);
    Some((digest.parse().ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(byte: &str, bytes: usize) -> String {
        byte.repeat(bytes)
    }

    #[test]
    fn lines_of_coreutils_and_bsd_are_read() {
        let (one, two) = (hex("11", 32), hex("22", 64));
        let text = format!(
            "# comment\n{one}  debian.raw\n{one} *other.raw\nSHA512 (bsd.raw) = {two}\n\
             d41d8cd98f00b204e9800998ecf8427e  md5.raw\n{two}  ./deep/path.raw\r\n"
        );
        let shown = |name| find(&text, name).map(|digest| digest.to_string());
        assert_eq!(shown("debian.raw"), Ok(one.clone()));
        assert_eq!(shown("other.raw"), Ok(one));
        assert_eq!(shown("bsd.raw"), Ok(two.clone()));
        assert_eq!(shown("path.raw"), Ok(two));
        for name in ["md5.raw", "absent", "", "raw"] {
            let absent = ChecksumFileError::Absent { name: name.into() };
            assert_eq!(shown(name), Err(absent));
        }
    }

    #[test]
    fn a_single_digest_is_used_for_any_file() {
        let text = format!("{}\n", hex("ab", 32));
        assert!(find(&text, "whatever").is_ok());
        assert!(find(&format!("{text}{text}"), "whatever").is_err());
    }

    #[test]
    fn two_digests_are_an_error_unless_one_is_stronger() {
        let text = format!("{}  a\n{}  a\n", hex("11", 32), hex("22", 32));
        assert_eq!(
            find(&text, "a"),
            Err(ChecksumFileError::Ambiguous { name: "a".into() })
        );
        let text = format!("{}  a\n{}  a\n", hex("11", 32), hex("22", 64));
        assert_eq!(find(&text, "a").unwrap().algorithm(), "sha512");
    }
}
