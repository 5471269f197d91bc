//! Permission to read from a repository: user and password, or a token of a token server.
//!
//! The client sends a request with [`RegistryAuthorization::header`]. On status 401 it gives the
//! challenges to [`RegistryAuthorization::handle_challenge`], carries out what that returns, and
//! sends the request once more. A second 401 is [`RegistryAuthorization::refused`]. A token that
//! expired is replaced in the same way.

use serde::Deserialize;
use trivet_model::OciReference;
use trivet_model::secret::SecretText;
use trivet_net::percent;

use crate::{OciError, RegistryChallenge, RegistryCredentials, parse_challenges};

/// Longest response of a token server. Ours.
pub const TOKEN_BODY_BYTES_MAX: usize = 64 * 1024;

/// Longest token, and URL of a token server. Ours.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
const REALM_BYTES_MAX: usize = 2048;

/// The most headers with challenges of one response. Ours.
const HEADERS_MAX: usize = 4;

/// What the client does after a challenge.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ChallengeAction {
    /// Send the request again.
    Retry,
    /// Read this URL, give the response to [`RegistryAuthorization::handle_token`], and send the
    /// request again.
    FetchToken {
        /// The URL.
        url: String,
        /// The `Authorization` header for it; without one the token is an anonymous one.
        authorization: Option<SecretText>,
    },
}

/// The permission to read from one repository.
#[derive(Clone, Debug)]
pub struct RegistryAuthorization {
    registry: String,
    repository: String,
    /// The registry is reached over plain HTTP, so its token server may be as well.
    is_plain: bool,
    credentials: Option<RegistryCredentials>,
    header: Option<SecretText>,
    realm: String,
}

/// The response of a token server. Both names are in use.
#[derive(Deserialize)]
struct TokenBody {
    token: Option<String>,
    access_token: Option<String>,
}

impl RegistryAuthorization {
    /// No permission yet.
    pub fn new(
        reference: &OciReference,
        credentials: Option<RegistryCredentials>,
        is_plain: bool,
    ) -> Self {
        Self {
            registry: reference.registry().to_owned(),
            repository: reference.repository().to_owned(),
            is_plain,
            credentials,
            header: None,
            realm: String::new(),
        }
    }

    /// The credentials it was made with.
    pub fn credentials(&self) -> Option<&RegistryCredentials> {
        self.credentials.as_ref()
    }

    /// The `Authorization` header for the registry.
    pub fn header(&self) -> Option<&SecretText> {
        self.header.as_ref()
    }

    /// Handles the `WWW-Authenticate` headers of a response with status 401.
    pub fn handle_challenge(&mut self, headers: &[&str]) -> Result<ChallengeAction, OciError> {
        let headers = headers.iter().take(HEADERS_MAX);
        let all: Vec<RegistryChallenge> = headers.flat_map(|one| parse_challenges(one)).collect();
        let bearer = all.iter().find_map(|challenge| match challenge {
            RegistryChallenge::Bearer { realm, service } => Some((realm, service)),
            RegistryChallenge::Basic => None,
        });
        if let Some((realm, service)) = bearer {
            return self.fetch_token(realm, service.as_deref());
        }
        if !all.contains(&RegistryChallenge::Basic) {
            return Err(OciError::Challenge {
                registry: self.registry.clone(),
                why: "its WWW-Authenticate has neither Bearer nor Basic".to_owned(),
            });
        }
        let Some(credentials) = &self.credentials else {
            return Err(self.no_credentials());
        };
        let header = credentials.basic_header();
        if self.header.as_ref() == Some(&header) {
            return Err(self.login_refused("status 401"));
        }
        self.header = Some(header);
        Ok(ChallengeAction::Retry)
    }

    fn fetch_token(
        &mut self,
        realm: &str,
        service: Option<&str>,
    ) -> Result<ChallengeAction, OciError> {
        self.check_realm(realm)?;
        self.header = None;
        realm.clone_into(&mut self.realm);
        let mark = if realm.contains('?') { '&' } else { '?' };
        let scope = percent::encode(&format!("repository:{}:pull", self.repository));
        let service = service.map(|service| format!("service={}&", percent::encode(service)));
        let service = service.unwrap_or_default();
        Ok(ChallengeAction::FetchToken {
            url: format!("{realm}{mark}{service}scope={scope}"),
            authorization: self
                .credentials
                .as_ref()
                .map(RegistryCredentials::basic_header),
        })
    }

    /// User and password are sent to the token server: a registry with TLS must not have them
    /// sent without.
    fn check_realm(&self, realm: &str) -> Result<(), OciError> {
        let is_secure = realm.starts_with("https://");
        let why = if realm.len() > REALM_BYTES_MAX
            || realm.contains(|one: char| one.is_whitespace() || one.is_control() || one == '#')
        {
            "the URL of its token server is not valid"
        } else if realm.contains('@') {
            "the URL of its token server has a user in it"
        } else if !(is_secure || self.is_plain && realm.starts_with("http://")) {
            "its token server is not reached over https"
        } else {
            return Ok(());
        };
        Err(OciError::Challenge {
            registry: self.registry.clone(),
            why: why.to_owned(),
        })
    }

    /// Handles the response of the token server.
    pub fn handle_token(&mut self, status: u16, body: &[u8]) -> Result<(), OciError> {
        match status {
            200 => {}
            401 | 403 if self.credentials.is_some() => {
                return Err(self.login_refused(&format!("status {status} of its token server")));
            }
            401 | 403 => return Err(self.no_credentials()),
            status => return Err(self.token_server(format!("answered with status {status}"))),
        }
        let parsed: Option<TokenBody> = Some(body)
            .filter(|body| body.len() <= TOKEN_BODY_BYTES_MAX)
            .and_then(|body| serde_json::from_slice(body).ok());
        let token = parsed.and_then(|body| body.token.or(body.access_token));
        let is_plain = |token: &String| {
            !token.is_empty()
                && token.len() <= TOKEN_BYTES_MAX
                && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let Some(token) = token.filter(is_plain) else {
            return Err(self.token_server("answered without a token".to_owned()));
        };
        self.header = Some(SecretText::new(format!("Bearer {token}")));
        Ok(())
    }

    /// The token server does not answer.
    pub fn token_server(&self, why: String) -> OciError {
        OciError::TokenServer {
            registry: self.registry.clone(),
            realm: self.realm.clone(),
            why,
        }
    }

    /// The registry refuses a request in spite of its authorization.
    pub fn refused(&self, status: u16) -> OciError {
        let why = format!("status {status}");
        match (&self.credentials, &self.header) {
            (None, _) if status == 401 => self.no_credentials(),
            (Some(credentials), Some(header)) if *header == credentials.basic_header() => {
                self.login_refused(&why)
            }
            _ => OciError::TokenRefused {
                registry: self.registry.clone(),
                repository: self.repository.clone(),
                user: self.user(),
                why,
            },
        }
    }

    fn user(&self) -> String {
        match &self.credentials {
            None => "everybody".to_owned(),
            Some(credentials) if credentials.user.is_empty() => "the pull secret".to_owned(),
            Some(credentials) => format!("user {}", credentials.user),
        }
    }

    fn no_credentials(&self) -> OciError {
        OciError::NoCredentials {
            registry: self.registry.clone(),
            repository: self.repository.clone(),
        }
    }

    fn login_refused(&self, why: &str) -> OciError {
        OciError::LoginRefused {
            registry: self.registry.clone(),
            repository: self.repository.clone(),
            user: self.user(),
            why: why.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEARER: &str = "Bearer realm=\"https://auth.h/token\",service=\"reg x\"";

    fn authorization(secret: Option<&str>, is_plain: bool) -> RegistryAuthorization {
        let reference = "oci://h:5000/team/debian:12".parse().unwrap();
        let credentials = secret.and_then(RegistryCredentials::of_pull_secret);
        RegistryAuthorization::new(&reference, credentials, is_plain)
    }

    fn header(of: &RegistryAuthorization) -> Option<&str> {
        of.header().map(SecretText::reveal)
    }

    #[test]
    fn a_token_is_fetched_with_the_login_and_used() {
        let mut one = authorization(Some("ann:hunter2"), false);
        assert_eq!(header(&one), None);
        let action = one.handle_challenge(&[BEARER]).unwrap();
        let url = "https://auth.h/token?service=reg%20x&scope=repository%3Ateam%2Fdebian%3Apull";
        assert_eq!(
            action,
            ChallengeAction::FetchToken {
                url: url.to_owned(),
                authorization: Some(SecretText::new("Basic YW5uOmh1bnRlcjI=")),
            }
        );
        one.handle_token(200, br#"{"token": "t1", "expires_in": 60}"#)
            .unwrap();
        assert_eq!(header(&one), Some("Bearer t1"));
        // The token expired: the next one replaces it.
        one.handle_challenge(&[BEARER]).unwrap();
        assert_eq!(header(&one), None);
        one.handle_token(200, br#"{"access_token": "t2"}"#).unwrap();
        assert_eq!(header(&one), Some("Bearer t2"));
        let why = one.refused(401).to_string();
        assert!(
            why.contains(
                "refused the token for repository team/debian (status 401): give user ann"
            ),
            "{why}"
        );
    }

    #[test]
    fn a_token_can_be_anonymous() {
        let mut one = authorization(None, false);
        let action = one.handle_challenge(&["Basic realm=x", BEARER]).unwrap();
        assert!(matches!(
            action,
            ChallengeAction::FetchToken {
                authorization: None,
                ..
            }
        ));
        assert!(matches!(
            one.handle_token(401, b""),
            Err(OciError::NoCredentials { .. })
        ));
        one.handle_token(200, br#"{"token": "t"}"#).unwrap();
        assert!(matches!(one.refused(401), OciError::NoCredentials { .. }));
        let why = one.refused(403).to_string();
        assert!(why.contains("status 403"), "{why}");
    }

    #[test]
    fn a_login_is_sent_once() {
        let basic = "Basic realm=\"Registry\"";
        let mut one = authorization(Some("ann:hunter2"), false);
        assert_eq!(one.handle_challenge(&[basic]), Ok(ChallengeAction::Retry));
        assert_eq!(header(&one), Some("Basic YW5uOmh1bnRlcjI="));
        let why = one.handle_challenge(&[basic]).unwrap_err();
        assert_eq!(why, one.refused(401));
        let why = why.to_string();
        assert!(why.contains("refused the login of user ann"), "{why}");
        assert!(!why.contains("hunter2"), "{why}");
        let mut one = authorization(None, false);
        let why = one.handle_challenge(&[basic]).unwrap_err();
        assert!(why.to_string().contains("image_pull_secret"), "{why}");
    }

    #[test]
    fn a_login_is_not_sent_to_a_token_server_without_tls() {
        let refused = |is_plain: bool, realm: &str| {
            let mut one = authorization(Some("ann:hunter2"), is_plain);
            let challenge = format!("Bearer realm=\"{realm}\"");
            one.handle_challenge(&[challenge.as_str()]).is_err()
        };
        assert!(refused(false, "http://auth.h/token"));
        assert!(!refused(true, "http://auth.h/token"));
        for realm in [
            "file:///etc/passwd",
            "https://ann@h/",
            "https://h/a b",
            "https://h/#a",
            "/token",
            &format!("https://{}", "a".repeat(REALM_BYTES_MAX)),
        ] {
            assert!(refused(true, realm), "{realm}");
        }
    }

    #[test]
    fn a_realm_can_have_a_query() {
        let mut one = authorization(None, false);
        let action = one.handle_challenge(&["Bearer realm=\"https://h/t?a=b\""]);
        let Ok(ChallengeAction::FetchToken { url, .. }) = action else {
            panic!("a token is fetched: {action:?}");
        };
        assert!(url.starts_with("https://h/t?a=b&scope="), "{url}");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let mut one = authorization(Some("secret"), false);
        one.handle_challenge(&[BEARER]).unwrap();
        for body in [
            String::new(),
            "[]".to_owned(),
            "{}".to_owned(),
            r#"{"token": ""}"#.to_owned(),
            r#"{"token": 7}"#.to_owned(),
            r#"{"token": "a\nb"}"#.to_owned(),
            format!(r#"{{"token": "{}"}}"#, "a".repeat(TOKEN_BYTES_MAX + 1)),
            format!(
                r#"{{"token": "a", "b": "{}"}}"#,
                "a".repeat(TOKEN_BODY_BYTES_MAX)
            ),
        ] {
            let why = one.handle_token(200, body.as_bytes()).unwrap_err();
            let sentence = why.to_string();
            assert!(
                sentence.contains("https://auth.h/token answered without"),
                "{sentence}"
            );
            assert_eq!(header(&one), None);
        }
        assert!(!one.handle_token(503, b"").unwrap_err().is_final());
        let why = one.handle_token(401, b"").unwrap_err();
        assert!(
            why.to_string().contains("the login of the pull secret"),
            "{why}"
        );
    }

    #[test]
    fn an_unknown_scheme_is_reported() {
        let mut one = authorization(None, false);
        let why = one.handle_challenge(&["Negotiate"]).unwrap_err();
        assert!(
            why.to_string().contains("neither Bearer nor Basic"),
            "{why}"
        );
        assert!(one.handle_challenge(&[]).is_err());
    }
}
