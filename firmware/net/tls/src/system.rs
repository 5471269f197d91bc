//! The authorities that the operating system trusts.

use std::fs;
use std::path::Path;

use crate::config::BUNDLE_BYTES_MAX;

/// Where operating systems store the authorities they trust.
const BUNDLE_PATHS: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// The PEM text of the authorities that this system trusts, if it has such a file. `chosen` is
/// the operator's own file, which is used instead if it can be read.
pub fn system_authorities(chosen: Option<&Path>) -> Option<String> {
    let paths = BUNDLE_PATHS.iter().map(Path::new);
    chosen.into_iter().chain(paths).find_map(bundle)
}

fn bundle(path: &Path) -> Option<String> {
    let length = fs::metadata(path).ok()?.len();
    if length > BUNDLE_BYTES_MAX as u64 {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    // Comments between the certificates may have any encoding.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_file_comes_first_and_one_that_is_too_long_is_not_read() {
        let directory = std::env::temp_dir().join(format!("trivet-tls-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let chosen = directory.join("chosen.pem");
        fs::write(&chosen, b"# M\xfcller\n").unwrap();
        let text = system_authorities(Some(&chosen)).unwrap();
        assert!(text.starts_with("# M"), "{text}");
        fs::write(&chosen, vec![b'x'; BUNDLE_BYTES_MAX + 1]).unwrap();
        assert_eq!(system_authorities(Some(&chosen)), system_authorities(None));
        fs::remove_dir_all(&directory).unwrap();
    }
}
