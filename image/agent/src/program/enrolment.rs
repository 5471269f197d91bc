//! Enrolment: from the token in the BMC to a certificate of this boot.
//!
//! With a token the box is recognized by the key of its CA, and another server that assigns
//! addresses and answers is not used. Without a token everything is as the parameters say.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use rustls::ClientConfig;
use serde_json::json;
use tokio::time::sleep;
use trivet_agent_wire::{ENROLMENT_PATH, EnrolmentAnswer, EnrolmentBody};
use trivet_certs_enrol::{EnrolmentToken, MailboxContent, prove};
use trivet_image_inventory::{LinuxCalls, SystemCalls as _};
use trivet_net_tls::{ClientIdentity, TrustPolicy, bundled_client_config, verifying_client_config};

use super::{log, mailbox};
use crate::shell::AgentHttpClient;

/// Pause after a request without an answer, and how often it is sent. Ours: the box may restart
/// meanwhile.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
const TRIES_MAX: u32 = 60;

/// What an agent that has enrolled has.
#[derive(Clone, Debug)]
pub(super) struct AgentEnrolment {
    /// The settings of requests, with the certificate.
    pub(super) client: Arc<ClientConfig>,
    /// The certificate of the box's CA, PEM: only callers with the box's certificate are
    /// answered.
    pub(super) ca: String,
}

/// The token in the BMC of this machine, if there is one. It is in the BMC no longer.
pub(super) fn take_token() -> Option<MailboxContent> {
    let mut calls = LinuxCalls::default();
    if !calls.has_bmc() {
        return None;
    }
    let taken =
        mailbox::take(&mut |function, command, data| calls.bmc_request(function, command, data));
    match taken {
        Ok(content) => content,
        Err(reason) => {
            log(&format!("no enrolment: {reason}"));
            None
        }
    }
}

/// Trust in the box whose CA has the key in the mailbox, and in no other server.
pub(super) fn pinned(content: &MailboxContent) -> Result<Arc<ClientConfig>, String> {
    let policy = TrustPolicy::AuthorityKey(content.ca_key);
    let (config, _) = verifying_client_config(&policy).map_err(|error| error.to_string())?;
    Ok(Arc::new(config))
}

/// Requests a certificate. `bundle` has the authorities of other servers, for their files. An
/// error is a sentence.
pub(super) async fn enrol(
    api: &str,
    client: &AgentHttpClient,
    token: &EnrolmentToken,
    addresses: Vec<String>,
    bundle: Option<String>,
) -> Result<AgentEnrolment, String> {
    let failed = |error: rcgen::Error| format!("no signing request: {error}");
    let key = KeyPair::generate().map_err(failed)?;
    let request = CertificateParams::default().serialize_request(&key);
    let csr = request.map_err(failed)?.der().to_vec();
    let body = EnrolmentBody {
        addresses,
        proof: STANDARD.encode(prove(token, &csr)),
        csr: STANDARD.encode(&csr),
    };
    let answer = request_certificate(api, client, &json!(body).to_string()).await?;
    let identity = ClientIdentity::load(&answer.certificate, &key.serialize_pem());
    let identity = identity.map_err(|error| format!("the certificate cannot be used: {error}"))?;
    let trusted: Vec<_> = [answer.ca.clone()].into_iter().chain(bundle).collect();
    let config = bundled_client_config(&trusted).map_err(|error| error.to_string())?;
    Ok(AgentEnrolment {
        client: Arc::new(identity.shown_by(config)),
        ca: answer.ca,
    })
}

/// The same request is sent until it is answered: its answer may be lost.
async fn request_certificate(
    api: &str,
    client: &AgentHttpClient,
    body: &str,
) -> Result<EnrolmentAnswer, String> {
    let url = format!("{}{ENROLMENT_PATH}", api.trim_end_matches('/'));
    let mut reason = String::new();
    for _ in 0..TRIES_MAX {
        let answered = client.exchange(("POST", &url), None, body.into()).await;
        match answered {
            Ok(response) if response.status().as_u16() == 200 => {
                let answer = serde_json::from_slice(response.body());
                return answer.map_err(|error| format!("the box's answer is not valid: {error}"));
            }
            Ok(response) if response.status().is_client_error() => {
                let status = response.status().as_u16();
                return Err(format!(
                    "the box refused the enrolment with status {status}"
                ));
            }
            Ok(response) => reason = format!("status {}", response.status().as_u16()),
            Err(error) => reason = error,
        }
        log(&reason);
        sleep(RETRY_PAUSE).await;
    }
    Err(reason)
}
