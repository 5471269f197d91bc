//! Kernels, ramdisks and ISO images that a node's record names by their URLs.

use trivet_images::{ImageFileOrder, ImageFormat, ImageSpec};
use trivet_model::JobPhase;
use trivet_model::image::ImageState;

use super::boot::{lease, script};
use super::image_deployment::news;
use super::*;
use crate::{FileGrant, FileServerProtocol};

const KERNEL: &str = "http://far/kernel";
const RAMDISK: &str = "https://far/ramdisk";
const AT: &str = "http://10.0.0.1:8080";

fn record() -> Value {
    json!({"deploy_kernel": KERNEL, "deploy_ramdisk": RAMDISK})
}

fn with_digest() -> Value {
    let mut record = record();
    record["deploy_ramdisk_checksum"] = json!("0a".repeat(32));
    record
}

/// A node with this `driver_info`, whose inspection is requested.
fn inspects(bench: &mut RackBench, number: u8, info: Value) -> NodeId {
    let id = bench.with_node(number);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Manageable;
        let Value::Object(info) = info else {
            panic!("an object")
        };
        node.driver_info.extend(info);
    });
    bench.verb(id, Verb::Inspect).unwrap();
    id
}

/// Its machine is on and boots.
fn boots(bench: &mut RackBench, id: NodeId) {
    bench.force(id, |node| {
        node.provision_state = ProvisionState::InspectWait;
        node.job.as_mut().unwrap().phase = JobPhase::AwaitAgent;
    });
}

fn path(id: NodeId, key: &str) -> String {
    trivet_bootfiles::node_boot_path(id, key)
}

fn request_file(bench: &mut RackBench, peer: Ipv4Addr, path: String) -> Option<FileGrant> {
    bench.handle(RackInput::FileRequested {
        certificate: None,
        ticket: 3,
        protocol: FileServerProtocol::Http,
        peer: peer.into(),
        path,
    });
    bench.outputs.iter().find_map(|output| match output {
        RackOutput::File { ticket: 3, grant } => grant.clone(),
        _ => None,
    })
}

/// The ramdisk that the machine of a node is served; none where it has to repeat its request.
#[track_caller]
fn ramdisk(bench: &mut RackBench, id: NodeId, peer: Ipv4Addr) -> Option<ImageSpec> {
    match request_file(bench, peer, path(id, "deploy_ramdisk")) {
        Some(FileGrant::Image(wanted)) => Some(wanted.spec),
        Some(FileGrant::Unavailable(why)) => {
            assert!(why.contains(RAMDISK), "{why}");
            None
        }
        other => panic!("{other:?}"),
    }
}

/// The URLs that the shell is requested to fetch.
pub(super) fn fetched(bench: &RackBench) -> Vec<&str> {
    let orders = bench.image_orders().into_iter();
    let urls = orders.filter_map(|order| match order {
        ImageWorkOrder::File {
            order: ImageFileOrder::Request(request),
            ..
        } => Some(request.url.as_str()),
        _ => None,
    });
    urls.collect()
}

pub(super) fn fetched_from(url: &str, digest: u8) -> (String, Result<FetchedFile, String>) {
    let file = FetchedFile {
        digest: Digest::Sha256([digest; 32]),
        old: None,
        has_validator: true,
    };
    (url.to_owned(), Ok(file))
}

#[test]
fn the_script_names_addresses_of_the_box_for_files_elsewhere() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    boots(&mut bench, id);
    let text = script(&mut bench);
    let kernel = format!("kernel {AT}{} initrd=ramdisk", path(id, "deploy_kernel"));
    let ramdisk = format!("ramdisk {AT}{} ||", path(id, "deploy_ramdisk"));
    assert!(text.contains(&kernel) && text.contains(&ramdisk), "{text}");
    assert!(!text.contains("//far/"), "{text}");
}

#[test]
fn a_box_without_a_cache_gives_the_machine_the_urls() {
    let mut bench = RackBench::with(Settings {
        cache: false,
        ..settings()
    });
    let id = inspects(&mut bench, 1, record());
    assert!(fetched(&bench).is_empty());
    boots(&mut bench, id);
    let text = script(&mut bench);
    assert!(text.contains(KERNEL) && text.contains(RAMDISK), "{text}");
}

#[test]
fn a_verb_that_boots_a_url_with_a_user_and_a_password_is_refused() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Manageable;
        let info = &mut node.driver_info;
        let url = "http://ann:secret@far/kernel";
        info.insert("deploy_kernel".to_owned(), json!(url));
        info.insert("deploy_ramdisk".to_owned(), json!(RAMDISK));
    });
    let message = bench.verb(id, Verb::Inspect).unwrap_err().sentence;
    assert!(message.contains("driver_info.deploy_kernel"), "{message}");
    assert!(message.contains("presigned URL"), "{message}");
    assert!(!message.contains("secret"), "{message}");
    assert!(bench.node(id).job.is_none());
}

#[test]
fn a_script_never_has_a_url_with_a_user_and_a_password() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    boots(&mut bench, id);
    bench.force(id, |node| {
        let url = "http://ann:secret@far/kernel";
        node.driver_info
            .insert("deploy_kernel".to_owned(), json!(url));
    });
    let text = script(&mut bench);
    assert!(!text.contains("secret"), "{text}");
    let own = format!("{AT}{}", trivet_bootfiles::KERNEL_PATH);
    assert!(text.contains(&own), "{text}");
}

#[test]
fn boot_files_are_fetched_when_a_job_starts_and_served_once_they_are_here() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    assert_eq!(fetched(&bench), [KERNEL, RAMDISK]);
    boots(&mut bench, id);
    let peer = lease(&mut bench, MAC).unwrap();
    assert_eq!(ramdisk(&mut bench, id, peer), None, "it is not here yet");
    assert!(fetched(&bench).is_empty(), "it was requested already");
    bench.url_answered(fetched_from(RAMDISK, 7));
    let wanted = ramdisk(&mut bench, id, peer).expect("it is here");
    assert_eq!(wanted.digest, Digest::Sha256([7; 32]));
    assert_eq!(wanted.sources, [RAMDISK]);
    assert_eq!(wanted.format, ImageFormat::Ramdisk);
}

#[test]
fn only_the_nodes_own_machine_gets_its_boot_files() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    bench.with_node(2);
    boots(&mut bench, id);
    bench.url_answered(fetched_from(RAMDISK, 7));
    let own = lease(&mut bench, MAC).unwrap();
    let other = lease(&mut bench, MacAddr([0x52, 0x54, 0, 0, 0, 2])).unwrap();
    assert_eq!(
        request_file(&mut bench, other, path(id, "deploy_ramdisk")),
        None
    );
    assert!(ramdisk(&mut bench, id, own).is_some());
    for key in ["ipmi_password", "rescue_kernel", "boot_iso"] {
        assert_eq!(request_file(&mut bench, own, path(id, key)), None, "{key}");
    }
}

#[test]
fn a_file_that_the_machine_is_not_to_boot_now_is_not_served() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    bench.url_answered(fetched_from(RAMDISK, 7));
    bench.force(id, |node| {
        node.job = None;
        node.provision_state = ProvisionState::Manageable;
    });
    let peer = lease(&mut bench, MAC).unwrap();
    assert_eq!(
        request_file(&mut bench, peer, path(id, "deploy_ramdisk")),
        None
    );
    assert!(fetched(&bench).is_empty());
}

#[test]
fn a_boot_file_that_cannot_be_fetched_ends_the_job_with_the_reason() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    let why = "https://far/ramdisk cannot be reached";
    bench.url_answered((RAMDISK.to_owned(), Err(why.to_owned())));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::InspectFail);
    assert_eq!(node.last_error.as_deref(), Some(why));
    bench.verb(id, Verb::Inspect).unwrap();
    assert_eq!(fetched(&bench), [RAMDISK], "it is tried again");
}

#[test]
fn a_boot_file_with_a_digest_is_an_image_of_the_cache() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, with_digest());
    assert_eq!(fetched(&bench), [KERNEL]);
    let digest: Digest = "0a".repeat(32).parse().unwrap();
    assert_eq!(bench.fills(), [digest]);
    boots(&mut bench, id);
    let peer = lease(&mut bench, MAC).unwrap();
    let wanted = ramdisk(&mut bench, id, peer).expect("readers follow the fill");
    assert_eq!(wanted.digest, digest);
}

#[test]
fn a_boot_file_with_another_digest_ends_the_job_with_the_reason() {
    for state in [
        ImageState::Wrong("ramdisk is not what it should be".into()),
        ImageState::Failed("ramdisk is not what it should be".into()),
    ] {
        let mut bench = RackBench::new();
        let id = inspects(&mut bench, 1, with_digest());
        bench.image_is(news(&"0b".repeat(32), state.clone(), None));
        assert!(bench.node(id).job.is_some(), "that is another file");
        bench.image_is(news(&"0a".repeat(32), state, None));
        let node = bench.node(id);
        assert_eq!(node.provision_state, ProvisionState::InspectFail);
        let why = node.last_error.unwrap_or_default();
        assert!(why.contains("is not what it should be"), "{why}");
    }
}

#[test]
fn a_file_that_has_changed_at_its_source_is_noticed_by_the_next_job() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    bench.url_answered(fetched_from(KERNEL, 6));
    bench.url_answered(fetched_from(RAMDISK, 7));
    bench.force(id, |node| {
        node.job = None;
        node.provision_state = ProvisionState::Manageable;
    });
    bench.verb(id, Verb::Inspect).unwrap();
    assert_eq!(fetched(&bench), [KERNEL, RAMDISK]);
    boots(&mut bench, id);
    let peer = lease(&mut bench, MAC).unwrap();
    let early = ramdisk(&mut bench, id, peer);
    assert_eq!(early, None, "not before it was compared with its source");
    bench.url_answered(fetched_from(RAMDISK, 8));
    let wanted = ramdisk(&mut bench, id, peer).expect("it is here");
    assert_eq!(wanted.digest, Digest::Sha256([8; 32]));
}

/// A source with validators is compared at each job; see the test above.
#[test]
fn a_source_without_validators_is_downloaded_again_after_ten_minutes_and_not_before() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    let downloaded = |url: &str| {
        let file = FetchedFile {
            digest: Digest::Sha256([7; 32]),
            old: None,
            has_validator: false,
        };
        (url.to_owned(), Ok(file))
    };
    bench.url_answered(downloaded(KERNEL));
    bench.url_answered(downloaded(RAMDISK));
    let inspects_again = |bench: &mut RackBench| {
        bench.force(id, |node| {
            node.job = None;
            node.provision_state = ProvisionState::Manageable;
        });
        bench.verb(id, Verb::Inspect).unwrap();
    };
    bench.now.tick = bench.now.tick.after_ms(599_999);
    inspects_again(&mut bench);
    assert!(fetched(&bench).is_empty());
    boots(&mut bench, id);
    let peer = lease(&mut bench, MAC).unwrap();
    assert!(ramdisk(&mut bench, id, peer).is_some(), "the copy is used");
    bench.now.tick = bench.now.tick.after_ms(1);
    inspects_again(&mut bench);
    assert_eq!(fetched(&bench), [KERNEL, RAMDISK]);
}

#[test]
fn a_boot_file_with_a_digest_is_never_requested_by_its_url_alone() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, with_digest());
    for _ in 0..3 {
        assert!(!fetched(&bench).contains(&RAMDISK));
        bench.force(id, |node| {
            node.job = None;
            node.provision_state = ProvisionState::Manageable;
        });
        bench.verb(id, Verb::Inspect).unwrap();
    }
}

#[test]
fn a_machine_that_loads_is_not_kept_waiting_by_the_job_of_another() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    bench.url_answered(fetched_from(RAMDISK, 7));
    boots(&mut bench, id);
    let peer = lease(&mut bench, MAC).unwrap();
    inspects(&mut bench, 2, record());
    assert_eq!(fetched(&bench), [RAMDISK], "its kernel is on its way");
    let wanted = ramdisk(&mut bench, id, peer).expect("the copy is good for it");
    assert_eq!(wanted.digest, Digest::Sha256([7; 32]));
}

#[test]
fn a_copy_that_could_not_be_compared_with_its_source_is_used_and_noted() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    let why = "https://far/ramdisk does not answer; the copy of yesterday is used";
    let file = FetchedFile {
        digest: Digest::Sha256([7; 32]),
        old: Some(why.into()),
        has_validator: true,
    };
    bench.url_answered((RAMDISK.to_owned(), Ok(file)));
    assert!(bench.notes().contains(&why.to_owned()));
    boots(&mut bench, id);
    let peer = lease(&mut bench, MAC).unwrap();
    assert!(ramdisk(&mut bench, id, peer).is_some());
}

#[test]
fn a_copy_that_was_evicted_is_fetched_again() {
    let mut bench = RackBench::new();
    let id = inspects(&mut bench, 1, record());
    bench.url_answered(fetched_from(RAMDISK, 7));
    boots(&mut bench, id);
    let peer = lease(&mut bench, MAC).unwrap();
    bench.image_is(news(&"07".repeat(32), ImageState::Evicted, None));
    assert_eq!(ramdisk(&mut bench, id, peer), None);
    assert_eq!(fetched(&bench), [RAMDISK]);
}
