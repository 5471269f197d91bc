//! `/v1/nodes/<ident>/management/indicators`: lights of a machine.
//!
//! A BMC has one that marks its machine, and is asked. What was lit on hardware that is
//! pretended stands among the node's own fields as `indicators`.

use serde_json::{Value, json};
use trivet_hardware::{Ability, can, pretends};
use trivet_model::errand as model;
use trivet_model::view::NodeView;
use trivet_model::{Errand, Node};

use super::{able, replace, unlocked};
use crate::call::{Call, empty, reply};
use crate::errands::errand;
use crate::error::Fault;
use crate::field::Shape;
use crate::route::{Arg, Route, Takes, required};
use crate::{Outcome, Then, body};

/// One light: its name at its component, and what it can be.
struct Light {
    name: &'static str,
    component: &'static str,
    readonly: bool,
    states: &'static [&'static str],
}

/// The lights of Ironic's fake hardware.
const FAKE: &[Light] = &[
    Light {
        name: "led-0@chassis",
        component: "chassis",
        readonly: true,
        states: &["off", "on"],
    },
    Light {
        name: "led@system",
        component: "system",
        readonly: false,
        states: &["blinking", "off", "on"],
    },
];

/// What a BMC has, whatever its protocol.
const REAL: &[Light] = &[Light {
    name: "led@system",
    component: "system",
    readonly: false,
    states: &["off", "on"],
}];

const STATE: &[Arg] = &[required("state", 63, Shape::Text)];

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        &["v1", "nodes", "{node}", "management", "indicators"],
        63,
        "List its lights",
        |call| list(call, call.this()?),
    ),
    Route::get(
        &[
            "v1",
            "nodes",
            "{node}",
            "management",
            "indicators",
            "{light}",
        ],
        63,
        "Whether one is lit",
        |call| show(call, call.this()?),
    ),
    Route::new(
        "PUT",
        &[
            "v1",
            "nodes",
            "{node}",
            "management",
            "indicators",
            "{light}",
        ],
        63,
        "Light one",
        |call| set(call, call.this()?),
    )
    .takes(Takes::Args(STATE)),
];

fn lights(view: &NodeView) -> &'static [Light] {
    match can(&view.node, Ability::Lights) {
        true if pretends(&view.node) => FAKE,
        true => REAL,
        false => &[],
    }
}

fn list(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let shown: Vec<Value> = lights(view)
        .iter()
        .map(|light| {
            let path = format!(
                "nodes/{}/management/indicators/{}",
                view.node.id, light.name
            );
            json!({
                "name": light.name, "component": light.component, "readonly": light.readonly,
                "states": light.states, "links": call.links(&path),
            })
        })
        .collect();
    reply(&json!({ "indicators": shown }))
}

fn named(call: &Call<'_>, view: &NodeView) -> Result<&'static Light, Fault> {
    let name = call.last();
    let Some((light, component)) = name.split_once('@') else {
        return Err(Fault::bad(format!(
            "Malformed indicator name \"{}\"",
            name.escape_debug()
        )));
    };
    let lights = lights(view);
    able::or_refuse(view, Ability::Lights, "get_indicator_state")?;
    let same = |known: &&Light| known.name == name;
    if let Some(found) = lights.iter().find(same) {
        return Ok(found);
    }
    let known = lights.iter().any(|light| light.component == component);
    let (what, word) = if known {
        ("indicator", light)
    } else {
        ("component", component)
    };
    let word = word.escape_debug();
    Err(Fault::bad(format!("Invalid {what} {word} specified.")))
}

fn show(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let light = named(call, view)?;
    if !pretends(&view.node) {
        return errand(view, Errand::Light, Then::Said);
    }
    let kept = view.node.driver_internal_info.get("indicators");
    let state = kept.and_then(|kept| kept.get(light.name)).cloned();
    reply(&json!({ "state": state.unwrap_or_else(|| json!("off")) }))
}

fn set(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let light = named(call, view)?;
    let object = body::args(call, STATE)?;
    let wanted = body::text(&object, "state")?.unwrap_or("");
    let state = light
        .states
        .iter()
        .find(|state| state.eq_ignore_ascii_case(wanted));
    let state = state.filter(|_| !light.readonly).ok_or_else(|| {
        Fault::bad(format!(
            "Indicator {} can not be set to \"{}\".",
            light.name,
            wanted.escape_debug()
        ))
    })?;
    unlocked(call, &view.node)?;
    if !pretends(&view.node) {
        let wanted = match *state {
            "off" => model::Light::Off,
            _ => model::Light::On,
        };
        return errand(view, Errand::SetLight(wanted), empty(204, None));
    }
    let mut node = Node::clone(&view.node);
    let info = &mut node.driver_internal_info;
    let kept = info
        .entry("indicators")
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Value::Object(kept) = kept {
        kept.insert(light.name.to_owned(), json!(state));
    }
    replace(view, node, empty(204, None))
}
