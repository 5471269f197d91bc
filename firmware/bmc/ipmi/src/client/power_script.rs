//! Power orders as sequences of commands. Each order is one or a few requests; the script returns
//! the first request, and for each response the next request or the result. It does not handle
//! sessions or time.

use trivet_model::power::RawBytes;
use trivet_model::{BootDevice, PowerAnswer, PowerError, PowerOrder, PowerState};

use crate::boot::BootFlags;
use crate::command::{IpmiRequest, app, chassis, completion, control, option};

/// Keeps the flags valid if no power command follows within 60 seconds, which can happen with a
/// slow order (table 28-14, parameter 3, bit 3).
const KEEP_ON_TIMEOUT: u8 = 0x08;

/// The next action after a response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum IpmiPowerNext {
    Send(IpmiRequest),
    Done(Result<PowerAnswer, PowerError>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum IpmiPowerStep {
    /// The only command of the order.
    Main,
    /// Reads the state to find out whether a refused control was unnecessary; has the completion
    /// code of the refusal.
    VerifyState {
        code: u8,
    },
    /// Switches on a machine that could not be cycled because it was off.
    PowerUp,
    /// Setting boot flags: set in progress, keep valid, the flags, set complete.
    Begin,
    Keep,
    Flags,
    End {
        code: u8,
    },
}

/// One order in progress.
#[derive(Clone, Debug)]
pub(super) struct IpmiPowerScript {
    order: PowerOrder,
    step: IpmiPowerStep,
}

impl IpmiPowerScript {
    /// The script of an order and its first request.
    pub(super) fn start(order: PowerOrder) -> (Self, IpmiRequest) {
        let (step, request) = match order {
            PowerOrder::Status => (
                IpmiPowerStep::Main,
                IpmiRequest::chassis(chassis::STATUS, &[]),
            ),
            PowerOrder::On => (IpmiPowerStep::Main, control(control::UP)),
            PowerOrder::Off => (IpmiPowerStep::Main, control(control::DOWN)),
            PowerOrder::SoftOff => (IpmiPowerStep::Main, control(control::SOFT)),
            PowerOrder::Cycle => (IpmiPowerStep::Main, control(control::CYCLE)),
            PowerOrder::Reset => (IpmiPowerStep::Main, control(control::RESET)),
            PowerOrder::ReadBoot => (
                IpmiPowerStep::Main,
                IpmiRequest::chassis(chassis::BOOT_OPTIONS, &[option::FLAGS, 0, 0]),
            ),
            PowerOrder::SetBoot { .. } => {
                (IpmiPowerStep::Begin, set(option::SET_IN_PROGRESS, &[1]))
            }
            PowerOrder::Nmi => (IpmiPowerStep::Main, control(control::INTERRUPT)),
            PowerOrder::BmcReset { warm } => {
                let command = if warm {
                    app::WARM_RESET
                } else {
                    app::COLD_RESET
                };
                (IpmiPowerStep::Main, IpmiRequest::app(command, &[]))
            }
            PowerOrder::Raw {
                netfn,
                command,
                data,
            } => {
                let data = data.as_slice().to_vec();
                let request = IpmiRequest {
                    netfn,
                    command,
                    data,
                };
                (IpmiPowerStep::Main, request)
            }
        };
        (Self { order, step }, request)
    }

    /// Whether it must not be repeated if the BMC may have received it.
    pub(super) fn at_most_once(&self) -> bool {
        self.order.at_most_once()
    }

    /// Whether it changes the machine's power: some BMCs respond only after the change, and execute
    /// each repetition that arrived meanwhile.
    pub(super) fn changes_power(&self) -> bool {
        self.order.switches().is_some()
    }

    /// Whether the session is unusable after it: a BMC that restarts drops it, and a raw command
    /// may have changed its level.
    pub(super) fn ends_session(&self) -> bool {
        matches!(
            self.order,
            PowerOrder::BmcReset { .. } | PowerOrder::Raw { .. }
        )
    }

    /// The result if the order was sent and got no response: a BMC that restarts may do so before
    /// it responds.
    pub(super) fn answer_without_response(&self) -> Option<PowerAnswer> {
        matches!(self.order, PowerOrder::BmcReset { .. }).then_some(PowerAnswer::Accepted)
    }

    /// Processes the response to the last request.
    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiPowerNext {
        match self.step {
            IpmiPowerStep::Main => self.handle_main_response(code, data),
            IpmiPowerStep::VerifyState { code: refused } => {
                self.handle_state_response(refused, code, data)
            }
            IpmiPowerStep::PowerUp => IpmiPowerNext::Done(accepted(code)),
            // BMCs that do not support these two parameters can set the flags all the same.
            IpmiPowerStep::Begin => self.send(
                IpmiPowerStep::Keep,
                set(option::VALID_BIT_CLEARING, &[KEEP_ON_TIMEOUT]),
            ),
            IpmiPowerStep::Keep => {
                let flags = self.flags().emit();
                self.send(IpmiPowerStep::Flags, set(option::FLAGS, &flags))
            }
            IpmiPowerStep::Flags => self.send(
                IpmiPowerStep::End { code },
                set(option::SET_IN_PROGRESS, &[0]),
            ),
            IpmiPowerStep::End { code } => IpmiPowerNext::Done(accepted(code)),
        }
    }

    fn send(&mut self, step: IpmiPowerStep, request: IpmiRequest) -> IpmiPowerNext {
        self.step = step;
        IpmiPowerNext::Send(request)
    }

    fn handle_main_response(&mut self, code: u8, data: &[u8]) -> IpmiPowerNext {
        match (self.order, code) {
            (PowerOrder::Status, completion::OK) => {
                IpmiPowerNext::Done(power(data).map(PowerAnswer::Power))
            }
            (PowerOrder::ReadBoot, completion::OK) => IpmiPowerNext::Done(boot(data)),
            (PowerOrder::Raw { .. }, _) => IpmiPowerNext::Done(raw(code, data)),
            (PowerOrder::Cycle, completion::NOT_IN_THIS_STATE) => {
                self.send(IpmiPowerStep::PowerUp, control(control::UP))
            }
            // Some BMCs refuse to switch on what is on, or off what is off.
            (
                PowerOrder::On | PowerOrder::Off | PowerOrder::SoftOff,
                completion::NOT_IN_THIS_STATE,
            ) => self.send(
                IpmiPowerStep::VerifyState { code },
                IpmiRequest::chassis(chassis::STATUS, &[]),
            ),
            _ => IpmiPowerNext::Done(accepted(code)),
        }
    }

    fn handle_state_response(&self, refused: u8, code: u8, data: &[u8]) -> IpmiPowerNext {
        let wanted = if self.order == PowerOrder::On {
            PowerState::On
        } else {
            PowerState::Off
        };
        let needless = code == completion::OK && power(data) == Ok(wanted);
        IpmiPowerNext::Done(accepted(if needless { completion::OK } else { refused }))
    }

    fn flags(&self) -> BootFlags {
        match self.order {
            PowerOrder::SetBoot {
                device,
                persistent,
                efi,
            } => BootFlags {
                valid: true,
                persistent,
                efi,
                device: Some(device),
            },
            _ => BootFlags::default(),
        }
    }
}

fn control(action: u8) -> IpmiRequest {
    IpmiRequest::chassis(chassis::CONTROL, &[action])
}

fn set(parameter: u8, data: &[u8]) -> IpmiRequest {
    let mut bytes = vec![parameter];
    bytes.extend(data);
    IpmiRequest::chassis(chassis::SET_BOOT_OPTIONS, &bytes)
}

fn accepted(code: u8) -> Result<PowerAnswer, PowerError> {
    match code {
        completion::OK => Ok(PowerAnswer::Accepted),
        code => Err(PowerError::Refused { code }),
    }
}

/// Returns every response, refusals too: only the caller of a raw command knows its meaning.
fn raw(code: u8, data: &[u8]) -> Result<PowerAnswer, PowerError> {
    let data = RawBytes::new(data).ok_or(PowerError::InvalidResponse {
        message: "the response is too long",
    })?;
    Ok(PowerAnswer::Raw { code, data })
}

fn power(data: &[u8]) -> Result<PowerState, PowerError> {
    match data.first() {
        Some(state) if state & 1 != 0 => Ok(PowerState::On),
        Some(_) => Ok(PowerState::Off),
        None => Err(PowerError::InvalidResponse {
            message: "a chassis status without a power state",
        }),
    }
}

/// Reads the boot flags: a version byte, the parameter with its lock bit, five bytes. Flags whose
/// valid bit is clear were used up or never set, whatever device they still name.
fn boot(data: &[u8]) -> Result<PowerAnswer, PowerError> {
    let flags = data
        .get(2..)
        .filter(|_| data[1] & 0x7f == option::FLAGS)
        .and_then(BootFlags::parse)
        .ok_or(PowerError::InvalidResponse {
            message: "boot flags cut short",
        })?;
    let device: Option<BootDevice> = flags.device.filter(|_| flags.valid);
    Ok(PowerAnswer::Boot {
        device,
        persistent: flags.persistent,
        efi: flags.efi,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET_PXE: PowerOrder = PowerOrder::SetBoot {
        device: BootDevice::Pxe,
        persistent: true,
        efi: true,
    };

    type IpmiPowerScriptResult = Result<PowerAnswer, PowerError>;

    /// Runs an order with these responses; returns the data of each request and the result.
    fn run_script(
        order: PowerOrder,
        answers: &[(u8, &[u8])],
    ) -> (Vec<(u8, Vec<u8>)>, Option<IpmiPowerScriptResult>) {
        let (mut script, request) = IpmiPowerScript::start(order);
        let mut requests = vec![(request.command, request.data)];
        for (code, data) in answers {
            match script.handle_response(*code, data) {
                IpmiPowerNext::Send(request) => requests.push((request.command, request.data)),
                IpmiPowerNext::Done(result) => return (requests, Some(result)),
            }
        }
        (requests, None)
    }

    #[track_caller]
    fn ends(order: PowerOrder, answers: &[(u8, &[u8])], want: Result<PowerAnswer, PowerError>) {
        assert_eq!(run_script(order, answers).1, Some(want));
    }

    #[test]
    fn reads_power_from_the_lowest_bit() {
        for (data, state) in [(0x61, PowerState::On), (0x60, PowerState::Off)] {
            ends(
                PowerOrder::Status,
                &[(0, &[data, 0, 0])],
                Ok(PowerAnswer::Power(state)),
            );
        }
        let want = PowerError::InvalidResponse {
            message: "a chassis status without a power state",
        };
        ends(PowerOrder::Status, &[(0, &[])], Err(want));
    }

    #[test]
    fn passes_a_refusal_on() {
        for order in [
            PowerOrder::Status,
            PowerOrder::On,
            PowerOrder::Reset,
            PowerOrder::ReadBoot,
        ] {
            ends(
                order,
                &[(0xd4, &[])],
                Err(PowerError::Refused { code: 0xd4 }),
            );
        }
    }

    #[test]
    fn switches_on_what_cannot_be_cycled_because_it_is_off() {
        let (requests, end) = run_script(PowerOrder::Cycle, &[(0xd5, &[]), (0, &[])]);
        assert_eq!(requests, [(2, vec![2]), (2, vec![1])]);
        assert_eq!(end, Some(Ok(PowerAnswer::Accepted)));
        ends(PowerOrder::Cycle, &[(0, &[])], Ok(PowerAnswer::Accepted));
    }

    #[test]
    fn accepts_a_needless_switch_and_only_that() {
        let accepted = Ok(PowerAnswer::Accepted);
        let refused = Err(PowerError::Refused { code: 0xd5 });
        ends(PowerOrder::On, &[(0xd5, &[]), (0, &[1])], accepted.clone());
        ends(PowerOrder::On, &[(0xd5, &[]), (0, &[0])], refused.clone());
        ends(PowerOrder::Off, &[(0xd5, &[]), (0, &[0])], accepted.clone());
        ends(PowerOrder::SoftOff, &[(0xd5, &[]), (0, &[0])], accepted);
        ends(PowerOrder::SoftOff, &[(0xd5, &[]), (0xc1, &[0])], refused);
    }

    #[test]
    fn sets_flags_even_where_the_other_parameters_are_refused() {
        let answers: [(u8, &[u8]); 4] = [(0x80, &[]), (0xcc, &[]), (0, &[]), (0x80, &[])];
        let (requests, end) = run_script(SET_PXE, &answers);
        let want: Vec<Vec<u8>> = vec![
            vec![0, 1],
            vec![3, 8],
            vec![5, 0xe0, 4, 0, 0, 0],
            vec![0, 0],
        ];
        assert_eq!(
            requests
                .into_iter()
                .map(|(_, data)| data)
                .collect::<Vec<_>>(),
            want
        );
        assert_eq!(end, Some(Ok(PowerAnswer::Accepted)));
    }

    #[test]
    fn refused_flags_are_a_refusal_after_the_end_is_marked() {
        let answers: [(u8, &[u8]); 4] = [(0, &[]), (0, &[]), (0xcc, &[]), (0, &[])];
        let (requests, end) = run_script(SET_PXE, &answers);
        assert_eq!(requests.len(), 4);
        assert_eq!(end, Some(Err(PowerError::Refused { code: 0xcc })));
    }

    #[test]
    fn reads_boot_flags_only_when_they_are_valid() {
        let boot = |device, persistent, efi| {
            Ok(PowerAnswer::Boot {
                device,
                persistent,
                efi,
            })
        };
        for (data, want) in [
            (
                [1, 5, 0xe0, 4, 0, 0, 0],
                boot(Some(BootDevice::Pxe), true, true),
            ),
            (
                [1, 0x85, 0x80, 8, 0, 0, 0],
                boot(Some(BootDevice::Disk), false, false),
            ),
            ([1, 5, 0x00, 4, 0, 0, 0], boot(None, false, false)),
        ] {
            ends(PowerOrder::ReadBoot, &[(0, &data)], want);
        }
        let nonsense = Err(PowerError::InvalidResponse {
            message: "boot flags cut short",
        });
        ends(PowerOrder::ReadBoot, &[(0, &[1])], nonsense.clone());
        ends(
            PowerOrder::ReadBoot,
            &[(0, &[1, 5, 0x80, 4])],
            nonsense.clone(),
        );
        ends(
            PowerOrder::ReadBoot,
            &[(0, &[1, 4, 0x80, 4, 0, 0, 0])],
            nonsense,
        );
    }
}
