use super::*;
use serde_json::json;

fn disk(name: &str, gib: u64) -> RootDiskCandidate {
    RootDiskCandidate {
        disk: IpaDisk {
            name: Some(format!("/dev/{name}")),
            size: Some(gib << 30),
            ..IpaDisk::default()
        },
        ..RootDiskCandidate::default()
    }
}

fn disks() -> Vec<RootDiskCandidate> {
    let mut disks = vec![
        disk("sda", 3),
        disk("sdb", 60),
        disk("sdc", 20),
        disk("nvme0n1", 20),
    ];
    let first = &mut disks[1].disk;
    first.model = Some("Big Fast SSD".to_owned());
    first.vendor = Some("ATA".to_owned());
    first.serial = Some("S3Z8".to_owned());
    first.wwn = Some("0x5002538e40000001".to_owned());
    first.hctl = Some("1:0:0:0".to_owned());
    first.by_path = Some("/dev/disk/by-path/pci-0000:00:1f.2-ata-1.0".to_owned());
    first.rotational = Some(true);
    first.tran = Some("sata".to_owned());
    disks[1].other_serials = vec!["Big_Fast_SSD_S3Z8".to_owned()];
    disks[3].disk.wwn = Some("eui.0025385b".to_owned());
    disks[3].disk.rotational = Some(false);
    disks
}

#[track_caller]
fn chosen(hints: &Value) -> String {
    let disks = disks();
    let chosen = choose_root_disk(&disks, hints).unwrap();
    chosen.disk.name.clone().unwrap()
}

#[track_caller]
fn refused(hints: &Value) -> RootDiskError {
    choose_root_disk(&disks(), hints).unwrap_err()
}

#[test]
fn without_hints_the_smallest_disk_of_4_gib_is_used_and_the_first_by_name() {
    for none in [json!(null), json!({}), json!("x")] {
        assert_eq!(chosen(&none), "/dev/nvme0n1");
    }
    let small = [disk("sda", 3)];
    assert_eq!(
        choose_root_disk(&small, &json!({})),
        Err(RootDiskError::TooSmall)
    );
    let exact = [disk("sda", 4)];
    assert!(choose_root_disk(&exact, &json!({})).is_ok());
    assert_eq!(
        choose_root_disk(&[], &json!({})),
        Err(RootDiskError::TooSmall)
    );
}

#[test]
fn each_attribute_can_be_named() {
    for hints in [
        json!({"model": "big fast ssd"}),
        json!({"vendor": "ata"}),
        json!({"serial": "s3z8"}),
        json!({"serial": "Big_Fast_SSD_S3Z8"}),
        json!({"wwn": "0x5002538E40000001"}),
        json!({"hctl": "1:0:0:0"}),
        json!({"by_path": "/dev/disk/by-path/pci-0000:00:1f.2-ata-1.0"}),
        json!({"tran": "sata"}),
        json!({"rotational": true}),
        json!({"rotational": "yes"}),
        json!({"size": 60}),
        json!({"name": "/dev/sdb", "size": "60"}),
    ] {
        assert_eq!(chosen(&hints), "/dev/sdb", "{hints}");
    }
    assert_eq!(chosen(&json!({"wwn": "eui.0025385b"})), "/dev/nvme0n1");
}

#[test]
fn operators_compare_numbers_and_text() {
    for (hints, name) in [
        (json!({"size": ">= 20"}), "/dev/sdb"),
        (json!({"size": "= 4"}), "/dev/sdb"),
        (json!({"size": "<= 20"}), "/dev/sda"),
        (json!({"size": "< 60", "name": "<in> nvme"}), "/dev/nvme0n1"),
        (json!({"size": "> 3", "name": "s!= /dev/sdb"}), "/dev/sdc"),
        (json!({"size": "!= 3"}), "/dev/sdb"),
        (json!({"size": "== 20"}), "/dev/sdc"),
        (json!({"size": "<or> 20 <or> 100"}), "/dev/sdc"),
        (json!({"size": "<range-in> [ 20 60 )"}), "/dev/sdc"),
        (json!({"size": "<range-in> ( 20 60 ]"}), "/dev/sdb"),
        (json!({"name": "s== /dev/sdc"}), "/dev/sdc"),
        (json!({"name": "s> /dev/sdb"}), "/dev/sdc"),
        (json!({"name": "s>= /dev/sdc"}), "/dev/sdc"),
        (json!({"name": "s< /dev/sda"}), "/dev/nvme0n1"),
        (json!({"name": "s<= /dev/sda"}), "/dev/sda"),
        (json!({"model": "<or> other <or> Big Fast SSD"}), "/dev/sdb"),
        (json!({"model": "<in> fast ssd"}), "/dev/sdb"),
    ] {
        assert_eq!(chosen(&hints), name, "{hints}");
    }
}

#[test]
fn all_hints_must_match() {
    let error = refused(&json!({"size": 60, "rotational": false}));
    assert!(error.to_string().contains("using these hints"), "{error}");
    for hints in [
        json!({"model": "fast"}),
        json!({"vendor": "<all-in> ata"}),
        json!({"serial": "s== none"}),
        // An attribute that a disk does not have matches nothing, not even a difference.
        json!({"model": "s!= Big Fast SSD"}),
    ] {
        assert!(
            matches!(refused(&hints), RootDiskError::NoMatch { .. }),
            "{hints}"
        );
    }
}

#[test]
fn malformed_hints_are_named() {
    for (hints, words) in [
        (json!({"colour": "red"}), "\"colour\" is invalid"),
        (json!({"size": "large"}), "positive integer"),
        (json!({"size": 0}), "positive integer"),
        (json!({"size": -4}), "positive integer"),
        (json!({"size": true}), "not a number"),
        (json!({"size": "<range-in> [ 9 2 ]"}), "range"),
        (json!({"size": "<range-in> 9 2"}), "range"),
        (json!({"model": 7}), "not a string"),
        (json!({"model": "  "}), "empty"),
        (json!({"model": "<or> <or>"}), "no value"),
        (json!({"rotational": "round"}), "not a boolean"),
        (json!({"rotational": []}), "not a boolean"),
        (json!({"model": "x".repeat(HINT_BYTES_MAX + 1)}), "too long"),
        (
            json!({"model": "<or> a ".repeat(HINT_VALUES_MAX + 1)}),
            "too many",
        ),
    ] {
        let error = refused(&hints).to_string();
        assert!(error.contains(words), "{hints}: {error}");
    }
}

#[test]
fn an_operator_alone_is_a_text() {
    let mut one = disk("sda", 5);
    one.disk.model = Some("s==".to_owned());
    assert!(choose_root_disk(&[one], &json!({"model": "s=="})).is_ok());
}
