//! Sends orders to a BMC, one after the other in one session, and prints the result of each.
//!
//! `power ADDRESS:PORT USER PASSWORD SUITE ORDER...`
//!
//! SUITE is `auto`, `0`, `3`, `17` or, for IPMI 1.5, `md5`, with `:KG` after it if the BMC has a
//! key. Orders: status, on, off, soft, cycle, reset, nmi, bmc-reset, bmc-cold-reset, id, boot,
//! boot=DEVICE[,persistent][,efi]. Operations: flags, mailbox, mailbox=TEXT, fru, fru=SERIAL,
//! sel-info, sel, sel-clear, sensors, identify, identify=SECONDS, guid, device-guid, lan, users.

use std::env;
use std::io::{ErrorKind, Write};
use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use trivet_bmc_ipmi::{
    IpmiCipherSuite, IpmiPrivilege, IpmiSession, IpmiTarget, IpmiTiming, PACKET_BYTES_MAX,
};
use trivet_model::power::RawBytes;
use trivet_model::{PowerAnswer, PowerError, PowerOrder, Tick};

#[path = "system/entropy.rs"]
mod entropy;
#[path = "system/operations.rs"]
mod operations;

type IpmiExampleError = Box<dyn std::error::Error>;

/// The only code that reads a clock.
struct IpmiExampleClock(Instant);

impl IpmiExampleClock {
    #[expect(clippy::disallowed_methods, reason = "this example is a shell")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now(&self) -> Tick {
        Tick(self.0.elapsed().as_millis() as u64)
    }
}

fn target(username: &str, password: &str, suite: &str) -> Result<IpmiTarget, IpmiExampleError> {
    let (suite, kg) = match suite.split_once(':') {
        Some((suite, kg)) => (suite, Some(kg.as_bytes().to_vec())),
        None => (suite, None),
    };
    let old = suite == "md5";
    let suite = match suite {
        "auto" | "md5" => None,
        number => Some(
            number
                .parse()
                .ok()
                .and_then(IpmiCipherSuite::from_number)
                .ok_or("no such suite")?,
        ),
    };
    let (username, password) = (username.into(), password.into());
    Ok(IpmiTarget {
        username,
        password,
        kg,
        suite,
        ipmi15: old,
        privilege: IpmiPrivilege::Administrator,
    })
}

fn order(word: &str) -> Result<PowerOrder, IpmiExampleError> {
    Ok(match word {
        "status" => PowerOrder::Status,
        "on" => PowerOrder::On,
        "off" => PowerOrder::Off,
        "soft" => PowerOrder::SoftOff,
        "cycle" => PowerOrder::Cycle,
        "reset" => PowerOrder::Reset,
        "boot" => PowerOrder::ReadBoot,
        "nmi" => PowerOrder::Nmi,
        "bmc-reset" => PowerOrder::BmcReset { warm: true },
        "bmc-cold-reset" => PowerOrder::BmcReset { warm: false },
        "id" => PowerOrder::Raw {
            netfn: 6,
            command: 1,
            data: RawBytes::new(&[]).ok_or("too long")?,
        },
        _ => {
            let wanted = word.strip_prefix("boot=").ok_or("no such order")?;
            let mut parts = wanted.split(',');
            let device = parts
                .next()
                .unwrap_or_default()
                .parse()
                .map_err(|_| "no such device")?;
            let marks: Vec<&str> = parts.collect();
            let (persistent, efi) = (marks.contains(&"persistent"), marks.contains(&"efi"));
            PowerOrder::SetBoot {
                device,
                persistent,
                efi,
            }
        }
    })
}

fn words(result: &Result<PowerAnswer, PowerError>) -> String {
    match result {
        Ok(PowerAnswer::Accepted) => "accepted".into(),
        Ok(PowerAnswer::Power(state)) => state.to_string(),
        Ok(PowerAnswer::Boot {
            device,
            persistent,
            efi,
        }) => {
            let device = device.map_or("none".into(), |device| device.to_string());
            format!("boot {device} persistent={persistent} efi={efi}")
        }
        Ok(PowerAnswer::Raw { code, data }) => format!("code 0x{code:02x} data {data}"),
        Err(error) => format!("error: {error}"),
    }
}

/// Runs one order or operation to its end; returns the result as text.
fn run_script(
    session: &mut IpmiSession,
    socket: &UdpSocket,
    clock: &IpmiExampleClock,
    entropy: &mut entropy::IpmiExampleEntropy,
    word: &str,
) -> Result<(bool, String), IpmiExampleError> {
    match operations::operation(word) {
        Some(operation) => session.operation(clock.now(), 0, operation, entropy)?,
        None => session.order(clock.now(), 0, order(word)?, entropy)?,
    }
    let mut buffer = [0; PACKET_BYTES_MAX + 1];
    loop {
        send_all(session, socket);
        if let Some((_, result)) = session.answer() {
            return Ok((result.is_ok(), words(&result)));
        }
        if let Some((_, result)) = session.reply() {
            let text = result.as_ref().map(operations::words);
            let text = text.unwrap_or_else(|error| format!("error: {error}"));
            return Ok((result.is_ok(), text));
        }
        let now = clock.now();
        let wait_ms = session.deadline().map_or(1, |due| due.since_ms(now)).max(1);
        socket.set_read_timeout(Some(Duration::from_millis(wait_ms)))?;
        match socket.recv(&mut buffer) {
            Ok(length) => session.datagram(clock.now(), &buffer[..length], entropy),
            // A closed port reads as refused; the retries continue.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionRefused
                ) => {}
            Err(error) => return Err(error.into()),
        }
        session.tick(clock.now(), entropy);
    }
}

/// A datagram that cannot be sent counts as lost.
fn send_all(session: &mut IpmiSession, socket: &UdpSocket) {
    while let Some(bytes) = session.transmit() {
        let _lost = socket.send(&bytes);
    }
}

fn run() -> Result<bool, IpmiExampleError> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, username, password, suite, orders @ ..] = &arguments[..] else {
        return Err("usage: power ADDRESS:PORT USER PASSWORD SUITE ORDER...".into());
    };
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address)?;
    let mut session = IpmiSession::new(target(username, password, suite)?, IpmiTiming::default());
    let mut entropy = entropy::IpmiExampleEntropy::open()?;
    let clock = IpmiExampleClock::start();
    let mut good = true;
    for word in orders {
        let (outcome, message) = run_script(&mut session, &socket, &clock, &mut entropy, word)?;
        writeln!(std::io::stdout(), "{word}: {message}")?;
        good &= outcome;
    }
    session.close(&mut entropy);
    send_all(&mut session, &socket);
    Ok(good)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _unread = writeln!(std::io::stderr(), "{error}");
            ExitCode::from(2)
        }
    }
}
