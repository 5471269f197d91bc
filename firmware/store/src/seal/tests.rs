//! Sealing alone: what comes back, what does not open, what cannot be distinguished.

use serde_json::json;
use trivet_board_sim::box_key;

use super::*;

const AT: RecordKey = RecordKey {
    kind: 1,
    id: [3; 16],
};

fn sealer() -> Sealer {
    Sealer::new(&box_key())
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

fn shut<T>(result: Result<T, RecordError>) -> bool {
    matches!(result, Err(RecordError::Sealed { kind: "node" }))
}

#[track_caller]
fn comes_back(value: Value) -> SealedJson {
    let sealer = sealer();
    let seal = sealer.of(AT);
    let want = object(value);
    let sealed = seal.object("field", 0, &want).unwrap();
    let read: JsonObject = seal.open_json("field", 0, &sealed).unwrap();
    assert_eq!(read, want);
    sealed
}

fn paths(sealed: &SealedJson) -> Vec<&str> {
    let paths = sealed.secrets.iter().map(|secret| secret.path.as_str());
    paths.collect()
}

#[test]
fn secrets_at_any_depth_are_taken_out_of_the_text() {
    let sealed = comes_back(json!({
        "ipmi_address": "10.0.0.1", "ipmi_password": "hunter2", "redfish_Password": 17,
        "deep": [1, {"list": [{"admin_pass": {"a": [1]}}], "token": true}],
        "configdrive": {"user_data": "u"}, "image_url": "http://x/?sig=1",
    }));
    let want = [
        "/configdrive",
        "/deep/1/list/0/admin_pass",
        "/deep/1/token",
        "/image_url",
        "/ipmi_password",
        "/redfish_Password",
    ];
    assert_eq!(paths(&sealed), want);
    for plain in ["hunter2", "17", "user_data", "sig"] {
        assert!(!sealed.text.contains(plain), "{}", sealed.text);
    }
    assert!(sealed.text.contains("10.0.0.1"));
}

#[test]
fn credentials_in_urls_are_sealed_under_any_key() {
    let sealed = comes_back(json!({
        "image_source": "https://ann:hunter2@x/disk.raw", "plain": "https://x/disk.raw",
        "sources": ["http://x/", "https://x/d?X-Amz-Signature=geheim"],
    }));
    assert_eq!(paths(&sealed), ["/image_source", "/sources/1"]);
    for plain in ["hunter2", "geheim"] {
        assert!(!sealed.text.contains(plain), "{}", sealed.text);
    }
    assert!(sealed.text.contains("https://x/disk.raw"));
}

#[test]
fn keys_with_slashes_tildes_and_numbers_find_their_place_again() {
    let sealed = comes_back(json!({
        "a/b~c_token": 1, "~1token": 2, "": {"token": 3}, "0": {"token": 4},
        "list": [[{"token": 5}], {"0": {"/token": 6}}],
    }));
    assert_eq!(sealed.secrets.len(), 6);
}

#[test]
fn without_secrets_the_text_is_the_object_and_null_is_no_secret() {
    let sealed = comes_back(json!({"ipmi_username": "a", "ipmi_password": null}));
    assert_eq!(sealed.text, r#"{"ipmi_password":null,"ipmi_username":"a"}"#);
    assert!(sealed.secrets.is_empty());
}

/// Text that looks like ours is text: no text can change where secrets belong.
#[test]
fn what_an_operator_writes_is_never_taken_for_sealed() {
    let sealed = sealer().of(AT).text("field", "hunter2").unwrap();
    let looks = json!(sealed.0);
    let like = json!({"path": "/ipmi_password", "value": looks});
    comes_back(json!({"extra": like, "secrets": [like], "ipmi_password": like, "x": "\u{0}"}));
}

#[test]
fn equal_values_in_one_place_have_equal_bytes_and_elsewhere_others() {
    let (one, two) = (sealer(), sealer());
    let bytes = |sealer: &Sealer, at, field, text| sealer.of(at).text(field, text).unwrap().0;
    let first = bytes(&one, AT, "token", "t");
    assert_eq!(first, bytes(&two, AT, "token", "t"));
    let elsewhere = RecordKey { id: [4; 16], ..AT };
    let others = [
        bytes(&one, elsewhere, "token", "t"),
        bytes(&one, RecordKey { kind: 2, ..AT }, "token", "t"),
        bytes(&one, AT, "former_token", "t"),
        bytes(&one, AT, "token", "u"),
    ];
    for other in others {
        assert_ne!(first[..NONCE_LEN], other[..NONCE_LEN]);
        assert_ne!(first[NONCE_LEN..], other[NONCE_LEN..]);
    }
}

#[test]
fn a_sealed_value_opens_nowhere_else() {
    let sealer = sealer();
    let args = json!({"a_token": "t", "b_token": "t"});
    let seal = sealer.of(AT);
    let mut sealed = seal.value("args", 1, &args).unwrap();
    let open = |seal: RecordSeal<'_>, field, item, sealed: &SealedJson| {
        seal.open_json::<Value>(field, item, sealed)
    };
    assert_eq!(open(seal, "args", 1, &sealed).unwrap(), args);
    let other_id = sealer.of(RecordKey { id: [4; 16], ..AT });
    assert!(shut(open(other_id, "args", 1, &sealed)), "another record");
    let other_kind = sealer.of(RecordKey { kind: 2, ..AT });
    let read = open(other_kind, "args", 1, &sealed);
    assert_eq!(read, Err(RecordError::Sealed { kind: "port" }));
    assert!(shut(open(seal, "steps", 1, &sealed)), "another field");
    assert!(shut(open(seal, "args", 2, &sealed)), "another item");
    let [one, two] = &mut sealed.secrets[..] else {
        panic!("two secrets")
    };
    std::mem::swap(&mut one.value, &mut two.value);
    assert!(shut(open(seal, "args", 1, &sealed)), "another key");
}

#[test]
fn a_secret_without_its_place_is_malformed() {
    let sealer = sealer();
    let seal = sealer.of(AT);
    let whole = object(json!({"token": 1}));
    for text in [r#"{"other":null}"#, r#"{"token":2}"#, "[]", "null", "{"] {
        let mut sealed = seal.object("field", 0, &whole).unwrap();
        text.clone_into(&mut sealed.text);
        let read = seal.open_json::<Value>("field", 0, &sealed);
        assert!(
            matches!(read, Err(RecordError::Malformed { kind: "node", .. })),
            "{text}: {read:?}"
        );
    }
}

#[test]
fn no_flipped_bit_and_no_lost_byte_opens() {
    let sealer = sealer();
    let seal = sealer.of(AT);
    let sealed = seal.text("token", "secret").unwrap();
    assert_eq!(seal.open_text("token", &sealed).unwrap(), "secret");
    for at in 0..sealed.0.len() {
        for bit in 0..8 {
            let mut bytes = sealed.0.clone();
            bytes[at] ^= 1 << bit;
            assert!(
                shut(seal.open_text("token", &SealedBytes(bytes))),
                "{at} {bit}"
            );
        }
        let short = SealedBytes(sealed.0[..at].to_vec());
        assert!(shut(seal.open_text("token", &short)), "{at}");
        let short = SealedBytes(sealed.0[at + 1..].to_vec());
        assert!(shut(seal.open_text("token", &short)), "{at}");
    }
}

#[test]
fn another_key_and_no_key_open_nothing() {
    let sealed = sealer().of(AT).text("token", "secret").unwrap();
    let mut bytes = *box_key().expose();
    bytes[31] ^= 1;
    let other = Sealer::new(&BoxKey::new(bytes));
    assert!(shut(other.of(AT).open_text("token", &sealed)));
    assert!(shut(RecordSeal::of(None, AT).open_text("token", &sealed)));
    assert!(shut(RecordSeal::of(None, AT).text("token", "secret")));
    assert_eq!(format!("{:?}", sealer()), "Sealer(..)");
}

#[test]
fn depth_counts_within_secrets_too() {
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    comes_back(json!({ "token": nested(JSON_DEPTH_MAX - 1) }));
    let sealer = sealer();
    let deep = object(json!({ "token": nested(JSON_DEPTH_MAX) }));
    let refused = sealer.of(AT).object("extra", 0, &deep);
    assert!(matches!(
        refused,
        Err(RecordError::TooDeep { field: "extra", .. })
    ));
    let deep = json!({ "token": nested(JSON_DEPTH_MAX) });
    let refused = sealer.of(AT).value("args", 0, &deep);
    assert!(matches!(refused, Err(RecordError::TooDeep { .. })));
}
