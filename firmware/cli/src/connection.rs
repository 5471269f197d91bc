//! The box's address, the credentials and the trust policy: from arguments and
//! environment.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;

use crate::arguments::ConnectionArguments;
use crate::fault::CliFault;
use crate::values::{FileTextReader, file_text};

/// The default address of a box.
const URL: &str = "http://127.0.0.1:6385";

/// Reads one environment variable.
pub(crate) type EnvironmentLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How to reach the box.
pub(crate) struct CliConnection {
    pub(crate) endpoint: ApiEndpoint,
    /// The value of the header `authorization`.
    pub(crate) login: Option<HeaderValue>,
    pub(crate) trust: CliServerTrust,
}

/// An address of the API.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ApiEndpoint {
    /// The URL as it was given, for messages.
    pub(crate) url: String,
    pub(crate) secure: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port for the header.
    pub(crate) authority: String,
    /// The path before `/v1`.
    pub(crate) prefix: String,
}

/// Which certificates are trusted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum CliServerTrust {
    /// Those that the system trusts.
    System,
    /// Those signed by the CAs in this PEM text.
    Authorities(String),
    /// Any certificate: verification is disabled.
    AnyCertificate,
}

impl CliConnection {
    pub(crate) fn of(
        global: &ConnectionArguments,
        variable: EnvironmentLookup<'_>,
        read: FileTextReader<'_>,
    ) -> Result<Self, CliFault> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let url = global.url.clone().or_else(|| set("TRIVET_URL"));
        let trust = match &global.ca {
            _ if global.insecure => CliServerTrust::AnyCertificate,
            Some(file) => CliServerTrust::Authorities(file_text("--ca", file, read)?),
            None => CliServerTrust::System,
        };
        Ok(Self {
            endpoint: ApiEndpoint::of(url.as_deref().unwrap_or(URL))?,
            login: login(global, &set, read)?,
            trust,
        })
    }
}

impl ApiEndpoint {
    pub(crate) fn of(url: &str) -> Result<Self, CliFault> {
        let wrong = |why: &str| CliFault::usage(format!("the address of the box {why}"));
        // The URL is not repeated in the error: it may contain a password.
        let uri: Uri = url
            .parse()
            .map_err(|_| wrong("is not a URL such as http://127.0.0.1:6385"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong(
                "must not hold a user or a password: others can read it; use --user with \
                 --password-file, or TRIVET_USER and TRIVET_PASSWORD",
            ));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        let given = authority.as_str().strip_prefix(authority.host());
        let port = match given {
            Some("") if secure => 443,
            Some("") => 80,
            _ => authority
                .port_u16()
                .ok_or_else(|| wrong("has an invalid port"))?,
        };
        if host.is_empty() {
            return Err(wrong("has no host"));
        }
        let path = uri.path().trim_end_matches('/');
        Ok(Self {
            url: url.to_owned(),
            secure,
            host: host.to_owned(),
            port,
            authority: authority.to_string(),
            prefix: path.strip_suffix("/v1").unwrap_or(path).to_owned(),
        })
    }
}

/// The command line has precedence over the environment.
fn login(
    global: &ConnectionArguments,
    set: EnvironmentLookup<'_>,
    read: FileTextReader<'_>,
) -> Result<Option<HeaderValue>, CliFault> {
    if let Some(file) = &global.token_file {
        let token = file_text("--token-file", file, read)?;
        return header(format!("Bearer {}", token.trim())).map(Some);
    }
    if global.user.is_none()
        && global.password_file.is_none()
        && let Some(token) = set("TRIVET_TOKEN")
    {
        return header(format!("Bearer {}", token.trim())).map(Some);
    }
    let password = match &global.password_file {
        Some(file) => Some(file_text("--password-file", file, read)?),
        None => set("TRIVET_PASSWORD"),
    };
    match (global.user.clone().or_else(|| set("TRIVET_USER")), password) {
        (Some(user), _) if user.contains(':') => {
            Err(CliFault::usage("a user's name cannot hold a colon"))
        }
        (Some(user), Some(password)) => {
            let both = STANDARD.encode(format!("{user}:{password}"));
            header(format!("Basic {both}")).map(Some)
        }
        (Some(user), None) => Err(CliFault::usage(format!(
            "user {user} has no password: give --password-file or set TRIVET_PASSWORD"
        ))),
        (None, Some(_)) if global.password_file.is_some() => Err(CliFault::usage(
            "--password-file goes with a user: give --user or set TRIVET_USER",
        )),
        (None, _) => Ok(None),
    }
}

fn header(text: String) -> Result<HeaderValue, CliFault> {
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| CliFault::usage("the token contains invalid characters"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;
    use crate::testing::files;

    fn connection(
        global: &ConnectionArguments,
        variables: &[(&str, &str)],
    ) -> Result<CliConnection, CliFault> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        CliConnection::of(global, &variable, &files)
    }

    fn login(global: &ConnectionArguments, variables: &[(&str, &str)]) -> Option<String> {
        let login = connection(global, variables).unwrap().login?;
        assert!(login.is_sensitive());
        Some(login.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_address_comes_from_argument_environment_or_default() {
        let mut global = ConnectionArguments::default();
        let url = |global: &ConnectionArguments, variables: &[(&str, &str)]| {
            connection(global, variables).unwrap().endpoint.url
        };
        assert_eq!(url(&global, &[]), URL);
        assert_eq!(url(&global, &[("TRIVET_URL", "")]), URL);
        assert_eq!(url(&global, &[("TRIVET_URL", "http://a")]), "http://a");
        global.url = Some("http://b".to_owned());
        assert_eq!(url(&global, &[("TRIVET_URL", "http://a")]), "http://b");
    }

    #[test]
    fn addresses_of_every_kind() {
        let place = ApiEndpoint::of("https://[::1]:7000/base/v1/").unwrap();
        assert_eq!(
            (place.host.as_str(), place.port, place.secure),
            ("::1", 7000, true)
        );
        assert_eq!(place.prefix, "/base");
        assert_eq!(place.authority, "[::1]:7000");
        assert_eq!(ApiEndpoint::of("http://box").unwrap().port, 80);
        assert_eq!(ApiEndpoint::of("https://box/").unwrap().port, 443);
        for wrong in [
            "",
            "box",
            "box:6385",
            "ftp://box",
            "http://",
            "http://box:x",
            "http://a b",
            "http://box:99999",
        ] {
            assert_eq!(
                ApiEndpoint::of(wrong).unwrap_err().exit,
                Exit::Usage,
                "{wrong}"
            );
        }
        let fault = ApiEndpoint::of("http://me:hunter2@box").unwrap_err();
        assert!(!fault.sentence.contains("hunter2"), "{}", fault.sentence);
    }

    #[test]
    fn users_and_tokens() {
        assert_eq!(login(&ConnectionArguments::default(), &[]), None);
        let both = [("TRIVET_USER", "me"), ("TRIVET_PASSWORD", "hunter2")];
        let basic = Some(format!("Basic {}", STANDARD.encode("me:hunter2")));
        assert_eq!(login(&ConnectionArguments::default(), &both), basic);
        let token = [both[0], both[1], ("TRIVET_TOKEN", "12345")];
        assert_eq!(
            login(&ConnectionArguments::default(), &token),
            Some("Bearer 12345".to_owned())
        );
        let mut global = ConnectionArguments {
            user: Some("me".to_owned()),
            password_file: Some("password".to_owned()),
            ..ConnectionArguments::default()
        };
        assert_eq!(login(&global, &token), basic, "arguments go first");
        global.user = None;
        assert_eq!(login(&global, &both), basic);
        let global = ConnectionArguments {
            token_file: Some("number".to_owned()),
            ..ConnectionArguments::default()
        };
        assert_eq!(login(&global, &both), Some("Bearer 12345".to_owned()));
    }

    #[test]
    fn incomplete_credentials_are_a_mistake() {
        let user = |name: &str| ConnectionArguments {
            user: Some(name.to_owned()),
            ..ConnectionArguments::default()
        };
        let file = ConnectionArguments {
            password_file: Some("password".to_owned()),
            ..ConnectionArguments::default()
        };
        let absent = ConnectionArguments {
            token_file: Some("absent".to_owned()),
            ..ConnectionArguments::default()
        };
        for global in [user("me"), user("a:b"), file, absent] {
            assert_eq!(connection(&global, &[]).err().unwrap().exit, Exit::Usage);
        }
        let odd = connection(&ConnectionArguments::default(), &[("TRIVET_TOKEN", "a\nb")]);
        let fault = odd.err().unwrap();
        assert!(fault.sentence.contains("token"), "{}", fault.sentence);
    }

    #[test]
    fn trust_is_chosen() {
        let trust = |global: &ConnectionArguments| connection(global, &[]).unwrap().trust;
        assert_eq!(
            trust(&ConnectionArguments::default()),
            CliServerTrust::System
        );
        let mut global = ConnectionArguments {
            ca: Some("text".to_owned()),
            ..ConnectionArguments::default()
        };
        assert_eq!(
            trust(&global),
            CliServerTrust::Authorities("H4sIAAAA".to_owned())
        );
        global.insecure = true;
        assert_eq!(trust(&global), CliServerTrust::AnyCertificate);
    }
}
