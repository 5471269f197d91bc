//! Images that are written ahead: from the settings to the rules of the rack.

use trivet_config::{ImageAheadNodes, ImageAheadSettings, Settings};
use trivet_rack::{ImageAheadAmount, ImageAheadRule};

/// The rules for the rack.
pub(crate) fn rules(settings: &Settings) -> Vec<ImageAheadRule> {
    let rule = |ahead: &ImageAheadSettings| ImageAheadRule {
        image: ahead.image.clone(),
        amount: match ahead.nodes {
            ImageAheadNodes::Count(count) => ImageAheadAmount::Nodes(count),
            ImageAheadNodes::Percent(share) => ImageAheadAmount::Percent(share),
        },
        resource_class: ahead.resource_class.clone(),
    };
    settings.images.ahead.iter().map(rule).collect()
}

/// Why no image is written ahead, or only on some nodes, although the settings name one.
pub(crate) fn without_effect(settings: &Settings) -> Vec<String> {
    if settings.images.ahead.is_empty() {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if !settings.agent.fast_track {
        lines.push(
            "images.ahead: agent.fast_track is off, so images are written ahead only on nodes \
             with fast_track = true in their driver_info"
                .to_owned(),
        );
    }
    if settings.http.is_none() {
        let line = "images.ahead: there is no section [http]: no image can be sent to a node";
        lines.push(line.to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(more: &str) -> Settings {
        let ahead = "[[images.ahead]]\nimage = \"a\"\nshare = \"50%\"\nresource_class = \"b\"\n";
        trivet_config::parse(&format!("[box]\ndata = \"/d\"\n{ahead}{more}")).unwrap()
    }

    #[test]
    fn the_settings_become_rules() {
        let rule = ImageAheadRule {
            image: "a".to_owned(),
            amount: ImageAheadAmount::Percent(50),
            resource_class: Some("b".to_owned()),
        };
        assert_eq!(rules(&settings("")), [rule]);
        let more = "[[images.ahead]]\nimage = \"c\"\nnodes = 2\n";
        let amount = ImageAheadAmount::Nodes(2);
        assert_eq!(rules(&settings(more))[1].amount, amount);
    }

    #[test]
    fn a_setting_without_effect_is_a_warning() {
        let lines = without_effect(&settings("")).join("\n");
        assert!(lines.contains("agent.fast_track is off"), "{lines}");
        assert!(lines.contains("no section [http]"), "{lines}");
        let whole = settings("[agent]\nfast_track = true\n[http]\nlisten = \"127.0.0.1\"\n");
        assert_eq!(without_effect(&whole), [""; 0]);
        let report = crate::check::check(&settings(""), true);
        let line = "images.ahead: agent.fast_track is off";
        assert!(report.warnings.iter().any(|warning| warning.contains(line)));
    }
}
