//! Images that are written ahead.

use super::*;

/// A machine with a device or with a file as its disk.
fn machine(appliance: &AgentTestAppliance, is_device: bool) -> AgentUnderTest {
    if is_device {
        with_device(appliance)
    } else {
        AgentUnderTest::start(appliance, false)
    }
}

fn ahead_params(urls: &[String], digest: Digest) -> Value {
    let step = write_step(urls, digest);
    json!({"image_info": step["step"]["args"]["image_info"], "node": {}})
}

/// What was requested of the image itself since the last call; the chunk list is no part of it.
fn image_requests(appliance: &mut AgentTestAppliance) -> Vec<String> {
    let mut requests = Vec::new();
    while let Ok((what, _)) = appliance.requests.try_recv() {
        let name = what.strip_prefix("GET /").unwrap_or_default();
        if ["listed", "device", "image"].contains(&name.split(' ').next().unwrap()) {
            requests.push(what);
        }
    }
    requests
}

#[tokio::test]
async fn an_image_written_ahead_is_deployed_without_a_byte_of_it() {
    for (is_device, path) in [(false, "listed"), (true, "device")] {
        let image = image(4 * CHUNK + 512);
        let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
        let machine = machine(&appliance, is_device);
        let callback = callback(&appliance.next_heartbeat().await);
        let urls = [format!("{}/{path}", appliance.url)];
        let params = ahead_params(&urls, sha256(&image));
        let name = "standby.write_image_ahead";
        let (_, done) = order(&callback, &token(), name, &params).await;
        assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
        assert_eq!(done["command_result"]["image_bytes"], image.len());
        let bytes = machine.disk.bytes();
        assert!(bytes[..CHUNK].iter().all(|&byte| byte == 0), "no boot");
        assert_eq!(bytes[CHUNK..image.len()], image[CHUNK..]);
        assert!(!image_requests(&mut appliance).is_empty());
        let step = write_step(&urls, sha256(&image));
        let name = "deploy.execute_deploy_step";
        let (_, done) = order(&callback, &token(), name, &step).await;
        assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
        assert_eq!(done["command_result"]["image_was_on_disk"], true);
        assert!(machine.disk.bytes().starts_with(&image));
        assert_eq!(image_requests(&mut appliance), [""; 0]);
        // It is used once: the disk may have changed since.
        let (_, done) = order(&callback, &token(), name, &step).await;
        assert_eq!(done["command_result"]["image_was_on_disk"], Value::Null);
        assert!(!image_requests(&mut appliance).is_empty());
        machine.cut_power().await;
    }
}

#[tokio::test]
async fn a_disk_that_changed_since_is_written_again() {
    for is_device in [false, true] {
        let image = image(4 * CHUNK + 512);
        let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
        let machine = machine(&appliance, is_device);
        let callback = callback(&appliance.next_heartbeat().await);
        let urls = [format!("{}/device", appliance.url)];
        let params = ahead_params(&urls, sha256(&image));
        let name = "standby.write_image_ahead";
        let (_, done) = order(&callback, &token(), name, &params).await;
        assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
        let mut bytes = machine.disk.bytes();
        bytes[3 * CHUNK + 5] ^= 1;
        std::fs::write(&machine.disk.0, bytes).unwrap();
        image_requests(&mut appliance);
        let step = write_step(&urls, sha256(&image));
        let name = "deploy.execute_deploy_step";
        let (_, done) = order(&callback, &token(), name, &step).await;
        assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
        assert_eq!(done["command_result"]["image_was_on_disk"], Value::Null);
        assert!(machine.disk.bytes().starts_with(&image));
        assert!(!image_requests(&mut appliance).is_empty());
        machine.cut_power().await;
    }
}

#[tokio::test]
async fn cleaning_and_another_image_drop_what_was_written_ahead() {
    let image = image(4 * CHUNK + 512);
    let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
    let machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    let urls = [format!("{}/device", appliance.url)];
    let digest = sha256(&image);
    let name = "standby.write_image_ahead";
    let (_, done) = order(&callback, &token(), name, &ahead_params(&urls, digest)).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    let erase = json!({"step": {"step": "erase_devices_metadata", "interface": "deploy"},
                       "node": {}, "ports": [], "clean_version": null});
    let (_, done) = order(&callback, &token(), "clean.execute_clean_step", &erase).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    let name = "deploy.execute_deploy_step";
    let step = write_step(&urls, digest);
    let (_, done) = order(&callback, &token(), name, &step).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert_eq!(done["command_result"]["image_was_on_disk"], Value::Null);
    machine.cut_power().await;
}

#[tokio::test]
async fn without_a_chunk_list_nothing_is_written_ahead() {
    for is_device in [false, true] {
        let image = image(4 * CHUNK + 512);
        let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
        let machine = machine(&appliance, is_device);
        let callback = callback(&appliance.next_heartbeat().await);
        let urls = [format!("{}/image", appliance.url)];
        let params = ahead_params(&urls, sha256(&image));
        let name = "standby.write_image_ahead";
        let (_, done) = order(&callback, &token(), name, &params).await;
        assert_eq!(done["command_status"], "FAILED", "{done}");
        let details = done["command_error"]["details"].as_str().unwrap();
        assert!(details.contains("no chunk list"), "{details}");
        machine.cut_power().await;
    }
}

#[tokio::test]
async fn a_deployment_stops_what_is_being_written_ahead() {
    let image = image(4 * CHUNK + 512);
    let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
    let machine = AgentUnderTest::start(&appliance, false);
    let callback = callback(&appliance.next_heartbeat().await);
    // This server accepts the connection and never replies.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let urls = [format!("http://{}/device", silent.local_addr().unwrap())];
    let params = ahead_params(&urls, sha256(b"another"));
    let client = anybody();
    let target = format!("{callback}/v1/commands/?agent_token={}", token());
    let body = json!({"name": "standby.write_image_ahead", "params": params});
    let body = body.to_string().into_bytes();
    let (status, _) = client.call(("POST", &target), None, body).await;
    assert_eq!(status, 200);
    let waits = silent.accept().await.unwrap();
    // Commands that need no disk leave it alone, and it does not keep them waiting.
    let lists = json!({"node": {}, "ports": []});
    let (status, _) = order(&callback, &token(), "deploy.get_deploy_steps", &lists).await;
    assert_eq!(status, 200);
    let step = write_step(&[format!("{}/device", appliance.url)], sha256(&image));
    let (_, done) = order(&callback, &token(), "deploy.execute_deploy_step", &step).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert!(machine.disk.bytes().starts_with(&image));
    let (_, all) = client.call(("GET", &target), None, Vec::new()).await;
    let all: Value = serde_json::from_slice(&all).unwrap();
    assert_eq!(all["commands"][0]["command_status"], "FAILED");
    let details = &all["commands"][0]["command_error"]["details"];
    assert_eq!(details, "stopped by the command execute_deploy_step");
    drop(waits);
    machine.cut_power().await;
}

#[tokio::test]
async fn a_partition_image_does_not_use_what_was_written_ahead() {
    let image = image(4 * CHUNK + 512);
    let mut appliance = AgentTestAppliance::new(image.clone(), &token()).await;
    let machine = with_device(&appliance);
    let callback = callback(&appliance.next_heartbeat().await);
    let urls = [format!("{}/device", appliance.url)];
    let params = ahead_params(&urls, sha256(&image));
    let name = "standby.write_image_ahead";
    let (_, done) = order(&callback, &token(), name, &params).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    image_requests(&mut appliance);
    let step = partition_step(&urls, sha256(&image), 8);
    let (_, done) = order(&callback, &token(), "deploy.execute_deploy_step", &step).await;
    assert_eq!(done["command_status"], "SUCCEEDED", "{done}");
    assert_eq!(done["command_result"]["image_was_on_disk"], Value::Null);
    assert!(machine.disk.bytes()[3 << 20..].starts_with(&image));
    assert!(!image_requests(&mut appliance).is_empty());
    machine.cut_power().await;
}
