use trivet_model::deployment::{ImageChecksum, ImageLocation};
use trivet_model::{AgentSession, SeededRandom, UnixMs};

use super::*;

const IMAGE: Digest = Digest::Sha256([1; 32]);
const OTHER: Digest = Digest::Sha256([2; 32]);

fn rule(amount: ImageAheadAmount, class: Option<&str>) -> ImageAheadRule {
    ImageAheadRule {
        image: "debian".to_owned(),
        amount,
        resource_class: class.map(str::to_owned),
    }
}

fn wanted(rule: &ImageAheadRule, digest: Digest) -> WantedAhead<'_> {
    WantedAhead {
        rule,
        digest,
        bytes: Some(100),
    }
}

fn node(number: u64) -> Node {
    let id = NodeId::random(&mut SeededRandom::new(number));
    let mut node = Node::new(id, "ipmi", UnixMs(1));
    node.serial = number;
    node.agent = Some(AgentSession::legacy());
    node
}

fn with(number: u64, digest: Digest, phase: ImageAheadPhase, tries: u32) -> Node {
    let mut node = node(number);
    node.agent.as_mut().unwrap().ahead = Some(ImageAhead {
        name: "debian".to_owned(),
        deployment: ImageDeployment {
            file_name: "debian".to_owned(),
            image: ImageLocation::Url("http://h/a".to_owned()),
            checksum: ImageChecksum::Digest(digest),
            format: None,
            is_streamed: true,
            partitions: None,
            drive: None,
        },
        digest,
        root_device: Value::Null,
        phase,
        tries,
        started_at: UnixMs(0),
    });
    node
}

/// For each node the rule whose image it gets.
fn chosen(images: &[WantedAhead<'_>], nodes: &[Node]) -> Vec<Option<usize>> {
    let all: Vec<&Node> = nodes.iter().collect();
    let of = |node: &Node| choose(images, &all, node.id);
    nodes.iter().map(of).collect()
}

#[test]
fn the_oldest_nodes_get_the_image_until_there_are_enough() {
    let three = rule(ImageAheadAmount::Nodes(2), None);
    let images = [wanted(&three, IMAGE)];
    let mut nodes: Vec<Node> = (1..=4).map(node).collect();
    assert_eq!(chosen(&images, &nodes), [Some(0), Some(0), None, None]);
    // One that has it, or gets it, counts.
    nodes[3] = with(4, IMAGE, ImageAheadPhase::Writing, 1);
    assert_eq!(chosen(&images, &nodes), [Some(0), None, None, None]);
    nodes[0] = with(1, IMAGE, ImageAheadPhase::Written, 1);
    assert_eq!(chosen(&images, &nodes), [None; 4]);
}

#[test]
fn a_share_is_rounded_up_and_counts_the_nodes_of_the_class() {
    let half = rule(ImageAheadAmount::Percent(50), Some("big"));
    let images = [wanted(&half, IMAGE)];
    let mut nodes: Vec<Node> = (1..=5).map(node).collect();
    assert_eq!(chosen(&images, &nodes), [None; 5]);
    for node in &mut nodes[1..4] {
        node.resource_class = Some("big".to_owned());
    }
    assert_eq!(
        chosen(&images, &nodes),
        [None, Some(0), Some(0), None, None]
    );
    let all = rule(ImageAheadAmount::Percent(100), None);
    assert_eq!(chosen(&[wanted(&all, IMAGE)], &nodes), [Some(0); 5]);
}

#[test]
fn rules_are_served_in_order_and_take_no_node_from_each_other() {
    let one = rule(ImageAheadAmount::Nodes(1), None);
    let more = rule(ImageAheadAmount::Nodes(9), None);
    let images = [wanted(&one, IMAGE), wanted(&more, OTHER)];
    let mut nodes: Vec<Node> = (1..=3).map(node).collect();
    assert_eq!(chosen(&images, &nodes), [Some(0), Some(1), Some(1)]);
    // An image that another rule wants stays; one that no rule wants is replaced.
    nodes[0] = with(1, OTHER, ImageAheadPhase::Written, 1);
    assert_eq!(chosen(&images, &nodes), [None, Some(0), Some(1)]);
    nodes[0] = with(1, Digest::Sha256([3; 32]), ImageAheadPhase::Written, 1);
    assert_eq!(chosen(&images, &nodes), [Some(0), Some(1), Some(1)]);
}

#[test]
fn another_node_gets_the_image_after_too_many_failures_or_where_it_does_not_fit() {
    let one = rule(ImageAheadAmount::Nodes(1), None);
    let images = [wanted(&one, IMAGE)];
    let failed = |tries| with(1, IMAGE, ImageAheadPhase::Failed, tries);
    let mut nodes = vec![failed(AHEAD_TRIES_MAX - 1), node(2)];
    assert_eq!(chosen(&images, &nodes), [Some(0), None]);
    nodes[0] = failed(AHEAD_TRIES_MAX);
    assert_eq!(chosen(&images, &nodes), [None, Some(0)]);
    nodes[0] = node(1);
    let disks = serde_json::json!([{"name": "/dev/sda", "size": 99}]);
    nodes[0].inventory = Some(serde_json::json!({"inventory": {"disks": disks}}));
    assert_eq!(chosen(&images, &nodes), [None, Some(0)]);
}

#[test]
fn other_root_device_hints_mean_another_disk() {
    let one = rule(ImageAheadAmount::Nodes(1), None);
    let images = [wanted(&one, IMAGE)];
    let mut nodes = vec![with(1, IMAGE, ImageAheadPhase::Written, 1)];
    assert_eq!(chosen(&images, &nodes), [None]);
    let hints = serde_json::json!({"serial": "B"});
    nodes[0].properties.insert("root_device".into(), hints);
    assert_eq!(chosen(&images, &nodes), [Some(0)]);
}
