//! Cures that `check` prints, carried out by their commands on real servers: the findings that each names are gone
//! afterwards, and no others are new.

use calipam_testkit::cluster::Form;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::kube::{Kinds, Lease, lease};
use calipam_testkit::rounds;
use tempfile::TempDir;

use super::site::*;
use crate::cli::kube_cluster::connection;
use crate::cli::program::{Words, findings, items};

/// The number of faults in one state. In `cargo xtask soak`, states have fewer.
fn faults_of_a_state() -> usize {
    30 / rounds(1_usize)
}

/// A server that holds one state after the other.
enum Server {
    Etcd(Box<Etcd>),
    Kubernetes(Box<Lease>),
}

struct Place {
    server: Server,
    home: TempDir,
}

impl Runs for Place {
    fn home(&self) -> &Path {
        self.home.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command_in(self.home.path(), arguments);
        match &self.server {
            Server::Etcd(etcd) => command.env("ETCD_ENDPOINTS", etcd.endpoint()),
            // The command of a cure names its cluster itself.
            Server::Kubernetes(_) if arguments.contains(&"--kubeconfig") => &mut command,
            Server::Kubernetes(server) => command.args(connection(server).words()),
        };
        command
    }
}

/// A cure that `check` prints.
#[derive(Debug, PartialEq)]
struct Printed {
    command: String,
    effect: Value,
}

impl Printed {
    /// The cures with a command line of calipam. Those for the fewest findings come first, so that they are not left
    /// over by one that repairs everything.
    fn of(report: &Value) -> Vec<Self> {
        let of_causes = items(&report["causes"])
            .iter()
            .flat_map(|cause| items(&cause["cures"]));
        let all = of_causes
            .chain(items(&report["cures"]))
            .filter(|cure| cure["tried"] == json!(true));
        let mut cures: Vec<Self> = Vec::new();
        for cure in all {
            let command = cure["command"].as_str().unwrap().to_owned();
            if command.starts_with("calipam ") && cures.iter().all(|known| known.command != command) {
                cures.push(Self {
                    command,
                    effect: cure["effect"].clone(),
                });
            }
        }
        cures.sort_by_key(|cure| cure.effect["findings"].as_u64());
        cures
    }

    /// The words of the command line that carries it out.
    fn words(&self) -> Vec<String> {
        let mut words = self.command.words().split_off(1);
        let mut more: Vec<&str> = Vec::new();
        if words[0] == "rebuild" {
            more.push("--apply");
        }
        if words[0] != "configure" {
            more.extend(AT_ONCE);
        }
        if self.effect["endpointsOnly"] == json!(true) {
            more.push("--endpoints-only");
        }
        words.extend(more.into_iter().chain(["--yes", "-o", "json"]).map(str::to_owned));
        words
    }
}

type Findings = BTreeSet<String>;

impl Place {
    /// Checks the cluster. Lists findings as `code subject`, and the cures.
    fn check(&self) -> (Findings, Vec<Printed>) {
        let report = self.run_at_once(&["check", "-o", "json"], &[]).json();
        (findings(&report, &["code", "name"]), Printed::of(&report))
    }

    /// Carries out one cure after the other until none is left. Returns their number.
    fn carry_out_all(&self, name: &str) -> usize {
        let mut done: Vec<String> = Vec::new();
        let (mut before, mut cures) = self.check();
        while !cures.is_empty() {
            let cure = cures.remove(0);
            let words = cure.words();
            let run = self.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
            assert!(matches!(run.code, 0 | 1), "{name}: {run:?}");
            let (after, next) = self.check();

            let gone = before.difference(&after).count() as u64;
            let named = cure.effect["findings"].as_u64().unwrap();
            assert!(
                gone >= named && gone > 0,
                "{name}: {gone} findings are gone of {named}: {run:?}"
            );
            // A corrupt block hides other findings.
            let is_corrupt = |finding: &&String| finding.starts_with("corrupt-block ");
            let hid = before.difference(&after).any(|gone| is_corrupt(&gone));
            let new = after.difference(&before).filter(|_| !hid);
            let new = new.filter(|new| !is_announced(new, &run.json()));
            let (borrowed, new): (Vec<&String>, Vec<&String>) =
                new.partition(|new| new.starts_with("borrowed-under-strict-affinity "));
            assert!(new.is_empty(), "{name}: after {:?}: {new:?}", cure.command);
            let promised = cure.effect["borrowed"].as_u64().unwrap_or_default();
            assert_eq!(
                borrowed.len() as u64,
                promised,
                "{name}: after {:?}",
                cure.command
            );
            assert!(!next.contains(&cure), "{name}: it is printed again: {cure:?}");
            done.push(cure.command);
            (before, cures) = (after, next);
        }
        done.len()
    }
}

/// True for a difference between the two configurations in etcd, of which a plan of `configure` warns.
fn is_announced(finding: &str, plan: &Value) -> bool {
    let warnings = plan["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    finding == "configuration-mismatch default"
        && warnings
            .into_iter()
            .any(|warning| warning.contains("IPAMConfiguration resource `default` differs"))
}

/// Divides the faults of a form into states, each with pairs that differ from those of another seed.
fn states(form: Form) -> Vec<Vec<Fault>> {
    let (alone, mut together): (Vec<Fault>, Vec<Fault>) =
        Fault::all_in(form).partition(|fault| fault.stands_alone());
    let mut rng = Rng::new(64);
    for at in (1..together.len()).rev() {
        together.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let groups = together.chunks(faults_of_a_state()).map(|faults| {
        let mut faults = faults.to_vec();
        // Faults that depend on the whole cluster come last.
        faults.sort();
        faults
    });
    groups.chain(alone.into_iter().map(|fault| vec![fault])).collect()
}

/// Carries out the cures of each fault. `write` replaces the state of the server.
fn each_fault_is_cured(place: &Place, form: Form, write: impl Fn(&Cluster)) {
    let mut number = 0;
    for (seed, faults) in (0..).zip(states(form)) {
        let mut cluster = Cluster::plain(ClusterSpec::new(seed).at(Timestamp::now()), 3, 3);
        faults.iter().for_each(|fault| cluster.inject(*fault, 1));
        write(&cluster);
        number += place.carry_out_all(&format!("{faults:?}"));
    }
    assert!(number > 20, "{number}");
}

#[test]
fn the_cures_of_each_fault_keep_their_promises_on_etcd() {
    let place = Place {
        server: Server::Etcd(Box::new(Etcd::start().unwrap())),
        home: tempfile::tempdir().unwrap(),
    };
    let Server::Etcd(etcd) = &place.server else {
        unreachable!()
    };
    each_fault_is_cured(&place, Form::Etcd, |cluster| {
        etcd.delete_below("/calico/").unwrap();
        cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    });
}

#[test]
fn the_cures_of_each_fault_keep_their_promises_on_kubernetes() {
    let server = lease(Kinds::CalicoAndKubevirt(Flavour::Native)).unwrap();
    let place = Place {
        server: Server::Kubernetes(Box::new(server)),
        home: tempfile::tempdir().unwrap(),
    };
    let Server::Kubernetes(server) = &place.server else {
        unreachable!()
    };
    let empty = server.etcd().entries_below("/registry/").unwrap();
    each_fault_is_cured(&place, Form::Native, |cluster| {
        let now = server.etcd().entries_below("/registry/").unwrap();
        for key in now.keys().filter(|key| !empty.contains_key(*key)) {
            server.etcd().delete(key).unwrap();
        }
        cluster.write_to_etcd_of(server, Flavour::Native, |_| ()).unwrap();
    });
}
