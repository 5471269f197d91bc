//! Every trouble at every place: one machine with the stock agent, and nothing else goes
//! wrong. Whatever happens on the way, the node becomes active within a bounded time.
//!
//! `TRIVET_STAGE='AgentHangs@GetSteps'` tells one such story line by line.

use trivet_tests_sim::{AGENT_PLACES, PLACES, Story, TROUBLES, Trouble, stage};

/// No single trouble keeps a node longer than this: six tries of an order, each with its
/// time-out, and a boot.
const TOOK_MS_MAX: u64 = 600_000;

#[track_caller]
fn check(trouble: Trouble, place: &'static str) -> Story {
    let story = stage(place, trouble, false);
    assert!(
        story.broken.is_empty(),
        "{trouble:?} @ {place}: {:?}",
        story.broken
    );
    assert_eq!(story.active, 1, "{trouble:?} @ {place}");
    assert!(
        story.took_ms < TOOK_MS_MAX,
        "{trouble:?} @ {place}: {}",
        story.took_ms
    );
    story
}

/// The trouble is met where it waited, or, where it only shows later, somewhere.
#[track_caller]
fn meets(trouble: Trouble, what: &str, places: &[&'static str], there: bool) {
    for place in places {
        let story = check(trouble, place);
        let key = format!("{what} @ {}", if there { place } else { "" });
        let met = story.met.keys().any(|met| met.starts_with(&key));
        assert!(met, "{trouble:?} @ {place}: {:?}", story.met);
    }
}

/// The places where the agent has told its address.
const HEARD: &[&str] = &[
    "GetSteps",
    "StartStep erase_devices_metadata",
    "AwaitStep erase_devices_metadata",
    "StartStep write_image",
    "AwaitStep write_image",
    "Bootloader",
    "AwaitBootloader",
    "Sync",
    "FinishRescue",
];

/// The places where an order is about to leave.
const ORDERS: &[&str] = &[
    "GetSteps",
    "StartStep erase_devices_metadata",
    "StartStep write_image",
    "Bootloader",
    "Sync",
    "FinishRescue",
];

#[test]
fn every_trouble_at_every_place_ends_well() {
    for trouble in TROUBLES {
        for place in PLACES {
            check(trouble, place);
        }
    }
}

#[test]
fn the_box_loses_power_in_each_phase() {
    meets(Trouble::BoxCut, "box cut", &PLACES, true);
    meets(Trouble::BoxCutLater, "box cut", &PLACES, false);
}

#[test]
fn the_agent_falls_silent_in_each_phase() {
    meets(Trouble::AgentHangs, "agent hung", &AGENT_PLACES, true);
    // At the end beats are no longer waited for, and none is lost.
    let beats = &PLACES[..PLACES.len() - 5];
    meets(Trouble::BeatsLost, "beat lost", beats, false);
}

#[test]
fn the_agent_dies_in_each_phase_and_comes_back_without_its_token() {
    meets(Trouble::AgentDies, "agent died", &AGENT_PLACES, true);
    let steps = [
        "AwaitStep erase_devices_metadata",
        "AwaitStep write_image",
        "AwaitBootloader",
    ];
    meets(Trouble::AgentDies, "died mid-command", &steps, true);
    meets(Trouble::AgentDies, "masked token", &steps, true);
    let looked_up = ["AwaitAgent looked up"];
    meets(Trouble::AgentDies, "masked token", &looked_up, true);
}

#[test]
fn the_agent_comes_back_with_another_certificate_or_address() {
    meets(Trouble::NewCertificate, "certificate changed", HEARD, false);
    meets(Trouble::NewAddress, "address changed", HEARD, false);
}

#[test]
fn hardware_managers_change_between_the_list_and_the_step() {
    let starts = ["StartStep erase_devices_metadata", "StartStep write_image"];
    meets(Trouble::NewManagers, "version mismatch", &starts, false);
}

#[test]
fn the_agent_is_busy_with_something_else() {
    meets(Trouble::AgentBusy, "busy", ORDERS, true);
}

/// No checker finds the token in what people get to see.
#[test]
fn the_agent_tells_its_token_in_a_failure() {
    let starts = ["StartStep erase_devices_metadata", "StartStep write_image"];
    meets(Trouble::TokenTold, "token told", &starts, false);
}

/// The order is taken, and its answer lost: it must not be carried out twice.
#[test]
fn the_agent_takes_an_order_and_nobody_hears() {
    meets(Trouble::AnswerLost, "answer lost", ORDERS, true);
}

#[test]
fn one_stage() {
    let Ok(name) = std::env::var("TRIVET_STAGE") else {
        return;
    };
    let (trouble, place) = name.split_once('@').unwrap();
    let mut troubles = TROUBLES.into_iter();
    let trouble = troubles.find(|it| format!("{it:?}") == trouble).unwrap();
    let place = PLACES.into_iter().find(|it| *it == place).unwrap();
    let story = stage(place, trouble, true);
    println!("{}", story.trace.text().unwrap_or_default());
    println!("{:#?}\n{:?}", story.met, story.broken);
}
