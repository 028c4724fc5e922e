//! Dead servers, missing records and files that cannot be created, which the plugin handles better than Calico's.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;

use calipam_model::key::Key;
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::Etcd;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::runtime::{Outcome, Runtime, addresses, wait};
use crate::world::World;

fn handle(id: &str) -> Key {
    Key::Handle(id.to_owned())
}

#[test]
fn a_dead_etcd_is_an_error_that_may_pass() {
    for command in ["ADD", "DEL", "CHECK"] {
        let runtime = Runtime::on_etcd("http://127.0.0.1:1,http://127.0.0.1:2").with("cniVersion", "1.0.0");
        let (code, text) = runtime.call(command, "c", "").error();
        assert!(
            code == 11 && text.contains("connection refused"),
            "{command}: {code} {text}"
        );
    }
}

#[test]
fn a_paused_etcd_is_an_error_that_may_pass() {
    let etcd = Etcd::start().unwrap();
    etcd.pause().unwrap();
    thread::scope(|scope| {
        for command in ["ADD", "DEL"] {
            let runtime = Runtime::on_etcd(&etcd.endpoint());
            scope.spawn(move || {
                let (code, text) = runtime.call(command, "c", "").error();
                assert!(
                    code == 11 && text.contains("no answer within 4 s"),
                    "{command}: {code} {text}"
                );
            });
        }
    });
    etcd.resume().unwrap();
}

#[test]
fn another_endpoint_is_used_if_one_does_not_answer() {
    let world = World::etcd();
    let frozen = Etcd::start().unwrap();
    frozen.pause().unwrap();
    for dead in ["http://127.0.0.1:1".to_owned(), frozen.endpoint()] {
        let runtime = Runtime::on_etcd(&format!("{dead},{}", world.keys().endpoint()));
        runtime.add_and_delete("c", "");
    }
    frozen.resume().unwrap();
    world.assert_empty();
}

/// A pool that no request can use makes STATUS fail with the words of ADD.
#[test]
fn status_knows_what_refuses_every_add() {
    let world = World::etcd();
    let status = |runtime: Runtime| runtime.with("cniVersion", "1.1.0").call("STATUS", "", "");
    let pool = |name: &str, spec: Value| world.create(&Key::Pool(name.into()), &json!({"spec": spec}));
    for (field, value) in [
        ("disabled", json!(true)),
        ("assignmentMode", json!("Manual")),
        ("allowedUses", json!(["Tunnel"])),
        ("nodeSelector", json!("rack == 'a'")),
        ("nodeSelector", json!("rack ==")),
        ("namespaceSelector", json!("team ==")),
        ("blockSize", json!(40)),
    ] {
        pool(
            "v4",
            json!({"cidr": "10.7.0.0/24", "blockSize": 28, field: value}),
        );
        let (code, text) = status(world.runtime()).error();
        let (_, of_add) = world.runtime().call("ADD", "c", "").error();
        assert_eq!(
            (code, text),
            (50, format!("node a gets no IPv4 addresses: {of_add}"))
        );
    }

    // Requests that name no pool all fail if the selector of one pool does not parse.
    pool("v4", json!({"cidr": "10.7.0.0/24", "blockSize": 28}));
    pool("other", json!({"cidr": "10.8.0.0/24", "nodeSelector": "rack =="}));
    assert_eq!(status(world.runtime()).error().0, 50);
    let by_name = |name: &str| world.runtime().with_ipam("ipv4_pools", json!([name]));
    status(by_name("v4")).success();
    assert_eq!(
        status(by_name("missing")).error(),
        (
            50,
            "error parsing pool \"missing\": invalid CIDR address: missing".into()
        )
    );
    world.delete(&Key::Pool("other".into()));

    // The pool serves pods in some namespaces.
    pool(
        "v4",
        json!({"cidr": "10.7.0.0/24", "blockSize": 28, "namespaceSelector": "team == 'a'"}),
    );
    status(world.runtime()).success();
    world.runtime().call("ADD", "c", "").error();
    let (_, missing) = status(world.runtime().with("nodename", "c")).error();
    assert_eq!(missing, "resource does not exist: Node(c) with error: <nil>");
}

#[test]
fn del_finds_a_borrowed_address_by_the_result_of_add() {
    let world = World::etcd();
    // Node b owns the block.
    world
        .runtime()
        .with("nodename", "b")
        .call("ADD", "other", "IP=10.7.0.1")
        .success();
    let runtime = world.runtime().with("cniVersion", "1.0.0");
    let result = runtime.call("ADD", "c1", "IP=10.7.0.2").success();
    world.delete(&handle("net.c1"));
    runtime.call_after("DEL", "c1", "", &result).success();
    assert_eq!(
        world.allocated(),
        [("10.7.0.1".to_owned(), "net.other".to_owned())]
    );
    // If a wrong result contains the address of another container, the address is kept.
    let wrong = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.7.0.1/32"}]});
    runtime.call_after("DEL", "c1", "", &wrong).success();
    assert_eq!(world.allocated().len(), 1);
}

/// Combines a block that contradicts itself or cannot be decoded with a handle that is sound, missing or undecodable.
/// DEL releases the container's addresses in other blocks, and no addresses of other containers.
#[test]
fn del_passes_over_objects_that_cannot_be_changed_safely() {
    for damage in [json!([0, 1]), json!("none")] {
        for state in ["sound", "missing", "undecodable"] {
            let world = World::etcd();
            let runtime = world
                .runtime()
                .with_ipam("assign_ipv6", "true")
                .with("cniVersion", "1.0.0");
            let result = runtime.call("ADD", "c1", "").success();
            runtime.call("ADD", "c2", "").success();
            let (key, mut block) = block_in(&world, "/assignment/ipv4/");
            block["unallocated"] = damage.clone();
            world.create(&key, &block);
            match state {
                "missing" => world.delete(&handle("net.c1")),
                "undecodable" => world.create(&handle("net.c1"), &json!({"block": 7})),
                _ => {}
            }

            let outcome = runtime.call_after("DEL", "c1", "", &result);
            outcome.success();
            assert!(outcome.stderr.contains(&key.named().to_string()), "{outcome:?}");
            runtime.call("DEL", "c1", "").success();

            assert_eq!(block_in(&world, "/assignment/ipv4/").1, block);
            let v6 = block_in(&world, "/assignment/ipv6/").1.to_string();
            assert!(!v6.contains("net.c1") && v6.contains("net.c2"), "{state}: {v6}");
        }
    }
}

#[test]
fn del_tidies_up_handles_in_any_state() {
    const POD: &str = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0";
    let world = World::etcd();
    let runtime = world.runtime();
    // An address whose handle is missing is freed.
    runtime.call("ADD", "c1", "").success();
    runtime.call("ADD", "c2", "").success();
    world.delete(&handle("net.c1"));
    runtime.call("DEL", "c1", "").success();
    let held = world.allocated();
    assert!(held.len() == 1 && held[0].1 == "net.c2", "{held:?}");
    runtime.call("DEL", "c2", "").success();
    world.assert_empty();

    // An undecodable handle of old plugins is left alone.
    runtime.call("ADD", "c1", "").success();
    world.create(&handle("ns.web-0"), &json!({"block": 7}));
    runtime.call("DEL", "c1", POD).success();
    world.delete(&handle("ns.web-0"));
    world.assert_empty();

    // A handle that counts too much is removed. A crash after the first of the two writes of an ADD leaves this handle.
    runtime.call("ADD", "c1", "").success();
    world.create(
        &handle("net.crashed"),
        &json!({"block": {"10.7.0.0/28": 1}, "deleted": false}),
    );
    runtime.call("DEL", "crashed", "").success();
    runtime.call("DEL", "c1", "").success();
    world.assert_empty();

    // The handle of old plugins is released too.
    runtime.call("ADD", "c1", "").success();
    let (key, mut block) = block_in(&world, "/assignment/");
    block["attributes"][0]["handle_id"] = "ns.web-0".into();
    world.create(&key, &block);
    world.create(
        &handle("ns.web-0"),
        &json!({"block": {block["cidr"].as_str().unwrap(): 1}}),
    );
    world.delete(&handle("net.c1"));
    runtime.call("DEL", "c1", POD).success();
    world.assert_empty();
}

/// The key and value of the only block with `part` in its key.
fn block_in(world: &World, part: &str) -> (Key, Value) {
    let entries = world.keys().entries().unwrap();
    let (key, (value, _)) = entries
        .iter()
        .find(|(key, _)| key.contains(part))
        .expect("a block");
    (
        Key::parse(key).unwrap().unwrap(),
        serde_json::from_slice(value).unwrap(),
    )
}

#[test]
fn a_family_that_fails_leaves_nothing_of_the_other() {
    let world = World::etcd();
    let small = |runtime: Runtime| {
        runtime
            .with_ipam("assign_ipv6", "true")
            .with_ipam("ipv6_pools", json!(["small"]))
    };
    world.put_pool("small", json!({"cidr": "fd00:8::/128", "blockSize": 128}));
    small(world.runtime()).call("ADD", "first", "").success();
    let (code, text) = small(world.runtime()).call("ADD", "second", "").error();
    let expected = "failed to request IPv6 addresses: Assigned 0 out of 1 requested IPv6 addresses";
    assert!(code == 999 && text.starts_with(expected), "{text}");
    // If the second family has no pool at all, the allocator fails. Calico's plugin would leave the IPv4 address
    // allocated.
    let none = world
        .runtime()
        .with_ipam("assign_ipv6", "true")
        .with_ipam("ipv6_pools", json!(["fd00:9::/64"]));
    assert_eq!(none.call("ADD", "third", "").error().0, 999);
    assert!(
        world.allocated().iter().all(|(_, handle)| handle == "net.first"),
        "{:?}",
        world.allocated()
    );
    small(world.runtime()).call("DEL", "first", "").success();
    world.assert_empty();
}

#[test]
fn without_a_lock_the_work_goes_on() {
    let world = World::etcd();
    let runtime = world.runtime();
    let file = runtime.folder().join("file");
    fs::write(&file, "").unwrap();
    let places = [file.join("ipam.lock"), runtime.folder().to_owned()];
    places.into_iter().fold(runtime, |runtime, place| {
        let runtime = runtime.with("ipam_lock_file", place.display().to_string());
        let outcome = runtime.call("ADD", "c", "");
        outcome.success();
        assert!(
            outcome.stderr.contains("continuing without the lock"),
            "{outcome:?}"
        );
        runtime.call("DEL", "c", "").success();
        runtime
    });
    world.assert_empty();
}

#[test]
fn the_lock_excludes_other_plugins() {
    let world = World::etcd();
    let runtime = world.runtime();
    let folder = runtime.folder().join("new/folder");
    let path = folder.join("ipam.lock");
    let runtime = runtime.with("ipam_lock_file", path.display().to_string());
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(&path).unwrap();
    lock.lock().unwrap();
    let mut waiting = runtime.start("ADD", "c", "", runtime.configuration.to_string().as_bytes());
    thread::sleep(std::time::Duration::from_millis(500));
    assert!(waiting.try_wait().unwrap().is_none() && world.allocated().is_empty());
    drop(lock);
    wait(waiting).success();
    // The plugin creates the folders, and the file with Calico's mode.
    fs::remove_dir_all(runtime.folder().join("new")).unwrap();
    runtime.call("DEL", "c", "").success();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_log_goes_to_stderr_and_to_a_file_and_never_to_stdout() {
    let world = World::etcd();
    let runtime = world.runtime();
    let outcome = runtime.call("ADD", "c", "");
    outcome.success();
    assert!(
        outcome.stderr.contains("[INFO]") && outcome.stderr.contains("assigned 10.7.0."),
        "{outcome:?}"
    );
    let quiet = world.runtime().with("log_level", "error").call("DEL", "c", "");
    assert_eq!(
        (quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()),
        (Some(0), "", "")
    );

    let path = runtime.folder().join("new/cni.log");
    let runtime = runtime.with("log_file_path", path.display().to_string());
    runtime.add_and_delete("c", "");
    let log = fs::read_to_string(&path).unwrap();
    assert!(
        log.contains("assigned 10.7.0.") && log.contains("released"),
        "{log}"
    );
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    // A log that cannot be written is not an error.
    runtime
        .with("log_file_path", "/proc/none/cni.log")
        .add_and_delete("c", "");
}

/// The last log line of a call, without the numbers.
fn last_line(call: &Outcome) -> String {
    let line = call
        .stderr
        .lines()
        .find(|line| line.contains(" milliseconds="))
        .expect("a last line");
    let (_, line) = line.split_once(": ").unwrap();
    let field = |field: &str| match field.split_once('=') {
        Some(("requests", "0")) | None => field.to_owned(),
        Some((name @ ("milliseconds" | "requests"), number)) => {
            assert!(number.parse::<u64>().is_ok(), "{line}");
            name.to_owned()
        }
        Some(_) => field.to_owned(),
    };
    line.split(' ').map(field).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_call_logs_its_subject_and_cost_at_its_end() {
    const POD: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0";
    let world = World::etcd();
    let runtime = world.runtime().with("cniVersion", "1.1.0");
    let about =
        |block: &str| format!(r#"container="c" pod="ns/web-0" node="a" block="{block}" milliseconds"#);

    let add = runtime.call("ADD", "c", POD);
    let block = block_in(&world, "/assignment/").1["cidr"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(last_line(&add), format!("ADD done {} requests", about(&block)));
    assert_eq!(
        last_line(&runtime.call("CHECK", "c", POD)),
        format!("CHECK done {} requests", about(""))
    );
    let taken = format!("{POD};IP={}", addresses(&add.success())[0]);
    assert_eq!(
        last_line(&runtime.call("ADD", "c", &taken)),
        format!("ADD failed {} requests", about(""))
    );
    assert_eq!(
        last_line(&runtime.call("DEL", "c", POD)),
        format!("DEL done {} requests", about(&block))
    );
    let dead = Runtime::on_etcd("http://127.0.0.1:1,http://127.0.0.1:2").call("ADD", "c", POD);
    assert_eq!(last_line(&dead), format!("ADD failed {} requests=0", about("")));

    let of_node = r#"container="" pod="" node="a" block="" milliseconds"#;
    assert_eq!(
        last_line(&runtime.call("STATUS", "", "")),
        format!("STATUS done {of_node} requests")
    );
    assert_eq!(
        last_line(&runtime.call("GC", "", "")),
        format!("GC failed {of_node} requests=0")
    );
    let runtime = runtime.with("cni.dev/valid-attachments", json!([]));
    assert_eq!(
        last_line(&runtime.call("GC", "", "")),
        format!("GC done {of_node} requests")
    );
}

/// A pipe without a reader, a folder or a link can be at the path of one of the plugin's files.
#[test]
fn unusual_files_next_to_the_lock_do_not_block() {
    let world = World::kubernetes(Flavour::Classic);
    let runtime = world.runtime().with("nodename", "").with("hostname", "a");
    let folder = runtime.folder().to_owned();
    let at = |name: &str| folder.join(name);
    fs::write(at("elsewhere"), "theirs").unwrap();
    fs::create_dir(at("cni")).unwrap();
    let runtime = runtime.with("nodename_file", at("nodename").display().to_string());
    let runtime = runtime.with("log_file_path", at("cni.log").display().to_string());

    for name in [
        "cni/ipam_upgraded",
        "calipam_labelled",
        "calipam_full_ipv4",
        "nodename",
        "cni.log",
    ] {
        for kind in ["pipe", "folder", "link to nothing", "link"] {
            fs::remove_file(at(name))
                .or_else(|_| fs::remove_dir(at(name)))
                .ok();
            match kind {
                "pipe" => mknodat(CWD, at(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
                "folder" => fs::create_dir(at(name)).unwrap(),
                "link" if name != "cni.log" => symlink(at("elsewhere"), at(name)).unwrap(),
                _ => symlink(at("nothing/there"), at(name)).unwrap(),
            }
            if name == "nodename" && kind == "link" {
                fs::remove_file(at(name)).unwrap();
            }
            runtime.add_and_delete("c", "");
        }
    }
    assert_eq!(fs::read_to_string(at("elsewhere")).unwrap(), "theirs");
    world.assert_empty();
}

/// Runtimes do not make such calls, but the calls must be harmless.
#[test]
fn calls_for_one_container_at_the_same_time_leave_nothing() {
    let world = World::etcd();
    let runtime = world
        .runtime()
        .with("cniVersion", "1.1.0")
        .with("cni.dev/valid-attachments", json!([]));
    let stdin = runtime.configuration.to_string();
    for _ in 0..3 {
        let commands = ["ADD", "DEL", "GC", "ADD", "ADD", "CHECK", "DEL", "GC", "ADD"];
        let running = commands.map(|command| (command, runtime.start(command, "c", "", stdin.as_bytes())));
        for (command, child) in running {
            let ended = wait(child);
            // CHECK may find no address.
            assert!(
                ended.code == Some(0) || command == "CHECK",
                "{command}: {ended:?}"
            );
        }
        let held = world.allocated();
        assert!(
            held.len() <= 4 && held.iter().all(|(_, handle)| handle == "net.c"),
            "{held:?}"
        );
        runtime.call("DEL", "c", "").success();
        world.assert_empty();
    }
}

#[test]
fn a_requested_address_has_the_prefix_of_a_single_address() {
    let world = World::etcd();
    let result = world.runtime().add_and_delete("c", "IP=fd00:7::5");
    assert_eq!(result["ips"][0]["address"], "fd00:7::5/128");
    assert_eq!(addresses(&result), ["fd00:7::5"]);
    world.assert_empty();
}

#[test]
fn prefixed_variables_override_the_configuration() {
    let world = World::etcd();
    let mut runtime = world.runtime();
    runtime
        .variables
        .insert("CALICO_ETCD_ENDPOINTS".into(), "http://127.0.0.1:1".into());
    assert_eq!(runtime.call("ADD", "c", "").error().0, 11);
    world.assert_empty();
}

/// Runtimes pass on their own variables, including those of proxies.
#[test]
fn a_proxy_that_is_not_used_is_not_an_error() {
    let world = World::kubernetes(Flavour::Classic);
    let mut runtime = world.runtime();
    for (name, value) in [
        ("HTTPS_PROXY", "http://u:hunter2@:1"),
        ("NO_PROXY", "10.0.0.0/8, ;,,:80,"),
    ] {
        runtime.variables.insert(name.into(), value.into());
    }
    runtime.add_and_delete("c", "");
    world.assert_empty();
}

#[test]
fn an_error_names_the_proxy_in_between() {
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
        clusters: [{name: c, cluster: {server: 'https://api.invalid:6443'}}]\n\
        contexts: [{name: a, context: {cluster: c, user: u}}]\n";
    let mut runtime = Runtime::new(&json!({"datastore_type": "kubernetes"}));
    let path = runtime.folder().join("kubeconfig");
    fs::write(&path, kubeconfig).unwrap();
    runtime.configuration["kubernetes"] = json!({"kubeconfig": path});
    let through = "https://api.invalid:6443 through the proxy http://127.0.0.1:1: ";
    for (proxy, code, expected) in [
        ("http://u:hunter2@127.0.0.1:1", 11, through),
        (
            "http://u:hunter2@",
            999,
            "cannot use HTTPS_PROXY: it is not the URL of a proxy",
        ),
    ] {
        runtime.variables.insert("HTTPS_PROXY".into(), proxy.into());
        let (found, text) = runtime.call("ADD", "c", "").error();
        assert!(found == code && text.contains(expected), "{found} {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
