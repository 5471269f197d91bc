use serde_json::json;
use trivet_model::{NodeId, SeededRandom, UnixMs};

use super::*;

fn node(instance: Value, driver: Value) -> Node {
    let mut node = Node::new(NodeId::random(&mut SeededRandom::new(1)), "ipmi", UnixMs(1));
    node.instance_info = instance.as_object().cloned().unwrap_or_default();
    node.driver_info = driver.as_object().cloned().unwrap_or_default();
    node
}

fn with(instance: Value) -> Node {
    node(instance, json!({}))
}

#[track_caller]
fn refuses(instance: Value, part: &str) {
    let why = payload(&with(instance)).unwrap_err();
    assert!(why.contains(part), "{why:?} does not say {part:?}");
}

#[test]
fn an_installer_has_kernel_ramdisk_and_its_own_arguments() {
    let info = json!({
        "kernel": "debian/12/linux", "ramdisk": "https://m.example/initrd.gz",
        "ramdisk_kernel_arguments": "auto=true  url=http://m/p",
        "kernel_append_params": "%default% console=ttyS0",
    });
    let want = NetbootPayload::Kernel {
        kernel: BootFileSource::File("debian/12/linux".into()),
        ramdisk: BootFileSource::Url("https://m.example/initrd.gz".into()),
        args: "auto=true url=http://m/p console=ttyS0".into(),
    };
    assert_eq!(payload(&with(info)), Ok(want));
}

#[test]
fn an_image_stands_alone() {
    let want = NetbootPayload::Iso(BootFileSource::File("live.iso".into()));
    assert_eq!(payload(&with(json!({"boot_iso": "/live.iso"}))), Ok(want));
    refuses(json!({"boot_iso": "a.iso", "kernel": "k"}), "both");
}

#[test]
fn a_missing_field_is_named() {
    refuses(json!({}), "give kernel and ramdisk, or boot_iso");
    refuses(json!({"kernel": "", "ramdisk": null}), "lacks what to boot");
    refuses(json!({"kernel": "k"}), "no ramdisk");
    refuses(json!({"ramdisk": "r"}), "no kernel");
    refuses(json!({"boot_iso": 7}), "must be a text");
}

#[test]
fn no_source_leads_outside_or_into_the_script() {
    for (source, part) in [
        ("../etc/passwd", "plain file name"),
        ("a//b", "plain file name"),
        ("a b", "plain file name"),
        ("a\nboot", "plain file name"),
        ("${net0/mac}", "plain file name"),
        ("file:///srv/x", "http or https"),
        ("tftp://b/x", "http or https"),
        ("http://b/a b", "%20"),
        ("http://b/a\nshell", "not a URL"),
        ("http://b/${uuid}", "not a URL"),
        ("http://b/\u{e9}", "not a URL"),
        ("http://", "not a URL"),
        ("http:///x", "not a URL"),
    ] {
        refuses(json!({ "boot_iso": source }), part);
    }
    let long = format!("http://b/{}", "x".repeat(BOOT_TEXT_BYTES_MAX));
    refuses(json!({ "boot_iso": long }), "longer");
}

#[test]
fn no_argument_becomes_a_command() {
    for (bad, part) in [
        ("a || shell", "boot loader"),
        ("a && shell", "boot loader"),
        ("a #b", "boot loader"),
        ("x=${net0/mac}", "boot loader"),
        ("a\nshell", "one line"),
        ("a\tb", "one line"),
    ] {
        let info = json!({"kernel": "k", "ramdisk": "r", "ramdisk_kernel_arguments": bad});
        refuses(info, part);
        let own = node(json!({}), json!({ "kernel_append_params": bad }));
        assert!(agent_args(&own, "").unwrap_err().contains(part), "{bad}");
    }
    let fine = node(json!({}), json!({"kernel_append_params": "a=b||c d#e $f"}));
    assert_eq!(agent_args(&fine, ""), Ok("a=b||c d#e $f".into()));
}

#[test]
fn the_instances_arguments_precede_the_nodes_and_those_the_boxs() {
    let args = |instance, driver| agent_args(&node(instance, driver), "quiet").unwrap();
    assert_eq!(args(json!({}), json!({})), "quiet");
    let key = "kernel_append_params";
    let driver = json!({ key: "%default% d=1" });
    assert_eq!(args(json!({}), driver.clone()), "quiet d=1");
    assert_eq!(args(json!({ key: "i=1" }), driver), "i=1");
}

#[test]
fn an_agent_of_the_nodes_own_is_a_pair_of_urls() {
    let files = |driver, rescue| agent_files(&node(json!({}), driver), rescue);
    let pair = |kernel: &str, ramdisk: &str| Ok(Some((kernel.to_owned(), ramdisk.to_owned())));
    assert_eq!(files(json!({}), false), Ok(None));
    let both = json!({"deploy_kernel": "http://h/k", "deploy_ramdisk": "HTTPS://h/r"});
    assert_eq!(
        files(both.clone(), false),
        pair("http://h/k", "HTTPS://h/r")
    );
    assert_eq!(files(both.clone(), true), pair("http://h/k", "HTTPS://h/r"));
    let mut rescue = both;
    rescue["rescue_kernel"] = json!("http://h/rk");
    assert!(
        files(rescue.clone(), true)
            .unwrap_err()
            .contains("rescue_ramdisk")
    );
    rescue["rescue_ramdisk"] = json!("http://h/rr");
    assert_eq!(
        files(rescue.clone(), true),
        pair("http://h/rk", "http://h/rr")
    );
    assert_eq!(files(rescue, false), pair("http://h/k", "HTTPS://h/r"));
    let conductors = json!({"deploy_kernel": "file:///k", "deploy_ramdisk": "a-glance-id"});
    assert_eq!(files(conductors, false), Ok(None));
    for half in [
        json!({"deploy_kernel": "http://h/k"}),
        json!({"deploy_kernel": "file:///k", "deploy_ramdisk": "http://h/r"}),
    ] {
        assert!(files(half, false).unwrap_err().contains("give both"));
    }
    let spaced = json!({"deploy_kernel": "http://h/a k", "deploy_ramdisk": "http://h/r"});
    assert!(files(spaced, false).unwrap_err().contains("%20"));
}

#[test]
fn a_digest_of_a_boot_file_must_be_sha256_or_sha512() {
    let files = |sum: Value| {
        let driver = json!({"deploy_kernel": "http://h/k", "deploy_ramdisk": "http://h/r",
                            "deploy_ramdisk_checksum": sum});
        agent_files(&node(json!({}), driver), false)
    };
    assert!(files(json!("0A".repeat(32))).is_ok_and(|own| own.is_some()));
    assert!(files(json!("0a".repeat(64))).is_ok());
    assert!(files(json!("")).is_ok(), "an empty text is no digest");
    for bad in [json!("0a".repeat(16)), json!("zz".repeat(32)), json!(7)] {
        let why = files(bad).unwrap_err();
        assert!(why.contains("driver_info.deploy_ramdisk_checksum"), "{why}");
    }
    let iso = json!({"boot_iso": "http://h/a.iso", "boot_iso_checksum": "md5"});
    let why = payload(&node(iso, json!({}))).unwrap_err();
    assert!(why.contains("instance_info.boot_iso_checksum"), "{why}");
    assert!(why.contains("SHA-256"), "{why}");
}

#[test]
fn a_url_with_a_user_in_it_is_refused_with_its_key_and_without_its_password() {
    for url in [
        "http://ann:secret@h/k",
        "HTTPS://ann@h",
        "http://ann:secret@h?a",
    ] {
        let driver = json!({"deploy_kernel": "http://h/k", "deploy_ramdisk": url});
        let own = node(json!({}), driver);
        let why = agent_files(&own, false).unwrap_err();
        assert!(why.contains("driver_info.deploy_ramdisk"), "{why}");
        assert!(why.contains("presigned URL"), "{why}");
        assert!(!why.contains("secret") && !why.contains("ann"), "{why}");
        assert_eq!(agent_credentials(&own, false), Err(why));
        refuses(json!({"boot_iso": url}), "instance_info.boot_iso");
    }
    let at = json!({"deploy_kernel": "http://h/a@b", "deploy_ramdisk": "http://h/?mail=a@b"});
    assert!(agent_files(&node(json!({}), at), false).is_ok_and(|own| own.is_some()));
    let rescue = node(json!({}), json!({"rescue_kernel": "http://ann:secret@h/k"}));
    assert_eq!(agent_credentials(&rescue, false), Ok(()));
    assert!(agent_credentials(&rescue, true).is_err());
}
