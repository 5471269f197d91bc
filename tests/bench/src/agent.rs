//! The measurements behind `benches/agent.rs`: an agent in its ramdisk, in a QEMU guest.
//!
//! The guest boots kernel and ramdisk directly, so loaders are not measured. It reaches a small
//! box of this file, which answers its lookup, counts its heartbeats and serves images without a
//! chunk list; the commands to write them are sent to the agent's API. What counts is the CPU
//! time of QEMU, which emulates the processor.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use trivet_chunks::{DigestAlgorithm, IncrementalDigest};
use trivet_model::{Digest, Entropy as _};

use crate::bmcs::BenchEntropy;
use crate::process::{BenchProcess, CoreSet};

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct AgentBenchScale {
    /// Size of the images.
    pub image_mib: u32,
    /// Of the second image, one chunk of so many is not zeros.
    pub zero_chunks: u32,
    /// Memory of the guest.
    pub memory_mib: u32,
    /// Longest wait for a heartbeat and for a write.
    pub timeout: Duration,
}

/// CPU seconds of a guest with one agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentBenchResult {
    /// From power-on to the first heartbeat.
    pub boot_s: f64,
    /// For a GiB of random bytes.
    pub random_s_per_gib: f64,
    /// For a GiB that is almost only zeros.
    pub zeros_s_per_gib: f64,
}

/// Kernel and ramdisk of an agent.
#[derive(Clone, Debug)]
pub struct AgentRamdisk {
    /// The kernel.
    pub kernel: PathBuf,
    /// The ramdisk.
    pub initrd: PathBuf,
}

const MIB: u64 = 1 << 20;
const TOKEN: &str = "a-token-of-the-benchmark-of-agents-0123456789";
const NODE: &str = "11111111-2222-4333-8444-555555555555";

/// The host of a guest with QEMU's own network.
const HOST: &str = "10.0.2.2";

/// The images by name: random bytes, and almost only zeros.
const RANDOM: &str = "random.raw";
const ZEROS: &str = "zeros.raw";

/// Neither agent writes to a smaller disk.
const DISK_BYTES: u64 = 6 << 30;

/// Longest wait for the result of a command before it is requested again.
const POLL: Duration = Duration::from_secs(2);

/// Longest line of a request.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Builds kernel and ramdisk with an agent, `ipa` or `trivet`, where they were not built before.
///
/// # Errors
///
/// When they cannot be built.
pub fn build_ramdisk(agent: &str) -> io::Result<AgentRamdisk> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let lab = root.join("target/lab");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&cargo);
        command.current_dir(root).args(arguments);
        let status = command.stdout(Stdio::null()).status()?;
        let failed = || io::Error::other(format!("cargo {}: {status}", arguments.join(" ")));
        status.success().then_some(()).ok_or_else(failed)
    };
    let target = "x86_64-unknown-linux-musl";
    let binary = root.join(format!("target/{target}/appliance/trivet-agent"));
    run(&[
        "build",
        "--locked",
        "--quiet",
        "--profile",
        "appliance",
        "--target",
        target,
        "--package",
        "trivet-image-agent",
    ])?;
    let output = lab.join("agent");
    let words =
        [output.as_path(), &lab.join("ipa"), &binary].map(|path| path.display().to_string());
    let [output_word, cache, binary] = words;
    let mut arguments = vec![
        "run",
        "--locked",
        "--quiet",
        "--release",
        "--package",
        "trivet-image-ramdisk",
        "--",
        "ramdisk",
        "--agent",
        agent,
        "--output",
        &output_word,
        "--cache",
        &cache,
    ];
    if agent == "trivet" {
        arguments.extend(["--agent-binary", &binary]);
    }
    run(&arguments)?;
    Ok(AgentRamdisk {
        kernel: output.join(format!("{agent}.kernel")),
        initrd: output.join(format!("{agent}.initramfs")),
    })
}

/// Boots a guest with this ramdisk, and lets its agent write both images.
///
/// # Errors
///
/// When the agent sends no heartbeat, or does not write an image.
pub fn measure(
    ramdisk: &AgentRamdisk,
    directory: &Path,
    scale: AgentBenchScale,
) -> io::Result<AgentBenchResult> {
    let images = Arc::new(BenchImages::make(directory, scale)?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let (sender, heartbeats) = mpsc::channel();
    let served = Arc::clone(&images);
    thread::spawn(move || serve(&listener, &served, &sender));
    let agent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut guest = power_on(ramdisk, directory, scale, port, agent)?;
    let wait = |guest: &mut BenchProcess, what: &str| {
        guest.check()?;
        heartbeats
            .recv_timeout(scale.timeout)
            .map_err(|_| io::Error::other(format!("no {what} within {:?}", scale.timeout)))
    };
    wait(&mut guest, "heartbeat")?;
    let boot_s = guest.processor_seconds()?;
    let mut per_gib = [0.0; 2];
    for (seconds, image) in per_gib.iter_mut().zip([RANDOM, ZEROS]) {
        // The agent sends its heartbeats and is idle, until it writes.
        let before = guest.processor_seconds()?;
        write_image(agent, &images, image, port)?;
        finish(agent, &heartbeats, scale.timeout)?;
        let used = guest.processor_seconds()? - before;
        *seconds = used * 1024.0 / f64::from(scale.image_mib);
    }
    let [random_s_per_gib, zeros_s_per_gib] = per_gib;
    Ok(AgentBenchResult {
        boot_s,
        random_s_per_gib,
        zeros_s_per_gib,
    })
}

fn power_on(
    ramdisk: &AgentRamdisk,
    directory: &Path,
    scale: AgentBenchScale,
    port: u16,
    agent: SocketAddr,
) -> io::Result<BenchProcess> {
    let disk = directory.join("disk");
    File::create(&disk)?.set_len(DISK_BYTES)?;
    let shown = |path: &Path| path.display().to_string();
    let memory = scale.memory_mib.to_string();
    let line = format!(
        "console=ttyS0 quiet mitigations=off no_timer_check ipa-api-url=http://{HOST}:{port}"
    );
    let words = [
        "-accel",
        "tcg",
        "-nodefaults",
        "-display",
        "none",
        "-cpu",
        "max",
        "-smp",
        "1",
        "-machine",
        "q35",
        "-no-reboot",
        "-m",
        &memory,
        "-kernel",
        &shown(&ramdisk.kernel),
        "-initrd",
        &shown(&ramdisk.initrd),
        "-append",
        &line,
        "-serial",
        &format!("file:{}", shown(&directory.join("serial"))),
        "-netdev",
        &format!("user,id=n0,hostfwd=tcp:{agent}-:9999"),
        "-device",
        "virtio-net-pci,netdev=n0,romfile=",
        "-device",
        "virtio-rng-pci",
        "-drive",
        &format!("file={},format=raw,if=virtio", shown(&disk)),
    ]
    .map(str::to_owned);
    let program = Path::new("/usr/bin/qemu-system-x86_64");
    BenchProcess::on(CoreSet::Both, program, words, &directory.join("qemu.log"))
}

/// The images: files with their digests.
struct BenchImages {
    directory: PathBuf,
    digests: [(&'static str, Digest); 2],
}

impl BenchImages {
    fn make(directory: &Path, scale: AgentBenchScale) -> io::Result<Self> {
        let mut entropy = BenchEntropy::default();
        let mut one = |name: &'static str, every: u32| {
            let mut file = File::create(directory.join(name))?;
            let mut digest = IncrementalDigest::new(DigestAlgorithm::Sha256);
            let mut chunk = vec![0; MIB as usize];
            for number in 0..scale.image_mib {
                if number % every == 0 {
                    entropy.fill(&mut chunk);
                } else {
                    chunk.fill(0);
                }
                if number == 0 {
                    put_partition(&mut chunk, scale.image_mib);
                }
                digest.update(&chunk);
                file.write_all(&chunk)?;
            }
            Ok::<_, io::Error>((name, digest.finish()))
        };
        Ok(Self {
            digests: [one(RANDOM, 1)?, one(ZEROS, scale.zero_chunks)?],
            directory: directory.to_owned(),
        })
    }

    fn digest(&self, name: &str) -> Option<&Digest> {
        let found = self.digests.iter().find(|(known, _)| *known == name);
        found.map(|(_, digest)| digest)
    }
}

/// An MBR with one partition: the stock agent expects one.
fn put_partition(chunk: &mut [u8], mib: u32) {
    let sectors = (mib - 1) << 11;
    chunk[446..510].fill(0);
    chunk[450] = 0x83;
    chunk[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    chunk[458..462].copy_from_slice(&sectors.to_le_bytes());
    chunk[510..512].copy_from_slice(&[0x55, 0xaa]);
}

/// Sends the command to write an image.
fn write_image(agent: SocketAddr, images: &BenchImages, name: &str, port: u16) -> io::Result<()> {
    let digest = images.digest(name).map(ToString::to_string);
    let info = json!({"id": name, "urls": [format!("http://{HOST}:{port}/{name}")],
        "os_hash_algo": "sha256", "os_hash_value": digest, "disk_format": "raw",
        "stream_raw_images": true, "image_type": "whole-disk"});
    let body = json!({"name": "standby.prepare_image", "params": {"image_info": info}});
    let reply = call(agent, "POST", &body.to_string())?;
    match reply["command_status"].as_str() {
        Some("RUNNING" | "SUCCEEDED") => Ok(()),
        _ => Err(io::Error::other(format!("not accepted: {reply}"))),
    }
}

/// Waits until the last command has ended: the agent sends a heartbeat then.
fn finish(agent: SocketAddr, heartbeats: &Receiver<()>, timeout: Duration) -> io::Result<()> {
    for _ in 0..timeout.as_secs() / POLL.as_secs() {
        let reply = call(agent, "GET", "")?;
        let last = reply["commands"].as_array().and_then(|all| all.last());
        let last = last.cloned().unwrap_or_default();
        match last["command_status"].as_str() {
            Some("RUNNING") => {}
            Some("SUCCEEDED") => return Ok(()),
            _ => return Err(io::Error::other(format!("not written: {last}"))),
        }
        let _ = heartbeats.recv_timeout(POLL);
    }
    Err(io::Error::other(format!("not written within {timeout:?}")))
}

/// A request to the agent's API.
fn call(agent: SocketAddr, method: &str, body: &str) -> io::Result<Value> {
    let mut stream = TcpStream::connect(agent)?;
    write!(
        stream,
        "{method} /v1/commands/?agent_token={TOKEN} HTTP/1.0\r\nHost: {agent}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (_, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).map_err(|_| io::Error::other(format!("the agent replied {text}")))
}

/// The box: a thread for each connection, one request for each.
fn serve(listener: &TcpListener, images: &Arc<BenchImages>, heartbeats: &Sender<()>) {
    while let Ok((stream, _)) = listener.accept() {
        let (images, heartbeats) = (Arc::clone(images), heartbeats.clone());
        thread::spawn(move || {
            // A guest that is switched off breaks its connections.
            let _ = answer(stream, &images, &heartbeats);
        });
    }
}

fn answer(stream: TcpStream, images: &BenchImages, heartbeats: &Sender<()>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut target = String::new();
    let mut line = String::new();
    loop {
        line.clear();
        reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
        let text = line.trim_end().to_ascii_lowercase();
        if target.is_empty() {
            line.trim_end().clone_into(&mut target);
        } else if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if text.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut stream = reader.into_inner();
    let mut words = target.split_whitespace();
    let (method, path) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let path = path.split('?').next().unwrap_or_default();
    let name = path.trim_start_matches('/');
    if images.digest(name).is_some() {
        let mut file = File::open(images.directory.join(name))?;
        head(&mut stream, 200, file.metadata()?.len())?;
        if method == "GET" {
            io::copy(&mut file, &mut stream)?;
        }
        return Ok(());
    }
    let (status, reply) = match path {
        // Before 1.68 agents have no TLS.
        "/" | "/v1" | "/v1/" => (200, version()),
        "/v1/lookup" => (200, found()),
        _ if path.starts_with("/v1/heartbeat/") => {
            let _ = heartbeats.send(());
            (202, Value::Null)
        }
        _ => (404, json!({})),
    };
    let reply = if reply.is_null() {
        String::new()
    } else {
        reply.to_string()
    };
    head(&mut stream, status, reply.len() as u64)?;
    stream.write_all(reply.as_bytes())
}

fn head(stream: &mut TcpStream, status: u16, length: u64) -> io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    )
}

fn version() -> Value {
    let version = json!({"id": "v1", "links": [], "status": "CURRENT", "min_version": "1.1",
        "version": "1.67"});
    json!({"name": "box", "description": "", "default_version": version, "versions": [version]})
}

fn found() -> Value {
    json!({"node": {"uuid": NODE, "properties": {}, "instance_info": {},
            "driver_internal_info": {}},
        "config": {"heartbeat_timeout": 300, "agent_token": TOKEN,
            "agent_token_required": true}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::BenchDirectory;
    use std::net::Shutdown;

    const SCALE: AgentBenchScale = AgentBenchScale {
        image_mib: 4,
        zero_chunks: 2,
        memory_mib: 0,
        timeout: Duration::ZERO,
    };

    fn bytes_of(port: u16, request: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        write!(
            stream,
            "{request} HTTP/1.1\r\nContent-Length: 2\r\n\r\n{{}}"
        )
        .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        reply
    }

    #[test]
    fn the_box_answers_an_agent_and_serves_its_images() {
        let directory = BenchDirectory::new("agent-box").unwrap();
        let images = Arc::new(BenchImages::make(directory.path(), SCALE).unwrap());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, heartbeats) = mpsc::channel();
        let served = Arc::clone(&images);
        thread::spawn(move || serve(&listener, &served, &sender));
        let text = |request: &str| String::from_utf8(bytes_of(port, request)).unwrap();
        assert!(text("GET /").contains("\"version\":\"1.67\""));
        assert!(text("GET /v1/lookup?addresses=x").contains(TOKEN));
        assert!(heartbeats.try_recv().is_err());
        assert!(text(&format!("POST /v1/heartbeat/{NODE}")).starts_with("HTTP/1.1 202"));
        assert!(heartbeats.try_recv().is_ok());
        assert!(text("GET /random.raw.chunks").starts_with("HTTP/1.1 404"));
        let reply = bytes_of(port, "GET /zeros.raw");
        let image = &reply[reply.len() - 4 * MIB as usize..];
        let mut digest = IncrementalDigest::new(DigestAlgorithm::Sha256);
        digest.update(image);
        assert_eq!(Some(&digest.finish()), images.digest(ZEROS));
        assert_eq!(image[510..512], [0x55, 0xaa]);
        assert!(
            image[MIB as usize..2 * MIB as usize]
                .iter()
                .all(|&byte| byte == 0)
        );
        let head = text("HEAD /random.raw");
        assert!(head.contains("Content-Length: 4194304"), "{head}");
    }
}
