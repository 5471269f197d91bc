//! Who may call the API: anybody, users with passwords, programs with tokens.
//!
//! Failures cost time: [`limit`] says who has to wait. A user who has proven
//! itself from a place goes on from there while others guess its password, and one who
//! has not yet may do so from a place where nobody failed. A
//! token has 256 bits of chance and needs no such care, so programs with tokens
//! go on even where somebody guesses passwords from the same address.

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

/// How many proven credentials are remembered, as digests: the hashes in the
/// file are slow by design.
const PROVEN_MAX: usize = 256;

/// How many passwords are checked at once, so that guessing cannot take all cores.
const CHECKS_MAX: usize = 2;

/// Longest name of a user in the log.
const NAME_CHARS_MAX: usize = 64;

/// What somebody may do, least first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, clap::ValueEnum)]
pub(crate) enum Role {
    /// Read.
    Reader,
    /// Read, and change nodes.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// Their names, for sentences.
    pub(crate) const NAMES: &'static str = "reader, operator, admin";

    /// Whether that is enough.
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

/// Somebody who may come in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AuthenticatedCaller {
    pub(crate) who: CallerIdentity,
    pub(crate) role: Role,
}

/// Why somebody may not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum AuthDenial {
    /// No credentials, or of a kind that does not count here.
    Missing,
    /// They are wrong.
    Wrong {
        /// Whose they were said to be; safe to print.
        whose: String,
        /// How long this caller has to wait from now on.
        wait_s: Option<u64>,
    },
    /// There were too many wrong ones.
    TooManyFailures {
        /// When to try again.
        wait_s: u64,
    },
}

/// How callers prove themselves.
#[derive(Clone)]
pub(crate) enum Authenticator {
    /// They need not.
    Open,
    /// By files of users and tokens.
    Files(Arc<FileAuthenticator>),
}

impl Authenticator {
    /// By these files.
    pub(crate) fn from_files(
        users: Option<&Path>,
        tokens: Option<&Path>,
        clock: DaemonClock,
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
        }))
    }

    /// Lets the caller in, or says why not.
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
            Self::Files(gate) => gate.check(headers, peer).await,
        }
    }

    /// Takes users and tokens from these files from now on; a file that cannot be read or has
    /// mistakes is not taken, and the answer says so. None where there were none of that kind
    /// before, or are none now: that needs a restart.
    pub(crate) fn set_files(
        &self,
        users: Option<&Path>,
        tokens: Option<&Path>,
    ) -> Option<Vec<String>> {
        let Self::Files(gate) = self else {
            return (users.is_none() && tokens.is_none()).then(Vec::new);
        };
        if gate.users.is_some() != users.is_some() || gate.tokens.is_some() != tokens.is_some() {
            return None;
        }
        let mut lines = Vec::new();
        if let (Some(watched), Some(file)) = (&gate.users, users) {
            lines.extend(watched.set_path(file, unusable_users));
        }
        if let (Some(watched), Some(file)) = (&gate.tokens, tokens) {
            lines.extend(watched.set_path(file, unusable_tokens));
        }
        Some(lines)
    }

    /// Reads the files again, changed or not, and says what in them does not count.
    pub(crate) fn reload(&self) -> Vec<String> {
        let Self::Files(gate) = self else {
            return Vec::new();
        };
        let now = gate.clock.now().wall;
        let users = gate.users.as_ref().and_then(|users| {
            users.reload(now);
            unusable_users(&users.path())
        });
        let tokens = gate.tokens.as_ref().and_then(|tokens| {
            tokens.reload(now);
            unusable_tokens(&tokens.path())
        });
        users.into_iter().chain(tokens).collect()
    }

    /// What the box asks for, in the words of HTTP.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = &'static str> {
        let (users, tokens) = match self {
            Self::Open => (false, false),
            Self::Files(gate) => (gate.users.is_some(), gate.tokens.is_some()),
        };
        let basic = users.then_some("Basic realm=\"Baremetal API\"");
        let bearer = tokens.then_some("Bearer realm=\"Baremetal API\"");
        basic.into_iter().chain(bearer)
    }
}

/// Users and tokens of files.
pub(crate) struct FileAuthenticator {
    users: Option<WatchedCredentialFile<UserFileEntry>>,
    tokens: Option<WatchedCredentialFile<TokenFileEntry>>,
    clock: DaemonClock,
    proven: Mutex<VecDeque<[u8; 32]>>,
    limiter: Mutex<LoginLimiter>,
    checks: Semaphore,
}

/// What a caller brought along.
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
        // A name that is not in the file is checked against the hash of another user, always
        // the same one for a name, so that the time of an answer names no users whatever
        // kinds and costs of hashes the file has.
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
        // Others may have failed or proven the same while this one waited for its turn.
        let now = self.clock.now();
        if let Some(known) = self.proven(now, caller, known.as_ref(), &mut fresh)? {
            return Ok(known);
        }
        let hash = checked.hash.clone();
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

    /// Lets in who has proven itself from there before; others may have to wait. `fresh` is set
    /// where a caller without failures tries a name that has to wait.
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
            // The name stays as it is: somebody else may be guessing its password.
            self.limiter().clear_source(place);
            return Ok(Some(known.clone()));
        }
        match self.wait(now, place, Some(name)) {
            // Its try was counted before it waited for its turn.
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

/// The user whose hash an unknown name is checked against.
fn decoy_user<'a>(users: &'a [UserFileEntry], name: &str) -> Option<&'a UserFileEntry> {
    let digest = digest(&SHA256, name.as_bytes());
    let (first, _) = digest.as_ref().split_first_chunk::<8>()?;
    let number = u64::from_be_bytes(*first);
    let at = number.checked_rem(users.len() as u64)?;
    users.get(usize::try_from(at).ok()?)
}

/// That these credentials were right for this line of the file, from there.
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

/// Credentials from `Authorization`, or from the header that clients of OpenStack
/// carry their tokens in.
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
