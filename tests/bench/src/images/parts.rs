//! A hot image in small ranges, as a BMC reads an ISO image as virtual media.

use std::io;
use std::sync::Arc;

use super::{HotImage, ImageBenchScale, ImageFigureLimit, ImageFigureTarget};
use crate::http_load;

/// The sizes of ranges, and their names.
const PARTS: [(usize, &str); 2] = [(4 << 10, "4k"), (64 << 10, "64k")];

/// Concurrent clients.
const CLIENTS: usize = 8;

/// Offsets that the clients cycle through: no two of them in the same range of the file.
const OFFSETS: usize = 1021;

/// The percentile of the reported latency.
const SHARE: f64 = 0.99;

/// The result of one server.
#[derive(Clone, Copy, Default)]
struct PartReadResult {
    per_second: f64,
    cpu_us: f64,
    wait_ms: f64,
}

/// Measures both servers alternately and reports each figure.
pub(super) async fn measure(
    places: &[HotImage<'_>; 2],
    scale: ImageBenchScale,
    report: &mut dyn FnMut(ImageFigureTarget),
) -> io::Result<()> {
    for (bytes, name) in PARTS {
        let mut runs = Vec::new();
        for _ in 0..scale.runs {
            let mut sides = [PartReadResult::default(); 2];
            for (side, place) in sides.iter_mut().zip(places) {
                *side = one(place, bytes, scale).await?;
            }
            runs.push(sides);
        }
        let mut say = |figure: &str, pick: fn(&PartReadResult) -> f64, limit| {
            let values: Vec<_> = runs
                .iter()
                .map(|[ours, peer]| (pick(ours), pick(peer)))
                .collect();
            let name = format!("part_{name}_{figure}");
            report(ImageFigureTarget::new(&name, &values, limit));
        };
        say(
            "per_s",
            |side| side.per_second,
            ImageFigureLimit::RatioMin(1.0),
        );
        say(
            "cpu_us",
            |side| side.cpu_us,
            ImageFigureLimit::RatioMax(1.0),
        );
        say(
            "p99_ms",
            |side| side.wait_ms,
            ImageFigureLimit::RatioMax(1.0),
        );
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a count of requests")]
async fn one(
    place: &HotImage<'_>,
    bytes: usize,
    scale: ImageBenchScale,
) -> io::Result<PartReadResult> {
    let space = scale.hot_bytes - bytes;
    let requests = (0..OFFSETS).map(|number| {
        let from = space / OFFSETS * number;
        let to = from + bytes - 1;
        let path = place.path;
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={from}-{to}\r\n\r\n")
            .into_bytes()
    });
    let requests = Arc::new(requests.collect());
    let before = place.process.processor_seconds()?;
    let run =
        http_load::run_at_full_rate(place.address, CLIENTS, requests, scale.parts, 206).await?;
    let spent = place.process.processor_seconds()? - before;
    Ok(PartReadResult {
        per_second: run.requests as f64 / run.seconds,
        cpu_us: spent * 1e6 / run.requests as f64,
        wait_ms: run.wait_ms(SHARE),
    })
}
