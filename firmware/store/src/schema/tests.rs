//! Bytes of every version stay readable: they are pinned here.

use serde_json::json;
use trivet_model::{
    AgentSession, Job, JobKind, Phase, PowerState, ProvisionState, Step, StepKind, UnixMs,
};

use super::*;

fn object(value: &Value) -> Object {
    value.as_object().unwrap().clone()
}

fn full_node() -> Node {
    let id = "01234567-89ab-4def-8123-456789abcdef".parse().unwrap();
    Node {
        revision: 300,
        serial: 2,
        name: Some("n1".to_owned()),
        driver_info: object(&json!({"a": "b"})),
        properties: object(&json!({"c": 1})),
        instance_info: object(&json!({"d": null})),
        extra: object(&json!({"e": [1, 2]})),
        driver_internal_info: object(&json!({"f": true})),
        provision_state: ProvisionState::DeployWait,
        target_provision_state: Some(ProvisionState::Active),
        provision_updated_at: Some(UnixMs(5)),
        power_state: Some(PowerState::On),
        target_power_state: Some(PowerState::Off),
        last_error: Some("e1".to_owned()),
        maintenance: true,
        maintenance_reason: Some("m1".to_owned()),
        fault: Some("f1".to_owned()),
        instance_uuid: Some("i1".to_owned()),
        resource_class: Some("r1".to_owned()),
        automated_clean: Some(false),
        updated_at: Some(UnixMs(6)),
        inspection_started_at: Some(UnixMs(7)),
        inspection_finished_at: Some(UnixMs(8)),
        inventory: Some(json!({"g": 1.5})),
        kept: object(&json!({"owner": "o"})),
        job: Some(Job {
            kind: JobKind::Deploy,
            phase: Phase::AwaitStep,
            step_kind: Some(StepKind::Deploy),
            manual: true,
            steps: vec![Step {
                step: "s1".to_owned(),
                interface: "deploy".to_owned(),
                priority: -3,
                args: json!({"h": "i"}),
                reboot_requested: true,
                abortable: false,
            }],
            at: 1,
            versions: [("k".to_owned(), "v".to_owned())].into(),
            tries: 9,
            boots: 10,
        }),
        agent: Some(AgentSession {
            token: "t1".to_owned(),
            former_token: Some("t0".to_owned()),
            url: Some("u1".to_owned()),
            verify_ca: Some("c1".to_owned()),
            version: Some("v1".to_owned()),
        }),
        ..Node::new(id, "ipmi", UnixMs(4))
    }
}

fn full_port() -> Port {
    Port {
        id: "fedcba98-7654-4210-8edc-ba9876543210".parse().unwrap(),
        revision: 1,
        serial: 3,
        node: full_node().id,
        address: MacAddr([2, 0, 0, 0, 0, 9]),
        pxe_enabled: true,
        extra: object(&json!({"x": 1})),
        kept: object(&json!({})),
        created_at: UnixMs(11),
        updated_at: None,
    }
}

fn lease() -> Lease {
    Lease {
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
        address: [10, 0, 0, 7].into(),
    }
}

/// Postcard: varints, length before text, 0 or 1 before an optional field.
const NODE_V1: &[u8] = b"\x01\x01\0\
    \x01\x23\x45\x67\x89\xab\x4d\xef\x81\x23\x45\x67\x89\xab\xcd\xef\
    \xac\x02\x02\x01\x02n1\x04ipmi\
    \x09{\"a\":\"b\"}\x07{\"c\":1}\x0a{\"d\":null}\x0b{\"e\":[1,2]}\x0a{\"f\":true}\
    \x0ewait call-back\x01\x06active\x01\x05\
    \x01\x08power on\x01\x09power off\x01\x02e1\
    \x01\x01\x02m1\x01\x02f1\x01\x02i1\x01\x02r1\x01\0\
    \x04\x01\x06\x01\x07\x01\x08\
    \x01\x09{\"g\":1.5}\x0d{\"owner\":\"o\"}\
    \x01\x06deploy\x0aawait step\x01\x06deploy\x01\
    \x01\x02s1\x06deploy\x05\x09{\"h\":\"i\"}\x01\0\
    \x01\x01\x01k\x01v\x09\x0a\
    \x01\x02t1\x01\x02t0\x01\x02u1\x01\x02c1\x01\x02v1";

const PORT_V1: &[u8] = b"\x02\x01\0\
    \xfe\xdc\xba\x98\x76\x54\x42\x10\x8e\xdc\xba\x98\x76\x54\x32\x10\x01\x03\
    \x01\x23\x45\x67\x89\xab\x4d\xef\x81\x23\x45\x67\x89\xab\xcd\xef\
    \x02\0\0\0\0\x09\x01\x07{\"x\":1}\x02{}\x0b\0";

const LEASE_V1: &[u8] = b"\x03\x01\0\x02\0\0\0\0\x09\x0a\0\0\x07";

const BOX_V1: &[u8] = b"\x04\x01\0\xac\x02";

fn pinned() -> Vec<(Key, &'static [u8], Record)> {
    vec![
        (
            node_key(full_node().id),
            NODE_V1,
            Record::Node(Box::new(full_node())),
        ),
        (port_key(full_port().id), PORT_V1, Record::Port(full_port())),
        (lease_key(lease().mac), LEASE_V1, Record::Lease(lease())),
        (unit_key(), BOX_V1, Record::Serial(300)),
    ]
}

#[test]
fn the_bytes_of_version_one_are_pinned() {
    assert_eq!(
        encode_node(&full_node())
            .unwrap()
            .escape_ascii()
            .to_string(),
        NODE_V1.escape_ascii().to_string()
    );
    assert_eq!(encode_port(&full_port()).unwrap(), PORT_V1);
    assert_eq!(encode_lease(&lease()).unwrap(), LEASE_V1);
    assert_eq!(encode_serial(300).unwrap(), BOX_V1);
}

#[test]
fn pinned_bytes_read_back() {
    for (key, bytes, record) in pinned() {
        assert_eq!(decode(&key, bytes).unwrap(), record);
    }
}

#[test]
fn a_fresh_node_reads_back() {
    let node = Node::new(full_node().id, "redfish", UnixMs(u64::MAX));
    let bytes = encode_node(&node).unwrap();
    let read = decode(&node_key(node.id), &bytes).unwrap();
    assert_eq!(read, Record::Node(Box::new(node)));
}

#[test]
fn refuses_bytes_cut_short_or_left_over() {
    for (key, bytes, _) in pinned() {
        for end in 0..bytes.len() {
            assert!(decode(&key, &bytes[..end]).is_err(), "{key:?} {end}");
        }
        let longer = [bytes, &[0]].concat();
        let error = decode(&key, &longer).unwrap_err();
        assert!(error.to_string().contains("left over"), "{error}");
    }
}

#[test]
fn refuses_a_newer_version_by_kind_and_number() {
    for (key, bytes, _) in pinned() {
        let mut newer = bytes.to_vec();
        newer[1] = 2;
        let error = decode(&key, &newer).unwrap_err();
        let want = RecordError::NewerVersion {
            kind: kind_name(key.kind),
            found: 2,
            known: 1,
        };
        assert_eq!(error, want);
        assert!(error.to_string().contains("version 2"), "{error}");
    }
}

#[test]
fn refuses_version_zero_foreign_kinds_and_foreign_keys() {
    for (key, bytes, _) in pinned() {
        let mut old = bytes.to_vec();
        old[1] = 0;
        assert!(matches!(
            decode(&key, &old),
            Err(RecordError::Malformed { .. })
        ));
        let other = Key {
            id: [0xee; 16],
            ..key
        };
        let error = decode(&other, bytes).unwrap_err();
        assert!(error.to_string().contains("another record"), "{error}");
        let unknown = Key { kind: 9, ..key };
        assert_eq!(
            decode(&unknown, bytes),
            Err(RecordError::UnknownKind { kind: 9 })
        );
        let swapped = Key {
            kind: key.kind % 4 + 1,
            ..key
        };
        assert!(decode(&swapped, bytes).is_err());
    }
    assert_eq!(kind_name(9), "foreign");
}

#[test]
fn refuses_unknown_words_and_broken_json() {
    let key = node_key(full_node().id);
    for (from, to) in [("power on", "power up"), ("\"owner\"", "owner!!")] {
        let at = NODE_V1
            .windows(from.len())
            .position(|window| window == from.as_bytes())
            .unwrap();
        let mut bytes = NODE_V1.to_vec();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        assert!(matches!(
            decode(&key, &bytes),
            Err(RecordError::Malformed { kind: "node", .. })
        ));
    }
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

#[test]
fn the_deepest_object_reads_back_and_one_deeper_is_refused() {
    let mut node = full_node();
    node.extra = object(&json!({ "deep": nested(JSON_DEPTH_MAX - 1) }));
    node.inventory = Some(nested(JSON_DEPTH_MAX));
    let bytes = encode_node(&node).unwrap();
    let read = decode(&node_key(node.id), &bytes).unwrap();
    assert_eq!(read, Record::Node(Box::new(node.clone())));

    node.inventory = Some(nested(JSON_DEPTH_MAX + 1));
    assert!(matches!(
        encode_node(&node),
        Err(RecordError::TooDeep {
            field: "inventory",
            ..
        })
    ));
    node.inventory = None;
    node.extra = object(&json!({ "deep": nested(JSON_DEPTH_MAX) }));
    assert!(matches!(
        encode_node(&node),
        Err(RecordError::TooDeep { field: "extra", .. })
    ));
}
