//! Agent to appliance: version document, lookup, heartbeat.

use serde::{Deserialize, Serialize};
use trivet_model::node::JsonObject;

use crate::lenient;

/// The appliance's reply to `GET /`. The agent reads only the newest version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersionDocument {
    /// Name of the service.
    #[serde(default)]
    pub name: String,
    /// Description of the service.
    #[serde(default)]
    pub description: String,
    /// The present version of the API.
    pub default_version: ApiVersion,
    /// The same version, in a list.
    #[serde(default)]
    pub versions: Vec<ApiVersion>,
}

/// One major version of the appliance's API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApiVersion {
    /// `v1`.
    #[serde(default)]
    pub id: String,
    /// `CURRENT`.
    #[serde(default)]
    pub status: String,
    /// Oldest microversion.
    #[serde(default)]
    pub min_version: String,
    /// Newest microversion.
    pub version: String,
    /// Links to it.
    #[serde(default)]
    pub links: Vec<ApiLink>,
}

/// A link of a document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApiLink {
    /// URL.
    pub href: String,
    /// Relation to the document, such as `self`.
    pub rel: String,
}

/// The request of an agent for a certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnrolmentBody {
    /// The hardware addresses of the machine.
    pub addresses: Vec<String>,
    /// The signing request (PKCS #10, DER) in base64.
    pub csr: String,
    /// The proof that its sender has the token in the BMC, in base64.
    pub proof: String,
}

/// The reply with the certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnrolmentAnswer {
    /// UUID of the node.
    pub node: String,
    /// The certificate, PEM.
    #[serde(default)]
    pub certificate: String,
    /// The certificate of the authority that signed it, PEM.
    #[serde(default)]
    pub ca: String,
}

/// The reply to a lookup that found its node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LookupAnswer {
    /// The node.
    pub node: LookupNode,
    /// Settings for the agent.
    #[serde(default)]
    pub config: LookupConfig,
    /// The timeout, at its position in very old servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::number")]
    pub heartbeat_timeout: Option<u64>,
}

impl LookupAnswer {
    /// The heartbeat timeout in seconds, from its new or its old position.
    pub fn heartbeat_timeout_s(&self) -> Option<u64> {
        self.config.heartbeat_timeout.or(self.heartbeat_timeout)
    }
}

/// The node as the agent stores it. The agent indexes all four fields, so all are sent even
/// when empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LookupNode {
    /// UUID.
    pub uuid: String,
    /// `root_device`, `capabilities` ...
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub properties: JsonObject,
    /// `root_device`, `capabilities` ... of the instance; these take precedence.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub instance_info: JsonObject,
    /// `agent_*`: how to erase.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub driver_internal_info: JsonObject,
}

/// Settings for the agent. A field that is none is not sent, and the agent uses its own
/// default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LookupConfig {
    /// Seconds; the agent sends a heartbeat after 0.3 to 0.6 of it. The agent requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::number")]
    pub heartbeat_timeout: Option<u64>,
    /// The token, or its mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub agent_token: Option<String>,
    /// Read by older agents only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub agent_token_required: Option<bool>,
    /// Whether MD5 checksums are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub agent_md5_checksum_enable: Option<bool>,
    /// Skip the check of image formats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub disable_deep_image_inspection: Option<bool>,
    /// Formats the agent may accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "lenient::option")]
    pub permitted_image_formats: Option<Vec<String>>,
}

/// The body of a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatBody {
    /// The URL at which the agent listens, without a slash at the end.
    #[serde(default)]
    pub callback_url: String,
    /// The token; null when the agent has none.
    #[serde(default)]
    pub agent_token: Option<String>,
    /// The agent's version.
    #[serde(default)]
    pub agent_version: Option<String>,
    /// The agent's own certificate in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_verify_ca: Option<String>,
    /// `start`, `end` or `error`; the stock agent does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_status: Option<String>,
    /// A message that belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_status_message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_the_version_document_of_the_transcript() {
        let document: VersionDocument = serde_json::from_str(
            r#"{"name":"stub","description":"stub","default_version":{"id":"v1",
            "links":[{"href":"http://127.0.0.1:6385/v1/","rel":"self"}],"status":"CURRENT",
            "min_version":"1.1","version":"1.109"},"versions":[]}"#,
        )
        .unwrap();
        assert_eq!(document.default_version.version, "1.109");
        assert_eq!(document.default_version.links[0].rel, "self");
    }

    #[test]
    fn reads_the_lookup_answer_of_the_transcript() {
        let answer: LookupAnswer = serde_json::from_str(
            r#"{"node":{"uuid":"11111111-2222-4333-8444-555555555555","properties":{},
            "instance_info":{},"driver_internal_info":{}},
            "config":{"heartbeat_timeout":30,"agent_token":"AAAA","agent_token_required":true,
            "agent_md5_checksum_enable":false,"disable_deep_image_inspection":false,
            "permitted_image_formats":["raw","gpt","qcow2"],
            "agent_containers":{"allow_arbitrary_containers":false}}}"#,
        )
        .unwrap();
        assert_eq!(answer.heartbeat_timeout_s(), Some(30));
        assert_eq!(answer.config.agent_token.as_deref(), Some("AAAA"));
        assert_eq!(answer.config.permitted_image_formats.unwrap().len(), 3);
    }

    #[test]
    fn takes_the_timeout_from_its_old_place() {
        let answer: LookupAnswer =
            serde_json::from_value(json!({"node": {"uuid": "u"}, "heartbeat_timeout": 300}))
                .unwrap();
        assert_eq!(answer.heartbeat_timeout_s(), Some(300));
    }

    #[test]
    fn a_lookup_reply_without_a_uuid_is_refused() {
        assert!(serde_json::from_value::<LookupAnswer>(json!({"node": {}})).is_err());
        assert!(serde_json::from_value::<LookupAnswer>(json!({"config": {}})).is_err());
    }

    #[test]
    fn sends_all_four_parts_of_the_node_and_no_nulls_in_the_config() {
        let answer = LookupAnswer {
            node: LookupNode {
                uuid: "u".to_owned(),
                ..LookupNode::default()
            },
            config: LookupConfig {
                heartbeat_timeout: Some(300),
                agent_token: Some("t".to_owned()),
                agent_token_required: Some(true),
                ..LookupConfig::default()
            },
            heartbeat_timeout: None,
        };
        assert_eq!(
            serde_json::to_value(answer).unwrap(),
            json!({
                "node": {"uuid": "u", "properties": {}, "instance_info": {},
                         "driver_internal_info": {}},
                "config": {"heartbeat_timeout": 300, "agent_token": "t",
                           "agent_token_required": true},
            })
        );
    }

    #[test]
    fn reads_heartbeats_of_both_transcripts() {
        let full: HeartbeatBody = serde_json::from_value(json!({
            "callback_url": "https://127.0.0.1:9999", "agent_token": "AAAA",
            "agent_version": "13.0.0",
            "agent_verify_ca": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        }))
        .unwrap();
        assert_eq!(full.agent_version.as_deref(), Some("13.0.0"));
        assert!(full.agent_verify_ca.unwrap().starts_with("-----BEGIN"));
        let old: HeartbeatBody =
            serde_json::from_str(r#"{"callback_url":"http://127.0.0.1:9601"}"#).unwrap();
        assert_eq!(old.agent_token, None);
    }

    #[test]
    fn an_agent_without_a_token_sends_null() {
        let body = HeartbeatBody {
            callback_url: "http://192.0.2.10:9999".to_owned(),
            agent_version: Some("13.0.0".to_owned()),
            ..HeartbeatBody::default()
        };
        assert_eq!(
            serde_json::to_value(body).unwrap(),
            json!({"callback_url": "http://192.0.2.10:9999", "agent_token": null,
                   "agent_version": "13.0.0"})
        );
    }
}
