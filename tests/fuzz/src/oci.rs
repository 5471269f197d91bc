//! Registries of images: references, what they serve, and their challenges.

use trivet_model::OciReference;
use trivet_model::oci::parse_oci_digest;
use trivet_oci::{
    ChallengeAction, OciError, OciLookup, OciLookupStep, OciQuery, OciResponse,
    RegistryAuthorization, RegistryCredentials,
};

use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const LOOKUPS: FuzzTarget = FuzzTarget {
    name: "oci_lookups",
    run: lookups,
    seeds: lookup_seeds,
    regressions: &[],
};

pub(crate) const CHALLENGES: FuzzTarget = FuzzTarget {
    name: "oci_challenges",
    run: challenges,
    seeds: challenge_seeds,
    regressions: &[],
};

/// The most requests of a lookup: one for the reference, eight for manifests of an index, and one
/// for the first bytes of a layer.
const REQUESTS_MAX: usize = 10;

/// Longest error message: at most eight layers of 256 characters for each of eight manifests, in
/// UTF-8 and escaped.
const ERROR_BYTES_MAX: usize = 200_000;

const PASSWORD: &str = "a-password-of-a-registry";

fn check_error(error: &OciError) {
    let sentence = error.to_string();
    assert!(sentence.len() < ERROR_BYTES_MAX && !sentence.contains(PASSWORD));
    assert!(
        !sentence.contains(|one: char| one.is_control()),
        "{sentence:?}"
    );
}

/// A status and a body for each request; the digests are those that were asked for only by chance,
/// so that a part of the inputs is served under a tag, where no digest is expected.
fn lookups(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let text = String::from_utf8_lossy(input.counted()).into_owned();
    let parsed = text.parse::<OciReference>();
    if let Ok(reference) = &parsed {
        assert_eq!(
            reference.to_string().parse::<OciReference>().as_ref(),
            Ok(reference)
        );
    }
    let tag = || "oci://h/a:12".parse::<OciReference>();
    let Some(reference) = parsed.or_else(|_| tag()).ok() else {
        return;
    };
    let expected = reference.digest();
    let mut lookup = OciLookup::new(OciQuery {
        reference,
        architecture: (input.byte() & 1 == 1).then(|| "x86_64".to_owned()),
        format: None,
        credentials: None,
    });
    for _ in 0..REQUESTS_MAX {
        let OciLookupStep::Request(request) = lookup.next_step() else {
            break;
        };
        let status = [200, 206, 404, 500][usize::from(input.byte() & 3)];
        let body = input.counted_long();
        let body = &body[..body.len().min(request.bytes_max)];
        let digest = (input.byte() == 1).then_some("sha256:00");
        if let Err(error) = lookup.handle(OciResponse {
            status,
            digest,
            body,
        }) {
            return check_error(&error);
        }
    }
    let OciLookupStep::Done(image) = lookup.next_step() else {
        panic!("the lookup does not end");
    };
    assert!(image.size > 0);
    // The fuzzer does not find a document for a digest.
    assert_eq!(expected, None);
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    [&[length], &bytes[..usize::from(length)]].concat()
}

fn counted_long(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&length[..], bytes].concat()
}

fn lookup_seeds() -> Vec<Vec<u8>> {
    let digest = format!("sha256:{}", "ab".repeat(32));
    assert!(parse_oci_digest(&digest).is_some());
    let manifest = |title: &str| {
        format!(
            "{{\"schemaVersion\":2,\"layers\":[{{\"digest\":\"{digest}\",\"size\":7,\
             \"mediaType\":\"application/octet-stream\",\
             \"annotations\":{{\"org.opencontainers.image.title\":\"{title}\"}}}}]}}"
        )
    };
    let index = format!(
        "{{\"schemaVersion\":2,\"manifests\":[{{\"digest\":\"{digest}\",\"size\":7,\
         \"annotations\":{{\"disktype\":\"raw\"}},\"platform\":{{\"architecture\":\"amd64\"}}}}]}}"
    );
    let seed = |reference: &str, documents: &[&[u8]]| {
        let mut seed = counted(reference.as_bytes());
        seed.push(1);
        for document in documents {
            seed.push(0);
            seed.extend(counted_long(document));
            seed.push(0);
        }
        seed
    };
    let by_digest = format!("oci://[::1]:5000/a/b_c:12@{digest}");
    vec![
        seed("oci://h/a:12", &[manifest("a.qcow2").as_bytes()]),
        seed(
            "oci://h/a:12",
            &[manifest("a.img").as_bytes(), b"QFI\xfb\0\0"],
        ),
        seed("oci://h/a:12", &[manifest("a.qcow2.zst").as_bytes()]),
        seed(
            "oci://h/a:12",
            &[index.as_bytes(), manifest("a.raw").as_bytes()],
        ),
        seed(&by_digest, &[manifest("a.raw").as_bytes()]),
    ]
}

/// A header and the response of the token server.
fn challenges(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let is_plain = input.byte() & 1 == 1;
    let header = String::from_utf8_lossy(input.counted_long()).into_owned();
    let status = [200, 401, 403, 500][usize::from(input.byte() & 3)];
    let Ok(reference) = "oci://h:5000/team/disk:12".parse() else {
        panic!("the reference is valid");
    };
    let secret = format!("ann:{PASSWORD}");
    let credentials = RegistryCredentials::of_pull_secret(&secret);
    let mut authorization = RegistryAuthorization::new(&reference, credentials, is_plain);
    match authorization.handle_challenge(&[header.as_str()]) {
        Err(error) => check_error(&error),
        Ok(ChallengeAction::Retry) => {
            let login = authorization
                .header()
                .map(|header| header.reveal().to_owned());
            assert!(login.is_some_and(|login| login.starts_with("Basic ")));
            check_error(&authorization.refused(401));
        }
        Ok(ChallengeAction::FetchToken { url, .. }) => {
            assert!(is_plain || url.starts_with("https://"), "{url}");
            assert!(!url.contains(char::is_whitespace) && !url.contains(PASSWORD));
            let body = input.counted_long();
            match authorization.handle_token(status, body) {
                Err(error) => check_error(&error),
                Ok(()) => {
                    let token = authorization
                        .header()
                        .map(|header| header.reveal().to_owned());
                    let token = token.unwrap_or_default();
                    assert!(token.starts_with("Bearer ") && token.is_ascii());
                    check_error(&authorization.refused(403));
                }
            }
        }
    }
}

fn challenge_seeds() -> Vec<Vec<u8>> {
    let headers = [
        "Bearer realm=\"https://auth.h/token\",service=\"registry\",scope=\"repository:a:pull\"",
        "Bearer realm=\"http://auth.h/token?a=b\", error=\"invalid_token\"",
        "Basic realm=\"Registry\", charset=UTF-8",
        "Negotiate abc==, Basic, Bearer realm=\"https://h\\\"/\"",
    ];
    let bodies: [&[u8]; 2] = [
        b"{\"token\":\"abc.def\",\"expires_in\":60}",
        b"{\"access_token\":\"abc\"}",
    ];
    let pairs = headers
        .iter()
        .flat_map(|header| bodies.map(|body| (header, body)));
    pairs
        .enumerate()
        .map(|(number, (header, body))| {
            let mut seed = vec![number as u8];
            seed.extend(counted_long(header.as_bytes()));
            seed.push(0);
            seed.extend(counted_long(body));
            seed
        })
        .collect()
}
