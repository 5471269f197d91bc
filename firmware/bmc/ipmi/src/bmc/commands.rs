//! The response to each command. A response body is a completion code and data.

use trivet_model::{PowerOrder, PowerState};

use crate::channel::ipmi15::MD5;
use crate::command::{
    NETFN_APP, NETFN_CHASSIS, NETFN_SENSOR, NETFN_STORAGE, NETFN_TRANSPORT, app, chassis,
    completion, control, storage, transport,
};
use crate::wire::message::IpmiMessage;
use crate::wire::number_at;
use crate::wire::rakp::suite_record;

use super::{IpmiChassis, IpmiPrivilege, IpmiSimulator, identity};
use crate::operation::IpmiIdentify;

/// The number that stands for the channel of the request, and the real number of that channel.
pub(super) const CHANNEL_THIS: u8 = 0x0e;
pub(super) const CHANNEL_LAN: u8 = 0x01;
/// Most bytes of suite records in one response (section 22.15).
const SUITE_BYTES_MAX: usize = 16;

/// The session that a request came from.
#[derive(Clone, Copy)]
pub(super) struct IpmiCaller {
    pub(super) session_id: u32,
    pub(super) level: IpmiPrivilege,
    pub(super) limit: IpmiPrivilege,
}

/// The level that a request raised its session to, if any.
pub(super) fn level_granted(
    request: &IpmiMessage,
    response: &IpmiMessage,
) -> Option<IpmiPrivilege> {
    let requested = request.netfn == NETFN_APP && request.command == app::SET_SESSION_PRIVILEGE;
    match response.body[..] {
        [completion::OK, level] if requested => IpmiPrivilege::from_level(level),
        _ => None,
    }
}

/// Whether the request has an effect that a repetition would cause twice.
pub(super) fn is_action(request: &IpmiMessage, response: &IpmiMessage) -> bool {
    // A second reservation would cancel the first.
    let acts = matches!(
        (request.netfn, request.command),
        (NETFN_CHASSIS, chassis::CONTROL)
            | (NETFN_STORAGE, storage::RESERVE_SEL | storage::RESERVE_SDR)
    );
    acts && response.body.first() == Some(&completion::OK)
}

/// Whether the request restarted the BMC itself.
pub(super) fn is_bmc_reset(request: &IpmiMessage, response: &IpmiMessage) -> bool {
    request.netfn == NETFN_APP
        && matches!(request.command, app::COLD_RESET | app::WARM_RESET)
        && response.body.first() == Some(&completion::OK)
}

/// The session that a request closed, if it did.
pub(super) fn session_closed(request: &IpmiMessage, response: &IpmiMessage) -> Option<u32> {
    let closed = request.netfn == NETFN_APP
        && request.command == app::CLOSE_SESSION
        && response.body.first() == Some(&completion::OK);
    closed.then(|| number_at(&request.body, 0)).flatten()
}

impl IpmiSimulator {
    /// Executes a request; outside a session only those that a console needs for the login.
    pub(super) fn execute(
        &mut self,
        request: &IpmiMessage,
        caller: Option<IpmiCaller>,
        machine: &mut dyn IpmiChassis,
    ) -> Vec<u8> {
        let data = &request.body[..];
        match (request.netfn, request.command) {
            (NETFN_APP, app::CHANNEL_AUTHENTICATION) => return self.authentication(data),
            (NETFN_APP, app::CHANNEL_CIPHER_SUITES) => return self.cipher_suites(data),
            (NETFN_APP, app::SYSTEM_GUID | app::DEVICE_GUID) => {
                let mut body = vec![completion::OK];
                body.extend(self.setup.guid);
                return body;
            }
            _ => {}
        }
        let Some(caller) = caller else {
            return vec![completion::NO_PRIVILEGE];
        };
        match (request.netfn, request.command) {
            (NETFN_APP, app::DEVICE_ID) => device_id(),
            (NETFN_APP, app::COLD_RESET | app::WARM_RESET) => {
                let may = caller.level >= IpmiPrivilege::Administrator;
                vec![if may {
                    completion::OK
                } else {
                    completion::NO_PRIVILEGE
                }]
            }
            (NETFN_APP, app::SET_SESSION_PRIVILEGE) => set_privilege(data, caller),
            (NETFN_APP, app::CLOSE_SESSION) => close_session(data, caller),
            (NETFN_APP, app::CHANNEL_INFO) => identity::channel_info(data),
            (NETFN_APP, app::USER_ACCESS | app::USER_NAME)
                if caller.level < IpmiPrivilege::Operator =>
            {
                vec![completion::NO_PRIVILEGE]
            }
            (NETFN_APP, app::USER_ACCESS) => identity::user_access(data, &self.setup.users),
            (NETFN_APP, app::USER_NAME) => identity::user_name(data, &self.setup.users),
            (NETFN_TRANSPORT, transport::LAN_PARAMETER) => identity::lan_parameter(data, &self.lan),
            (NETFN_CHASSIS, command) => self.chassis(command, data, caller, machine),
            (NETFN_SENSOR, command) => self.sensors.handle_sensor_command(command, data),
            (NETFN_STORAGE, command) => self.storage(command, data, caller),
            _ => vec![completion::NO_COMMAND],
        }
    }

    /// Chassis commands. Every user can read, operators can change.
    fn chassis(
        &mut self,
        command: u8,
        data: &[u8],
        caller: IpmiCaller,
        machine: &mut dyn IpmiChassis,
    ) -> Vec<u8> {
        let acts = matches!(
            command,
            chassis::CONTROL | chassis::SET_BOOT_OPTIONS | chassis::IDENTIFY
        );
        if acts && caller.level < IpmiPrivilege::Operator {
            return vec![completion::NO_PRIVILEGE];
        }
        match command {
            chassis::STATUS => {
                let on = machine.power() == PowerState::On;
                vec![completion::OK, u8::from(on), 0, self.light.bits()]
            }
            chassis::CONTROL => vec![chassis_control(data, machine)],
            chassis::IDENTIFY => {
                let light = IpmiIdentify::parse(data);
                self.light = light.into();
                machine.identify(light);
                vec![completion::OK]
            }
            chassis::SET_BOOT_OPTIONS => self.options.set(data, machine),
            chassis::BOOT_OPTIONS => self.options.read(data, machine),
            _ => vec![completion::NO_COMMAND],
        }
    }

    /// Storage commands. Every user can read, operators can write.
    fn storage(&mut self, command: u8, data: &[u8], caller: IpmiCaller) -> Vec<u8> {
        let writes = matches!(command, storage::WRITE_FRU | storage::CLEAR_SEL);
        if writes && caller.level < IpmiPrivilege::Operator {
            return vec![completion::NO_PRIVILEGE];
        }
        match command {
            storage::FRU_INFO | storage::READ_FRU | storage::WRITE_FRU => {
                self.fru.answer(command, data)
            }
            storage::SDR_INFO | storage::RESERVE_SDR | storage::SDR => {
                self.sensors.handle_repository_command(command, data)
            }
            storage::SEL_INFO
            | storage::RESERVE_SEL
            | storage::SEL_ENTRY
            | storage::CLEAR_SEL
            | storage::SEL_TIME => self.sel.answer(command, data),
            _ => vec![completion::NO_COMMAND],
        }
    }

    fn authentication(&self, data: &[u8]) -> Vec<u8> {
        let &[channel, _level, ..] = data else {
            return vec![completion::BAD_LENGTH];
        };
        if !matches!(channel & 0x0f, CHANNEL_THIS | CHANNEL_LAN) {
            return vec![completion::BAD_FIELD];
        }
        // The extended data of IPMI 2.0; MD5 if IPMI 1.5 is enabled; named users exist; a BMC key
        // if it is set.
        let kinds = if self.ipmi15.is_some() { 1 << MD5 } else { 0 };
        let kg = if self.setup.kg.is_some() { 0x20 } else { 0 };
        vec![
            completion::OK,
            CHANNEL_LAN,
            0x80 | kinds,
            kg | 0x04,
            0x02,
            0,
            0,
            0,
            0,
        ]
    }

    fn cipher_suites(&self, data: &[u8]) -> Vec<u8> {
        let &[channel, _payload, index, ..] = data else {
            return vec![completion::BAD_LENGTH];
        };
        if !matches!(channel & 0x0f, CHANNEL_THIS | CHANNEL_LAN) {
            return vec![completion::BAD_FIELD];
        }
        let records: Vec<u8> = self
            .setup
            .suites
            .iter()
            .flat_map(|&suite| suite_record(suite))
            .collect();
        let page = records
            .chunks(SUITE_BYTES_MAX)
            .nth(usize::from(index & 0x3f));
        let mut body = vec![completion::OK, CHANNEL_LAN];
        body.extend(page.unwrap_or_default());
        body
    }
}

/// Get Device ID (section 20.1): firmware 1.00, IPMI 2.0; chassis, FRU, event log, sensor
/// repository and sensors; no manufacturer.
fn device_id() -> Vec<u8> {
    vec![
        completion::OK,
        0x20,
        0x01,
        0x01,
        0x00,
        0x02,
        0x8f,
        0,
        0,
        0,
        0,
        0,
    ]
}

fn set_privilege(data: &[u8], caller: IpmiCaller) -> Vec<u8> {
    match data.first().map(|level| level & 0x0f) {
        None => vec![completion::BAD_LENGTH],
        // Zero requests the present level.
        Some(0) => vec![completion::OK, caller.level as u8],
        Some(level) => match IpmiPrivilege::from_level(level) {
            None => vec![completion::BAD_FIELD],
            Some(level) if level > caller.limit => vec![completion::ABOVE_LIMIT],
            Some(level) => vec![completion::OK, level as u8],
        },
    }
}

/// A console can close only its own session.
fn close_session(data: &[u8], caller: IpmiCaller) -> Vec<u8> {
    match number_at(data, 0) {
        None => vec![completion::BAD_LENGTH],
        Some(id) if id == caller.session_id => vec![completion::OK],
        Some(_) => vec![completion::NO_SESSION],
    }
}

/// Chassis Control. A machine that is off cannot be cycled, reset, shut down or interrupted, as
/// with many BMCs.
fn chassis_control(data: &[u8], machine: &mut dyn IpmiChassis) -> u8 {
    let Some(&action) = data.first() else {
        return completion::BAD_LENGTH;
    };
    let order = match action & 0x0f {
        control::DOWN => PowerOrder::Off,
        control::UP => PowerOrder::On,
        control::CYCLE => PowerOrder::Cycle,
        control::RESET => PowerOrder::Reset,
        control::INTERRUPT => PowerOrder::Nmi,
        control::SOFT => PowerOrder::SoftOff,
        _ => return completion::BAD_FIELD,
    };
    let needs_power = matches!(
        order,
        PowerOrder::Cycle | PowerOrder::Reset | PowerOrder::SoftOff | PowerOrder::Nmi
    );
    if needs_power && machine.power() == PowerState::Off {
        return completion::NOT_IN_THIS_STATE;
    }
    machine.control(order);
    completion::OK
}
