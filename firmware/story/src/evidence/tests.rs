use trivet_model::MacAddr;

use super::*;
use crate::Stage;

const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);

fn dhcp(request: &'static str, firmware: &'static str) -> NoteKind {
    NoteKind::Dhcp {
        mac: MAC,
        request,
        reply: Some("ACK"),
        address: Some([192, 0, 2, 100].into()),
        firmware,
        boot: Some("snponly.efi".to_owned()),
        why: None,
    }
}

fn sent(by: &'static str, path: &str) -> NoteKind {
    NoteKind::FileSent {
        by,
        path: path.to_owned(),
        sent: 9,
        requested: 9,
        took_ms: 3,
    }
}

#[test]
fn the_stage_follows_the_notes_of_a_boot() {
    let mut evidence = JobEvidence::default();
    evidence.begin();
    assert_eq!(evidence.boot.stage(), Stage::Power);
    let from = [192, 0, 2, 100].into();
    let version = "13.0.0".to_owned();
    let notes = [
        (NoteKind::PowerOrdered { order: "power on" }, Stage::Post),
        (dhcp("DISCOVER", "UEFI x64 PXE"), Stage::Address),
        (dhcp("REQUEST", "UEFI x64 PXE"), Stage::Loader),
        (sent("TFTP", "snponly.efi"), Stage::Script),
        (dhcp("DISCOVER", "iPXE (UEFI x64)"), Stage::Script),
        (
            sent("HTTP", "/boot/52:54:00:00:00:01/script"),
            Stage::Kernel,
        ),
        (sent("HTTP", "/boot/kernel"), Stage::Ramdisk),
        (sent("HTTP", "/boot/ramdisk"), Stage::Agent),
        (NoteKind::AgentLookedUp { from }, Stage::Agent),
        (NoteKind::AgentReady { version }, Stage::Steps),
        (NoteKind::PowerOrdered { order: "reset" }, Stage::Post),
    ];
    for (note, stage) in notes {
        evidence.observe(UnixMs(1000), &note);
        assert_eq!(evidence.boot.stage(), stage, "{note:?}");
    }
    assert_eq!(evidence.boots, 2);
}

#[test]
fn evidence_is_bounded_whatever_machines_send() {
    let mut evidence = JobEvidence::default();
    evidence.begin();
    evidence.observe(UnixMs(1), &NoteKind::PowerOrdered { order: "power on" });
    let long = "\u{e4}".repeat(5000);
    for number in 0..50_u64 {
        evidence.observe_unknown_machine(UnixMs(number), &format!("{number}{long}"));
    }
    for path in [
        "/boot/kernel",
        "/boot/ramdisk",
        &format!("/boot/loaders/{long}"),
    ] {
        evidence.observe(UnixMs(2), &sent("HTTP", path));
    }
    let refused = NoteKind::FileRefused {
        by: "HTTP",
        path: long.clone(),
        answer: "404 Not Found",
        why: long.clone(),
    };
    evidence.observe(UnixMs(3), &refused);
    let problem = ImageProblem::Different;
    let (image, why) = (long.clone(), long.clone());
    let unusable = EvidenceNote::ImageUnusable {
        problem,
        image,
        why,
    };
    evidence.observe(UnixMs(4), &NoteKind::Evidence(unusable));
    assert_eq!(
        evidence.unknown_machines.len(),
        UNKNOWN_MACHINES_PER_JOB_MAX
    );
    assert!(format!("{evidence:?}").len() < 20 * EVIDENCE_TEXT_BYTES_MAX);
}

#[test]
fn a_new_job_forgets_the_one_before() {
    let mut evidence = JobEvidence::default();
    evidence.begin();
    evidence.observe(UnixMs(1), &NoteKind::PowerOrdered { order: "reset" });
    evidence.begin();
    let fresh = JobEvidence {
        is_running: true,
        ..JobEvidence::default()
    };
    assert_eq!(evidence, fresh);
}
