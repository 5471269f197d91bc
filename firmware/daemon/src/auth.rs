//! Who may call the API: nobody in particular, or users of a file.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use argon2::{Argon2, PasswordHash, PasswordVerifier};
use base64::Engine as _;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;

use crate::say;

/// How many proven credentials are remembered, as digests: the hashes in the
/// file are slow by design.
const PROVEN_MAX: usize = 64;

/// How many passwords are checked at once, so that guessing cannot take all cores.
const CHECKS_MAX: usize = 2;

/// How callers prove themselves.
#[derive(Clone)]
pub(crate) enum Auth {
    /// They need not.
    Open,
    /// By user and password from a file of `user:hash` lines.
    Basic(Arc<Basic>),
}

/// Users of a file.
pub(crate) struct Basic {
    users: PathBuf,
    proven: Mutex<VecDeque<[u8; 32]>>,
    checks: Semaphore,
}

impl Basic {
    pub(crate) fn new(users: PathBuf) -> Self {
        Self {
            users,
            proven: Mutex::default(),
            checks: Semaphore::new(CHECKS_MAX),
        }
    }

    async fn check(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        const WRONG: &str = "Incorrect username or password";
        let header = headers.get(AUTHORIZATION).ok_or("Authorization required")?;
        let given = header
            .to_str()
            .ok()
            .and_then(credentials)
            .ok_or("Authorization required")?;
        // The file is read each time: a user taken out of it is out at once.
        let text = match tokio::fs::read_to_string(&self.users).await {
            Ok(text) => text,
            Err(error) => {
                let file = self.users.display();
                say::line(&format!(
                    "trivet: api.users: {file} cannot be read: {error}"
                ));
                return Err(WRONG);
            }
        };
        let users = || users(&text);
        let hash = users().find(|(user, _)| *user == given.0);
        let known = hash.is_some();
        // A name that is not in the file costs as much as a wrong password, so that
        // the time of an answer names no users.
        let (_, hash) = hash.or_else(|| users().next()).ok_or(WRONG)?;
        let hash = hash.to_owned();
        let proof = digest(
            &SHA256,
            format!("{}\0{}\0{hash}", given.0, given.1).as_bytes(),
        );
        let proof: [u8; 32] = proof.as_ref().try_into().map_err(|_| WRONG)?;
        let proven = self
            .proven
            .lock()
            .is_ok_and(|proven| proven.contains(&proof));
        if known && proven {
            return Ok(());
        }
        let place = self.checks.acquire().await.map_err(|_| WRONG)?;
        let right = tokio::task::spawn_blocking(move || verify(&given.1, &hash)).await;
        drop(place);
        if !known || !right.unwrap_or(false) {
            return Err(WRONG);
        }
        if let Ok(mut proven) = self.proven.lock() {
            if proven.len() >= PROVEN_MAX {
                proven.pop_front();
            }
            proven.push_back(proof);
        }
        Ok(())
    }
}

impl Auth {
    /// Lets the caller in, or says why not.
    pub(crate) async fn check(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        match self {
            Self::Open => Ok(()),
            Self::Basic(basic) => basic.check(headers).await,
        }
    }
}

/// Users and their hashes in a file of `user:hash` lines.
pub(crate) fn users(text: &str) -> impl Iterator<Item = (&str, &str)> + Clone {
    text.lines().filter_map(|line| line.trim().split_once(':'))
}

/// Whether a hash is of a kind that [`verify`] knows.
pub(crate) fn is_hash(hash: &str) -> bool {
    let bcrypt = ["$2a$", "$2b$", "$2x$", "$2y$"]
        .iter()
        .any(|kind| hash.starts_with(kind));
    bcrypt || (hash.starts_with("$argon2") && PasswordHash::new(hash).is_ok())
}

fn credentials(header: &str) -> Option<(String, String)> {
    let (scheme, text) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text.trim())
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.split_once(':')
        .map(|(user, password)| (user.to_owned(), password.to_owned()))
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
mod tests {
    use super::*;
    use crate::testbed::Scratch;

    #[test]
    fn reads_credentials() {
        let want = Some(("admin".to_owned(), "a:b".to_owned()));
        assert_eq!(credentials("Basic YWRtaW46YTpi"), want);
        assert_eq!(credentials("bAsIc YWRtaW46YTpi"), want);
        for header in ["Bearer x", "Basic", "Basic %%%", "Basic YWRtaW4="] {
            assert_eq!(credentials(header), None, "{header}");
        }
    }

    #[test]
    fn knows_both_kinds_of_hashes_and_no_other() {
        let bcrypt_hash = bcrypt::hash("secret", 4).unwrap();
        assert!(verify("secret", &bcrypt_hash));
        assert!(!verify("Secret", &bcrypt_hash));
        for hash in ["", "secret", "$argon2id$broken", "{SHA}x"] {
            assert!(!verify("secret", hash), "{hash}");
        }
    }

    struct Users {
        scratch: Scratch,
        basic: Arc<Basic>,
    }

    fn users(text: &str) -> Users {
        let scratch = Scratch::new();
        let basic = Arc::new(Basic::new(scratch.file("users", text.as_bytes())));
        Users { scratch, basic }
    }

    impl Users {
        async fn check(&self, header: Option<&str>) -> Result<(), &'static str> {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().unwrap());
            }
            Auth::Basic(Arc::clone(&self.basic)).check(&headers).await
        }
    }

    const ADMIN_PW: &str = "Basic YWRtaW46cHc=";
    const OTHER_PW: &str = "Basic b3RoZXI6cHc=";
    const WRONG: Result<(), &str> = Err("Incorrect username or password");

    fn line() -> String {
        format!("admin:{}\n", bcrypt::hash("pw", 4).unwrap())
    }

    #[tokio::test]
    async fn a_user_taken_out_of_the_file_is_out_at_once() {
        let users = users(&line());
        assert_eq!(users.check(None).await, Err("Authorization required"));
        assert_eq!(users.check(Some(ADMIN_PW)).await, Ok(()));
        assert_eq!(users.check(Some(ADMIN_PW)).await, Ok(()));
        users.scratch.file("users", b"");
        assert_eq!(users.check(Some(ADMIN_PW)).await, WRONG);
    }

    /// Its password is checked against another user's hash, which costs the same
    /// and must not let it in, not even with that user's password.
    #[tokio::test]
    async fn an_unknown_user_is_refused_with_any_password() {
        let users = users(&line());
        for _ in 0..2 {
            assert_eq!(users.check(Some(OTHER_PW)).await, WRONG);
            assert_eq!(users.check(Some(ADMIN_PW)).await, Ok(()));
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_lets_nobody_in() {
        let users = users(&line());
        std::fs::remove_file(users.scratch.0.join("users")).unwrap();
        assert_eq!(users.check(Some(ADMIN_PW)).await, WRONG);
    }

    #[tokio::test]
    async fn proofs_are_remembered_up_to_their_bound() {
        let hash = bcrypt::hash("pw", 4).unwrap();
        let lines = (0..=PROVEN_MAX).map(|number| format!("u{number}:{hash}"));
        let users = users(&lines.collect::<Vec<_>>().join("\n"));
        for number in 0..=PROVEN_MAX {
            let credentials = format!("u{number}:pw");
            let text = base64::engine::general_purpose::STANDARD.encode(credentials);
            assert_eq!(users.check(Some(&format!("Basic {text}"))).await, Ok(()));
        }
        assert_eq!(users.basic.proven.lock().unwrap().len(), PROVEN_MAX);
    }

    #[tokio::test]
    async fn an_open_api_asks_nobody() {
        assert_eq!(Auth::Open.check(&HeaderMap::new()).await, Ok(()));
    }
}
