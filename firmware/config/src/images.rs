//! `[images]`: the cache of images from other servers.

use crate::images_ahead::images_ahead;
use crate::mistake::SettingsMistakes;
use crate::reader::SettingsSection;
use crate::settings::{DailyWindow, ImageCacheSettings};
use crate::value;

const KNOWN: [&str; 8] = [
    "ca",
    "proxy",
    "rate_kib_s",
    "window",
    "quota_gib",
    "reserve_mib",
    "scrub_s",
    "ahead",
];

pub(crate) fn images(
    root: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> ImageCacheSettings {
    let default = ImageCacheSettings::default();
    let Some(section) = root.section("images", mistakes) else {
        return default;
    };
    section.allow_only(&KNOWN, mistakes);
    let reserve = section.number("reserve_mib", 16..=1_048_576, mistakes);
    let scrub = section.number("scrub_s", 1..=31_536_000, mistakes);
    ImageCacheSettings {
        ca: value::path(&section, "ca", mistakes),
        proxy: proxy(&section, mistakes),
        rate_kib_s: section.number("rate_kib_s", 1..=16_777_216, mistakes),
        window: window(&section, mistakes),
        quota_gib: section.number("quota_gib", 1..=1_048_576, mistakes),
        reserve_mib: reserve.unwrap_or(default.reserve_mib),
        scrub_s: scrub.unwrap_or(default.scrub_s),
        ahead: images_ahead(&section, mistakes),
    }
}

/// `http://HOST:PORT`: images that are fetched over https pass through it encrypted.
fn proxy(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> Option<String> {
    let at = section.at_key("proxy");
    let url = value::url(section, "proxy", mistakes)?;
    let place = url
        .strip_prefix("http://")
        .map(|rest| rest.trim_end_matches('/'));
    let fits = |place: &&str| {
        let port = place.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        matches!(port, Some(Ok(1..))) && !place.contains(['/', '@'])
    };
    let Some(place) = place.filter(fits) else {
        let sentence = "must be http://HOST:PORT, without a path or a user";
        mistakes.add(at, "images.proxy", sentence);
        return None;
    };
    Some(place.to_owned())
}

/// `HH:MM-HH:MM`, in UTC.
fn window(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> Option<DailyWindow> {
    let text = section.text("window", mistakes)?;
    let minute = |text: &str| -> Option<u16> {
        let (hour, minute) = text.trim().split_once(':')?;
        let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
        (hour < 24 && minute < 60).then_some(hour * 60 + minute)
    };
    let hours = text.value.split_once('-').and_then(|(from, to)| {
        Some(DailyWindow {
            from_minute: minute(from)?,
            to_minute: minute(to)?,
        })
    });
    let hours = hours.filter(|hours| hours.from_minute != hours.to_minute);
    if hours.is_none() {
        let sentence = format!(
            "`{}` is not a time of day: write it as \"22:00-06:00\" (UTC)",
            text.value
        );
        mistakes.add(text.at, "images.window", sentence);
    }
    hours
}
