//! Certificates of nodes: signing requests are read here, and signed after the rack has redeemed
//! the token.

use serde_json::json;
use tracing::error;
use trivet_agent_wire::EnrolmentAnswer;
use trivet_certs_authority::NodeSigningRequest;
use trivet_model::order::EnrolmentRequest;
use trivet_model::{ApiCaller, KeyDigest, NodeId, RackOrder};

use super::ApiService;

impl ApiService {
    /// Reads the signing request if the order is an enrolment, and adds the digest of its key.
    pub(super) fn signing_request(
        &self,
        request: &trivet_api::Request<'_>,
        caller: &ApiCaller,
        order: &mut RackOrder,
    ) -> Result<Option<NodeSigningRequest>, Box<trivet_api::Response>> {
        let RackOrder::Enrol(enrolment) = order else {
            return Ok(None);
        };
        let read = self.readable(request, enrolment).map_err(|sentence| {
            self.note_refused(request, caller.from, &sentence);
            Box::new(trivet_api::refuse(request, 400, &sentence))
        })?;
        enrolment.key = KeyDigest(read.key_digest());
        Ok(Some(read))
    }

    /// An error is a sentence.
    fn readable(
        &self,
        request: &trivet_api::Request<'_>,
        enrolment: &EnrolmentRequest,
    ) -> Result<NodeSigningRequest, String> {
        if self.authority.is_none() || request.scheme != "https" {
            return Err("Enrolment needs an API with TLS: set api.tls = true.".to_owned());
        }
        let read = NodeSigningRequest::parse(&enrolment.csr);
        read.map_err(|error| format!("csr cannot be used: {error}."))
    }

    /// The response with the certificate.
    pub(super) fn certificate(
        &self,
        request: &trivet_api::Request<'_>,
        node: NodeId,
        signing: &NodeSigningRequest,
    ) -> trivet_api::Response {
        let now_s = self.clock.now().wall.0 / 1000;
        let uuid = node.to_string();
        let signed = self.authority.as_ref().map(|authority| {
            let certificate = authority.node_certificate(signing, &uuid, now_s);
            certificate.map(|certificate| EnrolmentAnswer {
                node: uuid,
                certificate,
                ca: authority.certificate_pem().to_owned(),
            })
        });
        match signed {
            Some(Ok(answer)) => trivet_api::Response {
                status: 200,
                headers: vec![
                    ("Content-Type", "application/json".to_owned()),
                    ("x-openstack-request-id", request.request_id.to_owned()),
                ],
                body: json!(answer).to_string().into_bytes(),
            },
            Some(Err(why)) => {
                error!(%node, "no certificate for node {node}: {why}");
                trivet_api::refuse(request, 500, "The certificate could not be made.")
            }
            None => trivet_api::refuse(request, 503, "Enrolment needs an API with TLS."),
        }
    }
}
