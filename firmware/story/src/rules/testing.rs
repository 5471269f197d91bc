//! Evidence for the tests of the rules.

use trivet_model::{Diagnosis, MacAddr, NoteKind, UnixMs};

use super::DiagnosisRule;
use crate::{DiagnosisContext, JobEvidence, SiteFacts};

/// The machine of the tests.
pub(super) const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 0x17]);

/// A running job with these notes, one second apart.
pub(super) fn job(notes: &[NoteKind]) -> JobEvidence {
    let mut evidence = JobEvidence::default();
    evidence.begin();
    for (second, note) in (1..).zip(notes) {
        evidence.observe(UnixMs(second * 1000), note);
    }
    evidence
}

/// The notes of a boot up to the confirmed address.
pub(super) fn addressed() -> Vec<NoteKind> {
    vec![switched_on(), dhcp("UEFI x64 PXE", Some("snponly.efi"))]
}

/// The notes of a boot up to the loader.
pub(super) fn loaded() -> Vec<NoteKind> {
    let mut notes = addressed();
    notes.push(sent("TFTP", "snponly.efi", 262_144, 262_144));
    notes
}

/// The notes of a boot up to the ramdisk.
pub(super) fn booted() -> Vec<NoteKind> {
    let mut notes = loaded();
    notes.push(dhcp("iPXE (UEFI x64)", Some("http://192.0.2.1/script")));
    notes.push(sent("HTTP", "/boot/52:54:00:00:00:17/script", 300, 300));
    notes.push(sent("HTTP", "/boot/kernel", 8_000_000, 8_000_000));
    notes.push(sent("HTTP", "/boot/ramdisk", 88_000_000, 88_000_000));
    notes
}

pub(super) fn switched_on() -> NoteKind {
    NoteKind::PowerOrdered { order: "power on" }
}

pub(super) fn dhcp(firmware: &'static str, boot: Option<&str>) -> NoteKind {
    NoteKind::Dhcp {
        mac: MAC,
        request: "REQUEST",
        reply: Some("ACK"),
        address: Some([192, 0, 2, 100].into()),
        firmware,
        boot: boot.map(str::to_owned),
        why: None,
    }
}

pub(super) fn sent(by: &'static str, path: &str, sent: u64, requested: u64) -> NoteKind {
    NoteKind::FileSent {
        by,
        path: path.to_owned(),
        sent,
        requested,
        took_ms: 9000,
    }
}

/// A job that is late at its present stage.
pub(super) fn late(evidence: &JobEvidence) -> DiagnosisContext {
    DiagnosisContext {
        stage: Some(evidence.boot.stage()),
        stage_ms: 242_000,
        usual_ms: Some(71_000),
        ..in_time()
    }
}

/// A job that is not late.
pub(super) fn in_time() -> DiagnosisContext {
    DiagnosisContext {
        node_name: "node-17".to_owned(),
        site: SiteFacts {
            has_agent: true,
            api_url: "http://192.0.2.1:6385".to_owned(),
            own_address: Some("192.0.2.1".to_owned()),
            bmc_keys: "ipmi",
            bmc_address: Some("10.0.0.17".to_owned()),
            bmc_user: Some("admin".to_owned()),
            port_macs: vec![MAC.to_string()],
            ..SiteFacts::default()
        },
        ..DiagnosisContext::default()
    }
}

/// The rule matches, and no rule before it does.
#[track_caller]
pub(super) fn check(
    rule: &DiagnosisRule,
    evidence: &JobEvidence,
    context: &DiagnosisContext,
) -> Diagnosis {
    let found = crate::diagnose(evidence, context).expect("a rule matches");
    assert_eq!(found.rule, rule.name, "{found:?}");
    let texts = [&found.sentence, &found.cause, &found.next_action];
    for text in texts {
        assert!(text.ends_with('.'), "{text}");
    }
    found
}

/// The rule does not match.
#[track_caller]
pub(super) fn check_none(rule: &DiagnosisRule, evidence: &JobEvidence, context: &DiagnosisContext) {
    assert_eq!((rule.diagnose)(evidence, context), None);
}
