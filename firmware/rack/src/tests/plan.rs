//! What a machine is to boot.

use trivet_model::JobPhase;
use trivet_model::image::ImageState;
use trivet_model::interface::DeployInterface;

use super::boot::script;
use super::boot_files::{fetched, fetched_from};
use super::image_deployment::news;
use super::*;

fn changed(bench: &mut RackBench, id: NodeId, instance: Value, driver: Value) {
    let object = |value: Value| value.as_object().cloned().unwrap_or_default();
    bench.force(id, |node| {
        node.instance_info = object(instance);
        node.driver_info.extend(object(driver));
    });
}

/// A node without a BMC whose instance boots from the network.
fn diskless(instance: Value) -> (RackBench, NodeId) {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.driver = "manual-management".into();
        node.provision_state = ProvisionState::Available;
        node.attributes.interfaces.deploy = Some(DeployInterface::Ramdisk);
    });
    changed(&mut bench, id, instance, json!({}));
    (bench, id)
}

#[test]
fn an_operators_kernel_is_booted_each_time_while_the_node_is_active() {
    let (mut bench, id) = diskless(json!({
        "kernel": "debian/linux", "ramdisk": "http://m.example/initrd.gz",
        "ramdisk_kernel_arguments": "auto=true",
    }));
    assert!(script(&mut bench).contains("exit 1"));
    bench.verb(id, Verb::Active).unwrap();
    bench.url_answered(fetched_from("http://m.example/initrd.gz", 7));
    assert_eq!(bench.node(id).provision_state, ProvisionState::Active);
    let text = script(&mut bench);
    let kernel = "kernel http://10.0.0.1:8080/files/debian/linux initrd=ramdisk auto=true ||";
    assert!(text.contains(kernel), "{text}");
    let ramdisk = format!("initrd --name ramdisk http://10.0.0.1:8080/nodes/{id}/boot/ramdisk ||");
    assert!(text.contains(&ramdisk), "{text}");
    assert!(!text.contains("ipa-"), "{text}");
    let mut bench = bench.restarted();
    assert_eq!(script(&mut bench), text);
    bench.verb(id, Verb::Deleted).unwrap();
    assert!(script(&mut bench).contains("ipa-api-url="), "it is cleaned");
}

#[test]
fn an_image_of_the_operators_is_booted() {
    let (mut bench, id) = diskless(json!({"boot_iso": "live.iso"}));
    bench.verb(id, Verb::Active).unwrap();
    let text = script(&mut bench);
    let want = "sanboot --no-describe http://10.0.0.1:8080/files/live.iso ||";
    assert!(text.contains(want), "{text}");
}

#[test]
fn an_image_elsewhere_is_fetched_when_the_node_is_deployed_and_served_by_the_box() {
    let url = "https://far/live.iso";
    let (mut bench, id) = diskless(json!({"boot_iso": url}));
    bench.verb(id, Verb::Active).unwrap();
    assert_eq!(fetched(&bench), [url]);
    let text = script(&mut bench);
    let want = format!("sanboot --no-describe http://10.0.0.1:8080/nodes/{id}/boot/boot_iso ||");
    assert!(text.contains(&want), "{text}");
}

#[test]
fn an_instance_without_a_disk_is_powered_on_once_its_files_are_here() {
    let url = "https://far/live.iso";
    let (mut bench, id) = diskless(json!({"boot_iso": url}));
    bench.verb(id, Verb::Active).unwrap();
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::Deploying);
    assert_eq!(node.job.unwrap().phase, JobPhase::StartInstance);
    // After a restart of the box it is fetched again.
    let mut bench = bench.restarted();
    assert_eq!(fetched(&bench), [url]);
    assert_eq!(bench.node(id).provision_state, ProvisionState::Deploying);
    bench.url_answered(fetched_from(url, 7));
    assert_eq!(bench.node(id).provision_state, ProvisionState::Active);

    let (mut bench, id) = diskless(json!({"boot_iso": url, "boot_iso_checksum": "0a".repeat(32)}));
    bench.verb(id, Verb::Active).unwrap();
    bench.image_is(news(&"0a".repeat(32), ImageState::Fetching, None));
    assert_eq!(bench.node(id).provision_state, ProvisionState::Deploying);
    bench.image_is(news(&"0a".repeat(32), ImageState::Complete, None));
    assert_eq!(bench.node(id).provision_state, ProvisionState::Active);
}

#[test]
fn a_file_that_cannot_be_fetched_fails_the_deployment_of_an_instance_without_a_disk() {
    let url = "https://far/live.iso";
    let why = "https://far/live.iso answered with status 404";
    let (mut bench, id) = diskless(json!({"boot_iso": url}));
    bench.verb(id, Verb::Active).unwrap();
    bench.url_answered((url.to_owned(), Err(why.to_owned())));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    assert_eq!(node.last_error.as_deref(), Some(why));

    let (mut bench, id) = diskless(json!({"boot_iso": url, "boot_iso_checksum": "0a".repeat(32)}));
    bench.verb(id, Verb::Active).unwrap();
    let wrong = ImageState::Wrong("live.iso is not what it should be".to_owned());
    bench.image_is(news(&"0a".repeat(32), wrong, None));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    let why = node.last_error.unwrap();
    assert!(why.contains("is not what it should be"), "{why}");
}

#[test]
fn what_a_machine_loads_may_be_an_image_of_the_box() {
    let (mut bench, id) = diskless(json!({"kernel": "disk.raw", "ramdisk": "far.cpio"}));
    let image = trivet_model::ResourceId::random(&mut SeededRandom::new(4));
    let kind = trivet_model::ResourceKind::Image;
    let mut resource = trivet_model::Resource::new(image, kind, UnixMs(1));
    resource.name = Some("far.cpio".into());
    let (sources, sum) = (json!(["http://far/x"]), json!("0b".repeat(32)));
    resource.fields.insert("sources".into(), sources);
    resource.fields.insert("checksum".into(), sum);
    let order = RackOrder::CreateResource(Box::new(resource));
    bench.order(order).unwrap();
    bench.verb(id, Verb::Active).unwrap();
    let text = script(&mut bench);
    let (kernel, ramdisk) = ("disk.raw initrd", "far.cpio ||");
    let at = "http://10.0.0.1:8080/images";
    for want in [format!("{at}/{kernel}"), format!("{at}/{ramdisk}")] {
        assert!(text.contains(&want), "{want}: {text}");
    }
    let driver = json!({"deploy_kernel": "disk.raw", "deploy_ramdisk": "far.cpio"});
    changed(&mut bench, id, json!({}), driver);
    bench.verb(id, Verb::Deleted).unwrap();
    let text = script(&mut bench);
    assert!(text.contains(&format!("kernel {at}/disk.raw ")), "{text}");
}

#[test]
fn what_is_missing_refuses_the_deployment_with_the_sentence_of_validation() {
    let (mut bench, id) = diskless(json!({"kernel": "a"}));
    let refusal = bench.verb(id, Verb::Active).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert!(refusal.sentence.contains("no ramdisk"), "{refusal}");
    assert_eq!(bench.node(id).provision_state, ProvisionState::Available);
}

#[test]
fn a_record_that_became_nonsense_leaves_the_machine_waiting() {
    let (mut bench, id) = diskless(json!({"boot_iso": "live.iso"}));
    bench.verb(id, Verb::Active).unwrap();
    changed(&mut bench, id, json!({"boot_iso": "a\nshell"}), json!({}));
    let text = script(&mut bench);
    assert!(
        text.contains("has no boot order now") && !text.contains("shell"),
        "{text}"
    );
}

#[test]
fn a_node_may_have_an_agent_and_words_of_its_own() {
    let (mut bench, id) = RackBench::inspecting();
    let driver = json!({
        "deploy_kernel": "http://m/k", "deploy_ramdisk": "http://m/r",
        "kernel_append_params": "a=1",
    });
    changed(&mut bench, id, json!({}), driver);
    let text = script(&mut bench);
    assert!(
        text.contains("/boot/deploy_kernel initrd=ramdisk BOOTIF="),
        "{text}"
    );
    assert!(text.contains("/v1/continue_inspection a=1 ||"), "{text}");
    assert!(
        text.contains(&format!("/nodes/{id}/boot/deploy_ramdisk ||")),
        "{text}"
    );
}

#[test]
fn an_agent_that_cannot_be_loaded_and_words_that_break_are_not_used() {
    let (mut bench, id) = RackBench::inspecting();
    let own = script(&mut bench);
    let driver = json!({
        "deploy_kernel": "http://m/a k", "deploy_ramdisk": "http://m/r",
        "kernel_append_params": "a\nshell",
    });
    changed(&mut bench, id, json!({}), driver);
    assert_eq!(script(&mut bench), own);
}

#[test]
fn a_rescue_has_a_ramdisk_of_its_own() {
    let (mut bench, id) = RackBench::inspecting();
    bench.force(id, |node| {
        node.provision_state = ProvisionState::RescueWait;
        let job = node.job.as_mut().unwrap();
        (job.kind, job.phase) = (trivet_model::JobKind::Rescue, JobPhase::AwaitAgent);
    });
    let driver = json!({"rescue_kernel": "http://m/k", "rescue_ramdisk": "http://m/r"});
    changed(&mut bench, id, json!({}), driver);
    let text = script(&mut bench);
    assert!(
        text.contains("/boot/rescue_kernel") && text.contains("/boot/rescue_ramdisk"),
        "{text}"
    );
    assert!(!text.contains("continue_inspection"), "{text}");
}
