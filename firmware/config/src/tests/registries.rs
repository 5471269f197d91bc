//! Tests of `[[registry]]`.

use super::*;

#[test]
fn a_registry_has_a_url_and_perhaps_a_login() {
    assert_eq!(good("").registries, []);
    let text = "[[registry]]\nurl = \"https://Registry.example:5000/\"\nuser = \"ann\"\n\
                password_file = \"/etc/pw\"\n[[registry]]\nurl = \"http://127.0.0.1:5001\"\n\
                [[registry]]\nurl = \"http://h:5002\"\nallow_plain_http = true\n\
                [[registry]]\nurl = \"http://[::1]:5003\"\n";
    let registry = |host: &str, is_plain: bool, login: Option<(&str, &str)>| RegistrySettings {
        host: host.to_owned(),
        is_plain,
        login: login.map(|(user, path)| (user.to_owned(), path.into())),
    };
    assert_eq!(
        good(text).registries,
        [
            registry("registry.example:5000", false, Some(("ann", "/etc/pw"))),
            registry("127.0.0.1:5001", true, None),
            registry("h:5002", true, None),
            registry("[::1]:5003", true, None),
        ]
    );
}

#[test]
fn mistakes_say_what_would_be_right() {
    for url in [
        "registry.example",
        "oci://registry.example",
        "https://ann:pw@registry.example",
        "https://registry.example/v2",
        "https://registry.example:0",
        "https://",
    ] {
        let text = format!("[[registry]]\nurl = \"{url}\"\n");
        bad(&text, 2, "registry.url", "https://HOST[:PORT]");
    }
    let plain = "[[registry]]\nurl = \"http://h.example\"\n";
    bad(plain, 2, "registry.url", "allow_plain_http = true");
    let half = "[[registry]]\nurl = \"https://h\"\nuser = \"ann\"\n";
    bad(half, 1, "registry.user", "belong together");
    let colon = "[[registry]]\nurl = \"https://h\"\nuser = \"a:b\"\npassword_file = \"/p\"\n";
    bad(colon, 3, "registry.user", "colon");
    bad("[[registry]]\n", 1, "registry.url", "is missing");
    let one = "[[registry]]\nurl = \"https://h\"\n";
    bad(&one.repeat(2), 4, "registry.url", "two sections");
}
