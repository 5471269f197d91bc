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
        let text = tokio::fs::read_to_string(&self.users)
            .await
            .map_err(|_| WRONG)?;
        let hash = text
            .lines()
            .filter_map(|line| line.trim().split_once(':'))
            .find(|(user, _)| *user == given.0)
            .map(|(_, hash)| hash.to_owned())
            .ok_or(WRONG)?;
        let proof = digest(
            &SHA256,
            format!("{}\0{}\0{hash}", given.0, given.1).as_bytes(),
        );
        let proof: [u8; 32] = proof.as_ref().try_into().map_err(|_| WRONG)?;
        if self
            .proven
            .lock()
            .is_ok_and(|proven| proven.contains(&proof))
        {
            return Ok(());
        }
        let place = self.checks.acquire().await.map_err(|_| WRONG)?;
        let right = tokio::task::spawn_blocking(move || verify(&given.1, &hash)).await;
        drop(place);
        if !right.unwrap_or(false) {
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

    #[tokio::test]
    async fn a_user_taken_out_of_the_file_is_out_at_once() {
        let directory = std::env::temp_dir().join(format!("trivet-auth-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("users");
        std::fs::write(&file, format!("admin:{}\n", bcrypt::hash("pw", 4).unwrap())).unwrap();
        let auth = Auth::Basic(Arc::new(Basic::new(file.clone())));
        let mut headers = HeaderMap::new();
        assert_eq!(auth.check(&headers).await, Err("Authorization required"));
        headers.insert(AUTHORIZATION, "Basic YWRtaW46cHc=".parse().unwrap());
        assert_eq!(auth.check(&headers).await, Ok(()));
        assert_eq!(auth.check(&headers).await, Ok(()));
        std::fs::write(&file, "").unwrap();
        assert!(auth.check(&headers).await.is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
