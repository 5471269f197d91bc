//! The box's own authority and server certificate, in its data directory.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
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
    if key.exists() && certificate.exists() {
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
        };
        return Authority::load(&read(&certificate)?, &read(&key)?)
            .with_context(|| format!("the authority in {} is damaged", directory.display()));
    }
    let authority = Authority::create(clock.now().wall.0 / 1000, name)?;
    fs::create_dir_all(&directory)?;
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

/// Writes a file that only its owner reads, whole or not at all.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .with_context(|| format!("{} cannot be written", fresh.display()))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    Ok(())
}
