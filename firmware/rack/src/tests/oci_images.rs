//! Images in registries: lookups, what is stored of them, and secrets.

use super::image_deployment::{at_write, news, sent_image_info, start};
use super::*;
use trivet_images::OciResolution;
use trivet_model::image::{ImageFormat, ImageState, UnpackedImage};
use trivet_model::oci::oci_digest;
use trivet_model::{Resource, ResourceId, ResourceKind};
use trivet_oci::{OciError, OciImage, OciQuery};

const REFERENCE: &str = "oci://h:5000/team/disk:12";

const MANIFEST: Digest = Digest::Sha256([0xcc; 32]);

const LAYER: Digest = Digest::Sha256([0x0a; 32]);

fn registry(more: &Value) -> Value {
    let mut info = json!({"image_source": REFERENCE});
    for (key, value) in more.as_object().unwrap() {
        info[key] = value.clone();
    }
    info
}

fn image(format: ImageFormat) -> OciImage {
    OciImage {
        manifest: MANIFEST,
        layer: LAYER,
        size: 100,
        format,
        media_type: "application/octet-stream".into(),
        title: Some("disk".into()),
    }
}

/// The lookups that were ordered so far.
fn lookups(bench: &RackBench) -> Vec<OciQuery> {
    let orders = bench.image_work.iter().filter_map(|order| match order {
        ImageWorkOrder::ResolveOci(query) => Some((**query).clone()),
        _ => None,
    });
    orders.collect()
}

fn answer(bench: &mut RackBench, query: &OciQuery, result: Result<OciImage, OciError>) {
    let query = query.clone();
    let found = Box::new(OciResolution { query, result });
    bench.image_report(ImageWorkReport::OciResolved(found));
}

fn no_tag() -> OciError {
    OciError::NotFound {
        registry: "h:5000".into(),
        repository: "team/disk".into(),
        object: "tag 12".into(),
    }
}

#[test]
fn a_write_waits_until_the_registry_has_answered() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, registry(&json!({})));
    start(&mut bench, id);
    assert!(sent_image_info(&bench).is_none(), "it has to wait");
    let requested = lookups(&bench);
    assert_eq!(
        requested.len(),
        1,
        "the lookup of the deployment is under way"
    );
    assert_eq!(requested[0].reference.to_string(), REFERENCE);
    assert_eq!(
        (&requested[0].format, &requested[0].credentials),
        (&None, &None)
    );
    answer(&mut bench, &requested[0], Ok(image(ImageFormat::Raw)));
    let (args, _) = sent_image_info(&bench).expect("the agent is called");
    let info = &args["image_info"];
    assert_eq!(info["os_hash_algo"], "sha256");
    assert_eq!(info["os_hash_value"], LAYER.to_string());
    assert_eq!(info["disk_format"], "raw");
    assert_eq!(info.get("checksum"), None);
    assert_eq!(bench.fills(), [LAYER]);
    // It is part of the record, whatever the tag means later.
    let bench = bench.restarted();
    let node = bench.node(id);
    let info = &bench.write_args(id)["image_info"];
    assert_eq!(info["os_hash_value"], LAYER.to_string());
    let reported = |key: &str| node.instance_info[key].as_str().unwrap().to_owned();
    let manifest = oci_digest(&MANIFEST);
    assert_eq!(reported("image_container_manifest_digest"), manifest);
    let url = format!("oci://h:5000/team/disk@{manifest}");
    assert_eq!(reported("oci_image_manifest_url"), url);
    assert_eq!(reported("image_media_type"), "application/octet-stream");
    assert_eq!(reported("image_source"), REFERENCE);
}

#[test]
fn a_packed_layer_is_written_when_it_is_unpacked() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, registry(&json!({})));
    start(&mut bench, id);
    let requested = lookups(&bench);
    answer(&mut bench, &requested[0], Ok(image(ImageFormat::Qcow2)));
    assert!(sent_image_info(&bench).is_none());
    let raw = UnpackedImage {
        digest: Digest::Sha256([0xee; 32]),
        size: 1 << 20,
    };
    bench.image_is(news(&LAYER.to_string(), ImageState::Complete, Some(raw)));
    let (args, _) = sent_image_info(&bench).expect("the agent is called");
    assert_eq!(args["image_info"]["os_hash_value"], raw.digest.to_string());
    assert_eq!(args["image_info"]["disk_format"], "raw");
}

#[test]
fn what_cannot_become_right_by_itself_ends_the_deployment_at_once() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        let info = registry(&json!({}));
        node.instance_info.extend(info.as_object().unwrap().clone());
    });
    bench.verb(id, Verb::Active).unwrap();
    let requested = lookups(&bench);
    answer(&mut bench, &requested[0], Err(no_tag()));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    let error = node.last_error.unwrap();
    assert!(
        error.contains("registry h:5000 has no tag 12 in repository team/disk"),
        "{error}"
    );
}

#[test]
fn an_unreachable_registry_is_asked_again_by_the_write() {
    let mut bench = RackBench::new();
    let id = at_write(&mut bench, registry(&json!({})));
    let requested = lookups(&bench);
    let unreachable = || OciError::Unreachable {
        registry: "h:5000".into(),
        why: "does not answer".into(),
    };
    answer(&mut bench, &requested[0], Err(unreachable()));
    assert!(bench.node(id).job.is_some(), "the machine still boots");
    start(&mut bench, id);
    assert_eq!(lookups(&bench).len(), 2);
    answer(&mut bench, &requested[0], Err(unreachable()));
    let error = bench.node(id).last_error.unwrap();
    assert!(error.contains("registry h:5000 does not answer"), "{error}");
}

#[test]
fn nodes_with_the_same_question_share_a_lookup_and_others_do_not() {
    let mut bench = RackBench::new();
    let mut deploy = |number: u8, more: Value, architecture: &str| {
        let id = bench.with_node(number);
        bench.force(id, |node| {
            node.provision_state = ProvisionState::Available;
            let info = registry(&more);
            node.instance_info.extend(info.as_object().unwrap().clone());
            let architecture = architecture.into();
            node.properties.insert("cpu_arch".into(), architecture);
        });
        bench.verb(id, Verb::Active).unwrap();
        id
    };
    let one = deploy(1, json!({}), "x86_64");
    let two = deploy(2, json!({}), "x86_64");
    let arm = deploy(3, json!({}), "aarch64");
    let secret = deploy(4, json!({"image_pull_secret": "ann:hunter2"}), "x86_64");
    let requested = lookups(&bench);
    assert_eq!(requested.len(), 3);
    assert!(!format!("{requested:?}").contains("hunter2"));
    answer(&mut bench, &requested[0], Err(no_tag()));
    let state = |bench: &RackBench, id| bench.node(id).provision_state;
    for id in [one, two] {
        assert_eq!(state(&bench, id), ProvisionState::DeployFail);
    }
    for id in [arm, secret] {
        assert_ne!(state(&bench, id), ProvisionState::DeployFail);
    }
    assert_eq!(requested[1].architecture.as_deref(), Some("aarch64"));
    let credentials = requested[2].credentials.as_ref().unwrap();
    assert_eq!(
        (&*credentials.user, credentials.password.reveal()),
        ("ann", "hunter2")
    );
}

#[test]
fn the_secret_of_a_node_is_told_again_after_a_restart() {
    let mut bench = RackBench::new();
    let info = registry(&json!({"image_pull_secret": "ann:hunter2"}));
    let id = at_write(&mut bench, info);
    let requested = lookups(&bench);
    answer(&mut bench, &requested[0], Ok(image(ImageFormat::Qcow2)));
    bench.image_work.clear();
    let mut bench = bench.restarted();
    let is_reported =
        |order: &ImageWorkOrder| matches!(order, ImageWorkOrder::UsePullSecret { .. });
    assert!(
        bench.image_work.iter().any(is_reported),
        "for fills that go on"
    );
    bench.image_work.clear();
    start(&mut bench, id);
    let place = |wanted: &dyn Fn(&ImageWorkOrder) -> bool| bench.image_work.iter().position(wanted);
    let reported = place(&|order| {
        matches!(order, ImageWorkOrder::UsePullSecret { credentials, .. }
            if credentials.password.reveal() == "hunter2")
    });
    let opened =
        place(&|order| matches!(order, ImageWorkOrder::Open { key, .. } if key.0 == LAYER));
    assert!(
        reported.is_some() && reported < opened,
        "{:?}",
        bench.image_work
    );
}

#[test]
fn an_image_of_the_catalogue_can_be_in_a_registry() {
    let mut bench = RackBench::new();
    let id = ResourceId::random(&mut SeededRandom::new(9));
    let kind = ResourceKind::Image;
    let mut resource = Resource::new(id, kind, UnixMs(1));
    resource.name = Some("far".into());
    resource.fields.insert("sources".into(), json!([REFERENCE]));
    let create = RackOrder::CreateResource(Box::new(resource));
    bench.order(create).unwrap();
    let requested = lookups(&bench);
    assert_eq!(requested.len(), 1);
    // A node that wants it waits as well, and its own secret is not used for it.
    let info = json!({"image_source": "far", "image_pull_secret": "ann:hunter2"});
    let node = at_write(&mut bench, info);
    start(&mut bench, node);
    let all = lookups(&bench);
    assert!(
        all.iter().all(|query| query.credentials.is_none()),
        "{all:?}"
    );
    answer(&mut bench, &requested[0], Err(no_tag()));
    let view = bench.rack.view();
    let fault = view.faults.keys().next().unwrap().to_string();
    assert!(
        fault.contains("image far is not known: registry h:5000"),
        "{fault}"
    );
    bench.order(RackOrder::FetchImage(id)).unwrap();
    answer(&mut bench, &requested[0], Ok(image(ImageFormat::Zstd)));
    let view = bench.rack.view();
    assert!(view.faults.is_empty());
    let stored = view.resource(kind, "far").unwrap();
    assert_eq!(stored.text("checksum"), Some(&*LAYER.to_string()));
    assert_eq!(stored.text("manifest"), Some(&*oci_digest(&MANIFEST)));
    assert_eq!(stored.text("format"), Some("zstd"));
    assert_eq!(bench.fills(), [LAYER]);
}

#[test]
fn the_number_of_lookups_is_bounded() {
    let mut bench = RackBench::new();
    let now = bench.now;
    for number in 0..2000 {
        let query = OciQuery {
            reference: format!("oci://h:5000/team/{number}").parse().unwrap(),
            architecture: None,
            format: None,
            credentials: None,
        };
        bench.rack.resolve_oci(now, query);
    }
    bench.handle(RackInput::Tick);
    assert_eq!(lookups(&bench).len(), 1024);
    let id = at_write(&mut bench, registry(&json!({})));
    start(&mut bench, id);
    let error = bench.node(id).last_error.unwrap();
    assert!(error.contains("1024 lookups are under way"), "{error}");
}

#[test]
fn a_wrong_reference_is_refused_before_the_node_is_changed() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        let source = "oci://ann:hunter2@h/disk";
        node.instance_info
            .insert("image_source".into(), source.into());
    });
    let why = bench.verb(id, Verb::Active).unwrap_err().sentence;
    assert!(why.contains("has a user in it"), "{why}");
    assert_eq!(bench.node(id).provision_state, ProvisionState::Available);
}
