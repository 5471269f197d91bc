//! Records of a newer program, fields that are left out, and the tables of the README.

use std::num::NonZeroU32;

use serde_json::json;
use trivet_model::node::NodeLocation;
use trivet_model::{AgentSession, Job, JobKind, JobPhase, JobStep, Lease, MacAddr, Node, UnixMs};

use super::*;
use crate::schema::codec::{Ipv4, Mac, Number, Text};
use crate::schema::{
    self, ENVELOPE_BYTES, RecordKind, StoredRecord, decode, encode_lease, encode_node, lease_key,
    node_key,
};
use crate::seal::{RecordSeal, Sealer};

/// Tags of fields that a newer program writes.
const FUTURE: u16 = 900;

fn sealer() -> Sealer {
    Sealer::new(&trivet_board_sim::box_key())
}

/// A lease of a newer program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeaseOfTomorrow {
    mac: MacAddr,
    address: core::net::Ipv4Addr,
    note: String,
    renewals: u64,
}

tagged_fields! {
    /// The table of that program.
    FieldsOfTomorrow: LeaseOfTomorrow {
        1 "mac" mac: Mac;
        2 "address" address: Ipv4;
        300 "note" note: Text = "none".to_owned();
        301 "renewals" renewals: Number<u64> = 7;
    }
}

fn lease_of_tomorrow() -> LeaseOfTomorrow {
    LeaseOfTomorrow {
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
        address: [10, 0, 0, 7].into(),
        note: "n1".to_owned(),
        renewals: 8,
    }
}

fn write_tomorrow(lease: &LeaseOfTomorrow) -> Vec<u8> {
    let seal = RecordSeal::of(None, lease_key(lease.mac));
    schema::encode::<FieldsOfTomorrow>(seal, lease).unwrap()
}

fn read_tomorrow(bytes: &[u8]) -> LeaseOfTomorrow {
    let seal = RecordSeal::of(None, lease_key(MacAddr([0; 6])));
    let place = FieldPlace::new(RecordKind::Lease, seal);
    schema::fields::<FieldsOfTomorrow>(place, &bytes[ENVELOPE_BYTES..]).unwrap()
}

#[test]
fn a_tag_from_the_future_survives_a_change_by_a_program_that_does_not_know_it() {
    let newer = write_tomorrow(&lease_of_tomorrow());
    let key = lease_key(lease_of_tomorrow().mac);
    let StoredRecord::Lease(mut lease) = decode(None, &key, &newer).unwrap() else {
        panic!("a lease");
    };
    lease.address = [10, 0, 0, 8].into();
    let written = encode_lease(&lease).unwrap();
    let written = schema::carry_over(&key, Some(&newer), written).unwrap();
    assert_eq!(
        decode(None, &key, &written).unwrap(),
        StoredRecord::Lease(lease)
    );
    let read = read_tomorrow(&written);
    let want = LeaseOfTomorrow {
        address: lease.address,
        ..lease_of_tomorrow()
    };
    assert_eq!(read, want);
}

#[test]
fn a_field_that_is_left_out_gets_its_default() {
    let lease = Lease {
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
        address: [10, 0, 0, 7].into(),
    };
    let older = encode_lease(&lease).unwrap();
    let read = read_tomorrow(&older);
    assert_eq!((read.note.as_str(), read.renewals), ("none", 7));
    assert_eq!(write_tomorrow(&read), older, "defaults are left out");
}

#[test]
fn a_new_record_and_a_record_of_an_older_version_carry_nothing_over() {
    let lease = Lease {
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
        address: [10, 0, 0, 7].into(),
    };
    let key = lease_key(lease.mac);
    let bytes = encode_lease(&lease).unwrap();
    let frozen = b"\x03\x01\0\x02\0\0\0\0\x09\x0a\0\0\x07";
    for earlier in [None, Some(frozen.as_slice())] {
        assert_eq!(
            schema::carry_over(&key, earlier, bytes.clone()).unwrap(),
            bytes
        );
    }
}

#[test]
fn a_required_field_that_is_missing_is_an_error() {
    let key = lease_key(MacAddr([2, 0, 0, 0, 0, 9]));
    let error = decode(None, &key, b"\x03\x02\0\x01\x01\x06\x02\0\0\0\0\x09").unwrap_err();
    assert!(error.to_string().contains("required field"), "{error}");
}

#[test]
fn tags_out_of_order_twice_or_with_bytes_left_over_are_refused() {
    let key = lease_key(MacAddr([2, 0, 0, 0, 0, 9]));
    let mac = b"\x01\x06\x02\0\0\0\0\x09".as_slice();
    let address = b"\x02\x04\x0a\0\0\x07".as_slice();
    let long = b"\x02\x05\x0a\0\0\x07\0".as_slice();
    let record = |fields: &[&[u8]]| {
        let head = [3, 2, 0, fields.len() as u8];
        [head.as_slice(), &fields.concat()].concat()
    };
    assert!(decode(None, &key, &record(&[mac, address])).is_ok());
    for wrong in [&[address, mac][..], &[mac, mac, address], &[mac, long]] {
        assert!(decode(None, &key, &record(wrong)).is_err(), "{wrong:?}");
    }
}

/// Adds a field of a newer program to a list of fields.
fn with_future(list: &[u8], value: &[u8]) -> Vec<u8> {
    let (mut fields, rest) = postcard::take_from_bytes::<FieldList<'_>>(list).unwrap();
    assert!(rest.is_empty());
    fields.push((FUTURE, value));
    list_bytes(&fields)
}

fn list_bytes(fields: &FieldList<'_>) -> Vec<u8> {
    let mut writer = FieldWriter::default();
    for (tag, value) in fields {
        writer.add(*tag, value);
    }
    let mut out = Vec::new();
    writer.finish(&mut out);
    out
}

/// The field of a newer program in a list of fields.
fn future_of<'b>(fields: &FieldList<'b>) -> Option<&'b [u8]> {
    let mut found = fields.iter().filter(|(tag, _)| *tag == FUTURE);
    found.next().map(|(_, value)| *value)
}

fn parts<'b>(fields: &FieldList<'b>, tag: u16) -> Vec<FieldList<'b>> {
    let value = fields.iter().find(|field| field.0 == tag).unwrap().1;
    postcard::from_bytes(value).unwrap()
}

/// Replaces the parts of a field by the same with a field of a newer program.
fn parts_with_future(list: &[u8], tag: u16, inner: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut fields: FieldList<'_> = postcard::from_bytes(list).unwrap();
    let changed: Vec<Vec<u8>> = parts(&fields, tag)
        .iter()
        .map(|part| inner(&list_bytes(part)))
        .collect();
    let mut value = Vec::new();
    put_number(changed.len(), &mut value);
    value.extend(changed.concat());
    let at = fields.iter().position(|field| field.0 == tag).unwrap();
    fields[at].1 = &value;
    list_bytes(&fields)
}

fn step(name: &str) -> JobStep {
    JobStep {
        step: name.to_owned(),
        interface: "deploy".to_owned(),
        priority: 1,
        args: json!({"configdrive": "c"}),
        reboot_requested: false,
        abortable: false,
    }
}

fn busy_node() -> Node {
    let id = "01234567-89ab-4def-8123-456789abcdef".parse().unwrap();
    Node {
        job: Some(Job {
            kind: JobKind::Clean,
            phase: JobPhase::AwaitStep,
            step_kind: None,
            manual: false,
            steps: vec![step("s1"), step("s2")],
            at: 0,
            versions: BTreeMap::new(),
            tries: 0,
            boots: Some(NonZeroU32::MIN),
            heartbeat_lost_at: None,
            abort_after: None,
            deployment: None,
            has_inspection_data: false,
            awaits_source: false,
            agent_query: None,
        }),
        agent: Some(AgentSession {
            token: "t1".to_owned(),
            ..AgentSession::legacy()
        }),
        ..Node::new(id, "ipmi", UnixMs(4))
    }
}

const JOB: u16 = 29;
const AGENT: u16 = 30;
const STEPS: u16 = 5;

/// A node of a newer program, with fields of its own in the node, its job, the steps of the
/// job and the session of the agent.
fn node_of_tomorrow(node: &Node) -> Vec<u8> {
    let bytes = encode_node(&sealer(), node).unwrap();
    let (envelope, list) = bytes.split_at(ENVELOPE_BYTES);
    let list = with_future(list, b"of the node");
    let list = parts_with_future(&list, AGENT, |part| with_future(part, b"of the agent"));
    let list = parts_with_future(&list, JOB, |job| {
        let job = with_future(job, b"of the job");
        parts_with_future(&job, STEPS, |step| with_future(step, b"of the step"))
    });
    [envelope, &list].concat()
}

/// What a change of the node of a newer program leaves of the fields of that program: in the
/// node, the job, the first and the second step, and the agent.
fn left_after(change: impl FnOnce(&mut Node)) -> [bool; 5] {
    let newer = node_of_tomorrow(&busy_node());
    let key = node_key(busy_node().id);
    let read = decode(Some(&sealer()), &key, &newer).unwrap();
    assert_eq!(read, StoredRecord::Node(Box::new(busy_node())));
    let mut node = busy_node();
    change(&mut node);
    let written = encode_node(&sealer(), &node).unwrap();
    let written = schema::carry_over(&key, Some(&newer), written).unwrap();
    let read = decode(Some(&sealer()), &key, &written).unwrap();
    assert_eq!(read, StoredRecord::Node(Box::new(node.clone())));
    let again = encode_node(&sealer(), &node).unwrap();
    let again = schema::carry_over(&key, Some(&written), again).unwrap();
    assert_eq!(again, written, "equal records have equal bytes");

    let fields: FieldList<'_> = postcard::from_bytes(&written[ENVELOPE_BYTES..]).unwrap();
    let part = |tag| parts(&fields, tag).into_iter().next();
    let job = node.job.as_ref().and_then(|_| part(JOB));
    let agent = node.agent.as_ref().and_then(|_| part(AGENT));
    let step = |index: usize| {
        let steps = job.as_ref().map(|job| parts(job, STEPS));
        steps.and_then(|steps| steps.get(index).and_then(future_of))
    };
    [
        future_of(&fields) == Some(b"of the node"),
        job.as_ref().and_then(future_of) == Some(b"of the job"),
        step(0) == Some(b"of the step"),
        step(1) == Some(b"of the step"),
        agent.as_ref().and_then(future_of) == Some(b"of the agent"),
    ]
}

#[test]
fn tags_from_the_future_within_a_job_and_an_agent_session_survive() {
    assert_eq!(left_after(|_| {}), [true; 5]);
    let left = left_after(|node| {
        node.revision = 9;
        let job = node.job.as_mut().unwrap();
        job.phase = JobPhase::StartStep;
        job.at = 1;
        node.agent.as_mut().unwrap().url = Some("u".to_owned());
    });
    assert_eq!(left, [true; 5]);
}

#[test]
fn what_is_replaced_takes_its_tags_from_the_future_along() {
    let left = left_after(|node| {
        node.job.as_mut().unwrap().steps[1] = step("s3");
    });
    assert_eq!(left, [true, true, true, false, true]);
    let left = left_after(|node| node.job.as_mut().unwrap().kind = JobKind::Deploy);
    assert_eq!(left, [true, false, false, false, true]);
    let left = left_after(|node| node.agent.as_mut().unwrap().token = "t2".to_owned());
    assert_eq!(left, [true, true, true, true, false]);
    let left = left_after(|node| {
        node.job = None;
        node.agent = None;
    });
    assert_eq!(left, [true, false, false, false, false]);
}

#[test]
fn the_location_of_a_node_is_one_more_field() {
    let without = encode_node(&sealer(), &busy_node()).unwrap();
    let mut node = busy_node();
    node.location = Some(NodeLocation {
        rack: "r1".to_owned(),
        unit: Some(17),
    });
    let bytes = encode_node(&sealer(), &node).unwrap();
    // Tag, length, one part: two fields, each with tag and length.
    assert!(bytes.ends_with(b"\x1f\x0b\x01\x02\x01\x03\x02r1\x02\x02\x01\x11"));
    let key = node_key(node.id);
    let read = decode(Some(&sealer()), &key, &bytes).unwrap();
    assert_eq!(read, StoredRecord::Node(Box::new(node)));
    let read = decode(Some(&sealer()), &key, &without).unwrap();
    assert_eq!(read, StoredRecord::Node(Box::new(busy_node())));
}

/// All tables, with the names that the README gives them.
fn tables() -> Vec<(String, &'static [FieldTag])> {
    fn add(name: String, fields: &'static [FieldTag], all: &mut Vec<(String, &[FieldTag])>) {
        all.push((name.clone(), fields));
        for field in fields {
            if let Some(parts) = field.parts {
                add(format!("{name}.{}", field.documented.name), parts, all);
            }
        }
    }
    let mut all = Vec::new();
    for kind in RecordKind::ALL {
        add(kind.name().to_owned(), kind.fields(), &mut all);
    }
    all
}

fn documented_line(field: &FieldTag) -> String {
    let DocumentedField {
        name,
        form,
        optional,
        required,
    } = &field.documented;
    let optional = if *optional { "optional " } else { "" };
    let default = if *required { "required" } else { "" };
    format!("| {} | `{name}` | {optional}{form} | {default}", field.tag)
}

#[test]
fn the_readme_has_every_record_kind_and_every_tag() {
    let readme = include_str!("../../../README.md");
    for kind in RecordKind::ALL {
        let line = format!("| {} | {} | ", kind as u8, kind.name());
        let version = format!("{}: tagged |", kind.newest_version());
        let found = readme.lines().find(|known| known.starts_with(&line));
        assert!(
            found.is_some_and(|found| found.ends_with(&version)),
            "{line}"
        );
    }
    let mut titles = 0;
    for (name, fields) in tables() {
        let title = format!("Tags of `{name}`:");
        let mut lines = readme.lines().skip_while(|line| *line != title).skip(4);
        for field in fields {
            let want = documented_line(field);
            let line = lines.next().unwrap_or_default();
            let default = line.strip_prefix(&want).unwrap_or_default();
            let is_required = line.ends_with("| required |");
            assert!(
                default.ends_with(" |") && is_required == field.documented.required,
                "the README has {line:?} in the table of {name}, the code has {want:?}"
            );
        }
        assert_eq!(lines.next(), Some(""), "the table of {name} ends");
        titles += 1;
    }
    let found = readme.lines().filter(|line| line.starts_with("Tags of `"));
    assert_eq!(found.count(), titles, "no table without a record");
}

#[test]
fn the_first_tag_of_every_table_but_that_of_the_box_is_required() {
    for (name, fields) in tables() {
        let first = &fields[0];
        assert_eq!(first.tag, 1);
        assert_eq!(first.documented.required, name != "box", "{name}");
    }
}
