//! The box's own authority and server certificate, in its data directory.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use tokio_rustls::TlsAcceptor;
use trivet_certs_authority::Authority;

use crate::clock::Clock;

/// The box's authority: made at first start, read after that.
pub(crate) fn authority(data: &Path, name: &str, clock: Clock) -> anyhow::Result<Authority> {
    let directory = data.join("certs");
    let (certificate, key) = (directory.join("ca.pem"), directory.join("ca.key"));
    if certificate.exists() {
        // The certificate is written last: without a key beside it, the key was lost,
        // and a new authority in its place would be a stranger to every client.
        anyhow::ensure!(
            key.exists(),
            "{} is missing: restore it from a backup, or remove {} to let the box make a new \
             authority",
            key.display(),
            certificate.display()
        );
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("{} cannot be protected", key.display()))?;
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
        };
        return Authority::load(&read(&certificate)?, &read(&key)?)
            .with_context(|| format!("the authority in {} is damaged", directory.display()));
    }
    let authority = Authority::create(clock.now().wall.0 / 1000, name)?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .with_context(|| format!("{} cannot be made", directory.display()))?;
    write_private(&key, &authority.key_pem())?;
    write_private(&certificate, authority.certificate_pem())?;
    Ok(authority)
}

/// A certificate for these names, for as long as this process runs.
pub(crate) fn acceptor(
    authority: &Authority,
    names: &[String],
    addresses: &[IpAddr],
    clock: Clock,
) -> anyhow::Result<TlsAcceptor> {
    let now_s = clock.now().wall.0 / 1000;
    let (chain, key) = authority.server_certificate(names, addresses, now_s)?;
    let config = trivet_certs_authority::server_config(&chain, &key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Writes a file that only its owner reads, whole or not at all, for good.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let write = || {
        // One that a power cut left behind may have other permissions.
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        // The name is durable only with its directory.
        fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::Scratch;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_authority_is_made_once_and_its_key_is_private() {
        let scratch = Scratch::new();
        let first = authority(&scratch.0, "box", Clock::start()).unwrap();
        let key = scratch.0.join("certs/ca.key");
        assert_eq!(mode(&key), 0o600);
        assert_eq!(mode(&scratch.0.join("certs")), 0o700);
        assert!(!scratch.0.join("certs/ca.new").exists());
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let second = authority(&scratch.0, "box", Clock::start()).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(
            mode(&key),
            0o600,
            "it was open to others and is not any more"
        );
    }

    #[test]
    fn a_lost_key_is_not_replaced_in_silence() {
        let scratch = Scratch::new();
        authority(&scratch.0, "box", Clock::start()).unwrap();
        fs::remove_file(scratch.0.join("certs/ca.key")).unwrap();
        let error = authority(&scratch.0, "box", Clock::start()).err().unwrap();
        assert!(error.to_string().contains("restore it"), "{error}");
    }

    #[test]
    fn a_start_that_was_cut_off_before_the_certificate_begins_anew() {
        let scratch = Scratch::new();
        authority(&scratch.0, "box", Clock::start()).unwrap();
        fs::remove_file(scratch.0.join("certs/ca.pem")).unwrap();
        scratch.file("certs/ca.new", b"half");
        authority(&scratch.0, "box", Clock::start()).unwrap();
    }

    #[test]
    fn a_damaged_authority_is_named_without_its_key() {
        let scratch = Scratch::new();
        authority(&scratch.0, "box", Clock::start()).unwrap();
        scratch.file("certs/ca.key", b"not a key, but secret");
        let error = authority(&scratch.0, "box", Clock::start()).err().unwrap();
        let said = format!("{error:#}");
        assert!(
            said.contains("is damaged") && !said.contains("secret"),
            "{said}"
        );
    }
}
