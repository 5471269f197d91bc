//! Images from other servers are served from the cache.

use super::*;
use std::net::IpAddr;
use trivet_model::BoxFault;
use trivet_model::image::{ImageFormat, ImageState};

use crate::{FileGrant, FileServerProtocol};

const SOURCE: &str = "https://images.example/debian.raw?x=1";

fn deploying(bench: &mut RackBench, source: &str) -> NodeId {
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        let info = &mut node.instance_info;
        info.insert("image_source".into(), json!(source));
        info.insert("image_checksum".into(), json!("0a".repeat(32)));
    });
    bench.verb(id, Verb::Active).unwrap();
    id
}

fn url(bench: &RackBench, id: NodeId) -> String {
    let args = bench.write_args(id);
    args["image_info"]["urls"][0].as_str().unwrap().to_owned()
}

fn granted(bench: &mut RackBench, peer: Ipv4Addr, path: &str) -> Option<FileGrant> {
    bench.handle(RackInput::FileRequested {
        certificate: None,
        ticket: 1,
        protocol: FileServerProtocol::Http,
        peer: IpAddr::V4(peer),
        path: path.to_owned(),
    });
    let file = bench.outputs.iter().find_map(|output| match output {
        RackOutput::File { grant, .. } => Some(grant.clone()),
        _ => None,
    });
    file.unwrap()
}

const UNKNOWN_PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

#[test]
fn a_node_fetches_its_image_through_the_cache_at_its_own_address() {
    let mut bench = RackBench::new();
    let id = deploying(&mut bench, SOURCE);
    let url = url(&bench, id);
    let path = url.strip_prefix("http://10.0.0.1:8080").unwrap().to_owned();
    assert!(path.starts_with(&format!("/nodes/{id}/")) && path.ends_with("/debian.raw"));
    let Some(FileGrant::Image(wanted)) = granted(&mut bench, UNKNOWN_PEER, &path) else {
        panic!("an image is granted");
    };
    assert_eq!(wanted.spec.sources, [SOURCE]);
    assert_eq!(wanted.spec.digest.to_string(), "0a".repeat(32));
    assert_eq!(wanted.spec.name, "debian.raw");
    // The record still has the operator's value.
    assert_eq!(bench.node(id).instance_info["image_source"], SOURCE);
    // Tokens survive a restart.
    let mut bench = bench.restarted();
    assert!(granted(&mut bench, UNKNOWN_PEER, &path).is_some());
}

#[test]
fn no_other_path_no_other_node_and_no_later_time_is_granted() {
    let mut bench = RackBench::new();
    let id = deploying(&mut bench, SOURCE);
    let url = url(&bench, id);
    let path = url.strip_prefix("http://10.0.0.1:8080").unwrap().to_owned();
    let guess = format!("/nodes/{id}/{}/debian.raw", "0".repeat(32));
    assert_eq!(granted(&mut bench, UNKNOWN_PEER, &guess), None);
    let longer = format!("{path}x");
    assert_eq!(granted(&mut bench, UNKNOWN_PEER, &longer), None);
    bench.force(id, |node| {
        node.job = None;
        node.provision_state = ProvisionState::Active;
    });
    assert_eq!(granted(&mut bench, UNKNOWN_PEER, &path), None);
}

#[test]
fn an_image_of_the_box_does_not_use_the_cache() {
    let deploy = |source: &str| {
        let mut bench = RackBench::new();
        let id = bench.with_node(1);
        bench.force(id, |node| {
            node.provision_state = ProvisionState::Available;
            let info = &mut node.instance_info;
            info.insert("image_source".into(), json!(source));
            info.insert("image_disk_format".into(), json!("raw"));
            info.insert("image_checksum".into(), json!("0a".repeat(32)));
        });
        bench.verb(id, Verb::Active).map(|_| url(&bench, id))
    };
    let here = "http://10.0.0.1:8080/files/x.raw";
    assert_eq!(deploy(here).unwrap(), here);
    for elsewhere in ["file:///etc/shadow", "nonesuch.raw"] {
        let message = deploy(elsewhere).unwrap_err().sentence;
        assert!(message.contains("image_source"), "{message}");
    }
}

fn news(state: ImageState) -> ImageStatus {
    let digest: Digest = "0a".repeat(32).parse().unwrap();
    ImageStatus {
        key: format!("sha256-{digest}"),
        name: "debian.raw".into(),
        digest,
        format: trivet_images::ImageFormat::Raw,
        size: Some(100),
        present_bytes: 40,
        state,
        raw: None,
    }
}

#[test]
fn the_state_of_an_image_is_on_the_timeline_of_the_waiting_node() {
    let mut bench = RackBench::new();
    let id = deploying(&mut bench, SOURCE);
    bench.image_is(news(ImageState::Fetching));
    bench.image_is(news(ImageState::Fetching));
    let message = bench.notes();
    assert!(message.is_empty(), "progress is not noted: {message:?}");
    bench.image_is(news(ImageState::Failed("it is wrong".into())));
    assert!(bench.notes().iter().any(|note| note == "it is wrong"));
    let view = bench.rack.view();
    let timeline = &view.nodes.get(&id).unwrap().timeline;
    let last = timeline.last().unwrap().kind.to_string();
    assert_eq!(last, "it is wrong");
    assert_eq!(view.faults.len(), 1);
    let shown = view.images.values().next().unwrap();
    assert_eq!((shown.size, shown.present_bytes), (Some(100), 40));
    bench.image_is(news(ImageState::Complete));
    let view = bench.rack.view();
    assert!(view.faults.is_empty(), "it is here now");
    let timeline = &view.nodes.get(&id).unwrap().timeline;
    let last = timeline.last().unwrap().kind.to_string();
    assert!(last.contains("its digest is right"), "{last}");
}

#[test]
fn one_image_has_one_fault_however_often_it_fails() {
    let mut bench = RackBench::new();
    bench.image_is(news(ImageState::Failed("away".into())));
    bench.image_is(news(ImageState::Failed("wrong".into())));
    let view = bench.rack.view();
    let faults: Vec<String> = view.faults.keys().map(ToString::to_string).collect();
    assert_eq!(faults, ["wrong"]);
    bench.image_is(news(ImageState::Corrupt(2)));
    assert!(bench.notes()[0].contains("2 chunks"));
}

fn catalogued(bench: &mut RackBench, number: u64, name: &str) -> trivet_model::ResourceId {
    let id = trivet_model::ResourceId::random(&mut SeededRandom::new(number));
    let kind = trivet_model::ResourceKind::Image;
    let mut resource = trivet_model::Resource::new(id, kind, UnixMs(1));
    resource.name = Some(name.to_owned());
    let fields = &mut resource.fields;
    fields.insert(
        "sources".into(),
        json!(["http://far/one.raw", "http://near/two.raw"]),
    );
    fields.insert("checksum".into(), json!("0b".repeat(32)));
    bench
        .order(RackOrder::CreateResource(Box::new(resource)))
        .unwrap();
    id
}

#[test]
fn an_image_of_the_catalogue_is_served_deployed_filled_and_dropped() {
    let mut bench = RackBench::new();
    let id = catalogued(&mut bench, 1, "far.raw");
    let Some(FileGrant::Image(wanted)) = granted(&mut bench, UNKNOWN_PEER, "/images/far.raw")
    else {
        panic!("an image is granted");
    };
    assert_eq!(wanted.spec.sources.len(), 2);
    assert_eq!(wanted.spec.digest.to_string(), "0b".repeat(32));
    let node = bench.with_node(1);
    bench.force(node, |node| {
        node.provision_state = ProvisionState::Available;
        node.instance_info
            .insert("image_source".into(), json!("far.raw"));
    });
    bench.verb(node, Verb::Active).unwrap();
    let own = url(&bench, node);
    assert!(own.starts_with(&format!("http://10.0.0.1:8080/nodes/{node}/")));
    let path = own.strip_prefix("http://10.0.0.1:8080").unwrap();
    let Some(FileGrant::Image(wanted)) = granted(&mut bench, UNKNOWN_PEER, path) else {
        panic!("an image is granted");
    };
    assert_eq!(wanted.spec.sources.len(), 2);
    bench.force(node, |node| node.job = None);
    let digest = wanted.spec.digest;
    bench.image_is(ImageStatus {
        digest,
        key: trivet_images::ImageKey(digest).to_string(),
        ..news(ImageState::Failed("it is away".into()))
    });
    bench.order(RackOrder::FetchImage(id)).unwrap();
    assert_eq!(bench.fills(), [digest]);
    // Two names of the same bytes: the bytes stay until the second name is deleted.
    let kind = trivet_model::ResourceKind::Image;
    let other = catalogued(&mut bench, 2, "twin.raw");
    let dropped = |bench: &RackBench| {
        let mut orders = bench.image_orders().into_iter();
        orders.any(|order| matches!(order, ImageWorkOrder::DeleteFiles(_)))
    };
    bench.order(RackOrder::DeleteResource(kind, id)).unwrap();
    assert!(!dropped(&bench));
    bench.order(RackOrder::DeleteResource(kind, other)).unwrap();
    assert!(dropped(&bench));
    assert_eq!(granted(&mut bench, UNKNOWN_PEER, "/images/twin.raw"), None);
}

fn entry(bench: &mut RackBench, number: u64, name: &str, format: &str) {
    let id = trivet_model::ResourceId::random(&mut SeededRandom::new(number));
    let kind = trivet_model::ResourceKind::Image;
    let mut resource = trivet_model::Resource::new(id, kind, UnixMs(1));
    resource.name = Some(name.to_owned());
    let fields = &mut resource.fields;
    fields.insert("sources".into(), json!([format!("http://far/{name}")]));
    fields.insert("checksum".into(), json!("0a".repeat(32)));
    fields.insert("format".into(), json!(format));
    let order = RackOrder::CreateResource(Box::new(resource));
    bench.order(order).unwrap();
}

fn named(name: &str, format: ImageFormat, state: ImageState) -> ImageStatus {
    ImageStatus {
        name: name.to_owned(),
        format,
        ..news(state)
    }
}

/// The images that have a fault.
fn faulty(bench: &RackBench) -> Vec<String> {
    let view = bench.rack.view();
    let faults = view.faults.keys().filter_map(|fault| match fault {
        BoxFault::ImageFailed { image, .. } => Some(image.clone()),
        _ => None,
    });
    faults.collect()
}

#[test]
fn a_fault_belongs_to_one_catalogue_entry_and_not_to_others_with_its_digest() {
    let mut bench = RackBench::new();
    entry(&mut bench, 1, "one", "qcow2");
    entry(&mut bench, 2, "two", "raw");
    let wrong = ImageState::Wrong("image one is not qcow2".into());
    let wrong = named("one", ImageFormat::Qcow2, wrong);
    bench.image_is(wrong);
    assert_eq!(faulty(&bench), ["one"]);
    let whole = named("two", ImageFormat::Raw, ImageState::Complete);
    bench.image_is(whole);
    assert_eq!(faulty(&bench), ["one"], "its format is still wrong");
    let whole = named("one", ImageFormat::Qcow2, ImageState::Complete);
    bench.image_is(whole);
    assert!(faulty(&bench).is_empty());
}

#[test]
fn another_image_with_the_same_file_name_does_not_clear_a_fault() {
    let mut bench = RackBench::new();
    entry(&mut bench, 1, "debian.raw", "raw");
    bench.image_is(news(ImageState::Failed("the source is away".into())));
    let mut other = named("debian.raw", ImageFormat::Raw, ImageState::Complete);
    other.digest = Digest::Sha256([0xcc; 32]);
    other.key = trivet_images::ImageKey(other.digest).to_string();
    bench.image_is(other);
    assert_eq!(faulty(&bench), ["debian.raw"]);
}

#[test]
fn an_image_without_a_source_is_not_fetched_and_its_fault_goes_with_it() {
    let mut bench = RackBench::new();
    let id = trivet_model::ResourceId::random(&mut SeededRandom::new(1));
    let kind = trivet_model::ResourceKind::Image;
    let mut resource = trivet_model::Resource::new(id, kind, UnixMs(1));
    resource.name = Some("debian.raw".to_owned());
    let sum = json!("0a".repeat(32));
    resource.fields.insert("checksum".into(), sum);
    let order = RackOrder::CreateResource(Box::new(resource));
    bench.order(order).unwrap();
    let refused = bench.order(RackOrder::FetchImage(id)).unwrap_err();
    assert!(refused.sentence.contains("upload it"), "{refused:?}");
    bench.image_is(news(ImageState::Failed("it is wrong".into())));
    assert_eq!(bench.rack.view().faults.len(), 1);
    bench.image_is(news(ImageState::Complete));
    bench.order(RackOrder::FetchImage(id)).unwrap();
    bench.image_is(news(ImageState::Failed("it is corrupt".into())));
    bench.order(RackOrder::DeleteResource(kind, id)).unwrap();
    assert!(bench.rack.view().faults.is_empty());
}

#[test]
fn only_public_files_are_sources() {
    let mut bench = RackBench::new();
    bench.rack.settings.files.operator = Some("/srv/files".into());
    let mut outcome_of = |number: u64, url: &str| {
        let id = trivet_model::ResourceId::random(&mut SeededRandom::new(number));
        let kind = trivet_model::ResourceKind::Image;
        let mut resource = trivet_model::Resource::new(id, kind, UnixMs(1));
        resource.name = Some(format!("image-{number}"));
        resource.fields.insert("sources".into(), json!([url]));
        let sum = json!("0b".repeat(32));
        resource.fields.insert("checksum".into(), sum);
        let order = RackOrder::CreateResource(Box::new(resource));
        bench.order(order).err().map(|refusal| refusal.sentence)
    };
    assert_eq!(outcome_of(1, "file:///srv/files/one.raw"), None);
    for (number, url) in [
        (2, "file:///etc/shadow"),
        (3, "file:///srv/files/../../etc/shadow"),
        (4, "file:///srv/files-too/x"),
    ] {
        let message = outcome_of(number, url).expect("it is refused");
        assert!(message.contains("not below boot.files"), "{message}");
    }
}

#[test]
fn a_name_means_one_image() {
    let mut bench = RackBench::new();
    catalogued(&mut bench, 1, "far.raw");
    let kind = trivet_model::ResourceKind::Image;
    for (number, name, sum) in [
        (2, "far.raw", "0b".repeat(32)),
        (3, "disk.raw", "0b".repeat(32)),
        (4, "other.raw", "no digest".to_owned()),
    ] {
        let id = trivet_model::ResourceId::random(&mut SeededRandom::new(number));
        let mut resource = trivet_model::Resource::new(id, kind, UnixMs(1));
        resource.name = Some(name.to_owned());
        resource.fields.insert("checksum".into(), json!(sum));
        let order = RackOrder::CreateResource(Box::new(resource));
        assert!(bench.order(order).is_err(), "{name}");
    }
}

/// The sentence with which validation and the verb refuse the node's image; the machine is not
/// touched.
#[track_caller]
fn refusal(bench: &mut RackBench, node: NodeId) -> String {
    bench.outputs.clear();
    let before = bench.node(node);
    let refused = bench.verb(node, Verb::Rebuild).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    assert_eq!(bench.node(node), before);
    let orders = |output: &RackOutput| matches!(output, RackOutput::Bmc(_));
    assert!(!bench.outputs.iter().any(orders), "the machine runs on");
    assert!(bench.fills().is_empty(), "nothing is fetched");
    assert!(faulty(bench).is_empty(), "no image is blamed");
    let checked = bench.order(RackOrder::CheckDeploy(node)).unwrap();
    assert_eq!(
        checked,
        OrderOutcome::Checked(Some(refused.sentence.clone()))
    );
    refused.sentence
}

fn active_with(bench: &mut RackBench, info: Value) -> NodeId {
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Active;
        node.instance_info.extend(info.as_object().unwrap().clone());
    });
    id
}

/// The cache finds bytes by their digest: with the digest of the former image, a rebuild wrote
/// the former image and the node became active with it.
#[test]
fn a_digest_that_is_not_that_of_the_named_image_is_refused_before_the_machine_is_touched() {
    let (own, other) = ("07".repeat(32), "0e".repeat(32));
    let wide = "0e".repeat(64);
    for (field, digest) in [
        ("image_os_hash_value", &other),
        ("image_checksum", &other),
        ("image_os_hash_value", &wide),
    ] {
        let mut bench = RackBench::new();
        entry(&mut bench, 1, "w.raw", "raw");
        let node = active_with(&mut bench, json!({"image_source": "w.raw", field: digest}));
        let sentence = refusal(&mut bench, node);
        let known = "0a".repeat(32);
        for part in ["w.raw", field, digest.as_str(), known.as_str(), "Remove"] {
            assert!(sentence.contains(part), "{part}: {sentence}");
        }
        bench.force(node, |node| {
            node.instance_info.remove(field);
        });
        bench.verb(node, Verb::Rebuild).unwrap();
    }
    let mut settings = settings();
    let image = trivet_images::CatalogueImage {
        size: 5,
        digest: own.parse().unwrap(),
    };
    settings.images.add("demo.raw", image).unwrap();
    let mut bench = RackBench::with(settings);
    let info = json!({"image_source": "demo.raw", "image_os_hash_value": other});
    let node = active_with(&mut bench, info);
    let sentence = refusal(&mut bench, node);
    assert!(
        sentence.contains(&own) && sentence.contains(&other),
        "{sentence}"
    );
    bench.force(node, |node| {
        let info = &mut node.instance_info;
        info.insert("image_os_hash_value".into(), json!(own));
    });
    bench.verb(node, Verb::Rebuild).unwrap();
}

#[test]
fn a_format_that_is_not_that_of_the_named_image_is_refused_and_no_image_is_blamed() {
    let mut bench = RackBench::new();
    entry(&mut bench, 1, "w.raw", "raw");
    let info = json!({"image_source": "w.raw", "image_disk_format": "qcow2"});
    let node = active_with(&mut bench, info);
    let sentence = refusal(&mut bench, node);
    for part in ["w.raw", "image_disk_format", "qcow2", "raw"] {
        assert!(sentence.contains(part), "{part}: {sentence}");
    }
}

/// What the snapshot shows of the bytes of [`entry`] in a format.
fn shown_as(bench: &RackBench, format: ImageFormat) -> Option<ImageState> {
    let key = trivet_images::ImageKey(Digest::Sha256([0x0a; 32])).to_string();
    let view = bench.rack.view();
    let status = view.images.get(&ImageStatus::view_key(&key, format));
    status.map(|status| status.state.clone())
}

#[test]
fn entries_of_one_digest_have_their_own_states_and_go_with_their_records() {
    let mut bench = RackBench::new();
    entry(&mut bench, 1, "plain.raw", "raw");
    entry(&mut bench, 2, "z.qcow2", "qcow2");
    bench.image_is(named("plain.raw", ImageFormat::Raw, ImageState::Complete));
    assert_eq!(
        shown_as(&bench, ImageFormat::Qcow2),
        None,
        "not verified so"
    );
    let wrong = ImageState::Wrong("image z.qcow2 is not qcow2".into());
    bench.image_is(named("z.qcow2", ImageFormat::Qcow2, wrong.clone()));
    assert_eq!(shown_as(&bench, ImageFormat::Qcow2), Some(wrong));
    let view = bench.rack.view();
    let packed = view.resource(trivet_model::ResourceKind::Image, "z.qcow2");
    let order = RackOrder::DeleteResource(trivet_model::ResourceKind::Image, packed.unwrap().id);
    bench.order(order).unwrap();
    assert_eq!(shown_as(&bench, ImageFormat::Qcow2), None);
    assert!(faulty(&bench).is_empty());
    assert!(
        shown_as(&bench, ImageFormat::Raw).is_some(),
        "its bytes stay"
    );
}

#[test]
fn the_fault_of_an_image_ends_when_its_node_is_deployed_with_another() {
    let mut bench = RackBench::new();
    entry(&mut bench, 1, "w.raw", "raw");
    let info = json!({"image_source": "http://far/x.raw", "image_checksum": "0e".repeat(32)});
    let node = active_with(&mut bench, info);
    let digest = Digest::Sha256([0x0e; 32]);
    let mut failed = named(
        "x.raw",
        ImageFormat::Raw,
        ImageState::Failed("it is away".into()),
    );
    failed.digest = digest;
    failed.key = trivet_images::ImageKey(digest).to_string();
    bench.image_is(failed);
    bench.verb(node, Verb::Rebuild).unwrap();
    assert_eq!(faulty(&bench), ["x.raw"], "its node still names it");
    bench.force(node, |node| {
        node.job = None;
        node.provision_state = ProvisionState::DeployFail;
        let info = json!({"image_source": "w.raw"});
        node.instance_info = info.as_object().unwrap().clone();
    });
    bench.verb(node, Verb::Rebuild).unwrap();
    assert!(faulty(&bench).is_empty());
    let view = bench.rack.view();
    let mut images = view.images.values();
    assert!(
        !images.any(|image| image.name == "x.raw"),
        "it is not listed"
    );
}

#[test]
fn an_image_of_a_url_can_be_removed_when_no_job_needs_it() {
    let mut bench = RackBench::new();
    let id = deploying(&mut bench, SOURCE);
    let digest = Digest::Sha256([0x0a; 32]);
    let mut complete = named("debian.raw", ImageFormat::Raw, ImageState::Complete);
    complete.digest = digest;
    complete.key = trivet_images::ImageKey(digest).to_string();
    bench.image_is(complete);
    let listed = |bench: &RackBench| {
        let view = bench.rack.view();
        view.images.values().any(|image| image.digest == digest)
    };
    assert!(listed(&bench));
    let refusal = bench.order(RackOrder::DropImage(digest)).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    assert!(refusal.sentence.contains("the job of node"), "{refusal}");
    bench.force(id, |node| {
        node.job = None;
        node.provision_state = ProvisionState::Active;
    });
    bench.order(RackOrder::DropImage(digest)).unwrap();
    assert!(!listed(&bench));
}
