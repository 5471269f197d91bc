//! Tests of authentication with real files.

use super::*;
use crate::testbed::TestbedDirectory;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

const TOKEN: &str = "a-token-of-the-tests";

struct AuthFixture {
    scratch: TestbedDirectory,
    auth: Authenticator,
}

fn auth_fixture(users: &str, tokens: &str) -> AuthFixture {
    let scratch = TestbedDirectory::new();
    let users = scratch.file("users", users.as_bytes());
    let tokens = scratch.file("tokens", tokens.as_bytes());
    let auth = Authenticator::from_files(Some(&users), Some(&tokens), DaemonClock::start());
    AuthFixture { scratch, auth }
}

fn basic(credentials: &str) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(credentials);
    format!("Basic {text}")
}

fn token_line(role: &str) -> String {
    let sha256 = digest(&SHA256, TOKEN.as_bytes());
    let hex: Vec<String> = sha256.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    format!("ci:{role}:{}\n", hex.concat())
}

fn user_line(name: &str, password: &str) -> String {
    format!("{name}:{}\n", bcrypt::hash(password, 4).unwrap())
}

impl AuthFixture {
    async fn authenticate(
        &self,
        name: &'static str,
        value: &str,
        peer: IpAddr,
    ) -> Result<AuthenticatedCaller, AuthDenial> {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        self.auth.check(&headers, peer).await
    }

    async fn authenticate_basic(
        &self,
        credentials: &str,
        peer: IpAddr,
    ) -> Result<AuthenticatedCaller, AuthDenial> {
        self.authenticate("authorization", &basic(credentials), peer)
            .await
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "compared with the result of a check"
)]
fn authenticated(who: CallerIdentity, role: Role) -> Result<AuthenticatedCaller, AuthDenial> {
    Ok(AuthenticatedCaller { who, role })
}

fn is_wrong(result: &Result<AuthenticatedCaller, AuthDenial>) -> bool {
    matches!(result, Err(AuthDenial::Wrong { .. }))
}

#[test]
fn credentials_are_read_from_two_schemes() {
    let want = Some(PresentedCredentials::Password {
        user: "admin".to_owned(),
        password: "a:b".to_owned(),
    });
    assert_eq!(parse_authorization("Basic YWRtaW46YTpi"), want);
    assert_eq!(parse_authorization("bAsIc YWRtaW46YTpi"), want);
    let token = Some(PresentedCredentials::Token("abc".to_owned()));
    assert_eq!(parse_authorization("beAREr  abc "), token);
    for header in ["Digest x", "Basic", "Basic %%%", "Basic YWRtaW4="] {
        assert_eq!(parse_authorization(header), None, "{header}");
    }
}

#[test]
fn both_kinds_of_hashes_are_known_and_no_other() {
    let bcrypt_hash = bcrypt::hash("secret", 4).unwrap();
    assert!(verify("secret", &bcrypt_hash));
    assert!(!verify("Secret", &bcrypt_hash));
    // From the reference implementation: "password" with the salt "somesalt".
    let argon2 = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$\
                  CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
    assert!(verify("password", argon2) && !verify("passwort", argon2));
    for hash in ["", "secret", "$argon2id$broken", "{SHA}x"] {
        assert!(!verify("secret", hash), "{hash}");
    }
}

#[test]
fn roles_reach_what_is_below_them() {
    let all = [
        Access::Public,
        Access::Agent,
        Access::Reader,
        Access::Operator,
        Access::Admin,
    ];
    for (role, count) in [(Role::Reader, 3), (Role::Operator, 4), (Role::Admin, 5)] {
        let reached = all.iter().filter(|access| role.permits(**access)).count();
        assert_eq!(reached, count, "{role}");
        assert_eq!(role.to_string().parse(), Ok(role));
    }
    assert!("king".parse::<Role>().is_err());
}

#[tokio::test]
async fn a_user_taken_out_of_the_file_is_out_at_once() {
    let fixture = auth_fixture(&user_line("admin", "pw"), "");
    let nobody = fixture.auth.check(&HeaderMap::new(), PEER).await;
    assert_eq!(nobody, Err(AuthDenial::Missing));
    let admin = authenticated(CallerIdentity::user("admin"), Role::Admin);
    assert_eq!(fixture.authenticate_basic("admin:pw", PEER).await, admin);
    assert_eq!(fixture.authenticate_basic("admin:pw", PEER).await, admin);
    fixture.scratch.file("users", b"");
    assert!(is_wrong(
        &fixture.authenticate_basic("admin:pw", PEER).await
    ));
}

#[tokio::test]
async fn a_user_has_the_role_of_its_line_as_it_is_now() {
    let line = user_line("ann", "pw");
    let fixture = auth_fixture(&format!("{}:reader\n", line.trim()), "");
    assert_eq!(
        fixture.authenticate_basic("ann:pw", PEER).await,
        authenticated(CallerIdentity::user("ann"), Role::Reader)
    );
    let now = format!("{}:operator\n", line.trim());
    fixture.scratch.file("users", now.as_bytes());
    assert_eq!(
        fixture.authenticate_basic("ann:pw", PEER).await,
        authenticated(CallerIdentity::user("ann"), Role::Operator)
    );
    // An incomplete role must not make an admin.
    let odd = format!("{}:adm\n", line.trim());
    fixture.scratch.file("users", odd.as_bytes());
    assert!(is_wrong(&fixture.authenticate_basic("ann:pw", PEER).await));
}

/// Its password is checked against another user's hash, which costs the same and must
/// not admit it, not even with that user's password.
#[tokio::test]
async fn an_unknown_user_is_refused_with_any_password() {
    let fixture = auth_fixture(&user_line("admin", "pw"), "");
    for _ in 0..2 {
        assert!(is_wrong(
            &fixture.authenticate_basic("other:pw", PEER).await
        ));
        assert!(fixture.authenticate_basic("admin:pw", PEER).await.is_ok());
    }
}

/// Counted and not timed: the number of hashes and their costs decide the time.
#[tokio::test]
async fn an_unknown_user_costs_as_much_password_hashing_as_a_known_one() {
    static COMPARED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let take_compared = || std::mem::take(&mut *COMPARED.lock().unwrap());
    let scratch = TestbedDirectory::new();
    let users = scratch.file("users", user_line("admin", "pw").as_bytes());
    let counting = |password: &str, hash: &str| {
        COMPARED.lock().unwrap().push(hash.to_owned());
        verify(password, hash)
    };
    let clock = DaemonClock::start();
    let auth = Authenticator::with_verifier(Some(&users), None, clock, counting);
    let fixture = AuthFixture { scratch, auth };
    assert!(is_wrong(
        &fixture.authenticate_basic("admin:wrong", PEER).await
    ));
    let known = take_compared();
    assert_eq!(known.len(), 1);
    for name in ["other", "administrator", ""] {
        let credentials = format!("{name}:wrong");
        assert!(is_wrong(
            &fixture.authenticate_basic(&credentials, OTHER).await
        ));
        assert_eq!(take_compared(), known, "the same hash with the same cost");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_admits_no_caller() {
    let fixture = auth_fixture(&user_line("admin", "pw"), &token_line("admin"));
    for file in ["users", "tokens"] {
        std::fs::remove_file(fixture.scratch.0.join(file)).unwrap();
    }
    assert!(is_wrong(
        &fixture.authenticate_basic("admin:pw", PEER).await
    ));
    let bearer = format!("Bearer {TOKEN}");
    assert!(is_wrong(
        &fixture.authenticate("authorization", &bearer, PEER).await
    ));
}

#[tokio::test]
async fn tokens_work_in_either_header_and_end_with_their_line() {
    let fixture = auth_fixture("", &token_line("operator"));
    let ci = authenticated(CallerIdentity::token("ci"), Role::Operator);
    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(
        fixture.authenticate("authorization", &bearer, PEER).await,
        ci
    );
    assert_eq!(fixture.authenticate("x-auth-token", TOKEN, PEER).await, ci);
    let other = fixture
        .authenticate("authorization", "Bearer other", PEER)
        .await;
    assert!(is_wrong(&other), "{other:?}");
    assert!(!format!("{other:?}").contains("other"), "no token is shown");
    fixture.scratch.file("tokens", b"");
    assert!(is_wrong(
        &fixture.authenticate("authorization", &bearer, PEER).await
    ));
}

#[tokio::test]
async fn a_disabled_kind_of_credentials_is_refused() {
    let scratch = TestbedDirectory::new();
    let users = scratch.file("users", user_line("admin", "pw").as_bytes());
    let tokens = scratch.file("tokens", token_line("admin").as_bytes());
    let only = |users: Option<&Path>, tokens: Option<&Path>| AuthFixture {
        scratch: TestbedDirectory::new(),
        auth: Authenticator::from_files(users, tokens, DaemonClock::start()),
    };
    let passwords = only(Some(&users), None);
    let missing = Err(AuthDenial::Missing);
    assert_eq!(
        passwords.authenticate("x-auth-token", TOKEN, PEER).await,
        missing
    );
    assert_eq!(passwords.auth.challenges().count(), 1);
    let programs = only(None, Some(&tokens));
    assert_eq!(programs.authenticate_basic("admin:pw", PEER).await, missing);
    let challenges: Vec<_> = programs.auth.challenges().collect();
    assert_eq!(challenges, ["Bearer realm=\"Baremetal API\""]);
}

#[tokio::test]
async fn proofs_are_remembered_up_to_their_bound() {
    let hash = bcrypt::hash("pw", 4).unwrap();
    let lines = (0..=PROVEN_MAX).map(|number| format!("u{number}:{hash}"));
    let fixture = auth_fixture(&lines.collect::<Vec<_>>().join("\n"), "");
    for number in 0..=PROVEN_MAX {
        assert!(
            fixture
                .authenticate_basic(&format!("u{number}:pw"), PEER)
                .await
                .is_ok()
        );
    }
    let Authenticator::Files(files) = &fixture.auth else {
        panic!("it has files")
    };
    assert_eq!(files.proofs().len(), PROVEN_MAX);
}

async fn guess(fixture: &AuthFixture, user: &str, peer: IpAddr) {
    for number in 1..=limit::FAILURES_MAX {
        let result = fixture
            .authenticate_basic(&format!("{user}:wrong"), peer)
            .await;
        let Err(AuthDenial::Wrong { whose, wait_s }) = result else {
            panic!("{result:?}")
        };
        assert_eq!(whose, format!("user {user}"));
        assert_eq!(wait_s.is_some(), number == limit::FAILURES_MAX);
    }
}

/// A locked address learns nothing, not even with the right password.
#[tokio::test]
async fn a_guessing_client_must_wait_and_verified_users_need_not() {
    let fixture = auth_fixture(&user_line("admin", "pw"), &token_line("reader"));
    assert!(fixture.authenticate_basic("admin:pw", OTHER).await.is_ok());
    guess(&fixture, "admin", PEER).await;
    for password in ["wrong", "pw"] {
        let result = fixture
            .authenticate_basic(&format!("admin:{password}"), PEER)
            .await;
        assert!(matches!(
            result,
            Err(AuthDenial::TooManyFailures { wait_s: 1..=5 })
        ));
    }
    assert!(fixture.authenticate_basic("admin:pw", OTHER).await.is_ok());
    // From an address without failures one guess is checked while the name must wait.
    assert!(is_wrong(
        &fixture.authenticate_basic("admin:wrong", OTHER).await
    ));
    let result = fixture.authenticate_basic("admin:wrong", OTHER).await;
    assert!(
        matches!(result, Err(AuthDenial::TooManyFailures { .. })),
        "{result:?}"
    );
    // A token cannot be guessed and is not delayed.
    assert!(
        fixture
            .authenticate("x-auth-token", TOKEN, PEER)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_success_clears_the_failures() {
    let fixture = auth_fixture(&user_line("admin", "pw"), "");
    for _ in 0..3 {
        for _ in 1..limit::FAILURES_MAX {
            assert!(is_wrong(
                &fixture.authenticate_basic("nobody:x", PEER).await
            ));
        }
        assert!(fixture.authenticate_basic("admin:pw", PEER).await.is_ok());
        // The failures of the name are not cleared.
        let Authenticator::Files(files) = &fixture.auth else {
            panic!("it has files")
        };
        files.limiter().clear_name(LoginNameDigest::of("nobody"));
    }
}

/// Concurrent requests count as many guesses as sequential ones.
#[tokio::test]
async fn concurrent_guesses_do_not_evade_the_limit() {
    let fixture = Arc::new(auth_fixture(&user_line("admin", "pw"), ""));
    let mut volley = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let fixture = Arc::clone(&fixture);
        volley
            .spawn(async move { is_wrong(&fixture.authenticate_basic("admin:wrong", PEER).await) });
    }
    let checked = volley.join_all().await.into_iter().filter(|wrong| *wrong);
    let most = limit::FAILURES_MAX as usize + CHECKS_MAX;
    assert!((limit::FAILURES_MAX as usize..=most).contains(&checked.count()));
}

#[tokio::test]
async fn wrong_tokens_count_as_well() {
    let fixture = auth_fixture(&user_line("admin", "pw"), &token_line("admin"));
    for _ in 0..limit::FAILURES_MAX {
        assert!(is_wrong(
            &fixture.authenticate("x-auth-token", "no", PEER).await
        ));
    }
    let result = fixture.authenticate("x-auth-token", "no", PEER).await;
    assert!(matches!(result, Err(AuthDenial::TooManyFailures { .. })));
    let result = fixture.authenticate_basic("admin:pw", PEER).await;
    assert!(matches!(result, Err(AuthDenial::TooManyFailures { .. })));
}

#[tokio::test]
async fn an_open_api_admits_every_caller() {
    let result = Authenticator::Open.check(&HeaderMap::new(), PEER).await;
    assert_eq!(result, authenticated(CallerIdentity::Anyone, Role::Admin));
    assert_eq!(Authenticator::Open.challenges().count(), 0);
}

#[tokio::test]
async fn guessing_from_other_addresses_does_not_lock_out_a_user_without_a_log_in_since_the_start() {
    let fixture = auth_fixture(&user_line("ann", "pw"), "");
    for _ in 0..limit::FAILURES_MAX {
        assert!(is_wrong(
            &fixture.authenticate_basic("ann:guess", OTHER).await
        ));
    }
    let later = fixture.authenticate_basic("ann:guess", OTHER).await;
    assert!(
        matches!(later, Err(AuthDenial::TooManyFailures { .. })),
        "{later:?}"
    );
    let ann = authenticated(CallerIdentity::user("ann"), Role::Admin);
    assert_eq!(fixture.authenticate_basic("ann:pw", PEER).await, ann);
}

#[test]
fn an_unknown_name_costs_the_hash_of_some_user_and_always_of_the_same_one() {
    let users: Vec<UserFileEntry> = (0..4)
        .map(|number| UserFileEntry {
            name: format!("user-{number}"),
            hash: format!("hash-{number}"),
            role: None,
        })
        .collect();
    let names: Vec<String> = (0..64).map(|number| format!("nobody-{number}")).collect();
    let hashes = |users: &[UserFileEntry]| -> Vec<String> {
        let found = names.iter().map(|name| decoy_user(users, name).unwrap());
        found.map(|user| user.hash.clone()).collect()
    };
    let first = hashes(&users);
    assert_eq!(hashes(&users), first);
    for user in &users {
        assert!(first.contains(&user.hash), "all costs of the file are used");
    }
    assert_eq!(decoy_user(&[], "nobody"), None);
}

#[tokio::test]
async fn users_and_tokens_stay_in_force_while_the_files_named_now_are_unusable() {
    let fixture = auth_fixture(&user_line("admin", "pw"), &token_line("operator"));
    let (absent, broken) = (fixture.scratch.0.join("absent"), "ci:operator:half\n");
    let broken = fixture.scratch.file("broken", broken.as_bytes());
    let lines = fixture
        .auth
        .set_files(Some(&absent), Some(&broken))
        .unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("stays in force"), "{lines:?}");
    assert!(lines[0].contains("absent cannot be read"), "{lines:?}");
    assert!(lines[1].contains("stays in force"), "{lines:?}");
    assert!(lines[1].contains("not name:role:sha256"), "{lines:?}");
    assert!(
        fixture.auth.reload().is_empty(),
        "the former files are read"
    );
    let admin = authenticated(CallerIdentity::user("admin"), Role::Admin);
    assert_eq!(fixture.authenticate_basic("admin:pw", PEER).await, admin);
    let token = fixture.authenticate("x-auth-token", TOKEN, PEER).await;
    assert_eq!(
        token,
        authenticated(CallerIdentity::token("ci"), Role::Operator)
    );
    let next = user_line("next", "pw");
    let next = fixture.scratch.file("absent", next.as_bytes());
    let tokens = fixture.scratch.0.join("tokens");
    let lines = fixture.auth.set_files(Some(&next), Some(&tokens));
    assert_eq!(lines, Some(Vec::new()), "it can be used now");
    let taken = authenticated(CallerIdentity::user("next"), Role::Admin);
    assert_eq!(fixture.authenticate_basic("next:pw", PEER).await, taken);
}
