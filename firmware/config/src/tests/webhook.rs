//! `[metrics]` and `[[webhook]]`.

use trivet_model::EventTopic;

use super::*;

#[test]
fn metrics_need_credentials_unless_the_settings_open_them() {
    assert!(!good("").metrics.allow_open);
    assert!(!good("[metrics]\n").metrics.allow_open);
    assert!(good("[metrics]\nallow_open = true\n").metrics.allow_open);
    bad("[metrics]\nopen = true\n", 2, "metrics.open", "unknown key");
    bad(
        "[metrics]\nallow_open = 1\n",
        2,
        "metrics.allow_open",
        "must be",
    );
}

#[test]
fn a_webhook_needs_only_a_url() {
    assert_eq!(good("").webhooks, []);
    let webhooks = good("[[webhook]]\nurl = \"https://events.example/trivet\"\n").webhooks;
    let want = WebhookSettings {
        url: "https://events.example/trivet".to_owned(),
        topics: vec![EventTopic::State, EventTopic::Fault],
        secret_file: None,
        ca: None,
    };
    assert_eq!(webhooks, [want]);
    bad("[[webhook]]\n", 1, "webhook.url", "is missing");
    let wrong = "[[webhook]]\nurl = \"ftp://events.example/\"\n";
    bad(wrong, 2, "webhook.url", "must start with http");
    let user = "[[webhook]]\nurl = \"https://u:p@events.example/\"\n";
    bad(user, 2, "webhook.url", "a user");
}

#[test]
fn a_webhook_selects_topics_and_signs_with_a_file() {
    let text = "[[webhook]]\nurl = \"http://192.0.2.1:8000\"\ntopics = [\"job\", \"image\"]\n\
                secret_file = \"/etc/trivet/secret\"\nca = \"/etc/trivet/ca.pem\"\n";
    let webhook = &good(text).webhooks[0];
    assert_eq!(webhook.topics, [EventTopic::Job, EventTopic::Image]);
    assert_eq!(
        webhook.secret_file,
        Some(PathBuf::from("/etc/trivet/secret"))
    );
    assert_eq!(webhook.ca, Some(PathBuf::from("/etc/trivet/ca.pem")));
    let wrong = "[[webhook]]\nurl = \"http://192.0.2.1\"\ntopics = [\"states\"]\n";
    bad(wrong, 3, "webhook.topics", "`states` is unknown");
    let none = "[[webhook]]\nurl = \"http://192.0.2.1\"\ntopics = []\n";
    bad(none, 3, "webhook.topics", "is an empty list");
}

#[test]
fn the_number_of_webhooks_has_a_bound() {
    let one = "[[webhook]]\nurl = \"http://192.0.2.1\"\n";
    assert_eq!(good(&one.repeat(WEBHOOKS_MAX)).webhooks.len(), WEBHOOKS_MAX);
    let list = mistakes(&one.repeat(WEBHOOKS_MAX + 1));
    assert_eq!(list.len(), 1, "{list:?}");
    assert!(list[0].2.contains("at most"), "{list:?}");
}
