//! A rack of nodes in the server's records, enrolled over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::http_load::{BenchHttpClient, now, request};

/// The UUID of the node of this number.
#[must_use]
pub fn uuid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

fn address(number: usize) -> String {
    let [.., one, two, three, four] = number.to_be_bytes();
    format!("52:54:{one:02x}:{two:02x}:{three:02x}:{four:02x}")
}

/// The requests that enrol the node of this number, with one port.
#[must_use]
pub fn enrolment(number: usize) -> [Vec<u8>; 2] {
    let node = json!({
        "uuid": uuid(number),
        "name": format!("node-{number:05}"),
        "driver": "fake-hardware",
        "deploy_interface": "direct",
        "inspect_interface": "agent",
        "resource_class": "baremetal",
        "driver_info": {
            "fake_address": format!("10.1.{}.{}", number / 256 % 256, number % 256),
            "fake_username": "admin",
            "fake_password": "a password of usual length",
        },
        "properties": {
            "cpu_arch": "x86_64", "cpus": 32, "memory_mb": 131_072, "local_gb": 894,
            "capabilities": "boot_mode:uefi",
        },
        "extra": { "rack": number / 40, "height": number % 40 },
    });
    let port = json!({ "node_uuid": uuid(number), "address": address(number) });
    [
        request("POST", "/v1/nodes", &node.to_string()),
        request("POST", "/v1/ports", &port.to_string()),
    ]
}

/// Enrols these nodes over so many connections; each create is durable before the client sends
/// its next. Returns the seconds it took.
pub async fn enrol(
    server: SocketAddr,
    connections: usize,
    numbers: std::ops::Range<usize>,
) -> io::Result<f64> {
    let start = now();
    each(server, connections, numbers, |client, number| {
        Box::pin(async move {
            for request in enrolment(number) {
                client.expect(&request, 201).await?;
            }
            Ok(())
        })
    })
    .await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Moves all these nodes to the state in which they wait for their agents' inspection data, and
/// does the lookups of the agents; returns their heartbeats.
pub async fn heartbeats(
    server: SocketAddr,
    numbers: std::ops::Range<usize>,
) -> io::Result<Vec<Vec<u8>>> {
    each(server, 16, numbers, |client, number| {
        Box::pin(async move {
            let path = format!("/v1/nodes/{}/states/provision", uuid(number));
            for verb in ["manage", "inspect"] {
                let body = json!({ "target": verb }).to_string();
                client.expect(&request("PUT", &path, &body), 202).await?;
            }
            let path = format!("/v1/lookup?addresses={}", address(number));
            let answer = client.send(&request("GET", &path, "")).await?;
            let found: Value = serde_json::from_slice(&answer.body)?;
            // As long as the agent's own.
            let certificate = "-----BEGIN CERTIFICATE-----\n".to_owned() + &"MIIC".repeat(300);
            let token = found["config"]["agent_token"].as_str();
            let token = token.ok_or_else(|| io::Error::other(format!("no token in {found}")))?;
            let body = json!({
                "callback_url": "https://127.0.0.1:9999",
                "agent_verify_ca": certificate,
                "agent_token": token,
                "agent_version": "11.3.0",
                "agent_status": "start",
            });
            let path = format!("/v1/heartbeat/{}", uuid(number));
            let heartbeat = request("POST", &path, &body.to_string());
            client.expect(&heartbeat, 202).await?;
            Ok(heartbeat)
        })
    })
    .await
}

type ClientFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Calls a function for each number, over so many connections; the results in order.
pub(crate) async fn each<T, W>(
    server: SocketAddr,
    connections: usize,
    numbers: std::ops::Range<usize>,
    work: W,
) -> io::Result<Vec<T>>
where
    T: Send + 'static,
    W: for<'a> Fn(&'a mut BenchHttpClient, usize) -> ClientFuture<'a, T> + Send + Sync + 'static,
{
    let work = Arc::new(work);
    let mut clients = JoinSet::new();
    for lane in 0..connections {
        let (work, lane) = (
            Arc::clone(&work),
            numbers.clone().skip(lane).step_by(connections),
        );
        clients.spawn(async move {
            let mut client = BenchHttpClient::connect(server).await?;
            let mut done = Vec::new();
            for number in lane {
                done.push((number, work(&mut client, number).await?));
            }
            Ok::<_, io::Error>(done)
        });
    }
    let mut all = Vec::with_capacity(numbers.len());
    while let Some(ended) = clients.join_next().await {
        all.append(&mut ended.map_err(io::Error::other)??);
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, done)| done).collect())
}
