//! Makes a config drive of the object on its input: `drive < parts.json > drive.iso`.

use std::io::{Read as _, Write as _};

use serde_json::{Map, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let parts: Map<String, Value> = serde_json::from_str(&text)?;
    let disc = trivet_configdrive::iso_image(&parts, &Map::new())?;
    std::io::stdout().write_all(&disc)?;
    Ok(())
}
