//! Secrets in a node's record: how they are masked, and how they survive when a client writes back
//! what it read.

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::secret::{IMAGE_URL, MASK, is_sealed_key, masked, without_url_credentials};

/// `instance_info` with its secrets masked.
pub(crate) fn instance_info(object: &JsonObject) -> JsonObject {
    let mut shown = masked(object);
    if let Some(url) = shown.get_mut(IMAGE_URL)
        && !url.is_null()
    {
        *url = Value::from(MASK);
    }
    shown
}

/// Replaces every mask that was written back by the stored secret.
pub(crate) fn restore(new: &mut Value, old: &Value) {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            for (key, value) in new.iter_mut() {
                let Some(stored) = old.get(key) else { continue };
                if value.as_str() == Some(MASK) && is_sealed_key(key) {
                    *value = stored.clone();
                } else {
                    restore(value, stored);
                }
            }
        }
        (Value::Array(new), Value::Array(old)) => {
            for (value, stored) in new.iter_mut().zip(old) {
                restore(value, stored);
            }
        }
        (Value::String(new), Value::String(old))
            if without_url_credentials(old).is_some_and(|shown| shown == *new) =>
        {
            new.clone_from(old);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mask_that_comes_back_keeps_the_secret() {
        let old = json!({"ipmi_password": "hunter2", "list": [{"token": "t"}], "image_url": "u"});
        let mut new = json!({
            "ipmi_password": MASK, "list": [{"token": MASK}, {"token": MASK}], "image_url": MASK,
        });
        restore(&mut new, &old);
        assert_eq!(
            new,
            json!({
                "ipmi_password": "hunter2",
                "list": [{"token": "t"}, {"token": MASK}],
                "image_url": "u",
            })
        );
    }

    #[test]
    fn credentials_in_an_image_source_are_masked_and_survive_being_written_back() {
        let old = json!({"image_source": "https://ann:hunter2@x/disk.raw", "a": ["http://b:c@d"]});
        let shown = Value::Object(instance_info(old.as_object().unwrap()));
        assert_eq!(shown["image_source"], "https://******@x/disk.raw");
        assert!(!shown.to_string().contains("b:c"), "{shown}");
        let mut new = shown.clone();
        restore(&mut new, &old);
        assert_eq!(new, old);
        let mut other = json!({"image_source": "https://******@y/disk.raw"});
        restore(&mut other, &old);
        assert_eq!(other["image_source"], "https://******@y/disk.raw");
    }

    #[test]
    fn what_is_no_secret_may_be_stars() {
        let mut new = json!({"rating": MASK, "ipmi_password": "new"});
        restore(&mut new, &json!({"rating": "good", "ipmi_password": "old"}));
        assert_eq!(new, json!({"rating": MASK, "ipmi_password": "new"}));
    }

    #[test]
    fn the_image_address_and_the_config_drive_are_masked() {
        let Value::Object(info) = json!({
            "image_url": "http://x/?sig=1", "configdrive": "H4sI", "image_source": "http://x/",
        }) else {
            unreachable!()
        };
        assert_eq!(
            Value::Object(instance_info(&info)),
            json!({"image_url": MASK, "configdrive": MASK, "image_source": "http://x/"})
        );
    }
}
