//! Validation of received paths.

use core::fmt;

use trivet_net::percent;

/// Longest accepted path. Ours: HTTP and TFTP set no limit.
pub const PATH_BYTES_MAX: usize = 1024;

/// A path below some directory. It has no empty, `.` or `..` part and no separator or control
/// character inside a part, so joining it to a directory stays within that directory (the shell
/// checks symbolic links).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RelativePath(Vec<String>);

impl RelativePath {
    /// From the path of an HTTP request, percent-encoded, with a leading slash.
    pub fn from_http(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        path.split('/')
            .map(|part| checked(percent::decode(part)?))
            .collect::<Option<_>>()
            .map(Self)
    }

    /// From the file name of a TFTP request: plain text, with or without a leading slash.
    pub fn from_tftp(path: &str) -> Option<Self> {
        let path = path.strip_prefix('/').unwrap_or(path);
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        path.split('/')
            .map(|part| checked(part.to_owned()))
            .collect::<Option<_>>()
            .map(Self)
    }

    /// The parts, first to last.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The path without its first parts.
    pub(crate) fn below(mut self, parts: usize) -> Self {
        self.0.drain(..parts.min(self.0.len()));
        self
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join("/"))
    }
}

/// The parts of a path as a lenient parser would split them: percent signs decoded, empty parts
/// and `.` dropped, `..` applied, both kinds of slash as separators. Only for display, never
/// for lookup.
pub(crate) fn lenient_parts(path: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let decoded = percent::decode_lenient(path);
    for part in String::from_utf8_lossy(&decoded).split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part.to_owned()),
        }
    }
    parts
}

fn checked(part: String) -> Option<String> {
    let harmless = !part.is_empty()
        && part != "."
        && part != ".."
        && !part
            .chars()
            .any(|character| matches!(character, '/' | '\\') || character.is_control());
    harmless.then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_percent_signs_once() {
        assert_eq!(
            RelativePath::from_http("/a%20b/%257e").unwrap().to_string(),
            "a b/%7e"
        );
    }

    #[test]
    fn refuses_broken_encodings() {
        for path in ["/%", "/%2", "/%zz", "/%ff", "no-slash"] {
            assert_eq!(RelativePath::from_http(path), None, "{path}");
        }
    }

    #[test]
    fn refuses_a_path_that_is_too_long() {
        let path = format!("/{}", "a".repeat(PATH_BYTES_MAX + 1));
        assert_eq!(RelativePath::from_http(&path), None);
        assert_eq!(RelativePath::from_tftp(&path), None);
        assert!(RelativePath::from_tftp(&path[1..=PATH_BYTES_MAX]).is_some());
    }
}
