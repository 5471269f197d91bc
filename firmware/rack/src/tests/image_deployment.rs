//! Writes that wait for their image, and writes that are retried.

use super::*;
use trivet_images::{FileChecksum, ImageFileOrder, ImageFillResult, StoredImageCheck};
use trivet_model::image::{ImageFormat, ImageState, UnpackedImage};
use trivet_model::{AgentEvent, AgentOrder, AgentSession, BootPartitions, JobPhase};
use trivet_node::NodeEvent;

use crate::{FileGrant, FileServerProtocol};

const SUMS: &str = "https://images.example/SHA256SUMS";

/// A node whose agent runs, with its write as the present step.
pub(super) fn at_write(bench: &mut RackBench, info: Value) -> NodeId {
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        let Value::Object(info) = info else {
            panic!("an object")
        };
        node.instance_info.extend(info);
    });
    bench.verb(id, Verb::Active).unwrap();
    bench.force(id, |node| {
        node.provision_state = ProvisionState::DeployWait;
        let job = node.job.as_mut().unwrap();
        job.phase = JobPhase::AwaitStep;
        job.step_kind = Some(trivet_model::StepKind::Deploy);
        node.agent = Some(AgentSession {
            token: "t".repeat(40),
            former_token: None,
            url: Some("http://10.0.0.100:9999".into()),
            verify_ca: None,
            version: None,
            is_clean: false,
            ahead: None,
        });
    });
    id
}

/// Starts the present step.
pub(super) fn start(bench: &mut RackBench, id: NodeId) {
    let why = "the test wants it".to_owned();
    bench
        .rack
        .events
        .push_back((id, NodeEvent::StepAgain { why }));
    bench.handle(RackInput::Tick);
}

/// The image information in the last call to the agent, and the call's number.
pub(super) fn sent_image_info(bench: &RackBench) -> Option<(Value, u64)> {
    let mut calls = bench.outputs.iter();
    calls.find_map(|output| match output {
        RackOutput::CallAgent { request, call, .. } => {
            let body: Value = serde_json::from_slice(request.body.as_ref()?).unwrap();
            Some((body["params"]["step"]["args"].clone(), *call))
        }
        _ => None,
    })
}

pub(super) fn news(digest: &str, state: ImageState, raw: Option<UnpackedImage>) -> ImageStatus {
    let digest: Digest = digest.parse().unwrap();
    ImageStatus {
        key: trivet_images::ImageKey(digest).to_string(),
        name: "a.qcow2".into(),
        digest,
        format: if raw.is_some() {
            ImageFormat::Qcow2
        } else {
            ImageFormat::Raw
        },
        size: Some(100),
        present_bytes: 100,
        state,
        raw,
    }
}

fn packed() -> Value {
    json!({"image_source": "http://far/a.qcow2", "image_checksum": "0a".repeat(32)})
}

pub(super) fn plain() -> Value {
    json!({"image_source": "http://far/a.raw", "image_checksum": "0a".repeat(32)})
}

const RAW: UnpackedImage = UnpackedImage {
    digest: Digest::Sha256([0xee; 32]),
    size: 1 << 20,
};

fn last_note(bench: &RackBench, id: NodeId) -> String {
    let view = bench.rack.view();
    let timeline = &view.nodes.get(&id).unwrap().timeline;
    timeline.last().unwrap().kind.to_string()
}

#[test]
fn an_image_is_fetched_while_the_machine_boots() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        let Value::Object(info) = plain() else {
            unreachable!()
        };
        node.instance_info.extend(info);
    });
    bench.verb(id, Verb::Active).unwrap();
    assert_eq!(bench.fills().len(), 1);
}

#[test]
fn a_plain_image_is_written_at_once() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    start(&mut bench, id);
    let (args, _) = sent_image_info(&bench).expect("the agent is called");
    let info = &args["image_info"];
    assert_eq!(info["os_hash_value"], "0a".repeat(32));
    assert_eq!(info["disk_format"], "raw");
}

/// A wake-up from before the step came while the order was under way: the agent received it
/// twice, and where its first reply was lost it wrote twice.
#[test]
fn an_order_on_its_way_is_not_given_again() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    start(&mut bench, id);
    let (_, call) = sent_image_info(&bench).expect("the agent is called");
    bench.outputs.clear();
    bench.rack.events.push_back((id, NodeEvent::TimerExpired));
    bench.handle(RackInput::Tick);
    assert!(sent_image_info(&bench).is_none(), "it is on its way");
    let result = Err("no answer".to_owned());
    bench.handle(RackInput::AgentAnswered {
        node: id,
        call,
        result,
    });
    start(&mut bench, id);
    assert!(sent_image_info(&bench).is_some(), "that one is given up");
}

/// A wake-up for an agent that does not reply came while the order to install a boot loader was
/// under way, and another order replaced it.
#[test]
fn an_order_voids_what_was_to_wake_its_job() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    bench.force(id, |node| {
        node.job.as_mut().unwrap().phase = JobPhase::Bootloader;
    });
    bench.rack.nodes.wake_at(id, bench.now.tick.after_ms(1000));
    let found = Ok(AgentEvent::PartitionsFound(BootPartitions::default()));
    let event = NodeEvent::Agent(AgentOrder::FindPartitions, found);
    bench.rack.events.push_back((id, event));
    bench.handle(RackInput::Tick);
    assert!(
        sent_image_info(&bench).is_some(),
        "a boot loader is ordered"
    );
    bench.advance(2000);
    assert!(sent_image_info(&bench).is_none(), "and nothing else");
}

#[test]
fn a_packed_image_is_written_when_it_is_unpacked() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, packed());
    start(&mut bench, id);
    assert!(sent_image_info(&bench).is_none(), "it has to wait");
    assert!(last_note(&bench, id).contains("waits for image a.qcow2"));
    let sum = "0a".repeat(32);
    bench.image_is(news(&sum, ImageState::Unpacking, None));
    assert!(sent_image_info(&bench).is_none());
    bench.image_is(news(&"0b".repeat(32), ImageState::Complete, Some(RAW)));
    assert!(sent_image_info(&bench).is_none(), "that is another image");
    bench.image_is(news(&sum, ImageState::Complete, Some(RAW)));
    let (args, _) = sent_image_info(&bench).expect("the agent is called");
    let info = &args["image_info"];
    assert_eq!(info["os_hash_value"], RAW.digest.to_string());
    assert_eq!(info["disk_format"], "raw");
    assert_eq!(info["stream_raw_images"], true);
    // The file server requests the packed image, which the cache replaces by the unpacked one.
    let url = info["urls"][0].as_str().unwrap();
    bench.handle(RackInput::FileRequested {
        certificate: None,
        ticket: 1,
        protocol: FileServerProtocol::Http,
        peer: Ipv4Addr::new(192, 0, 2, 77).into(),
        path: url.strip_prefix("http://10.0.0.1:8080").unwrap().to_owned(),
    });
    let granted = bench.outputs.iter().any(|output| {
        let RackOutput::File { grant, .. } = output else {
            return false;
        };
        let Some(FileGrant::Image(wanted)) = grant else {
            return false;
        };
        let is_disk = wanted.read.key.0 == RAW.digest;
        is_disk && wanted.spec.format == ImageFormat::Qcow2 && wanted.spec.digest.to_string() == sum
    });
    assert!(granted);
    // The next node finds it unpacked.
    start(&mut bench, id);
    let job = bench.node(id).job.unwrap();
    assert_eq!(job.phase, JobPhase::StartStep);
}

#[test]
fn a_packed_image_that_fails_fails_the_deployment_with_its_words() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, packed());
    start(&mut bench, id);
    let failed = ImageState::Failed("it has a backing file".into());
    let failed = news(&"0a".repeat(32), failed, None);
    // Another entry with these bytes failed, in another format.
    bench.image_is(failed.clone());
    assert!(bench.node(id).job.is_some());
    bench.image_is(ImageStatus {
        format: ImageFormat::Qcow2,
        ..failed
    });
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    let error = node.last_error.unwrap();
    assert!(error.contains("it has a backing file"), "{error}");
}

#[test]
fn a_digest_in_a_checksum_file_is_found_stored_and_sent() {
    let mut bench = RackBench::new();
    let info = json!({"image_source": "http://far/a.raw", "image_checksum": SUMS});
    let id = at_write(&mut bench, info);
    start(&mut bench, id);
    assert!(sent_image_info(&bench).is_none(), "it has to wait");
    let found = |result| {
        ImageWorkReport::ChecksumFound(Box::new(FileChecksum {
            url: SUMS.to_owned(),
            name: "a.raw".to_owned(),
            result,
        }))
    };
    bench.image_report(found(Ok(Digest::Sha256([5; 32]))));
    let (args, _) = sent_image_info(&bench).expect("the agent is called");
    let info = &args["image_info"];
    assert_eq!(info["os_hash_value"], "05".repeat(32));
    assert_eq!(info.get("checksum"), None);
    assert_eq!(bench.fills(), [Digest::Sha256([5; 32])]);
    // It is part of the record, whatever the checksum file contains later.
    let bench = bench.restarted();
    let info = &bench.write_args(id)["image_info"];
    assert_eq!(info["os_hash_value"], "05".repeat(32));
}

#[test]
fn a_checksum_file_that_does_not_help_fails_the_deployment() {
    let mut bench = RackBench::new();
    let info = json!({"image_source": "http://far/a.raw", "image_checksum": SUMS});
    let id = at_write(&mut bench, info);
    start(&mut bench, id);
    bench.image_report(ImageWorkReport::ChecksumFound(Box::new(FileChecksum {
        url: SUMS.to_owned(),
        name: "a.raw".to_owned(),
        result: Err("the checksum file has no SHA-256 for a.raw".into()),
    })));
    let error = bench.node(id).last_error.unwrap();
    assert!(error.contains("has no SHA-256 for a.raw"), "{error}");
}

/// The agent's reply to the pending call.
pub(super) fn agent_reports(bench: &mut RackBench, id: NodeId, call: u64, error: &str) {
    let body = json!({"id": "1", "command_name": "execute_deploy_step", "command_params": {},
                      "command_status": "FAILED", "command_result": null,
                      "command_error": {"type": "X", "code": 500, "message": "m",
                                        "details": error}});
    bench.handle(RackInput::AgentAnswered {
        node: id,
        call,
        result: Ok((200, body.to_string().into_bytes())),
    });
}

/// A complete image is verified at once.
pub(super) fn is_check(order: &ImageWorkOrder) -> bool {
    matches!(
        order,
        ImageWorkOrder::Scrub {
            is_paced: false,
            ..
        }
    )
}

const BLAME: &str = "Image failed to verify against checksum. location: /dev/vda";

#[test]
fn a_write_that_blames_the_image_is_done_again_after_a_check() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    bench.image_is(news(&"0a".repeat(32), ImageState::Complete, None));
    start(&mut bench, id);
    let (_, mut call) = sent_image_info(&bench).expect("the agent is called");
    for _ in 0..3 {
        agent_reports(&mut bench, id, call, BLAME);
        assert!(bench.image_orders().into_iter().any(is_check));
        assert!(last_note(&bench, id).contains("the cached image is verified"));
        // A corrupt image is fetched again first.
        let sum = "0a".repeat(32);
        bench.force(id, |node| {
            node.job.as_mut().unwrap().phase = JobPhase::AwaitStep;
        });
        bench.image_is(news(&sum, ImageState::Corrupt(1), None));
        assert!(sent_image_info(&bench).is_none());
        bench.image_is(news(&sum, ImageState::Complete, None));
        (_, call) = sent_image_info(&bench).expect("it is written again");
    }
    // The number of retries is limited.
    agent_reports(&mut bench, id, call, BLAME);
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    assert!(node.last_error.unwrap().contains(BLAME));
}

#[test]
fn an_image_that_the_agent_reads_itself_and_cannot_use_is_the_diagnosis() {
    for (message, sentence) in [
        (BLAME, "Image a.raw is not what the record of node-1 says."),
        (
            "Could not download image: 404 Not Found",
            "Image a.raw cannot be fetched.",
        ),
    ] {
        let mut settings = settings();
        settings.cache = false;
        let mut bench = RackBench::with(settings);
        let id = at_write(&mut bench, plain());
        start(&mut bench, id);
        let (_, call) = sent_image_info(&bench).expect("the agent is called");
        agent_reports(&mut bench, id, call, message);
        assert_eq!(bench.node(id).provision_state, ProvisionState::DeployFail);
        let view = bench.rack.view();
        let found = view.nodes[&id].live.diagnosis.clone().expect("a diagnosis");
        assert_eq!(found.rule, "image-unusable");
        assert_eq!(found.sentence, sentence);
        let cause = &found.cause;
        assert!(
            cause.contains("http://far/a.raw") && cause.contains(message),
            "{cause}"
        );
    }
}

#[test]
fn a_write_that_failed_for_another_reason_has_failed() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    start(&mut bench, id);
    let (_, call) = sent_image_info(&bench).unwrap();
    agent_reports(
        &mut bench,
        id,
        call,
        "Could not write image: the disk is too small",
    );
    assert_eq!(bench.node(id).provision_state, ProvisionState::DeployFail);
}

#[test]
fn a_write_whose_image_is_gone_fails_with_both_reasons() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    start(&mut bench, id);
    let (_, call) = sent_image_info(&bench).unwrap();
    agent_reports(&mut bench, id, call, BLAME);
    bench.force(id, |node| {
        node.job.as_mut().unwrap().phase = JobPhase::AwaitStep;
    });
    let failed = ImageState::Failed("the source is away".into());
    bench.image_is(news(&"0a".repeat(32), failed, None));
    let error = bench.node(id).last_error.unwrap();
    assert!(error.contains(BLAME) && error.contains("the source is away"));
}

/// Requests a deployment with this config drive.
fn deploys_with(drive: Value) -> (RackBench, NodeId, Result<OrderOutcome, OrderRefusal>) {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let Value::Object(info) = plain() else {
        unreachable!()
    };
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.instance_info.extend(info);
    });
    let args = VerbArgs {
        configdrive: Some(drive),
        ..VerbArgs::default()
    };
    let done = bench.order(RackOrder::Provision {
        node: id,
        verb: Verb::Active,
        args,
        based_on: None,
    });
    (bench, id, done)
}

#[test]
fn a_config_drive_given_as_an_object_is_made_of_it_and_of_the_nodes_facts() {
    let (bench, id, done) = deploys_with(json!({"user_data": "#!/bin/sh"}));
    done.unwrap();
    let node = bench.node(id);
    let Value::Object(facts) =
        json!({"uuid": id.to_string(), "name": node.name, "hostname": node.name})
    else {
        unreachable!()
    };
    let Value::Object(parts) = json!({"user_data": "#!/bin/sh"}) else {
        unreachable!()
    };
    let want = trivet_configdrive::encoded_drive(&parts, &facts).unwrap();
    assert_eq!(node.instance_info["configdrive"], want);
}

#[test]
fn a_config_drive_that_cannot_be_made_changes_nothing() {
    let (bench, id, done) = deploys_with(json!({"user_data": 7}));
    let text = done.unwrap_err().to_string();
    assert!(text.contains("user_data must be text"), "{text}");
    assert_eq!(bench.node(id).provision_state, ProvisionState::Available);
    assert_eq!(bench.node(id).instance_info.get("configdrive"), None);
}

#[test]
fn a_config_drive_is_fetched_at_an_address_of_this_deployment() {
    let mut bench = RackBench::new();
    let mut info = plain();
    info["configdrive"] = json!("H4sIdrive");
    let id = at_write(&mut bench, info);
    start(&mut bench, id);
    let (args, _) = sent_image_info(&bench).unwrap();
    let url = args["configdrive"].as_str().unwrap();
    let path = url.strip_prefix("http://10.0.0.1:8080").unwrap().to_owned();
    assert!(path.starts_with(&format!("/drives/{id}/")), "{path}");
    let granted = |bench: &mut RackBench, path: &str| {
        bench.handle(RackInput::FileRequested {
            certificate: None,
            ticket: 1,
            protocol: FileServerProtocol::Http,
            peer: Ipv4Addr::new(192, 0, 2, 77).into(),
            path: path.to_owned(),
        });
        let file = bench.outputs.iter().find_map(|output| match output {
            RackOutput::File { grant, .. } => Some(grant.clone()),
            _ => None,
        });
        file.unwrap()
    };
    let drive = granted(&mut bench, &path);
    assert_eq!(drive, Some(FileGrant::Bytes(b"H4sIdrive".to_vec())));
    let guess = format!("/drives/{id}/{}", "0".repeat(32));
    assert_eq!(granted(&mut bench, &guess), None);
    bench.force(id, |node| node.job = None);
    assert_eq!(granted(&mut bench, &path), None, "it has expired");
}

pub(super) fn stored_image(
    bench: &mut RackBench,
    number: u64,
    name: &str,
    source: &str,
) -> trivet_model::ResourceId {
    let id = trivet_model::ResourceId::random(&mut SeededRandom::new(number));
    let kind = trivet_model::ResourceKind::Image;
    let mut resource = trivet_model::Resource::new(id, kind, UnixMs(1));
    resource.name = Some(name.to_owned());
    let (sources, sum) = (json!([source]), json!("0a".repeat(32)));
    resource.fields.insert("sources".into(), sources);
    resource.fields.insert("checksum".into(), sum);
    bench
        .order(RackOrder::CreateResource(Box::new(resource)))
        .unwrap();
    id
}

#[test]
fn an_image_that_is_being_written_is_not_removed() {
    let mut bench = RackBench::new();
    let image = stored_image(&mut bench, 9, "far", "http://far/a.raw");
    let id = at_write(&mut bench, json!({"image_source": "far"}));
    let kind = trivet_model::ResourceKind::Image;
    let remove = || RackOrder::DeleteResource(kind, image);
    let message = bench.refused(remove(), RefusalKind::Conflict);
    assert!(message.contains("node-1"), "{message}");
    bench.force(id, |node| node.job = None);
    bench.order(remove()).unwrap();
}

#[test]
fn one_image_under_two_names_has_the_sources_and_the_faults_of_both() {
    let mut bench = RackBench::new();
    stored_image(&mut bench, 8, "one", "http://dead/a.raw");
    let two = stored_image(&mut bench, 9, "two", "http://far/a.raw");
    bench.order(RackOrder::FetchImage(two)).unwrap();
    let nothing = ImageFillResult::Checked(StoredImageCheck::Partial { chunks: 0 });
    let away = || ImageFillResult::Responded(Err("is away".to_owned()));
    let mut requests = Vec::new();
    for result in [nothing, ImageFillResult::Done, away(), away()] {
        let order = bench
            .image_orders()
            .into_iter()
            .find_map(|order| match order {
                ImageWorkOrder::File { entry, order } => Some((*entry, order.clone())),
                _ => None,
            });
        let (entry, order) = order.expect("the fill goes on");
        if let ImageFileOrder::Request(request) = order {
            requests.push(request.url);
        }
        let result = Ok(result);
        bench.image_report(ImageWorkReport::File { entry, result });
        if bench.image_orders().is_empty() {
            bench.handle(RackInput::Tick);
        }
    }
    assert_eq!(requests, ["http://far/a.raw", "http://dead/a.raw"]);
    let news = |name: &str, state| ImageStatus {
        name: name.to_owned(),
        ..news(&"0a".repeat(32), state, None)
    };
    bench.image_is(news("one", ImageState::Failed("it is away".into())));
    assert_eq!(bench.rack.view().faults.len(), 1);
    bench.image_is(news("two", ImageState::Complete));
    assert!(bench.rack.view().faults.is_empty());
}

#[test]
fn an_image_of_the_catalogue_may_have_its_digest_in_a_checksum_file() {
    let mut bench = RackBench::new();
    let id = trivet_model::ResourceId::random(&mut SeededRandom::new(9));
    let kind = trivet_model::ResourceKind::Image;
    let mut resource = trivet_model::Resource::new(id, kind, UnixMs(1));
    resource.name = Some("far".into());
    let sources = json!(["http://far/a.raw"]);
    resource.fields.insert("sources".into(), sources);
    resource.fields.insert("checksum".into(), json!(SUMS));
    bench
        .order(RackOrder::CreateResource(Box::new(resource)))
        .unwrap();
    let wanted = |bench: &RackBench| {
        let is_it = |order: &ImageWorkOrder| match order {
            ImageWorkOrder::FindChecksum { name, .. } => name == "a.raw",
            _ => false,
        };
        bench.image_orders().into_iter().any(is_it)
    };
    assert!(wanted(&bench));
    bench.order(RackOrder::FetchImage(id)).unwrap();
    assert!(!wanted(&bench), "once is enough");
    let found = |result| {
        ImageWorkReport::ChecksumFound(Box::new(FileChecksum {
            url: SUMS.to_owned(),
            name: "a.raw".to_owned(),
            result,
        }))
    };
    bench.image_report(found(
        Err("https://images.example cannot be reached".into()),
    ));
    let view = bench.rack.view();
    let fault = view.faults.keys().next().unwrap().to_string();
    assert!(fault.contains("image far has no digest"), "{fault}");
    bench.order(RackOrder::FetchImage(id)).unwrap();
    assert!(wanted(&bench), "asking again tries again");
    bench.image_report(found(Ok(Digest::Sha256([5; 32]))));
    let view = bench.rack.view();
    assert!(view.faults.is_empty());
    let stored = view.resource(kind, "far").unwrap();
    assert_eq!(stored.text("checksum"), Some("05".repeat(32).as_str()));
    assert_eq!(stored.text("checksum_url"), Some(SUMS));
    assert_eq!(bench.fills(), [Digest::Sha256([5; 32])]);
}

/// A short step ends, and its heartbeat arrives, before the reply that reports its start.
#[test]
fn a_heartbeat_before_the_reply_of_its_step_reads_the_command_list() {
    for with_heartbeat in [true, false] {
        let mut bench = RackBench::new();
        let id = at_write(&mut bench, plain());
        start(&mut bench, id);
        let (_, call) = sent_image_info(&bench).unwrap();
        if with_heartbeat {
            let node = bench.node(id);
            let session = node.agent.unwrap();
            let heartbeat = AgentHeartbeat {
                callback_url: session.url.unwrap(),
                ..heartbeat_with(&session.token)
            };
            assert_eq!(
                bench.order(RackOrder::Heartbeat {
                    node: id,
                    heartbeat
                }),
                Ok(OrderOutcome::Stored)
            );
        }
        bench.outputs.clear();
        let body = json!({
            "id": "1", "command_name": "execute_deploy_step", "command_params": {},
            "command_status": "RUNNING", "command_error": null, "command_result": null,
        });
        bench.handle(RackInput::AgentAnswered {
            node: id,
            call,
            result: Ok((200, body.to_string().into_bytes())),
        });
        let looks = |output: &RackOutput| match output {
            RackOutput::CallAgent { request, .. } => request.body.is_none(),
            _ => false,
        };
        assert_eq!(bench.outputs.iter().any(looks), with_heartbeat);
    }
}
