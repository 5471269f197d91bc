//! The measurements behind `benches/power.rs`, at any scale.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trivet_bmc_ipmi::{
    IpmiCipherSuite, IpmiPrivilege, IpmiSession, IpmiTarget, IpmiTiming, PACKET_BYTES_MAX,
};
use trivet_model::{PowerAnswer, PowerOrder, PowerState, Tick};

use crate::bmcs::{BenchBmcs, BenchEntropy, PASSWORD, USER};
use crate::claim::{self, RatioClaim, RatioLimit, RatioSample};
use crate::http_load::{BenchHttpClient, now, request};
use crate::rack::{self, uuid};
use crate::server::BenchServer;
use crate::{peers, process};

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct PowerBenchScale {
    /// Rounds in which our client queries all; one is too short to be measured alone.
    pub rounds: u32,
    /// The interval of the power sync, in seconds.
    pub sync_interval_s: u32,
}

/// The claims for all BMCs queried at once.
const AT_ONCE: [RatioClaim; 2] = [
    RatioClaim {
        name: "BMCs/s, all queried at once",
        limit: RatioLimit::AtLeast(10.0),
    },
    RatioClaim {
        name: "queries per second of the processor, each with a login",
        limit: RatioLimit::AtLeast(20.0),
    },
];

/// The claim for the power sync. There is no peer that does it.
const POWER_SYNC: [RatioClaim; 1] = [RatioClaim {
    name: "% of a core for the power sync of all BMCs",
    limit: RatioLimit::AtMost(1.0),
}];
const POWER_SYNC_PERCENT_MAX: f64 = 2.0;

/// The cipher suite of both clients.
const SUITE: IpmiCipherSuite = IpmiCipherSuite::Sha256;
const SUITE_NUMBER: &str = "17";

/// Timeout for nodes to become manageable, and how many rounds a BMC may be left out before
/// that is a failure.
const MANAGEABLE_TIMEOUT: Duration = Duration::from_mins(5);
const ROUNDS_MAX: u32 = 3;

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Queries all BMCs at once, with our client and with processes of `ipmitool`; true if every
/// claim holds.
///
/// # Errors
///
/// When a BMC does not reply.
pub fn at_once(
    bmcs: &BenchBmcs,
    scale: PowerBenchScale,
    say: &mut dyn FnMut(&str),
) -> io::Result<bool> {
    let run = || {
        let (ours, peer) = (ours(bmcs.ports(), scale.rounds)?, ipmitool(bmcs.ports())?);
        let seen = |ours, peer| RatioSample {
            ours,
            peer,
            peer_name: "ipmitool",
        };
        Ok(vec![
            seen(ours.per_second, peer.per_second),
            seen(ours.per_processor_second, peer.per_processor_second),
        ])
    };
    claim::check_claims(&AT_ONCE, run, say)
}

/// The result of querying all at once.
#[derive(Clone, Copy, Debug)]
pub struct PowerQueryRate {
    /// BMCs per second until the last reply.
    pub per_second: f64,
    /// BMCs per second of CPU time, only of the client.
    pub per_processor_second: f64,
}

/// Queries all with our client, each time with new sessions; the median of the rounds.
///
/// # Errors
///
/// When a BMC does not reply.
pub fn ours(ports: &[u16], rounds: u32) -> io::Result<PowerQueryRate> {
    let mut took = Vec::new();
    let before = thread_seconds()?;
    for _ in 0..rounds {
        took.push(round(ports)?.as_secs_f64() * 1000.0);
    }
    let spent = thread_seconds()? - before;
    took.sort_by(f64::total_cmp);
    let ms = took.get(took.len() / 2).copied().unwrap_or(f64::NAN);
    Ok(query_rate(
        "trivet",
        ports.len(),
        ms,
        spent / f64::from(rounds),
    ))
}

fn query_rate(name: &str, count: usize, ms: f64, spent: f64) -> PowerQueryRate {
    let all = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let each = spent * 1000.0 / all;
    eprintln!("  {name:8} {count} BMCs: {ms:.2} ms, {each:.4} ms of the processor each");
    PowerQueryRate {
        per_second: all * 1000.0 / ms,
        per_processor_second: all / spent,
    }
}

fn round(ports: &[u16]) -> io::Result<Duration> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let start = now();
    let mut entropy = BenchEntropy::default();
    let mut sessions = BTreeMap::new();
    for &port in ports {
        let target = IpmiTarget {
            username: USER.into(),
            password: PASSWORD.into(),
            kg: None,
            suite: Some(SUITE),
            ipmi15: false,
            privilege: IpmiPrivilege::Administrator,
        };
        let mut session = IpmiSession::new(target, IpmiTiming::default());
        session
            .order(tick(start), 0, PowerOrder::Status, &mut entropy)
            .map_err(io::Error::other)?;
        send_all(&mut session, &socket, port)?;
        sessions.insert(port, session);
    }
    let mut buffer = [0; PACKET_BYTES_MAX + 1];
    let mut left = ports.len();
    while left > 0 {
        let due = sessions.values().filter_map(IpmiSession::deadline).min();
        let wait_ms = due.map_or(1, |due| due.since_ms(tick(start))).max(1);
        socket.set_read_timeout(Some(Duration::from_millis(wait_ms)))?;
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                if let Some(session) = sessions.get_mut(&from.port()) {
                    session.datagram(tick(start), &buffer[..length], &mut entropy);
                    left -= usize::from(is_on(session)?);
                    send_all(session, &socket, from.port())?;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                for (port, session) in &mut sessions {
                    session.tick(tick(start), &mut entropy);
                    left -= usize::from(is_on(session)?);
                    send_all(session, &socket, *port)?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    let took = start.elapsed();
    // Processes that end do the same; it counts as our cost.
    for (port, session) in &mut sessions {
        session.close(&mut entropy);
        send_all(session, &socket, *port)?;
    }
    Ok(took)
}

/// Whether the reply is that the machine is on; any other reply is an error.
fn is_on(session: &mut IpmiSession) -> io::Result<bool> {
    match session.answer() {
        None => Ok(false),
        Some((_, Ok(PowerAnswer::Power(PowerState::On)))) => Ok(true),
        Some((_, other)) => Err(io::Error::other(format!("not on: {other:?}"))),
    }
}

fn send_all(session: &mut IpmiSession, socket: &UdpSocket, port: u16) -> io::Result<()> {
    while let Some(bytes) = session.transmit() {
        socket.send_to(&bytes, (Ipv4Addr::LOCALHOST, port))?;
    }
    Ok(())
}

fn tick(start: Instant) -> Tick {
    Tick(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX))
}

/// CPU time of this thread in seconds. Has nanoseconds, unlike `stat`.
fn thread_seconds() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split_whitespace().next();
    let spent = first.and_then(|word| word.parse().ok());
    spent
        .map(|nanoseconds| Duration::from_nanos(nanoseconds).as_secs_f64())
        .ok_or_else(|| io::Error::other(format!("no time in {text:?}")))
}

/// Queries all with a process each, all started before the first is waited for.
fn ipmitool(ports: &[u16]) -> io::Result<PowerQueryRate> {
    let program = peers::installed("ipmitool")?;
    let before = process::children_seconds()?;
    let start = now();
    let mut children = Vec::new();
    for port in ports {
        let child = Command::new(&program)
            .args(["-I", "lanplus", "-H", "127.0.0.1", "-p", &port.to_string()])
            .args(["-U", USER, "-P", PASSWORD, "-C", SUITE_NUMBER])
            .args(["power", "status"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        children.push(child);
    }
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if text.trim() != "Chassis Power is on" {
            return Err(io::Error::other(format!("ipmitool: {output:?}")));
        }
    }
    let took = start.elapsed().as_secs_f64() * 1000.0;
    let spent = process::children_seconds()? - before;
    Ok(query_rate("ipmitool", ports.len(), took, spent))
}

/// Runs the program's power sync of all these BMCs; true if the claim holds.
///
/// # Errors
///
/// When a node does not become manageable, or a BMC is not queried in its round.
pub async fn power_sync(
    program: &Path,
    bmcs: &BenchBmcs,
    directory: &Path,
    scale: PowerBenchScale,
    say: &mut dyn FnMut(&str),
) -> io::Result<bool> {
    let data = directory.join("box");
    fs::create_dir(&data)?;
    let sections = format!("[limits]\npower_fresh_s = {}\n", scale.sync_interval_s);
    let server = BenchServer::with(program, &data, &sections)?;
    enrol(server.address(), bmcs.ports()).await?;
    // The callback cannot wait, so all runs are done before.
    let mut runs = Vec::new();
    while runs.len() < claim::RUNS_MAX {
        let share = measure_power_sync(&server, bmcs, scale).await?;
        runs.push(share);
        if share <= POWER_SYNC_PERCENT_MAX {
            break;
        }
    }
    let mut runs = runs.into_iter();
    let run = || {
        let ours = runs.next().ok_or_else(|| io::Error::other("no run left"))?;
        Ok(vec![RatioSample {
            ours,
            peer: POWER_SYNC_PERCENT_MAX,
            peer_name: "the bound",
        }])
    };
    claim::check_claims(&POWER_SYNC, run, say)
}

/// The share of a core, in percent, over a round and until each BMC was queried in it.
async fn measure_power_sync(
    server: &BenchServer,
    bmcs: &BenchBmcs,
    scale: PowerBenchScale,
) -> io::Result<f64> {
    let round = Duration::from_secs(scale.sync_interval_s.into());
    let (looks, spent, start) = (
        bmcs.query_counts()?,
        server.process().processor_seconds()?,
        now(),
    );
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let elapsed = start.elapsed();
        if elapsed < round {
            continue;
        }
        let spent = server.process().processor_seconds()? - spent;
        let more: Vec<u64> = bmcs
            .query_counts()?
            .iter()
            .zip(&looks)
            .map(|(now, then)| now - then)
            .collect();
        let left_out = more.iter().filter(|&&more| more == 0).count();
        if left_out == 0 {
            let share = spent * 100.0 / elapsed.as_secs_f64();
            eprintln!(
                "  trivet   {} BMCs queried {} times in {:.1} s, {spent:.2} s of the processor",
                more.len(),
                more.iter().sum::<u64>(),
                elapsed.as_secs_f64()
            );
            return Ok(share);
        }
        if elapsed > round * ROUNDS_MAX {
            return Err(io::Error::other(format!(
                "{left_out} BMCs were not queried"
            )));
        }
    }
}

/// Creates a node for each BMC and makes it manageable, so that its power is synced.
async fn enrol(server: SocketAddr, ports: &[u16]) -> io::Result<()> {
    let bodies: Vec<String> = ports.iter().enumerate().map(node).collect();
    rack::each(server, 16, 0..ports.len(), move |client, number| {
        let create = request("POST", "/v1/nodes", &bodies[number]);
        Box::pin(async move {
            client.expect(&create, 201).await?;
            let path = format!("/v1/nodes/{}/states/provision", uuid(number));
            let manage = request("PUT", &path, "{\"target\": \"manage\"}");
            client.expect(&manage, 202).await
        })
    })
    .await?;
    let mut client = BenchHttpClient::connect(server).await?;
    let list = request("GET", "/v1/nodes?provision_state=manageable&limit=1000", "");
    let start = now();
    loop {
        let answer = client.send(&list).await?;
        let found: Value = serde_json::from_slice(&answer.body)?;
        let count = found["nodes"].as_array().map_or(0, Vec::len);
        if count == ports.len() {
            return Ok(());
        }
        if start.elapsed() > MANAGEABLE_TIMEOUT {
            return Err(io::Error::other(format!("only {count} are manageable")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn node((number, port): (usize, &u16)) -> String {
    json!({
        "uuid": uuid(number),
        "name": format!("node-{number:05}"),
        "driver": "ipmi",
        "driver_info": {
            "ipmi_address": "127.0.0.1",
            "ipmi_port": port,
            "ipmi_username": USER,
            "ipmi_password": PASSWORD,
        },
    })
    .to_string()
}
