//! The rack with its library of images, and a simulated shell that carries out the orders.

use super::image_deployment::{at_write, plain, sent_image_info, start};
use super::*;
use trivet_images::simulated::{
    SimImageDisk, SimImageRead, SimImageShell, SimImageSource, sim_pack, sim_sha256,
};
use trivet_model::image::ImageState;

use crate::{FileGrant, FileServerProtocol};

/// A rack, and the shell of its images.
struct ImageBench {
    bench: RackBench,
    shell: SimImageShell,
}

impl ImageBench {
    fn new(url: &str, content: &[u8]) -> Self {
        let mut bench = RackBench::new();
        bench.image_work.clear();
        let mut shell = SimImageShell::new(SimImageDisk::new(1 << 20));
        let source = SimImageSource::new(content.to_vec());
        shell.sources.insert(url.to_owned(), source);
        Self { bench, shell }
    }

    /// Carries out what was ordered since the last time.
    fn carry_out(&mut self) {
        for order in std::mem::take(&mut self.bench.image_work) {
            self.shell.carry_out(self.bench.now.tick, order);
        }
    }

    /// All work that follows from the last input. Its other outputs are kept.
    fn run(&mut self) {
        self.carry_out();
        let mut remaining = std::mem::take(&mut self.bench.outputs);
        while let Some(at) = self.shell.deadline() {
            self.bench.now.tick = self.bench.now.tick.max(at);
            for report in self.shell.poll(at) {
                self.bench.image_report(report);
                self.carry_out();
                remaining.append(&mut self.bench.outputs);
            }
        }
        self.bench.outputs = remaining;
    }

    /// What the machine of a node reads at the URL of its deployment.
    fn read(&mut self, id: NodeId) -> SimImageRead {
        let args = self.bench.write_args(id);
        let url = args["image_info"]["urls"][0].as_str().unwrap();
        let path = url.strip_prefix("http://10.0.0.1:8080").unwrap().to_owned();
        self.bench.handle(RackInput::FileRequested {
            certificate: None,
            ticket: 1,
            protocol: FileServerProtocol::Http,
            peer: Ipv4Addr::new(192, 0, 2, 77).into(),
            path,
        });
        let grant = self.bench.outputs.iter().find_map(|output| match output {
            RackOutput::File { grant, .. } => grant.clone(),
            _ => None,
        });
        let Some(FileGrant::Image(grant)) = grant else {
            panic!("{grant:?}");
        };
        self.run();
        self.shell.read(grant.read.entry)
    }
}

fn wanted(name: &str, content: &[u8]) -> Value {
    let sum = sim_sha256(content).to_string();
    json!({"image_source": format!("http://far/{name}"), "image_checksum": sum})
}

#[test]
fn a_deployment_fetches_its_image_and_the_machine_reads_it() {
    let content = vec![7; 2500];
    let mut images = ImageBench::new("http://far/a.raw", &content);
    let id = at_write(&mut images.bench, wanted("a.raw", &content));
    images.run();
    let view = images.bench.rack.view();
    let shown = view.images.values().next().unwrap();
    assert_eq!(shown.state, ImageState::Complete);
    assert_eq!(images.read(id), SimImageRead::Whole(content));
}

#[test]
fn a_held_write_starts_when_the_disk_is_unpacked() {
    let raw = vec![9; 2500];
    let packed = sim_pack(&raw);
    let mut images = ImageBench::new("http://far/a.raw.gz", &packed);
    let id = at_write(&mut images.bench, wanted("a.raw.gz", &packed));
    start(&mut images.bench, id);
    assert!(sent_image_info(&images.bench).is_none(), "it has to wait");
    images.run();
    let (args, _) = sent_image_info(&images.bench).expect("the agent is called");
    let info = &args["image_info"];
    assert_eq!(info["os_hash_value"], sim_sha256(&raw).to_string());
    assert_eq!(images.read(id), SimImageRead::Whole(raw));
}

#[test]
fn wrong_bytes_at_the_source_end_the_job_and_are_never_complete() {
    let content = vec![7; 2500];
    let mut images = ImageBench::new("http://far/a.raw", &[8; 2500]);
    let id = at_write(&mut images.bench, wanted("a.raw", &content));
    images.run();
    let node = images.bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::DeployFail);
    let error = node.last_error.unwrap();
    assert!(error.contains("wrong digest"), "{error}");
    let view = images.bench.rack.view();
    let shown = view.images.values().next().unwrap();
    assert!(matches!(shown.state, ImageState::Wrong(_)));
    assert_eq!(view.faults.len(), 1);
}

#[test]
fn an_image_whose_source_is_away_is_named_in_the_error_of_the_node() {
    let mut images = ImageBench::new("http://other/a.raw", b"x");
    let id = at_write(&mut images.bench, plain());
    for _ in 0..10 {
        images.run();
        images.bench.advance(20_000);
    }
    images.run();
    start(&mut images.bench, id);
    for _ in 0..10 {
        images.run();
        images.bench.advance(20_000);
    }
    let error = images.bench.node(id).last_error.unwrap();
    assert!(error.contains("image a.raw cannot be fetched"), "{error}");
}
