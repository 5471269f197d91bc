//! Replies of Redfish BMCs, and the session between a genuine service and a faulty network.

use serde_json::json;
use trivet_bmc_redfish::service::{
    RedfishSimulator, RedfishSimulatorAction, RedfishSimulatorSetup,
};
use trivet_bmc_redfish::{
    BmcHttpError, BmcHttpRequest, BmcHttpResponse, RedfishBootMode, RedfishOperation,
    RedfishSession, RedfishTarget as Bmc, to_bmc_reply,
};
use trivet_model::bmc_request::MediaDevice;
use trivet_model::secret::SecretText;
use trivet_model::{BootDevice, PowerOrder, PowerState, SeededRandom, Tick};

use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const ANSWERS: FuzzTarget = FuzzTarget {
    name: "redfish_answers",
    run: answers,
    seeds: answer_seeds,
    // The password was repeated in an error message.
    regressions: &[concat!(
        "01000006004d7b226572726f72223a7b226d657373616765223a225468652076616c756520276361",
        "6c76696e2720666f72207468652070726f70657274792050617373776f72642069732077726f6e67",
        "227d7d",
    )],
};

pub(crate) const SESSION: FuzzTarget = FuzzTarget {
    name: "redfish_session",
    run: session,
    seeds: session_seeds,
    regressions: &[],
};

/// Most HTTP requests of any power order or BMC request, including logins.
const REQUESTS_MAX: usize = 700;

const ORDERS: [PowerOrder; 10] = [
    PowerOrder::Status,
    PowerOrder::On,
    PowerOrder::Off,
    PowerOrder::SoftOff,
    PowerOrder::Cycle,
    PowerOrder::Reset,
    PowerOrder::Nmi,
    PowerOrder::BmcReset { warm: true },
    PowerOrder::ReadBoot,
    PowerOrder::SetBoot {
        device: BootDevice::Cdrom,
        persistent: false,
        efi: true,
    },
];

fn bmc_requests() -> [RedfishOperation; 12] {
    let device = MediaDevice::Cdrom;
    let url = "http://192.0.2.1/x";
    [
        RedfishOperation::Sensors,
        RedfishOperation::Inventory,
        RedfishOperation::Identity,
        RedfishOperation::Indicator,
        RedfishOperation::SetIndicator(true),
        RedfishOperation::BootMode,
        RedfishOperation::SetBootMode(RedfishBootMode::Legacy),
        RedfishOperation::SecureBoot,
        RedfishOperation::SetSecureBoot(true),
        RedfishOperation::InsertMedia {
            device,
            url: SecretText::new(url),
        },
        RedfishOperation::EjectMedia {
            devices: vec![device],
        },
        RedfishOperation::BootHttp {
            url: url.to_owned(),
            persistent: true,
        },
    ]
}

fn target(auth: &str) -> Bmc {
    let info = json!({
        "redfish_address": "https://192.0.2.7", "redfish_username": "root",
        "redfish_password": "calvin", "redfish_auth_type": auth,
    });
    let info = info.as_object().cloned().unwrap_or_default();
    Bmc::of(&info).expect("the record is whole")
}

/// Starts the power order or BMC request of this number.
fn start_request(session: &mut RedfishSession, now: Tick, number: u8) {
    let operations = bmc_requests();
    let number = usize::from(number) % (ORDERS.len() + operations.len());
    let given = match ORDERS.get(number) {
        Some(order) => session.order(now, 1, *order),
        None => session.operation(now, 1, operations[number - ORDERS.len()].clone()),
    };
    given.expect("nothing waits before it");
}

/// Whether it has ended; its result must be meaningful.
fn has_ended(session: &mut RedfishSession) -> bool {
    if let Some((_, answer)) = session.answer() {
        if let Err(error) = answer {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains("calvin") && text.len() < 1500);
        }
        return true;
    }
    match session.reply() {
        Some((_, Ok(report))) => {
            assert!(to_bmc_reply(report).value().is_object());
            true
        }
        Some((_, Err(error))) => {
            assert!(!error.to_string().contains("calvin"));
            true
        }
        None => false,
    }
}

/// Every request stays on the BMC and on one line.
fn check_request(request: &BmcHttpRequest) {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(request.path.starts_with('/') && !request.path.starts_with("//"));
    assert!(plain(&request.path) && request.if_match.as_deref().is_none_or(plain));
    if let Some(credentials) = &request.credentials {
        let (_, value) = credentials.header();
        assert!(plain(&value.reveal().replace(' ', "")));
    }
}

/// Runs until the end; `answer` plays the BMC.
fn run_to_end(
    session: &mut RedfishSession,
    mut answer: impl FnMut(Tick, &BmcHttpRequest) -> Result<BmcHttpResponse, BmcHttpError>,
) {
    let mut now = Tick::default().after_ms(1_000);
    for _ in 0..REQUESTS_MAX {
        if has_ended(session) {
            return;
        }
        let due = session.deadline().expect("it has something to do");
        now = now.max(due);
        let request = session.transmit(now).expect("it is due");
        assert!(session.transmit(now).is_none(), "two at once");
        check_request(&request);
        let received = answer(now, &request);
        now = now.after_ms(10);
        session.handle_response(now, received);
    }
    panic!("no end");
}

fn transport_error(choice: u8) -> BmcHttpError {
    let message = "x".to_owned();
    match choice % 4 {
        0 => BmcHttpError::Unreachable {
            reason: None,
            message,
        },
        1 => BmcHttpError::Lost { message },
        2 => BmcHttpError::Silent,
        _ => BmcHttpError::Untrusted {
            fingerprint: None,
            message,
        },
    }
}

/// The input gives replies: a choice, headers if the choice has them, and a body with its
/// length before it. After the last one, it is repeated.
fn answers(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let auth = input.choose(&["auto", "session", "basic"]);
    let mut session = RedfishSession::new(target(auth));
    start_request(&mut session, Tick::default(), input.byte());
    let mut last = Ok(BmcHttpResponse::default());
    run_to_end(&mut session, |_, _| {
        if input.is_empty() {
            return last.clone();
        }
        let choice = input.byte();
        last = if choice >= 0xf0 {
            Err(transport_error(choice))
        } else {
            let statuses = [
                200, 200, 200, 201, 202, 204, 400, 401, 403, 404, 412, 500, 503,
            ];
            let mut header = |bit: u8| {
                let text = (choice & bit != 0).then(|| input.counted());
                text.map(|text| String::from_utf8_lossy(text).into_owned())
            };
            let (location, etag, token) = (header(1), header(2), header(4));
            Ok(BmcHttpResponse {
                status: input.choose(&statuses),
                token: token.map(SecretText::new),
                location,
                etag,
                retry_after_s: (choice & 8 != 0).then(|| u64::from(input.byte())),
                body: input.counted_long().to_vec(),
            })
        };
        last.clone()
    });
}

fn answer_seeds() -> Vec<Vec<u8>> {
    let answer = |body: &str| {
        let length = u16::try_from(body.len()).unwrap_or(0).to_be_bytes();
        [&[0, 0][..], &length, body.as_bytes()].concat()
    };
    let systems = answer(r#"{"Members":[{"@odata.id":"/s"}]}"#);
    let system = answer(
        r##"{"PowerState":"On","Boot":{"BootSourceOverrideMode":"UEFI"},"IndicatorLED":"Off",
        "Links":{"Chassis":[{"@odata.id":"/c"}],"ManagedBy":[{"@odata.id":"/m"}]},
        "VirtualMedia":{"@odata.id":"/v"},"SecureBoot":{"@odata.id":"/b"},
        "EthernetInterfaces":{"@odata.id":"/e"},"Actions":{"#ComputerSystem.Reset":
        {"target":"/r","ResetType@Redfish.AllowableValues":["On","ForceOff","Nmi"]}}}"##,
    );
    let rest = answer(
        r##"{"Members":[{"@odata.id":"/x"}],"Sensors":{"@odata.id":"/l"},"MediaTypes":["CD"],
        "SecureBootEnable":false,"TaskState":"Completed","Reading":1,"Name":"n",
        "Actions":{"#VirtualMedia.InsertMedia":{"target":"/i"},
        "#Manager.Reset":{"target":"/r"}}}"##,
    );
    let task = [&[1, 2][..], b"/t", &[4, 0, 0]].concat();
    let works = u8::try_from(ORDERS.len() + bmc_requests().len()).unwrap_or(0);
    (0..works)
        .map(|work| [&[2, work][..], &systems, &system, &rest, &task, &rest].concat())
        .collect()
}

/// The input is the network between both ends, a byte for each request.
fn session(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let choice = input.byte();
    let mut service = RedfishSimulator::new(RedfishSimulatorSetup {
        sessions: choice & 1 == 0,
        task_ms: (choice & 2 != 0).then_some(3_000),
        lag_ms: u64::from(choice >> 4) * 1_000,
        ..RedfishSimulatorSetup::default()
    });
    if choice & 4 != 0
        && let Some(machine) = service.machine(0)
    {
        machine.power = PowerState::On;
    }
    let mut entropy = SeededRandom::new(1);
    let mut session = RedfishSession::new(target("auto"));
    let work = input.byte();
    start_request(&mut session, Tick::default(), work);
    run_to_end(&mut session, |now, request| {
        let fate = input.byte();
        match fate % 16 {
            1 => return Err(transport_error(0)),
            2 => return Err(transport_error(1)),
            3 => {
                let _ = service.handle(now, request, &mut entropy);
                return Err(transport_error(1));
            }
            4 => service.faults.busy = (1, u64::from(fate >> 4)),
            5 => service.drop_sessions(),
            6 => service.faults.truncated = 1,
            7 => service.restart(now.after_ms(u64::from(fate) * 100)),
            8 => service.faults.reported_power = Some(PowerState::On),
            _ => {}
        }
        let answer = service.handle(now, request, &mut entropy);
        answer.ok_or(transport_error(0))
    });
    let counts = |action: &RedfishSimulatorAction| match action {
        RedfishSimulatorAction::Reset(_, word) => {
            matches!(word.as_str(), "ForceRestart" | "PowerCycle" | "Nmi")
        }
        RedfishSimulatorAction::ManagerReset => true,
        RedfishSimulatorAction::Media(_, image) => image.is_some(),
        _ => false,
    };
    let actions = service.take_actions();
    assert!(
        actions.iter().filter(|action| counts(action)).count() <= 1,
        "{actions:?}"
    );
}

fn session_seeds() -> Vec<Vec<u8>> {
    let works = u8::try_from(ORDERS.len() + bmc_requests().len()).unwrap_or(0);
    let wire = [0, 0, 5, 0, 4, 0, 3, 0, 0, 2, 1, 6, 0, 0, 7, 8, 0, 0];
    (0..works)
        .map(|work| [&[work.wrapping_mul(37), work][..], &wire].concat())
        .collect()
}
