//! The measurements behind `benches/api.rs`, at any scale.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::BenchDisk;
use crate::figure::Figure;
use crate::http_load::{self, HttpLoadResult, request};
use crate::rack;
use crate::server::{BenchServer, STORE_MIB};

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct ApiBenchScale {
    /// Nodes for the rates.
    pub nodes: usize,
    /// Nodes at the first measurement of creates.
    pub few: usize,
    /// Nodes at the second measurement, and the nodes with heartbeats during reads.
    pub many: usize,
    /// Creates over all connections.
    pub bulk: usize,
    /// Creates one after the other.
    pub alone: usize,
    /// Short requests of one run; for lists a twentieth of that.
    pub requests: usize,
    /// Runs of each kind of request.
    pub runs: usize,
    /// The time in which each node sends one heartbeat.
    pub minute: Duration,
    /// Connections.
    pub connections: usize,
}

/// Size of the disk with the store.
const DISK_BYTES: u64 = (2 * STORE_MIB) << 20;

/// Delay between two reads during heartbeats, and the number of runs.
const READ_GAP: Duration = Duration::from_millis(5);
const READ_RUNS: usize = 5;

/// Limit of the 99th percentile of read latency.
const READ_MS_MAX: f64 = 5.0;

/// A figure and its limit.
#[derive(Clone, Debug)]
pub struct ApiFigureTarget {
    /// Ours and the peer's.
    pub figure: Figure,
    /// The limit.
    pub limit: ApiFigureLimit,
}

/// The limit of a figure.
#[derive(Clone, Copy, Debug)]
pub enum ApiFigureLimit {
    /// Ours is at least this.
    AtLeast(f64),
    /// Ours is at most this.
    AtMost(f64),
    /// The ratio of ours to the other is at most this.
    RatioAtMost(f64),
    /// Reported only.
    None,
}

impl ApiFigureTarget {
    /// Whether the limit is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match self.limit {
            ApiFigureLimit::AtLeast(least) => self.figure.ours() >= least,
            ApiFigureLimit::AtMost(most) => self.figure.ours() <= most,
            ApiFigureLimit::RatioAtMost(most) => self.figure.ratio() <= most,
            ApiFigureLimit::None => true,
        }
    }
}

/// Measures a program at this scale, and reports each figure.
pub async fn measure(
    program: &Path,
    scale: ApiBenchScale,
    report: &mut dyn FnMut(ApiFigureTarget),
) -> io::Result<()> {
    let disk = BenchDisk::new(DISK_BYTES)?;
    rates(program, &disk, scale, report).await?;
    std::fs::remove_dir_all(disk.path().join("rates"))?;
    creates(program, &disk, scale, report).await?;
    std::fs::remove_dir_all(disk.path().join("creates"))?;
    pages(program, &disk, scale, report).await?;
    report(first_starts(program, &disk, scale)?);
    Ok(())
}

/// One kind of request.
struct ApiRequestLoad {
    name: &'static str,
    requests: Vec<Vec<u8>>,
    status: u16,
    count: usize,
    per_cpu_second_min: f64,
    /// Ironic's rate, per second of CPU time.
    peer: f64,
}

async fn rates(
    program: &Path,
    disk: &BenchDisk,
    scale: ApiBenchScale,
    report: &mut dyn FnMut(ApiFigureTarget),
) -> io::Result<()> {
    let data = disk.path().join("rates");
    let (server, heartbeats) = server_with_heartbeats(program, &data, 0..scale.nodes).await?;
    let show = |node| request("GET", &format!("/v1/nodes/{}", rack::uuid(node)), "");
    let kinds = [
        ApiRequestLoad {
            name: "api_heartbeats_per_cpu_second",
            requests: heartbeats,
            status: 202,
            count: scale.requests,
            per_cpu_second_min: 10_000.0,
            peer: 67.0,
        },
        ApiRequestLoad {
            name: "api_node_lists_per_cpu_second",
            requests: vec![request("GET", "/v1/nodes", "")],
            status: 200,
            count: scale.requests.div_ceil(20),
            per_cpu_second_min: 500.0,
            peer: 3.5,
        },
        ApiRequestLoad {
            name: "api_node_shows_per_cpu_second",
            requests: (0..scale.nodes).map(show).collect(),
            status: 200,
            count: scale.requests,
            per_cpu_second_min: 10_000.0,
            peer: 82.0,
        },
    ];
    for kind in kinds {
        report(rate(&server, kind, scale).await?);
    }
    for path in [
        "/v1/nodes".to_owned(),
        format!("/v1/nodes/{}", rack::uuid(0)),
    ] {
        measure_with_wrk(&server, scale, &path)?;
    }
    Ok(())
}

async fn rate(
    server: &BenchServer,
    kind: ApiRequestLoad,
    scale: ApiBenchScale,
) -> io::Result<ApiFigureTarget> {
    let mut figure = Figure::new(kind.name);
    let requests = Arc::new(kind.requests);
    for _ in 0..scale.runs {
        let before = server.process().processor_seconds()?;
        let run = http_load::run_at_full_rate(
            server.address(),
            scale.connections,
            Arc::clone(&requests),
            kind.count,
            kind.status,
        )
        .await?;
        let spent = server.process().processor_seconds()? - before;
        figure.add(per(run.requests, spent), kind.peer);
        print_run(kind.name, &run);
    }
    Ok(ApiFigureTarget {
        figure,
        limit: ApiFigureLimit::AtLeast(kind.per_cpu_second_min),
    })
}

fn print_run(name: &str, run: &HttpLoadResult) {
    eprintln!(
        "{name}: {:.0}/s by the clock, half within {:.2} ms, 99 of 100 within {:.2} ms",
        per(run.requests, run.seconds),
        run.wait_ms(0.5),
        run.wait_ms(0.99)
    );
}

/// The same with `wrk`, if it is installed, as a check of our own client.
fn measure_with_wrk(server: &BenchServer, scale: ApiBenchScale, path: &str) -> io::Result<()> {
    let before = server.process().processor_seconds()?;
    let output = Command::new("wrk")
        .args(["--threads", "1", "--duration", "5s", "--connections"])
        .arg(scale.connections.to_string())
        .args(["--header", "X-OpenStack-Ironic-API-Version: latest"])
        .arg(format!("http://{}{path}", server.address()))
        .output();
    let Ok(output) = output else {
        return Ok(());
    };
    let spent = server.process().processor_seconds()? - before;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Such as "  12345 requests in 5.00s, 67.89MB read".
    let line = text.lines().find(|line| line.contains(" requests in "));
    let count = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let rate = per(count.unwrap_or(0), spent);
    eprintln!("wrk {path}: {rate:.0} per second on the processor");
    Ok(())
}

/// The cost of creating nodes, each with a port.
struct NodeCreateCost {
    seconds: f64,
    processor_ms: f64,
    bytes: f64,
    flushes: Option<f64>,
}

async fn cost(
    disk: &BenchDisk,
    server: &BenchServer,
    connections: usize,
    numbers: Range<usize>,
) -> io::Result<NodeCreateCost> {
    let count = numbers.len();
    let traffic = disk.traffic(server.process().id())?;
    let processor = server.process().processor_seconds()?;
    let seconds = rack::enrol(server.address(), connections, numbers).await?;
    let processor = server.process().processor_seconds()? - processor;
    let traffic = disk.traffic(server.process().id())?.since(traffic);
    let each = |sum: u64| per(usize::try_from(sum).unwrap_or(usize::MAX), per(count, 1.0));
    Ok(NodeCreateCost {
        seconds,
        processor_ms: processor * 1000.0 / per(count, 1.0),
        bytes: each(traffic.bytes),
        flushes: traffic.flushes.map(each),
    })
}

async fn creates(
    program: &Path,
    disk: &BenchDisk,
    scale: ApiBenchScale,
    report: &mut dyn FnMut(ApiFigureTarget),
) -> io::Result<()> {
    let data = disk.path().join("creates");
    let server = BenchServer::start(program, &data)?;
    let mut made = 0;
    let mut costs = Vec::new();
    for nodes in [scale.few, scale.many] {
        rack::enrol(server.address(), scale.connections, made..nodes).await?;
        let bulk = nodes + scale.bulk;
        made = bulk + scale.alone;
        let together = cost(disk, &server, scale.connections, nodes..bulk).await?;
        costs.push((together, cost(disk, &server, 1, bulk..made).await?));
    }
    let peak = server.process().resident_mib()?;
    tokio::time::sleep(scale.minute.min(IDLE_TIME)).await;
    let resident = server.process().resident_mib()?;
    eprintln!("{made} nodes: {peak:.0} MiB resident, {resident:.0} after idle time");
    drop(server);
    report(starts(program, &data, scale, resident)?);
    if let [(few, few_alone), (many, many_alone)] = &costs[..] {
        let mut put = |name: &str, many: f64, few: f64, limit| {
            let mut figure = Figure::new(name);
            figure.add(many, few);
            report(ApiFigureTarget { figure, limit });
        };
        // With many nodes, compared with few.
        let same = ApiFigureLimit::RatioAtMost(1.3);
        put(
            "api_bulk_create_s",
            many.seconds,
            few.seconds,
            ApiFigureLimit::AtMost(5.0),
        );
        put(
            "api_bulk_create_cpu_ms",
            many.processor_ms,
            few.processor_ms,
            same,
        );
        put("api_bulk_create_bytes", many.bytes, few.bytes, same);
        if let (Some(many), Some(few)) = (many.flushes, few.flushes) {
            put("api_bulk_create_flushes", many, few, ApiFigureLimit::None);
        }
        let (many, few) = (many_alone, few_alone);
        put(
            "api_lone_create_cpu_ms",
            many.processor_ms,
            few.processor_ms,
            same,
        );
        put("api_lone_create_bytes", many.bytes, few.bytes, same);
    }
    report(reads(program, &data, scale).await?);
    Ok(())
}

/// Read latency while every node sends one heartbeat in the given time.
async fn reads(program: &Path, data: &Path, scale: ApiBenchScale) -> io::Result<ApiFigureTarget> {
    let (server, heartbeats) = server_with_heartbeats(program, data, 0..scale.many).await?;
    let heartbeats = Arc::new(heartbeats);
    let show = |node| request("GET", &format!("/v1/nodes/{}", rack::uuid(node)), "");
    let shows: Arc<Vec<_>> = Arc::new((0..scale.many).map(show).collect());
    let mut figure = Figure::new("api_read_p99_ms_while_nodes_beat");
    let address = server.address();
    let reads = scale.minute.as_millis() / READ_GAP.as_millis();
    let count = usize::try_from(reads).unwrap_or(usize::MAX) / READ_RUNS;
    let beating = tokio::spawn(http_load::run_spread_over(
        address,
        heartbeats,
        scale.minute,
        202,
    ));
    for _ in 0..READ_RUNS {
        let run =
            http_load::run_at_interval(address, Arc::clone(&shows), count, READ_GAP, 200).await?;
        // Ironic's was not measured: it is compared with the limit.
        figure.add(run.wait_ms(0.99), READ_MS_MAX);
        print_run("reads during heartbeats", &run);
    }
    print_run("beats", &beating.await.map_err(io::Error::other)??);
    eprintln!(
        "with heartbeats: {:.0} MiB resident",
        server.process().resident_mib()?
    );
    Ok(ApiFigureTarget {
        figure,
        limit: ApiFigureLimit::AtMost(READ_MS_MAX),
    })
}

/// How long a server is idle before its memory is measured. It returns memory in that time.
const IDLE_TIME: Duration = Duration::from_secs(15);

/// Limit of the start time.
const START_MS_MAX: f64 = 100.0;

/// How long the program takes until it responds, with these records on flash. Reports its
/// memory after that, compared with its memory after it created them.
fn starts(
    program: &Path,
    data: &Path,
    scale: ApiBenchScale,
    made: f64,
) -> io::Result<ApiFigureTarget> {
    let mut figure = Figure::new("api_start_ms");
    for _ in 0..scale.runs {
        let start = http_load::now();
        let server = BenchServer::start(program, data)?;
        figure.add(start.elapsed().as_secs_f64() * 1000.0, START_MS_MAX);
        let resident = server.process().resident_mib()?;
        eprintln!("started: {resident:.0} MiB resident; {made:.0} after the records were made");
    }
    Ok(ApiFigureTarget {
        figure,
        limit: ApiFigureLimit::AtMost(START_MS_MAX),
    })
}

/// The same with empty flash: the program creates its store, which is larger here than by
/// default.
fn first_starts(
    program: &Path,
    disk: &BenchDisk,
    scale: ApiBenchScale,
) -> io::Result<ApiFigureTarget> {
    let mut figure = Figure::new("api_first_start_ms");
    let data = disk.path().join("first");
    for _ in 0..scale.runs {
        let start = http_load::now();
        let server = BenchServer::start(program, &data)?;
        figure.add(start.elapsed().as_secs_f64() * 1000.0, START_MS_MAX);
        drop(server);
        std::fs::remove_dir_all(&data)?;
    }
    Ok(ApiFigureTarget {
        figure,
        limit: ApiFigureLimit::None,
    })
}

/// List requests, each for a page of ten nodes.
const PAGES: [(&str, &str); 3] = [
    ("api_list_page_cpu_ms", "limit=10"),
    ("api_list_page_by_name_cpu_ms", "limit=10&sort_key=name"),
    (
        "api_list_page_filtered_cpu_ms",
        "limit=10&provision_state=enroll&maintenance=false",
    ),
];

/// Limit of the cost of a page among many nodes, relative to one among ten.
const PAGE_RATIO_MAX: f64 = 2.0;

/// The cost of a page of ten nodes among many nodes, compared with the same page among ten.
async fn pages(
    program: &Path,
    disk: &BenchDisk,
    scale: ApiBenchScale,
    report: &mut dyn FnMut(ApiFigureTarget),
) -> io::Result<()> {
    let mut costs = Vec::new();
    for (name, nodes) in [("page_many", scale.many), ("page_few", 10)] {
        let data = disk.path().join(name);
        let server = BenchServer::start(program, &data)?;
        rack::enrol(server.address(), scale.connections, 0..nodes).await?;
        let mut of_server = Vec::new();
        for (_, query) in PAGES {
            of_server.push(page_ms(&server, scale, query).await?);
        }
        costs.push(of_server);
        drop(server);
        std::fs::remove_dir_all(&data)?;
    }
    let [many, few] = &costs[..] else {
        return Ok(());
    };
    for ((name, _), (many, few)) in PAGES.iter().zip(many.iter().zip(few)) {
        let mut figure = Figure::new(name);
        for (many, few) in many.iter().zip(few) {
            figure.add(*many, *few);
        }
        let limit = ApiFigureLimit::RatioAtMost(PAGE_RATIO_MAX);
        report(ApiFigureTarget { figure, limit });
    }
    Ok(())
}

/// Milliseconds of CPU time for one page, for each run.
async fn page_ms(server: &BenchServer, scale: ApiBenchScale, query: &str) -> io::Result<Vec<f64>> {
    let path = format!("/v1/nodes?{query}");
    let requests = Arc::new(vec![request("GET", &path, "")]);
    let count = scale.requests.div_ceil(5);
    let mut costs = Vec::new();
    for _ in 0..scale.runs {
        let before = server.process().processor_seconds()?;
        let (address, requests) = (server.address(), Arc::clone(&requests));
        http_load::run_at_full_rate(address, scale.connections, requests, count, 200).await?;
        let spent = server.process().processor_seconds()? - before;
        costs.push(spent * 1000.0 / per(count, 1.0));
    }
    Ok(costs)
}

/// A server with these nodes, all waiting for their agents' inspection data, and their
/// heartbeats.
async fn server_with_heartbeats(
    program: &Path,
    data: &Path,
    numbers: Range<usize>,
) -> io::Result<(BenchServer, Vec<Vec<u8>>)> {
    if !data.exists() {
        let server = BenchServer::start(program, data)?;
        rack::enrol(server.address(), 16, numbers.clone()).await?;
    }
    let start = http_load::now();
    let server = BenchServer::start(program, data)?;
    let took = start.elapsed().as_secs_f64();
    eprintln!(
        "{} nodes: responds {took:.2} s after its start",
        numbers.len()
    );
    let heartbeat_count = rack::heartbeats(server.address(), numbers).await?;
    Ok((server, heartbeat_count))
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run")]
fn per(count: usize, seconds: f64) -> f64 {
    count as f64 / seconds
}
