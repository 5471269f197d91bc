//! Device writes of one durable update, compared with sqlite.
//!
//! 500 records of about 2 KiB, random single-record updates, each durable before the next. Our
//! region is small enough to wrap around, so that cleaning is part of the figure; sqlite runs
//! in WAL mode with synchronous=FULL and its default checkpoints. Two kinds of update: `step`
//! changes a few fields of a node, as a deployment does; `replace` gives it 2 KiB of new
//! content.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use trivet_board_hal::BoxKey;
use trivet_board_linux::FileFlash;
use trivet_model::{Entropy, Node, NodeId, PowerState, ProvisionState, SeededRandom, UnixMs};
use trivet_store::{Store, StoreChange};
use trivet_tests_bench::disk::{BenchDisk, DiskTraffic};
use trivet_tests_bench::figure::Figure;

const RECORDS: usize = 500;
const RECORD_BYTES: usize = 2048;
const UPDATES: u64 = 6000;
const RUNS: u64 = 3;
const REGION_BYTES: u64 = 16 << 20;
const DISK_BYTES: u64 = 96 << 20;

/// The limits published in the README.
const BYTES_MAX: f64 = 4.5 * 1024.0;
const RATIO_MAX: f64 = 0.4;

type StoreBenchError = Box<dyn Error>;

#[derive(Clone, Copy)]
enum StoreUpdateKind {
    Step,
    Replace,
}

fn main() -> Result<ExitCode, StoreBenchError> {
    let disk = BenchDisk::new(DISK_BYTES)?;
    let mut step_bytes = Figure::new("store_step_bytes_per_update");
    let mut step_flushes = Figure::new("store_step_flushes_per_update");
    let mut replace_bytes = Figure::new("store_replace_bytes_per_update");
    let mut replace_flushes = Figure::new("store_replace_flushes_per_update");
    for run in 0..RUNS {
        let step = ours(&disk, run, StoreUpdateKind::Step)?;
        let replace = ours(&disk, run, StoreUpdateKind::Replace)?;
        let peer = sqlite(&disk, run)?;
        step_bytes.add(per_update(step.bytes), per_update(peer.bytes));
        replace_bytes.add(per_update(replace.bytes), per_update(peer.bytes));
        if let (Some(step), Some(replace), Some(peer)) =
            (step.flushes, replace.flushes, peer.flushes)
        {
            step_flushes.add(per_update(step), per_update(peer));
            replace_flushes.add(per_update(replace), per_update(peer));
        }
    }
    println!("name ours peer ratio spread");
    for figure in [
        step_bytes.clone(),
        replace_bytes.clone(),
        step_flushes,
        replace_flushes,
    ] {
        if figure.ours().is_finite() {
            println!("{}", figure.line());
        }
    }
    for figure in [step_bytes, replace_bytes] {
        if figure.ours() > BYTES_MAX || figure.ratio() > RATIO_MAX {
            eprintln!("over the limit of {BYTES_MAX} bytes and {RATIO_MAX} of the peer");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run")]
fn per_update(count: u64) -> f64 {
    count as f64 / UPDATES as f64
}

fn ours(
    disk: &BenchDisk,
    seed: u64,
    update: StoreUpdateKind,
) -> Result<DiskTraffic, StoreBenchError> {
    let path = disk.path().join("store");
    let mut chance = SeededRandom::new(seed);
    let mut store = Store::open(FileFlash::open(&path, REGION_BYTES)?, BoxKey::new([7; 32]))?;
    let mut nodes: Vec<Node> = (0..RECORDS).map(|_| node(&mut chance)).collect();
    for batch in nodes.chunks(50) {
        let changes: Vec<_> = batch.iter().cloned().map(put).collect();
        store.commit(&changes)?;
    }
    let before = disk.traffic(std::process::id())?;
    for number in 0..UPDATES {
        let node = &mut nodes[chance.below(RECORDS as u64) as usize];
        match update {
            StoreUpdateKind::Step => step(node, number),
            StoreUpdateKind::Replace => *node = fill(node.clone(), &mut chance),
        }
        store.commit(&[put(node.clone())])?;
    }
    let traffic = disk.traffic(std::process::id())?.since(before);
    assert_eq!(store.stats().commits, UPDATES + (RECORDS / 50) as u64);
    drop(store);
    std::fs::remove_file(&path)?;
    Ok(traffic)
}

fn put(node: Node) -> StoreChange {
    StoreChange::PutNode(Arc::new(node))
}

fn node(chance: &mut SeededRandom) -> Node {
    let id = NodeId::random(chance);
    fill(Node::new(id, "ipmi", UnixMs(1_794_796_610_746)), chance)
}

/// Gives the node new content, so that its record has about `RECORD_BYTES`.
fn fill(mut node: Node, chance: &mut SeededRandom) -> Node {
    let mut noise = vec![0; (RECORD_BYTES - 120) / 2];
    chance.fill(&mut noise);
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half & 15)]);
    let text: String = noise
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect();
    node.extra.insert("noise".to_owned(), text.into());
    node
}

/// The changes of a deployment to its node from step to step.
fn step(node: &mut Node, number: u64) {
    let deploying = node.provision_state == ProvisionState::Deploying;
    node.provision_state = if deploying {
        ProvisionState::DeployWait
    } else {
        ProvisionState::Deploying
    };
    node.power_state = Some(if deploying {
        PowerState::On
    } else {
        PowerState::Off
    });
    node.revision += 1;
    node.updated_at = Some(UnixMs(1_794_796_610_746 + number));
}

fn sqlite(disk: &BenchDisk, seed: u64) -> Result<DiskTraffic, StoreBenchError> {
    let path = disk.path().join("peer");
    let mut child = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/sqlite.py"))
        .arg(&path)
        .args([RECORDS as u64, RECORD_BYTES as u64, UPDATES, seed].map(|number| number.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("no standard input")?;
    let output = child.stdout.take().ok_or("no standard output")?;
    let mut lines = BufReader::new(output).lines();
    let mut expect = |word: &str| match lines.next() {
        Some(Ok(line)) if line == word => Ok(()),
        other => Err(format!("the peer printed {other:?} instead of {word}")),
    };
    expect("ready")?;
    let before = disk.traffic(child.id())?;
    input.write_all(b"\n")?;
    expect("done")?;
    let traffic = disk.traffic(child.id())?.since(before);
    input.write_all(b"\n")?;
    child.wait()?;
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    Ok(traffic)
}
