//! The box's own CA and server certificate, in its data directory.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};
use trivet_certs_authority::{Authority, SERVER_DAYS};
use trivet_model::Now;
use trivet_net_tls::{ClientIdentity, ClientPolicy, mutual_server_config, server_config};

use crate::appliance::NodeTrust;
use crate::clock::DaemonClock;

/// The box's CA: created at the first start, read after that.
pub(crate) fn authority(data: &Path, name: &str, clock: DaemonClock) -> anyhow::Result<Authority> {
    let directory = data.join("certs");
    let (certificate, key) = (directory.join("ca.pem"), directory.join("ca.key"));
    if certificate.exists() {
        // The certificate is written last. If it exists without its key, the key was
        // lost, and no client would trust a new CA in its place.
        anyhow::ensure!(
            key.exists(),
            "{} is missing: restore it from a backup, or remove {} to let the box create a new \
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
            .with_context(|| format!("the CA in {} is damaged", directory.display()));
    }
    let authority = Authority::create(clock.now().wall.0 / 1000, name)?;
    crate::private::own_directory(&directory)
        .with_context(|| format!("{} cannot be created", directory.display()))?;
    write_private(&key, &authority.key_pem())?;
    write_private(&certificate, authority.certificate_pem())?;
    Ok(authority)
}

/// How often to check whether the server certificate must be renewed.
const RENEWAL_CHECK: Duration = Duration::from_hours(12);

/// A server certificate is renewed after this part of its validity, in seconds.
const RENEWED_AFTER_S: u64 = SERVER_DAYS.unsigned_abs() * 86_400 * 3 / 4;

/// TLS of the box's services, whose certificate changes while they serve.
#[derive(Clone)]
pub(crate) struct ServerTls(Arc<RwLock<TlsAcceptor>>);

impl ServerTls {
    /// The acceptor for the next connection.
    pub(crate) fn current(&self) -> TlsAcceptor {
        let acceptor = self.0.read().unwrap_or_else(PoisonError::into_inner);
        acceptor.clone()
    }

    fn replace(&self, acceptor: TlsAcceptor) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
    }
}

impl From<TlsAcceptor> for ServerTls {
    fn from(acceptor: TlsAcceptor) -> Self {
        Self(Arc::new(RwLock::new(acceptor)))
    }
}

/// The server certificate of the box: created at each start, and renewed before it
/// expires.
pub(crate) struct ServerCertificate {
    authority: Arc<Authority>,
    names: Vec<String>,
    addresses: Vec<IpAddr>,
    made_s: AtomicU64,
    tls: ServerTls,
    /// The same, for the API: clients may show a certificate of this authority.
    mutual: ServerTls,
    /// What the box shows to agents.
    shown: AgentCallIdentity,
}

impl ServerCertificate {
    /// A certificate for these names and addresses.
    pub(crate) fn new(
        authority: Authority,
        names: Vec<String>,
        addresses: Vec<IpAddr>,
        now: Now,
    ) -> anyhow::Result<Self> {
        let now_s = now.wall.0 / 1000;
        let [tls, mutual] = acceptors(&authority, &names, &addresses, now_s)?;
        let shown = AgentCallIdentity(Arc::new(RwLock::new(box_identity(&authority, now_s)?)));
        Ok(Self {
            authority: Arc::new(authority),
            names,
            addresses,
            made_s: AtomicU64::new(now_s),
            tls: tls.into(),
            mutual: mutual.into(),
            shown,
        })
    }

    /// TLS that asks clients for a certificate of a node. A client may have none.
    pub(crate) fn mutual_tls(&self) -> ServerTls {
        self.mutual.clone()
    }

    /// How nodes get certificates, and what the box shows to their agents.
    pub(crate) fn node_trust(&self) -> NodeTrust {
        NodeTrust {
            authority: Arc::clone(&self.authority),
            shown: self.shown.clone(),
        }
    }

    /// TLS with this certificate and its successors.
    pub(crate) fn tls(&self) -> ServerTls {
        self.tls.clone()
    }

    /// Creates a new certificate for connections from now on.
    pub(crate) fn renew(&self, now: Now) -> anyhow::Result<()> {
        let now_s = now.wall.0 / 1000;
        let [tls, mutual] = acceptors(&self.authority, &self.names, &self.addresses, now_s)?;
        let shown = box_identity(&self.authority, now_s)?;
        self.tls.replace(tls);
        self.mutual.replace(mutual);
        *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = shown;
        self.made_s.store(now_s, Ordering::Relaxed);
        Ok(())
    }

    fn is_due(&self, now: Now) -> bool {
        let now_s = now.wall.0 / 1000;
        now_s.abs_diff(self.made_s.load(Ordering::Relaxed)) > RENEWED_AFTER_S
    }

    /// Renews the certificate for as long as the box runs.
    pub(crate) async fn keep_valid(&self, clock: DaemonClock) {
        loop {
            tokio::time::sleep(RENEWAL_CHECK).await;
            if !self.is_due(clock.now()) {
                continue;
            }
            match self.renew(clock.now()) {
                Ok(()) => info!("the server certificate was renewed"),
                Err(error) => warn!(
                    "the server certificate could not be renewed: {error:#}; \
                     restart the box before it expires"
                ),
            }
        }
    }
}

/// The acceptor of listeners for people, and that of listeners for agents: a browser that is
/// asked for a certificate would ask its user.
fn acceptors(
    authority: &Authority,
    names: &[String],
    addresses: &[IpAddr],
    now_s: u64,
) -> anyhow::Result<[TlsAcceptor; 2]> {
    let (chain, key) = authority.server_certificate(names, addresses, now_s)?;
    let clients = ClientPolicy::Optional(authority.certificate_pem());
    let configs = [
        server_config(&chain, &key)?,
        mutual_server_config(&chain, &key, clients)?,
    ];
    Ok(configs.map(|config| TlsAcceptor::from(Arc::new(config))))
}

/// The certificate that the box shows to agents that have enrolled, and its successors.
#[derive(Clone)]
pub(crate) struct AgentCallIdentity(Arc<RwLock<ClientIdentity>>);

impl AgentCallIdentity {
    /// The present one.
    pub(crate) fn current(&self) -> ClientIdentity {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn box_identity(authority: &Authority, now_s: u64) -> anyhow::Result<ClientIdentity> {
    let (chain, key) = authority.box_client_certificate(now_s)?;
    Ok(ClientIdentity::load(&chain, &key)?)
}

/// Writes a private file atomically and durably.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = path.with_extension("new");
    let write = || {
        // A file that a power cut left behind may have other permissions.
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
        // The name is durable only after its directory is synced.
        fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_authority_is_made_once_and_its_key_is_private() {
        let scratch = TestbedDirectory::new();
        let first = authority(&scratch.0, "box", DaemonClock::start()).unwrap();
        let key = scratch.0.join("certs/ca.key");
        assert_eq!(mode(&key), 0o600);
        assert_eq!(mode(&scratch.0.join("certs")), 0o700);
        assert!(!scratch.0.join("certs/ca.new").exists());
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let second = authority(&scratch.0, "box", DaemonClock::start()).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(
            mode(&key),
            0o600,
            "it was open to others and is not any more"
        );
    }

    #[test]
    fn a_server_certificate_is_renewed_before_it_ends() {
        let scratch = TestbedDirectory::new();
        let authority = authority(&scratch.0, "box", DaemonClock::start()).unwrap();
        let mut now = DaemonClock::start().now();
        let names = vec!["box".to_owned()];
        let made = ServerCertificate::new(authority, names, Vec::new(), now).unwrap();
        let tls = made.tls();
        let day_ms = 86_400_000;
        let begins = now.wall.0;
        let config = || Arc::as_ptr(tls.current().config());
        let first = config();
        for (days, due) in [(0, false), (299, false), (301, true), (399, true)] {
            now.wall.0 = begins + days * day_ms;
            assert_eq!(made.is_due(now), due, "{days}");
        }
        assert_eq!(config(), first);
        made.renew(now).unwrap();
        assert_ne!(
            config(),
            first,
            "who holds the old one is given the new one"
        );
        assert!(!made.is_due(now));
    }

    #[test]
    fn a_lost_key_is_not_replaced_silently() {
        let scratch = TestbedDirectory::new();
        authority(&scratch.0, "box", DaemonClock::start()).unwrap();
        fs::remove_file(scratch.0.join("certs/ca.key")).unwrap();
        let error = authority(&scratch.0, "box", DaemonClock::start())
            .err()
            .unwrap();
        assert!(error.to_string().contains("restore it"), "{error}");
    }

    #[test]
    fn a_start_that_was_interrupted_before_the_certificate_is_repeated() {
        let scratch = TestbedDirectory::new();
        authority(&scratch.0, "box", DaemonClock::start()).unwrap();
        fs::remove_file(scratch.0.join("certs/ca.pem")).unwrap();
        scratch.file("certs/ca.new", b"half");
        authority(&scratch.0, "box", DaemonClock::start()).unwrap();
    }

    #[test]
    fn a_damaged_authority_is_named_without_its_key() {
        let scratch = TestbedDirectory::new();
        authority(&scratch.0, "box", DaemonClock::start()).unwrap();
        scratch.file("certs/ca.key", b"not a key, but secret");
        let error = authority(&scratch.0, "box", DaemonClock::start())
            .err()
            .unwrap();
        let text = format!("{error:#}");
        assert!(
            text.contains("is damaged") && !text.contains("secret"),
            "{text}"
        );
    }
}
