//! Tests of `[images]`.

use super::*;

#[test]
fn the_cache_needs_no_section() {
    let images = good("").images;
    assert_eq!(images, ImageCacheSettings::default());
    assert_eq!(images.reserve_mib, 256);
}

#[test]
fn every_key_is_read() {
    let text = "[images]\nca = \"/etc/ca.pem\"\nproxy = \"http://proxy.example:3128\"\n\
                rate_kib_s = 2048\nwindow = \"22:00-06:30\"\nquota_gib = 40\nreserve_mib = 512\n";
    let images = good(text).images;
    assert_eq!(
        images.ca.as_deref(),
        Some(std::path::Path::new("/etc/ca.pem"))
    );
    assert_eq!(images.proxy.as_deref(), Some("proxy.example:3128"));
    assert_eq!(images.rate_kib_s, Some(2048));
    let hours = DailyWindow {
        from_minute: 22 * 60,
        to_minute: 6 * 60 + 30,
    };
    assert_eq!(images.window, Some(hours));
    assert_eq!((images.quota_gib, images.reserve_mib), (Some(40), 512));
}

#[test]
fn mistakes_say_what_would_be_right() {
    for proxy in [
        "http://proxy.example",
        "https://proxy.example:1",
        "http://u@p:1",
        "http://p:0",
    ] {
        let text = format!("[images]\nproxy = \"{proxy}\"\n");
        let mistakes = parse(&format!("[box]\ndata = \"d\"\n{text}")).unwrap_err();
        assert_eq!(mistakes[0].key, "images.proxy", "{proxy}");
    }
    for window in ["22:00", "24:00-01:00", "1-2", "05:00-05:00", "05:60-06:00"] {
        let text = format!("[images]\nwindow = \"{window}\"\n");
        bad(&text, 2, "images.window", "22:00-06:00");
    }
    bad(
        "[images]\nquota_gib = 0\n",
        2,
        "images.quota_gib",
        "between",
    );
    bad("[images]\nreserve = 1\n", 2, "images.reserve", "unknown");
}

#[test]
fn images_that_are_written_ahead_name_nodes_or_a_share() {
    let text = "[[images.ahead]]\nimage = \"debian-12\"\nnodes = 3\n\
                [[images.ahead]]\nimage = \"debian-12\"\nshare = \"50%\"\n\
                resource_class = \"big\"\n";
    let ahead = good(text).images.ahead;
    let one = |nodes, class: Option<&str>| ImageAheadSettings {
        image: "debian-12".to_owned(),
        nodes,
        resource_class: class.map(str::to_owned),
    };
    assert_eq!(
        ahead,
        [
            one(ImageAheadNodes::Count(3), None),
            one(ImageAheadNodes::Percent(50), Some("big"))
        ]
    );
    assert_eq!(good("[images]\n").images.ahead, []);
}

#[test]
fn mistakes_in_images_ahead_say_what_would_be_right() {
    let ahead = |rest: &str| format!("[[images.ahead]]\n{rest}");
    for (rest, line, key, word) in [
        ("nodes = 3\n", 1, "image", "is missing"),
        ("image = \"a\"\n", 1, "nodes", "either nodes"),
        (
            "image = \"a\"\nnodes = 3\nshare = \"5%\"\n",
            3,
            "nodes",
            "either nodes",
        ),
        ("image = \"a\"\nnodes = 0\n", 3, "nodes", "between"),
        (
            "image = \"http://h/a\"\nnodes = 1\n",
            2,
            "image",
            "not a URL",
        ),
        ("image = \"a\"\nshare = \"0%\"\n", 3, "share", "\"100%\""),
        ("image = \"a\"\nshare = \"101%\"\n", 3, "share", "\"100%\""),
        ("image = \"a\"\nshare = \"50\"\n", 3, "share", "\"100%\""),
        (
            "image = \"a\"\nnodes = 1\n[[images.ahead]]\nimage = \"a\"\nnodes = 2\n",
            5,
            "image",
            "two sections",
        ),
    ] {
        bad(&ahead(rest), line, &format!("images.ahead.{key}"), word);
    }
    let many = ahead("image = \"a\"\nnodes = 1\n").repeat(17);
    let list = mistakes(&many);
    assert!(
        list.iter()
            .any(|(_, key, sentence)| key == "images.ahead" && sentence.contains("at most 16"))
    );
    bad("[images]\nahead = 1\n", 2, "images.ahead", "sections");
}
