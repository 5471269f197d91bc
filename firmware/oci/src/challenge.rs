//! Challenges of a registry: the header `WWW-Authenticate` (RFC 9110, section 11.6.1).

/// Longest header that is parsed. Ours.
pub const CHALLENGE_BYTES_MAX: usize = 4096;

/// The most challenges of one header, and parameters of one challenge. Ours.
const CHALLENGES_MAX: usize = 8;
const PARAMETERS_MAX: usize = 16;

/// How a registry wants a request to be authorized.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RegistryChallenge {
    /// User and password with each request (RFC 7617).
    Basic,
    /// A token of a token server, as the distribution specification describes it. The scope is
    /// not read: what we need is known.
    Bearer {
        /// The URL of the token server.
        realm: String,
        /// The name of the registry at the token server.
        service: Option<String>,
    },
}

/// All challenges of one header that are supported; those of other schemes and malformed ones are
/// left out.
pub fn parse_challenges(header: &str) -> Vec<RegistryChallenge> {
    let mut found = Vec::new();
    if header.len() > CHALLENGE_BYTES_MAX {
        return found;
    }
    let mut input = ChallengeText(header);
    for _ in 0..CHALLENGES_MAX {
        input.skip(" \t,");
        let Some(scheme) = input.token() else {
            break;
        };
        let Some(parameters) = input.parameters() else {
            break;
        };
        let get = |name: &str| {
            let of_name = |pair: &&(String, String)| pair.0.eq_ignore_ascii_case(name);
            let pair = parameters.iter().find(of_name);
            pair.map(|(_, value)| value.clone())
        };
        if scheme.eq_ignore_ascii_case("basic") {
            found.push(RegistryChallenge::Basic);
        } else if scheme.eq_ignore_ascii_case("bearer")
            && let Some(realm) = get("realm")
        {
            found.push(RegistryChallenge::Bearer {
                realm,
                service: get("service"),
            });
        }
    }
    found
}

/// The rest of the header.
struct ChallengeText<'a>(&'a str);

impl<'a> ChallengeText<'a> {
    fn skip(&mut self, characters: &str) {
        self.0 = self.0.trim_start_matches(|one| characters.contains(one));
    }

    /// A token of RFC 9110, section 5.6.2.
    fn token(&mut self) -> Option<&'a str> {
        let is_token = |one: char| one.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(one);
        let end = self.0.find(|one| !is_token(one)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }

    /// Parameters up to the next scheme or the end; none where the header is malformed.
    fn parameters(&mut self) -> Option<Vec<(String, String)>> {
        let mut all = Vec::new();
        loop {
            self.skip(" \t,");
            let before = self.0;
            let Some(name) = self.token() else {
                return self.0.is_empty().then_some(all);
            };
            self.skip(" \t");
            let Some(rest) = self.0.strip_prefix('=') else {
                // The name is the scheme of the next challenge.
                self.0 = before;
                return Some(all);
            };
            self.0 = rest;
            self.skip(" \t");
            let value = self.value()?;
            if all.len() == PARAMETERS_MAX {
                return None;
            }
            all.push((name.to_owned(), value));
        }
    }

    /// A token or a quoted string.
    fn value(&mut self) -> Option<String> {
        let Some(rest) = self.0.strip_prefix('"') else {
            return self.token().map(str::to_owned);
        };
        let mut value = String::new();
        let mut characters = rest.char_indices();
        while let Some((at, one)) = characters.next() {
            match one {
                '"' => {
                    self.0 = &rest[at + 1..];
                    return Some(value);
                }
                '\\' => value.push(characters.next()?.1),
                one if one.is_control() => return None,
                one => value.push(one),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> RegistryChallenge {
        RegistryChallenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
        }
    }

    #[test]
    fn the_challenges_of_known_registries_are_parsed() {
        for (header, challenge) in [
            (
                "Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\",\
                 scope=\"repository:library/debian:pull\"",
                bearer("https://auth.docker.io/token", Some("registry.docker.io")),
            ),
            (
                "Bearer realm=\"https://quay.io/v2/auth\",service=\"quay.io\"",
                bearer("https://quay.io/v2/auth", Some("quay.io")),
            ),
            (
                "bearer  Realm = \"https://h/a,b=\\\"c\\\"\" , error=\"invalid_token\"",
                bearer("https://h/a,b=\"c\"", None),
            ),
            ("Basic realm=\"Registry\"", RegistryChallenge::Basic),
            ("basic", RegistryChallenge::Basic),
        ] {
            assert_eq!(parse_challenges(header), [challenge], "{header}");
        }
    }

    #[test]
    fn one_header_can_have_several_challenges() {
        let header = "Negotiate, Basic realm=\"a\", charset=UTF-8, Bearer realm=\"https://h/t\", \
                      service=x";
        assert_eq!(
            parse_challenges(header),
            [RegistryChallenge::Basic, bearer("https://h/t", Some("x"))]
        );
        let header = "Bearer realm=\"https://h/t\", Basic realm=\"a\"";
        assert_eq!(
            parse_challenges(header),
            [bearer("https://h/t", None), RegistryChallenge::Basic]
        );
    }

    #[test]
    fn what_is_malformed_or_too_long_is_no_challenge() {
        for header in [
            String::new(),
            ",, ,".to_owned(),
            "\"Basic\"".to_owned(),
            "Bearer service=x".to_owned(),
            "Bearer realm=\"https://h".to_owned(),
            "Bearer realm=\"https://h\\".to_owned(),
            "Bearer realm=\"a\u{1}b\"".to_owned(),
            "Bearer realm=".to_owned(),
            "Bearer realm=\"https://h\" ;".to_owned(),
            format!(
                "Bearer {}realm=\"https://h\"",
                "a=b,".repeat(PARAMETERS_MAX)
            ),
            format!("Bearer realm=\"{}\"", "a".repeat(CHALLENGE_BYTES_MAX)),
        ] {
            assert_eq!(parse_challenges(&header), [], "{header}");
        }
    }

    #[test]
    fn the_number_of_challenges_is_bounded() {
        let header = "Basic,".repeat(100);
        assert_eq!(parse_challenges(&header).len(), CHALLENGES_MAX);
    }
}
