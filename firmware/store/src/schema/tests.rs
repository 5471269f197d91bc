//! The bytes of every version, which must stay readable.

use std::num::NonZeroU32;

use serde_json::json;
use trivet_model::attributes::{NodeAttributes, PortAttributes};
use trivet_model::story::{
    JobOutcome, JobStory, NodeFailure, Stage, StageState, StageStory, StoredNote, StoryDiagnosis,
};
use trivet_model::{
    AgentSession, Job, JobKind, JobPhase, JobStep, PowerState, ProvisionState, ResourceKind,
    StepKind, UnixMs,
};

use super::*;

fn object(value: &Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

fn sealer() -> Sealer {
    Sealer::new(&trivet_board_sim::box_key())
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
        attributes: NodeAttributes::from_object(object(&json!({"owner": "o"}))),
        job: Some(Job {
            kind: JobKind::Deploy,
            phase: JobPhase::AwaitStep,
            step_kind: Some(StepKind::Deploy),
            manual: true,
            steps: vec![JobStep {
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
            boots: NonZeroU32::new(10),
            heartbeat_lost_at: None,
            abort_after: None,
            deployment: None,
            has_inspection_data: false,
            awaits_source: false,
            agent_query: None,
        }),
        agent: Some(AgentSession {
            token: "t1".to_owned(),
            former_token: Some("t0".to_owned()),
            url: Some("u1".to_owned()),
            verify_ca: Some("c1".to_owned()),
            version: Some("v1".to_owned()),
            is_clean: false,
            ahead: None,
        }),
        ..Node::new(id, "ipmi", UnixMs(4))
    }
}

/// The same with secrets in its objects.
fn secret_node() -> Node {
    let mut node = full_node();
    node.driver_info = object(&json!({"a": "b", "ipmi_password": "p1"}));
    node.instance_info = object(&json!({"d": [0, {"x/~token": [1]}]}));
    if let Some(job) = &mut node.job {
        job.steps[0].args = json!({"configdrive": {"h": "i"}});
    }
    node
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
        attributes: PortAttributes::default(),
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

fn full_resource() -> Resource {
    Resource {
        id: "11112222-3333-4444-8555-666677778888".parse().unwrap(),
        kind: ResourceKind::VolumeTarget,
        revision: 4,
        serial: 5,
        name: Some("v1".to_owned()),
        node: Some(full_node().id),
        fields: object(&json!({"boot_index": 0, "properties": {"auth_password": "p1"}})),
        created_at: UnixMs(12),
        updated_at: Some(UnixMs(13)),
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

/// With the key of simulated boxes. The sealed values were made by another program
/// (Python's cryptography 48) after the text of the README.
const NODE_V2: &[u8] = b"\x01\x02\0\
    \x01\x23\x45\x67\x89\xab\x4d\xef\x81\x23\x45\x67\x89\xab\xcd\xef\
    \xac\x02\x02\x01\x02n1\x04ipmi\
    \x1e{\"a\":\"b\",\"ipmi_password\":null}\x01\
    \x0e/ipmi_password\x20\
    \x27\x0c\x67\x76\xe1\x00\xaf\x0a\x7c\xd5\x6f\xab\xe1\x84\xd1\xff\x2b\xbd\xa3\x14\xe9\x91\x42\
    \x9c\x1c\x11\x39\xae\x8d\x7f\x49\x7d\
    \x07{\"c\":1}\
    \x1b{\"d\":[0,{\"x/~token\":null}]}\x01\
    \x0f/d/1/x~1~0token\x1f\
    \x04\xec\xbf\x75\xc5\xfa\x59\xc0\x70\x15\x55\x88\x99\xf3\x0b\xec\x91\x03\x51\xe7\x5f\x42\x61\
    \xef\xd7\x03\x0f\xb6\x3d\x03\xee\
    \x0b{\"e\":[1,2]}\0\x0a{\"f\":true}\0\
    \x0ewait call-back\x01\x06active\x01\x05\
    \x01\x08power on\x01\x09power off\x01\x02e1\
    \x01\x01\x02m1\x01\x02f1\x01\x02i1\x01\x02r1\x01\0\
    \x04\x01\x06\x01\x07\x01\x08\
    \x01\x09{\"g\":1.5}\x0d{\"owner\":\"o\"}\0\
    \x01\x06deploy\x0aawait step\x01\x06deploy\x01\
    \x01\x02s1\x06deploy\x05\
    \x14{\"configdrive\":null}\x01\
    \x0c/configdrive\x25\
    \x60\xb2\x28\x08\x4e\x50\x3d\x44\x4c\x44\xc6\x99\x3d\xac\x73\x73\x79\x62\x30\xfc\x9f\x04\x97\
    \x2d\x09\x4a\xb3\x7d\xcb\x57\x66\x92\xf0\x50\x2e\x05\xca\
    \x01\0\
    \x01\x01\x01k\x01v\x09\x0a\
    \x01\x1e\
    \xa8\xff\x35\x6d\xc7\x7e\xca\x1a\x16\x40\x45\x97\xef\xfe\x2a\x6c\xed\xb3\x5e\xf5\x95\x9a\x20\
    \xfa\xa1\x3d\x43\x45\xc5\xd1\
    \x01\x1e\
    \x43\x39\xd2\xa3\x43\x2b\x5f\x8f\xb0\x0a\x83\xed\x63\xef\xbc\xb6\x85\x09\x01\xa1\x33\x21\x91\
    \x6e\x74\x74\x03\xef\x29\x26\
    \x01\x02u1\x01\x02c1\x01\x02v1";

const BOX_V2: &[u8] = b"\x04\x02\0\xac\x02\x22\
    \xb2\x3f\xc1\x83\x49\x3b\xb1\x7d\x92\x21\xe5\xe3\xdd\x9a\xdc\x5b\xda\x69\x96\xcf\xe6\x12\x50\
    \x92\x1f\x8d\xb8\xee\x54\x34\x81\x4e\x98\xfc";

/// The fields of version 2.
const BOX_V3: &[u8] = b"\x04\x03\0\xac\x02\x22\
    \xb2\x3f\xc1\x83\x49\x3b\xb1\x7d\x92\x21\xe5\xe3\xdd\x9a\xdc\x5b\xda\x69\x96\xcf\xe6\x12\x50\
    \x92\x1f\x8d\xb8\xee\x54\x34\x81\x4e\x98\xfc";

/// With the key of simulated boxes.
const RESOURCE_V1: &[u8] = b"\x05\x01\x00\
    \x11\x11\"\"33DD\x85Uffww\x88\x88\
    \x0dvolume_target\x04\x05\x01\x02v1\
    \x01\x01#Eg\x89\xabM\xef\x81#Eg\x89\xab\xcd\xef\
    4{\"boot_index\":0,\"properties\":{\"auth_password\":null}}\x01\x19/properties/auth_password\
    \x20\x99\x01\xc7\x94>x\xf5h<\xf5\xf40\x87\xd1\xcb\xf4@\xa1;m\xedXL\x02T\xb94XjX\xe1U\
    \x0c\x01\x0d";

/// Tagged: the number of fields, then on each line tag, length and value of a field. A field
/// that has its default is left out. The sealed values are those of version 2.
const NODE_V3: &[u8] = b"\x01\x03\x00\x1e\
    \x01\x10\x01#Eg\x89\xabM\xef\x81#Eg\x89\xab\xcd\xef\
    \x02\x02\xac\x02\
    \x03\x01\x02\
    \x04\x04\x01\x02n1\
    \x05\x05\x04ipmi\
    \x06P\x1e{\"a\":\"b\",\"ipmi_password\":null}\x01\x0e/ipmi_password '\x0cgv\xe1\x00\xaf\x0a|\
    \xd5o\xab\xe1\x84\xd1\xff+\xbd\xa3\x14\xe9\x91B\x9c\x1c\x119\xae\x8d\x7fI}\
    \x07\x08\x07{\"c\":1}\
    \x08M\x1b{\"d\":[0,{\"x/~token\":null}]}\x01\x0f/d/1/x~1~0token\x1f\x04\xec\xbfu\xc5\xfaY\
    \xc0p\x15U\x88\x99\xf3\x0b\xec\x91\x03Q\xe7_Ba\xef\xd7\x03\x0f\xb6=\x03\xee\
    \x09\x0d\x0b{\"e\":[1,2]}\x00\
    \x0a\x0c\x0a{\"f\":true}\x00\
    \x0b\x0f\x0ewait call-back\
    \x0c\x08\x01\x06active\
    \x0d\x02\x01\x05\
    \x0e\x0a\x01\x08power on\
    \x0f\x0b\x01\x09power off\
    \x10\x04\x01\x02e1\
    \x11\x01\x01\
    \x12\x04\x01\x02m1\
    \x13\x04\x01\x02f1\
    \x14\x04\x01\x02i1\
    \x15\x04\x01\x02r1\
    \x16\x02\x01\x00\
    \x17\x01\x04\
    \x18\x02\x01\x06\
    \x19\x02\x01\x07\
    \x1a\x02\x01\x08\
    \x1b\x0b\x01\x09{\"g\":1.5}\
    \x1c\x0f\x0d{\"owner\":\"o\"}\x00\
    \x1d\x98\x01\x01\x09\x01\x07\x06deploy\x02\x0b\x0aawait step\x03\x08\x01\x06deploy\x04\x01\
    \x01\x05a\x01\x05\x01\x03\x02s1\x02\x07\x06deploy\x03\x01\x05\x04I\x14{\"configdrive\":null}\
    \x01\x0c/configdrive%`\xb2(\x08NP=DLD\xc6\x99=\xacssyb0\xfc\x9f\x04\x97-\x09J\xb3}\xcbWf\x92\
    \xf0P.\x05\xca\x05\x01\x01\x06\x01\x01\x07\x05\x01\x01k\x01v\x08\x01\x09\x09\x01\x0a\
    \x1eW\x01\x05\x01\x1f\x1e\xa8\xff5m\xc7~\xca\x1a\x16@E\x97\xef\xfe*l\xed\xb3^\xf5\x95\x9a \
    \xfa\xa1=CE\xc5\xd1\x02 \x01\x1eC9\xd2\xa3C+_\x8f\xb0\x0a\x83\xedc\xef\xbc\xb6\x85\x09\x01\
    \xa13!\x91ntt\x03\xef)&\x03\x04\x01\x02u1\x04\x04\x01\x02c1\x05\x04\x01\x02v1";

const PORT_V2: &[u8] = b"\x02\x02\x00\x08\
    \x01\x10\xfe\xdc\xba\x98vTB\x10\x8e\xdc\xba\x98vT2\x10\
    \x02\x01\x01\
    \x03\x01\x03\
    \x04\x10\x01#Eg\x89\xabM\xef\x81#Eg\x89\xab\xcd\xef\
    \x05\x06\x02\x00\x00\x00\x00\x09\
    \x06\x01\x01\
    \x07\x08\x07{\"x\":1}\
    \x09\x01\x0b";

const LEASE_V2: &[u8] = b"\x03\x02\x00\x02\
    \x01\x06\x02\x00\x00\x00\x00\x09\
    \x02\x04\x0a\x00\x00\x07";

const BOX_V4: &[u8] = b"\x04\x04\x00\x02\
    \x01\x02\xac\x02\
    \x02#\"\xb2?\xc1\x83I;\xb1}\x92!\xe5\xe3\xdd\x9a\xdc[\xdai\x96\xcf\xe6\x12P\x92\x1f\x8d\xb8\
    \xeeT4\x81N\x98\xfc";

const RESOURCE_V2: &[u8] = b"\x05\x02\x00\x09\
    \x01\x10\x11\x11\"\"33DD\x85Uffww\x88\x88\
    \x02\x0e\x0dvolume_target\
    \x03\x01\x04\
    \x04\x01\x05\
    \x05\x04\x01\x02v1\
    \x06\x11\x01\x01#Eg\x89\xabM\xef\x81#Eg\x89\xab\xcd\xef\
    \x07q4{\"boot_index\":0,\"properties\":{\"auth_password\":null}}\x01\x19/properties/auth_pas\
    sword \x99\x01\xc7\x94>x\xf5h<\xf5\xf40\x87\xd1\xcb\xf4@\xa1;m\xedXL\x02T\xb94XjX\xe1U\
    \x08\x01\x0c\
    \x09\x02\x01\x0d";

/// Finished jobs with every field.
const STORIES_V1: &[u8] =
    b"\x06\x01\0\x05\x01\x10\x01#Eg\x89\xabM\xef\x81#Eg\x89\xab\xcd\xef\x02\x02\xac\x02\
    \x03\x82\x01\x01\x09\x01\x01\x03\x02\x07\x06deploy\x03\x01\x14\x04\x02\x01\x1d\x05\
    \x07\x06failed\x06\x03\x02m1\x073\x01\x0c\x01\x05\x04POST\x02\x05\x04late\x03\x01\
    \x15\x04\x02\x01\x16\x05\x01\x17\x06\x02\x01\x18\x07\x01\x02\x08\x01\x19\x09\x01\x1a\
    \x0a\x01\x1b\x0b\x01\x1c\x0c\x04\x01\x02v1\x08\x04\x01\x02e1\x09\"\x01\x06\x01\x03\
    \x02r1\x02\x03\x02s1\x03\x03\x02c1\x04\x03\x02n1\x05\x04\x01\x02a1\x06\x04\x01\x02o1\
    \x04!\x01\x04\x01\x01\x1d\x02\x03\x02e1\x03\x04\x01\x02u1\x04\x0f\x01\x0ddeploy fail\
    ed\x05\"\x01\x06\x01\x03\x02r1\x02\x03\x02s1\x03\x03\x02c1\x04\x03\x02n1\x05\x04\x01\x02a1\
    \x06\x04\x01\x02o1";

/// The running job with every field.
const JOB_V1: &[u8] =
    b"\x07\x01\0\x05\x01\x10\x01#Eg\x89\xabM\xef\x81#Eg\x89\xab\xcd\xef\x02\x82\x01\x01\
    \x09\x01\x01\x03\x02\x07\x06deploy\x03\x01\x14\x04\x02\x01\x1d\x05\x07\x06failed\x06\
    \x03\x02m1\x073\x01\x0c\x01\x05\x04POST\x02\x05\x04late\x03\x01\x15\x04\x02\x01\x16\
    \x05\x01\x17\x06\x02\x01\x18\x07\x01\x02\x08\x01\x19\x09\x01\x1a\x0a\x01\x1b\x0b\x01\
    \x1c\x0c\x04\x01\x02v1\x08\x04\x01\x02e1\x09\"\x01\x06\x01\x03\x02r1\x02\x03\x02s1\
    \x03\x03\x02c1\x04\x03\x02n1\x05\x04\x01\x02a1\x06\x04\x01\x02o1\x03\x08\x07{\"g\":1\
    }\x04\x01\x04\x05\x18\x01\x04\x01\x01\x1e\x02\x06\x05power\x03\x03\x02t1\x04\x04\x01\
    \x02f1";

/// A request of a caller with every field.
const AUDIT_V1: &[u8] =
    b"\x08\x01\0\x0b\x01\x02\xef\x07\x02\x01\x1f\x03\x09\x08token ci\x04\x0a\x09192.0.2.1\
    \x05\x0a\x09PUT /v1/x\x06\x06\x05req-1\x07\x07\x06deploy\x08\x11\x01\x01#Eg\x89\xabM\
    \xef\x81#Eg\x89\xab\xcd\xef\x09\x04\x01\x02n1\x0a\x04\x01\x02no\x0b\x04\x01\x02ci";

fn full_story() -> JobStory {
    let stage = StageStory {
        stage: Stage::Post,
        state: StageState::Late,
        begin: UnixMs(21),
        since: Some(UnixMs(22)),
        duration_ms: 23,
        usual_ms: Some(24),
        tries: 2,
        bytes: 25,
        transfer_ms: 26,
        first_note: 27,
        last_note: 28,
        evidence: Some("v1".to_owned()),
    };
    let diagnosis = StoryDiagnosis {
        rule: "r1".to_owned(),
        sentence: "s1".to_owned(),
        cause: "c1".to_owned(),
        next_action: "n1".to_owned(),
        action: Some("a1".to_owned()),
        command: Some("o1".to_owned()),
    };
    JobStory {
        number: 3,
        kind: JobKind::Deploy,
        begin: UnixMs(20),
        end: Some(UnixMs(29)),
        outcome: JobOutcome::Failed,
        model: "m1".to_owned(),
        stages: vec![stage],
        last_error: Some("e1".to_owned()),
        diagnosis: Some(diagnosis),
    }
}

fn full_stories() -> NodeStories {
    NodeStories {
        node: full_node().id,
        jobs_count: 300,
        jobs: vec![full_story()],
        failures: vec![NodeFailure {
            at: UnixMs(29),
            why: "e1".to_owned(),
            user: Some("u1".to_owned()),
            state: Some(ProvisionState::DeployFail),
        }],
        diagnosis: full_story().diagnosis,
    }
}

fn full_job() -> RunningJobStory {
    RunningJobStory {
        node: full_node().id,
        story: full_story(),
        evidence: json!({"g": 1}),
        dropped: 4,
        notes: vec![StoredNote {
            at: UnixMs(30),
            kind: "power".to_owned(),
            text: "t1".to_owned(),
            fields: vec!["f1".to_owned()],
        }],
    }
}

fn full_entry() -> AuditEntry {
    AuditEntry {
        number: 1007,
        at: UnixMs(31),
        caller: "token ci".to_owned(),
        user: Some("ci".to_owned()),
        from: "192.0.2.1".to_owned(),
        request_line: "PUT /v1/x".to_owned(),
        request: "req-1".to_owned(),
        order: "deploy".to_owned(),
        node: Some(full_node().id),
        node_name: Some("n1".to_owned()),
        refused: Some("no".to_owned()),
    }
}

/// Every version that was ever written: key, bytes, record.
fn pinned() -> Vec<(RecordKey, &'static [u8], StoredRecord)> {
    let node = |node: Node| StoredRecord::Node(Box::new(node));
    vec![
        (node_key(full_node().id), NODE_V1, node(full_node())),
        (node_key(full_node().id), NODE_V2, node(secret_node())),
        (
            port_key(full_port().id),
            PORT_V1,
            StoredRecord::Port(full_port()),
        ),
        (
            lease_key(lease().mac),
            LEASE_V1,
            StoredRecord::Lease(lease()),
        ),
        (unit_key(), BOX_V1, StoredRecord::Serial(300)),
        (unit_key(), BOX_V2, StoredRecord::Serial(300)),
        (unit_key(), BOX_V3, StoredRecord::Serial(300)),
        (
            resource_key(full_resource().id),
            RESOURCE_V1,
            StoredRecord::Resource(full_resource()),
        ),
        (node_key(full_node().id), NODE_V3, node(secret_node())),
        (
            port_key(full_port().id),
            PORT_V2,
            StoredRecord::Port(full_port()),
        ),
        (
            lease_key(lease().mac),
            LEASE_V2,
            StoredRecord::Lease(lease()),
        ),
        (unit_key(), BOX_V4, StoredRecord::Serial(300)),
        (
            resource_key(full_resource().id),
            RESOURCE_V2,
            StoredRecord::Resource(full_resource()),
        ),
        (
            stories_key(full_node().id),
            STORIES_V1,
            StoredRecord::Stories(Box::new(full_stories())),
        ),
        (
            job_key(full_node().id),
            JOB_V1,
            StoredRecord::Job(Box::new(full_job())),
        ),
        (audit_key(1007), AUDIT_V1, StoredRecord::Audit(full_entry())),
    ]
}

#[track_caller]
fn same_bytes(made: &[u8], pinned: &[u8]) {
    assert_eq!(
        made.escape_ascii().to_string(),
        pinned.escape_ascii().to_string()
    );
}

#[test]
fn the_bytes_of_the_newest_versions_are_pinned() {
    let sealer = sealer();
    same_bytes(&encode_node(&sealer, &secret_node()).unwrap(), NODE_V3);
    same_bytes(&encode_port(&full_port()).unwrap(), PORT_V2);
    same_bytes(&encode_lease(&lease()).unwrap(), LEASE_V2);
    same_bytes(&encode_serial(&sealer, 300).unwrap(), BOX_V4);
    same_bytes(
        &encode_resource(&sealer, &full_resource()).unwrap(),
        RESOURCE_V2,
    );
    same_bytes(&encode_stories(&full_stories()).unwrap(), STORIES_V1);
    same_bytes(&encode_job(&full_job()).unwrap(), JOB_V1);
    same_bytes(&encode_audit(&full_entry()).unwrap(), AUDIT_V1);
    assert_eq!(
        audit_key(1007),
        audit_key(7),
        "a place in a ring of a thousand"
    );
}

#[test]
fn old_versions_are_known_as_such() {
    for (key, bytes, _) in pinned() {
        let newest = [
            NODE_V3,
            PORT_V2,
            LEASE_V2,
            BOX_V4,
            RESOURCE_V2,
            STORIES_V1,
            JOB_V1,
            AUDIT_V1,
        ];
        let newest = newest.contains(&bytes);
        assert_eq!(is_old(&key, bytes), !newest, "{key:?}");
    }
}

#[test]
fn without_the_key_only_what_is_sealed_stays_shut() {
    for (key, bytes, record) in pinned() {
        let read = decode(None, &key, bytes);
        let sealed = [
            NODE_V2,
            NODE_V3,
            BOX_V2,
            BOX_V3,
            BOX_V4,
            RESOURCE_V1,
            RESOURCE_V2,
        ];
        if sealed.contains(&bytes) {
            let kind = kind_name(key.kind);
            assert_eq!(read, Err(RecordError::Sealed { kind }));
        } else {
            assert_eq!(read.unwrap(), record);
        }
    }
    let bare = Node::new(full_node().id, "ipmi", UnixMs(1));
    let bytes = encode_node(&sealer(), &bare).unwrap();
    assert!(decode(None, &node_key(bare.id), &bytes).is_ok());
}

#[test]
fn pinned_bytes_read_back() {
    for (key, bytes, record) in pinned() {
        assert_eq!(decode(Some(&sealer()), &key, bytes).unwrap(), record);
    }
}

#[test]
fn a_fresh_node_reads_back() {
    let node = Node::new(full_node().id, "redfish", UnixMs(u64::MAX));
    let bytes = encode_node(&sealer(), &node).unwrap();
    let read = decode(Some(&sealer()), &node_key(node.id), &bytes).unwrap();
    assert_eq!(read, StoredRecord::Node(Box::new(node)));
}

#[test]
fn refuses_bytes_cut_short_or_left_over() {
    for (key, bytes, _) in pinned() {
        for end in 0..bytes.len() {
            assert!(
                decode(Some(&sealer()), &key, &bytes[..end]).is_err(),
                "{key:?} {end}"
            );
        }
        let longer = [bytes, &[0]].concat();
        let error = decode(Some(&sealer()), &key, &longer).unwrap_err();
        assert!(error.to_string().contains("left over"), "{error}");
    }
}

#[test]
fn refuses_a_newer_version_by_kind_and_number() {
    for (key, bytes, _) in pinned() {
        let known = RecordKind::from_number(key.kind).unwrap().newest_version();
        let found = known + 1;
        let mut newer = bytes.to_vec();
        newer[1] = found as u8;
        let error = decode(Some(&sealer()), &key, &newer).unwrap_err();
        let want = RecordError::NewerVersion {
            kind: kind_name(key.kind),
            found,
            known,
        };
        assert_eq!(error, want);
        assert!(
            error.to_string().contains(&format!("version {found}")),
            "{error}"
        );
    }
}

#[test]
fn refuses_version_zero_foreign_kinds_and_foreign_keys() {
    for (key, bytes, _) in pinned() {
        let mut old = bytes.to_vec();
        old[1] = 0;
        assert!(matches!(
            decode(Some(&sealer()), &key, &old),
            Err(RecordError::Malformed { .. })
        ));
        let other = RecordKey {
            id: [0xee; 16],
            ..key
        };
        let error = decode(Some(&sealer()), &other, bytes).unwrap_err();
        assert!(error.to_string().contains("another record"), "{error}");
        let unknown = RecordKey { kind: 99, ..key };
        assert_eq!(
            decode(Some(&sealer()), &unknown, bytes),
            Err(RecordError::UnknownKind { kind: 99 })
        );
        let swapped = RecordKey {
            kind: key.kind % RecordKind::ALL.len() as u8 + 1,
            ..key
        };
        assert!(decode(Some(&sealer()), &swapped, bytes).is_err());
    }
    assert_eq!(kind_name(99), "foreign");
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
            decode(Some(&sealer()), &key, &bytes),
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
    let bytes = encode_node(&sealer(), &node).unwrap();
    let read = decode(Some(&sealer()), &node_key(node.id), &bytes).unwrap();
    assert_eq!(read, StoredRecord::Node(Box::new(node.clone())));

    node.inventory = Some(nested(JSON_DEPTH_MAX + 1));
    assert!(matches!(
        encode_node(&sealer(), &node),
        Err(RecordError::TooDeep {
            field: "inventory",
            ..
        })
    ));
    node.inventory = None;
    node.extra = object(&json!({ "deep": nested(JSON_DEPTH_MAX) }));
    assert!(matches!(
        encode_node(&sealer(), &node),
        Err(RecordError::TooDeep { field: "extra", .. })
    ));
}
