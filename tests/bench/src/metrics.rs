//! The measurement behind `benches/metrics.rs`, at any scale.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::BenchDisk;
use crate::figure::Figure;
use crate::http_load::{self, request};
use crate::rack;
use crate::server::{BenchServer, STORE_MIB};

/// Size of the disk with the store.
const DISK_BYTES: u64 = (2 * STORE_MIB) << 20;

/// Connections that create the nodes.
const CONNECTIONS: usize = 32;

/// The delay between two scrapes. Prometheus leaves seconds.
const SCRAPE_GAP: Duration = Duration::from_millis(20);

/// The time that a scrape may take.
pub const SCRAPE_MS_MAX: f64 = 50.0;

/// The times in ms of scrapes with this many nodes, each with a port, compared with the limit:
/// the median of each run, and the longest.
pub async fn scrapes(
    program: &Path,
    nodes: usize,
    runs: usize,
    each: usize,
) -> io::Result<[Figure; 2]> {
    let disk = BenchDisk::new(DISK_BYTES)?;
    let server = BenchServer::start(program, &disk.path().join("metrics"))?;
    rack::enrol(server.address(), CONNECTIONS, 0..nodes).await?;
    let scrape = Arc::new(vec![request("GET", "/metrics", "")]);
    let mut half = Figure::new("metrics_scrape_ms");
    let mut longest = Figure::new("metrics_scrape_ms_longest");
    for _ in 0..runs {
        let scrape = Arc::clone(&scrape);
        let run =
            http_load::run_at_interval(server.address(), scrape, each, SCRAPE_GAP, 200).await?;
        half.add(run.wait_ms(0.5), SCRAPE_MS_MAX);
        longest.add(run.wait_ms(1.0), SCRAPE_MS_MAX);
    }
    Ok([half, longest])
}
