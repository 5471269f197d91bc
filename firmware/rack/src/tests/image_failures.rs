//! Images that cannot be used: when a job ends, and with which reason.

use super::image_deployment::{
    agent_reports, at_write, is_check, news, plain, sent_image_info, start,
};
use super::power::notes_of;
use super::*;
use trivet_model::image::ImageState;
use trivet_model::{JobPhase, PowerState};

const WRONG: &str = "image a.raw from http://far/a.raw is not what it should be";

fn digest() -> String {
    "0a".repeat(32)
}

#[test]
fn a_wrong_digest_fails_the_job_while_the_machine_still_boots() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    bench.force(id, |node| {
        node.job.as_mut().unwrap().phase = JobPhase::AwaitAgent;
        node.agent = None;
    });
    bench.image_is(news(&digest(), ImageState::Wrong(WRONG.into()), None));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    assert_eq!(node.last_error.as_deref(), Some(WRONG));
}

#[test]
fn the_reason_of_a_wrong_image_shows_no_credentials_of_its_source() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    let why = "image a.raw from https://ann:s3cret@far/a.raw is not what it should be";
    bench.image_is(news(&digest(), ImageState::Wrong(why.into()), None));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    let error = node.last_error.unwrap();
    assert!(
        error.contains("far/a.raw") && !error.contains("s3cret"),
        "{error}"
    );
}

#[test]
fn a_wrong_image_does_not_fail_a_job_that_has_written_it() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    bench.force(id, |node| node.job.as_mut().unwrap().at = 1);
    bench.image_is(news(&digest(), ImageState::Wrong(WRONG.into()), None));
    assert!(bench.node(id).job.is_some());
}

#[test]
fn a_write_does_not_start_from_an_image_that_failed() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    let failed = ImageState::Failed("the source is away".into());
    bench.image_is(news(&digest(), failed.clone(), None));
    assert!(bench.node(id).job.is_some(), "the source may come back");
    start(&mut bench, id);
    assert!(
        sent_image_info(&bench).is_none(),
        "no write from an image that failed"
    );
    assert_eq!(bench.fills().len(), 1, "it is fetched once more");
    bench.image_is(news(&digest(), ImageState::Fetching, None));
    assert!(sent_image_info(&bench).is_none(), "it may fail again");
    bench.image_is(news(&digest(), ImageState::Complete, None));
    assert!(sent_image_info(&bench).is_some(), "it is here now");
}

#[test]
fn a_second_failure_of_the_image_ends_the_job_with_the_reason_of_the_image() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    let failed = ImageState::Failed("the source is away".into());
    bench.image_is(news(&digest(), failed.clone(), None));
    start(&mut bench, id);
    bench.image_is(news(&digest(), failed, None));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    assert_eq!(node.last_error.as_deref(), Some("the source is away"));
}

#[test]
fn the_nodes_error_has_the_images_reason_and_not_the_status_that_the_agent_received() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    start(&mut bench, id);
    let (_, call) = sent_image_info(&bench).unwrap();
    let message = "Error downloading image: 503 Service Unavailable";
    agent_reports(&mut bench, id, call, message);
    bench.force(id, |node| {
        node.job.as_mut().unwrap().phase = JobPhase::AwaitStep;
    });
    let failed = ImageState::Failed("image a.raw cannot be fetched".into());
    bench.image_is(news(&digest(), failed, None));
    let error = bench.node(id).last_error;
    assert_eq!(error.as_deref(), Some("image a.raw cannot be fetched"));
}

#[test]
fn no_space_left_on_the_device_is_not_blamed_on_the_image() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    start(&mut bench, id);
    let (_, call) = sent_image_info(&bench).unwrap();
    bench.outputs.clear();
    let message = "Error downloading image: Download of image id a.raw failed: [Errno 28] No space \
                left on device";
    agent_reports(&mut bench, id, call, message);
    assert!(
        !bench.image_orders().into_iter().any(is_check),
        "the image is not read again"
    );
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    let error = node.last_error.unwrap();
    assert!(
        error.contains("does not fit") && error.contains("root_device"),
        "{error}"
    );
}

const DISK_BYTES: u64 = 10 << 30;

fn inspected() -> Value {
    json!({"inventory": {"disks": [{"name": "/dev/sda", "size": DISK_BYTES},
                                   {"name": "/dev/sdb", "size": 4 * DISK_BYTES}]},
           "plugin_data": {"root_disk": {"name": "/dev/sda", "size": DISK_BYTES}}})
}

fn sized(bytes: u64) -> ImageStatus {
    ImageStatus {
        size: Some(bytes),
        ..news(&digest(), ImageState::Complete, None)
    }
}

#[test]
fn an_image_larger_than_the_inspected_disk_is_not_written() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    bench.force(id, |node| node.inventory = Some(inspected()));
    bench.image_is(sized(DISK_BYTES + 1));
    start(&mut bench, id);
    assert!(sent_image_info(&bench).is_none());
    let error = bench.node(id).last_error.unwrap();
    assert!(
        error.contains("/dev/sda") && error.contains("root_device"),
        "{error}"
    );
}

#[test]
fn a_deployment_with_an_image_that_is_known_to_be_too_large_is_refused() {
    let mut bench = RackBench::new();
    bench.image_is(sized(DISK_BYTES + 1));
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.inventory = Some(inspected());
        let Value::Object(info) = plain() else {
            unreachable!()
        };
        node.instance_info.extend(info);
    });
    let refused = bench.verb(id, Verb::Active).unwrap_err();
    assert!(refused.sentence.contains("/dev/sda"), "{refused:?}");
    // Hints may name the larger disk: the agent decides.
    bench.force(id, |node| {
        let hints = json!({"name": "/dev/sdb"});
        node.properties.insert("root_device".into(), hints);
    });
    bench.verb(id, Verb::Active).unwrap();
}

#[test]
fn an_image_that_fits_is_written() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    bench.force(id, |node| node.inventory = Some(inspected()));
    bench.image_is(sized(DISK_BYTES));
    start(&mut bench, id);
    assert!(sent_image_info(&bench).is_some());
}

/// A node with a running instance, whose image is the one of `info`.
fn running(bench: &mut RackBench, state: ProvisionState, info: Value) -> NodeId {
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = state;
        let Value::Object(info) = info else {
            unreachable!()
        };
        node.instance_info.extend(info);
    });
    id
}

fn fills(bench: &RackBench) -> usize {
    bench.fills().len()
}

/// Checks that the verb is refused with the error of the image, and that the node is not
/// changed.
#[track_caller]
fn refuses(bench: &mut RackBench, id: NodeId, verb: Verb) -> String {
    let before = bench.node(id);
    let refused = bench.verb(id, verb).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    assert!(refused.sentence.contains(WRONG), "{refused:?}");
    assert_eq!(bench.node(id), before);
    refused.sentence
}

#[test]
fn a_deployment_with_an_image_that_is_known_to_be_wrong_is_refused() {
    for (state, verb) in [
        (ProvisionState::Active, Verb::Rebuild),
        (ProvisionState::Available, Verb::Active),
    ] {
        let mut bench = RackBench::new();
        let id = running(&mut bench, state, plain());
        bench.image_is(news(&digest(), ImageState::Wrong(WRONG.into()), None));
        let sentence = refuses(&mut bench, id, verb);
        assert!(sentence.contains("fetched again now"), "{sentence}");
        let orders = |output: &RackOutput| matches!(output, RackOutput::Bmc(_));
        assert!(!bench.outputs.iter().any(orders), "the machine runs on");
        assert_eq!(fills(&bench), 1, "the source may have been corrected");
        // A wrong image is not used again before all of it is fetched.
        bench.image_is(news(&digest(), ImageState::Fetching, None));
        let sentence = refuses(&mut bench, id, verb);
        assert!(sentence.contains("being fetched again"), "{sentence}");
        assert_eq!(fills(&bench), 0);
        bench.image_is(news(&digest(), ImageState::Complete, None));
        bench.verb(id, verb).unwrap();
    }
}

#[test]
fn a_wrong_image_of_the_catalogue_is_refused_with_the_command_that_fetches_it() {
    let mut bench = RackBench::new();
    let image = trivet_model::ResourceId::random(&mut SeededRandom::new(1));
    let kind = trivet_model::ResourceKind::Image;
    let mut resource = trivet_model::Resource::new(image, kind, UnixMs(1));
    resource.name = Some("web".to_owned());
    let fields = [
        ("checksum", json!(digest())),
        ("format", json!("raw")),
        ("sources", json!(["http://far/a.raw"])),
    ];
    for (field, value) in fields {
        resource.fields.insert(field.to_owned(), value);
    }
    bench
        .order(RackOrder::CreateResource(Box::new(resource)))
        .unwrap();
    let info = json!({"image_source": "web"});
    let id = running(&mut bench, ProvisionState::Active, info);
    bench.image_is(news(&digest(), ImageState::Wrong(WRONG.into()), None));
    let sentence = refuses(&mut bench, id, Verb::Rebuild);
    assert!(sentence.contains("`trivet image fill web`"), "{sentence}");
    assert_eq!(fills(&bench), 0);
    let checked = bench.order(RackOrder::CheckDeploy(id)).unwrap();
    let text = format!("{checked:?}");
    assert!(text.contains(WRONG), "validation reports it, too: {text}");
    bench.order(RackOrder::DeleteResource(kind, image)).unwrap();
    let refused = bench.verb(id, Verb::Rebuild).unwrap_err();
    assert!(!refused.sentence.contains(WRONG), "{refused:?}");
}

#[test]
fn an_image_that_is_wrong_in_one_format_is_deployed_in_another() {
    let mut bench = RackBench::new();
    let info = json!({"image_source": "http://far/a.qcow2", "image_checksum": digest()});
    let id = running(&mut bench, ProvisionState::Active, info);
    bench.image_is(news(&digest(), ImageState::Wrong(WRONG.into()), None));
    bench.verb(id, Verb::Rebuild).unwrap();
}

#[test]
fn the_newest_of_many_wrong_images_is_remembered() {
    let mut bench = RackBench::new();
    let id = running(&mut bench, ProvisionState::Active, plain());
    for number in 0..1100 {
        let other = format!("{number:064x}");
        bench.image_is(news(&other, ImageState::Wrong(WRONG.into()), None));
    }
    bench.image_is(news(&digest(), ImageState::Wrong(WRONG.into()), None));
    refuses(&mut bench, id, Verb::Rebuild);
}

#[test]
fn no_check_of_the_cache_is_noted_when_the_image_is_not_there() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, plain());
    start(&mut bench, id);
    let (_, call) = sent_image_info(&bench).unwrap();
    let message = "Error downloading image: 503 Service Unavailable";
    agent_reports(&mut bench, id, call, message);
    let checks = |note: &String| note.contains("the cached image is verified");
    assert!(!bench.notes().iter().any(checks), "{:?}", bench.notes());
}

/// An active node that is rebuilt with an image of another server.
fn rebuilding(bench: &mut RackBench) -> NodeId {
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Active;
        node.power_state = Some(PowerState::On);
        node.instance_info = plain().as_object().unwrap().clone();
    });
    bench.verb(id, Verb::Rebuild).unwrap();
    id
}

fn is_power_off_sent(bench: &RackBench, id: NodeId) -> bool {
    let notes = notes_of(bench, id);
    notes.iter().any(|note| note.contains("power off ordered"))
}

#[test]
fn a_rebuild_whose_source_is_unreachable_leaves_the_instance_running() {
    let mut bench = RackBench::new();
    let id = rebuilding(&mut bench);
    assert_eq!(bench.fills().len(), 1, "the image is fetched first");
    assert!(!is_power_off_sent(&bench, id));
    // A restart of the box does not change that.
    let mut bench = bench.restarted();
    bench.handle(RackInput::Tick);
    assert!(!is_power_off_sent(&bench, id));
    let failed = ImageState::Failed("the source is away".into());
    bench.image_is(news(&digest(), failed, None));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    assert_eq!(node.last_error.as_deref(), Some("the source is away"));
    assert_eq!(
        (node.power_state, node.target_power_state),
        (Some(PowerState::On), None)
    );
    assert!(!is_power_off_sent(&bench, id));
}

#[test]
fn a_rebuild_stops_the_instance_when_its_image_comes() {
    for state in [ImageState::Fetching, ImageState::Complete] {
        let mut bench = RackBench::new();
        let id = rebuilding(&mut bench);
        bench.image_is(news(&digest(), state.clone(), None));
        assert!(is_power_off_sent(&bench, id), "{state:?}");
        assert!(!bench.node(id).job.unwrap().awaits_source);
    }
}
