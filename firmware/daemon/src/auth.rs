//! Decides who may call the API: all clients, users with passwords, programs with
//! tokens.
//!
//! Failures cost time: [`limit`] decides who must wait. A user who has logged in from
//! an address may continue from there while others guess its password; a user who has
//! not yet logged in may do so from an address without failures. A token has 256 random
//! bits and needs no such limit, so programs with tokens continue even where passwords
//! are guessed from the same address.

mod files;
mod limit;
pub(crate) mod token;

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use argon2::{Argon2, PasswordHash, PasswordVerifier};
use base64::Engine as _;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ring::digest::{Context, SHA256, digest};
use tokio::sync::Semaphore;
use trivet_api::Access;
use trivet_model::caller::printable;
use trivet_model::{CallerIdentity, Now};

use crate::clock::DaemonClock;
use files::{TokenFileEntry, UserFileEntry, WatchedCredentialFile};
pub(crate) use files::{unusable_tokens, unusable_users};
use limit::{LoginLimiter, LoginNameDigest, LoginSource};

/// How many verified credentials are remembered, as digests: the password hashes in the
/// file are slow by design.
const PROVEN_MAX: usize = 256;

/// How many passwords are checked at once, so that guessing cannot take all cores.
const CHECKS_MAX: usize = 2;

/// Longest name of a user in the log.
const NAME_CHARS_MAX: usize = 64;

/// What a caller may do, least first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, clap::ValueEnum)]
pub(crate) enum Role {
    /// May read.
    Reader,
    /// May read, and change nodes.
    Operator,
    /// May do everything.
    Admin,
}

impl Role {
    /// All names, for messages.
    pub(crate) const NAMES: &'static str = "reader, operator, admin";

    /// Whether the role permits this access.
    pub(crate) fn permits(self, access: Access) -> bool {
        access
            <= match self {
                Self::Reader => Access::Reader,
                Self::Operator => Access::Operator,
                Self::Admin => Access::Admin,
            }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Role {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "reader" => Ok(Self::Reader),
            "operator" => Ok(Self::Operator),
            "admin" => Ok(Self::Admin),
            _ => Err(()),
        }
    }
}

/// A caller with valid credentials.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AuthenticatedCaller {
    pub(crate) who: CallerIdentity,
    pub(crate) role: Role,
}

/// Why a caller is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum AuthDenial {
    /// No credentials, or of a kind that is not enabled.
    Missing,
    /// The credentials are wrong.
    Wrong {
        /// The claimed user; safe to print.
        whose: String,
        /// How long this caller must wait from now on, in seconds.
        wait_s: Option<u64>,
    },
    /// There were too many wrong credentials.
    TooManyFailures {
        /// When to try again, in seconds.
        wait_s: u64,
    },
}

/// How callers are authenticated.
#[derive(Clone)]
pub(crate) enum Authenticator {
    /// Every caller is admitted.
    Open,
    /// With files of users and tokens.
    Files(Arc<FileAuthenticator>),
}

impl Authenticator {
    /// With these files.
    pub(crate) fn from_files(
        users: Option<&Path>,
        tokens: Option<&Path>,
        clock: DaemonClock,
    ) -> Self {
        Self::with_verifier(users, tokens, clock, verify)
    }

    fn with_verifier(
        users: Option<&Path>,
        tokens: Option<&Path>,
        clock: DaemonClock,
        verify: HashComparison,
    ) -> Self {
        let users = users
            .map(|file| WatchedCredentialFile::new("api.users", file.to_owned(), files::users));
        let tokens = tokens
            .map(|file| WatchedCredentialFile::new("api.tokens", file.to_owned(), files::tokens));
        Self::Files(Arc::new(FileAuthenticator {
            users,
            tokens,
            clock,
            proven: Mutex::default(),
            limiter: Mutex::default(),
            checks: Semaphore::new(CHECKS_MAX),
            verify,
        }))
    }

    /// Admits the caller, or returns why not.
    pub(crate) async fn check(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<AuthenticatedCaller, AuthDenial> {
        match self {
            Self::Open => Ok(AuthenticatedCaller {
                who: CallerIdentity::Anyone,
                role: Role::Admin,
            }),
            Self::Files(files) => files.check(headers, peer).await,
        }
    }

    /// Uses the users and tokens of these files from now on. A file that cannot be read
    /// or has mistakes is rejected, and the result says so. Returns none if a kind of
    /// file was added or removed: that needs a restart.
    pub(crate) fn set_files(
        &self,
        users: Option<&Path>,
        tokens: Option<&Path>,
    ) -> Option<Vec<String>> {
        let Self::Files(files) = self else {
            return (users.is_none() && tokens.is_none()).then(Vec::new);
        };
        if files.users.is_some() != users.is_some() || files.tokens.is_some() != tokens.is_some() {
            return None;
        }
        let mut lines = Vec::new();
        if let (Some(watched), Some(file)) = (&files.users, users) {
            lines.extend(watched.set_path(file, unusable_users));
        }
        if let (Some(watched), Some(file)) = (&files.tokens, tokens) {
            lines.extend(watched.set_path(file, unusable_tokens));
        }
        Some(lines)
    }

    /// Reads the files again, changed or not; returns what in them cannot be used.
    pub(crate) fn reload(&self) -> Vec<String> {
        let Self::Files(files) = self else {
            return Vec::new();
        };
        let now = files.clock.now().wall;
        let users = files.users.as_ref().and_then(|users| {
            users.reload(now);
            unusable_users(&users.path())
        });
        let tokens = files.tokens.as_ref().and_then(|tokens| {
            tokens.reload(now);
            unusable_tokens(&tokens.path())
        });
        users.into_iter().chain(tokens).collect()
    }

    /// The values of WWW-Authenticate.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = &'static str> {
        let (users, tokens) = match self {
            Self::Open => (false, false),
            Self::Files(files) => (files.users.is_some(), files.tokens.is_some()),
        };
        let basic = users.then_some("Basic realm=\"Baremetal API\"");
        let bearer = tokens.then_some("Bearer realm=\"Baremetal API\"");
        basic.into_iter().chain(bearer)
    }
}

/// Whether a password belongs to a hash.
type HashComparison = fn(&str, &str) -> bool;

/// Authenticates with files of users and tokens.
pub(crate) struct FileAuthenticator {
    users: Option<WatchedCredentialFile<UserFileEntry>>,
    tokens: Option<WatchedCredentialFile<TokenFileEntry>>,
    clock: DaemonClock,
    proven: Mutex<VecDeque<[u8; 32]>>,
    limiter: Mutex<LoginLimiter>,
    checks: Semaphore,
    verify: HashComparison,
}

/// The credentials that a caller sent.
#[derive(Clone, Debug, Eq, PartialEq)]
enum PresentedCredentials {
    Password { user: String, password: String },
    Token(String),
}

impl FileAuthenticator {
    async fn check(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<AuthenticatedCaller, AuthDenial> {
        let place = LoginSource::of(peer);
        match (credentials_from_headers(headers), &self.users, &self.tokens) {
            (Some(PresentedCredentials::Token(token)), _, Some(tokens)) => {
                self.token(&token, tokens, place)
            }
            (Some(PresentedCredentials::Password { user, password }), Some(users), _) => {
                self.password(user, password, users, place).await
            }
            _ => Err(AuthDenial::Missing),
        }
    }

    fn token(
        &self,
        token: &str,
        tokens: &WatchedCredentialFile<TokenFileEntry>,
        place: LoginSource,
    ) -> Result<AuthenticatedCaller, AuthDenial> {
        let now = self.clock.now();
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let tokens = tokens.current(now.wall);
        let Some(token) = files::find(&tokens, &sha256) else {
            self.wait(now, place, None)?;
            return Err(self.wrong(now, place, None, "a token".to_owned()));
        };
        self.limiter().clear_source(place);
        Ok(AuthenticatedCaller {
            who: CallerIdentity::token(&token.name),
            role: token.role,
        })
    }

    async fn password(
        &self,
        name: String,
        password: String,
        users: &WatchedCredentialFile<UserFileEntry>,
        place: LoginSource,
    ) -> Result<AuthenticatedCaller, AuthDenial> {
        let now = self.clock.now();
        let whose = format!("user {}", printable(&name, NAME_CHARS_MAX));
        let users = users.current(now.wall);
        let user = users.iter().find(|user| user.name == name);
        // A name that is not in the file is checked against the hash of another user,
        // always the same one for a name. So the response time does not reveal user
        // names, whatever kinds and costs of hashes the file has.
        let Some(checked) = user.or_else(|| decoy_user(&users, &name)) else {
            self.wait(now, place, None)?;
            return Err(self.wrong(now, place, Some(LoginNameDigest::of(&name)), whose));
        };
        let known = user.and_then(|user| {
            Some(AuthenticatedCaller {
                who: CallerIdentity::user(&user.name),
                role: user.role?,
            })
        });
        let proof = proof(&name, &password, &checked.hash, place);
        let name = LoginNameDigest::of(&name);
        let mut fresh = false;
        let caller = (place, name, &proof);
        if let Some(known) = self.proven(now, caller, known.as_ref(), &mut fresh)? {
            return Ok(known);
        }
        let _turn = self
            .checks
            .acquire()
            .await
            .map_err(|_| AuthDenial::Missing)?;
        // Meanwhile other requests may have failed, or verified the same credentials.
        let now = self.clock.now();
        if let Some(known) = self.proven(now, caller, known.as_ref(), &mut fresh)? {
            return Ok(known);
        }
        let hash = checked.hash.clone();
        let verify = self.verify;
        let right = tokio::task::spawn_blocking(move || verify(&password, &hash)).await;
        let now = self.clock.now();
        match known {
            Some(known) if right.unwrap_or(false) => {
                self.remember(proof);
                let mut limiter = self.limiter();
                limiter.clear_source(place);
                limiter.clear_name(name);
                Ok(known)
            }
            _ => Err(self.wrong(now, place, Some(name), whose)),
        }
    }

    /// Admits a user who was verified from this address before; others may have to
    /// wait. `fresh` is set where a caller without failures tries a name that must
    /// wait.
    fn proven(
        &self,
        now: Now,
        (place, name, proof): (LoginSource, LoginNameDigest, &[u8; 32]),
        known: Option<&AuthenticatedCaller>,
        fresh: &mut bool,
    ) -> Result<Option<AuthenticatedCaller>, AuthDenial> {
        self.wait(now, place, None)?;
        let proven = self.proofs().contains(proof);
        if let Some(known) = known
            && proven
        {
            // Do not clear the name: another client may be guessing its password.
            self.limiter().clear_source(place);
            return Ok(Some(known.clone()));
        }
        match self.wait(now, place, Some(name)) {
            // Its attempt was counted before it waited for the check.
            Err(_) if *fresh => Ok(None),
            Err(_) if self.limiter().admits_new_source(now.tick, place, name) => {
                *fresh = true;
                Ok(None)
            }
            waits => waits.map(|()| None),
        }
    }

    fn wait(
        &self,
        now: Now,
        place: LoginSource,
        name: Option<LoginNameDigest>,
    ) -> Result<(), AuthDenial> {
        let limiter = self.limiter();
        let place = limiter.source_wait_s(now.tick, place);
        let name = name.and_then(|name| limiter.name_wait_s(now.tick, name));
        match place.max(name) {
            Some(wait_s) => Err(AuthDenial::TooManyFailures { wait_s }),
            None => Ok(()),
        }
    }

    fn wrong(
        &self,
        now: Now,
        place: LoginSource,
        name: Option<LoginNameDigest>,
        whose: String,
    ) -> AuthDenial {
        let wait_s = self.limiter().fail(now.tick, place, name);
        AuthDenial::Wrong { whose, wait_s }
    }

    fn remember(&self, proof: [u8; 32]) {
        let mut proven = self.proofs();
        if proven.len() >= PROVEN_MAX {
            proven.pop_front();
        }
        proven.push_back(proof);
    }

    fn limiter(&self) -> MutexGuard<'_, LoginLimiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn proofs(&self) -> MutexGuard<'_, VecDeque<[u8; 32]>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The user against whose hash an unknown name is checked.
fn decoy_user<'a>(users: &'a [UserFileEntry], name: &str) -> Option<&'a UserFileEntry> {
    let digest = digest(&SHA256, name.as_bytes());
    let (first, _) = digest.as_ref().split_first_chunk::<8>()?;
    let number = u64::from_be_bytes(*first);
    let at = number.checked_rem(users.len() as u64)?;
    users.get(usize::try_from(at).ok()?)
}

/// The digest that remembers: these credentials were right for this line of the file,
/// from this address.
fn proof(user: &str, password: &str, hash: &str, place: LoginSource) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in [user.as_bytes(), password.as_bytes(), hash.as_bytes()] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.update(&place.bytes());
    let mut proof = [0; 32];
    proof.copy_from_slice(context.finish().as_ref());
    proof
}

/// Credentials from `Authorization`, or from the header in which clients of OpenStack
/// send their tokens.
fn credentials_from_headers(headers: &HeaderMap) -> Option<PresentedCredentials> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let authorization = text(AUTHORIZATION.as_str()).and_then(parse_authorization);
    authorization
        .or_else(|| text("x-auth-token").map(|token| PresentedCredentials::Token(token.to_owned())))
}

fn parse_authorization(header: &str) -> Option<PresentedCredentials> {
    let (scheme, text) = header.split_once(' ')?;
    let text = text.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(PresentedCredentials::Token(text.to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(PresentedCredentials::Password {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

fn verify(password: &str, hash: &str) -> bool {
    if hash.starts_with("$argon2") {
        PasswordHash::new(hash).is_ok_and(|parsed| {
            Argon2::default()
                .verify_password(password.as_bytes(), &parsed)
                .is_ok()
        })
    } else {
        bcrypt::verify(password, hash).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests;
