//! `[[images.ahead]]`: images that are written to idle nodes before a deployment needs them.

use std::collections::BTreeSet;

use crate::mistake::SettingsMistakes;
use crate::reader::SettingsSection;
use crate::settings::{ImageAheadNodes, ImageAheadSettings};

/// The most images. Ours.
const IMAGES_AHEAD_MAX: usize = 16;

/// The most nodes. Ours: more than a box has.
const NODES_MAX: u32 = 1_000_000;

const KNOWN: [&str; 4] = ["image", "nodes", "share", "resource_class"];

pub(crate) fn images_ahead(
    images: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> Vec<ImageAheadSettings> {
    let sections = images.sections("ahead", IMAGES_AHEAD_MAX, mistakes);
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for section in &sections {
        section.allow_only(&KNOWN, mistakes);
        let Some(one) = image_ahead(section, mistakes) else {
            continue;
        };
        if !seen.insert((one.image.clone(), one.resource_class.clone())) {
            let sentence = format!(
                "image {} has two sections for the same nodes: keep one, or set resource_class",
                one.image
            );
            mistakes.add(section.at_key("image"), &section.key("image"), sentence);
        }
        all.push(one);
    }
    all
}

fn image_ahead(
    section: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> Option<ImageAheadSettings> {
    if !section.has("image") {
        let sentence = "is missing: write the name of an image (trivet image list)";
        mistakes.add(section.at(), &section.key("image"), sentence);
    }
    let image = section.text("image", mistakes);
    let image = image.filter(|image| {
        let is_name = !image.value.contains('/');
        if !is_name {
            let sentence = "must be the name of an image, not a URL: add the image with `trivet \
                            image add`, then write its name";
            mistakes.add(image.at, &section.key("image"), sentence);
        }
        is_name
    });
    let nodes = section.number("nodes", 1..=NODES_MAX, mistakes);
    let share = share(section, mistakes);
    if section.has("nodes") == section.has("share") {
        let sentence = "set either nodes, such as 3, or share, such as \"50%\"";
        mistakes.add(section.at_key("nodes"), &section.key("nodes"), sentence);
    }
    let class = section.text("resource_class", mistakes);
    let nodes = nodes.map(ImageAheadNodes::Count);
    Some(ImageAheadSettings {
        image: image?.value.to_owned(),
        nodes: nodes.or(share.map(ImageAheadNodes::Percent))?,
        resource_class: class.map(|class| class.value.to_owned()),
    })
}

/// A share such as `50%`.
fn share(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> Option<u8> {
    let text = section.text("share", mistakes)?;
    let digits = text.value.strip_suffix('%').map(str::trim);
    let percent = digits.and_then(|digits| digits.parse().ok());
    let percent = percent.filter(|percent| (1..=100).contains(percent));
    if percent.is_none() {
        let sentence = "must lie between \"1%\" and \"100%\"";
        mistakes.add(text.at, &section.key("share"), sentence);
    }
    percent
}
