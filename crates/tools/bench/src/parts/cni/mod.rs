//! The CNI plugin compared with a raw client that sends the same requests. Both programs are in the folder of
//! `calipam`.

pub(super) mod large;

use std::thread;

use anyhow::Result;

use crate::bench::Bench;
use crate::cluster::{Cluster, POOL};
use crate::measured::Measured;
use crate::plugin::Plugin;

/// The node on which all calls run.
const NODE: &str = "a";
/// Number of calls that start at once.
const AT_ONCE: usize = 64;
/// Number of calls of which each starts when the one before it has ended.
const IN_A_ROW: usize = 50;
/// Number of such rows of each program.
const ROWS: usize = 5;
/// Number of calls whose memory is measured. They are not timed.
const FOR_MEMORY: usize = 20;
/// The variable with the path of a third program to measure, such as Calico's own plugin. Its name has to be
/// `calico-ipam`.
const OTHER: &str = "CALIPAM_BENCH_PLUGIN";

/// Each row's ratio is the plugin's time divided by that of the row's program.
pub(super) const TITLES: &str = "calls | <medians | wall | processor | peak memory | ratio";

/// Measures a number of calls.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let cluster = Cluster::of_nodes(bench.datastore, POOL, [NODE.to_owned()]);
    let mut programs = vec![
        ("plugin", bench.sibling("calico-ipam")),
        ("floor", bench.sibling("cni_floor")),
    ];
    programs.extend(std::env::var_os(OTHER).map(|program| ("other", program.into())));
    let plugin = |(name, program)| Ok((name, Plugin::new(program, &cluster, cluster.port()?, &[])?));
    let mut plugins = programs.into_iter().map(plugin).collect::<Result<Vec<_>>>()?;

    // The first ADD of a node claims a block. It is not measured, since the steady state is of interest.
    plugins[0].1.call("ADD", NODE, "warm")?;
    let mut samples = vec![[Vec::new(), Vec::new()]; plugins.len()];
    for number in 0..FOR_MEMORY + bench.number()? as usize {
        // The programs take turns, so that all run under the same conditions.
        for ((_, plugin), [adds, dels]) in plugins.iter_mut().zip(&mut samples) {
            plugin.reads_memory = number < FOR_MEMORY;
            for (command, calls) in [("ADD", adds), ("DEL", dels)] {
                thread::sleep(cluster.pause());
                calls.push(plugin.call(command, NODE, &format!("c{number}"))?);
            }
        }
    }
    for (place, command) in ["ADD", "DEL"].into_iter().enumerate() {
        let own = Measured::medians(&samples[0][place][FOR_MEMORY..]).seconds;
        for ((name, _), calls) in plugins.iter().zip(&samples) {
            let (for_memory, timed) = calls[place].split_at(FOR_MEMORY);
            let peak_mib = Measured::medians(for_memory).peak_mib;
            let Measured {
                seconds, processor, ..
            } = Measured::medians(timed);
            let wall = seconds * 1e3;
            let processor = processor * 1e3;
            let ratio = own / seconds;
            let cells = format!("{wall:.2} ms | {processor:.2} ms | {peak_mib:.1} MiB | {ratio:.2}");
            bench.row(0, &format!("{name} {command} | {cells}"));
        }
    }

    in_a_row(&plugins, bench)?;

    let mut own = 0.0;
    let at_once = plugins.iter().map(|(name, plugin)| (*name, plugin, "ADD"));
    let locked = (
        "floor that holds the node's lock as the plugin does",
        &plugins[1].1,
        "LOCKED",
    );
    for (name, plugin, add) in at_once.chain([locked]) {
        // The floor keeps its blocks, so its containers need names that differ by command.
        let container = |number| (NODE.to_owned(), format!("{}{number}", add.to_lowercase()));
        let calls: Vec<_> = (0..AT_ONCE).map(container).collect();
        let seconds = plugin.at_once(add, &calls)?;
        calls
            .iter()
            .try_for_each(|(_, container)| plugin.call("DEL", NODE, container).map(drop))?;
        own = if own == 0.0 { seconds } else { own };
        let wall = seconds * 1e3;
        let ratio = own / seconds;
        bench.row(
            0,
            &format!("{AT_ONCE} ADD at once, {name} | {wall:.1} ms | | | {ratio:.2}"),
        );
    }
    Ok(())
}

/// Measures ADDs without pauses between them. On Kubernetes, a list of the current state then waits for the API server's
/// cache.
fn in_a_row(plugins: &[(&str, Plugin)], bench: &mut Bench<'_>) -> Result<()> {
    let mut times = vec![Vec::new(); plugins.len()];
    for row in 0..ROWS {
        // The programs take turns, so that all run under the same conditions.
        for ((name, plugin), times) in plugins.iter().zip(&mut times) {
            let containers: Vec<String> = (0..IN_A_ROW)
                .map(|number| format!("{name}{row}-{number}"))
                .collect();
            let all = Measured::of(|| {
                containers
                    .iter()
                    .try_for_each(|container| plugin.call("ADD", NODE, container).map(drop))
            })?;
            times.push(all);
            for container in &containers {
                plugin.call("DEL", NODE, container)?;
            }
        }
    }

    let medians: Vec<f64> = times
        .iter()
        .map(|times| Measured::medians(times).seconds)
        .collect();
    for ((name, _), seconds) in plugins.iter().zip(&medians) {
        let each = seconds * 1e3 / IN_A_ROW as f64;
        let ratio = medians[0] / seconds;
        bench.row(
            0,
            &format!("{name} ADD, {IN_A_ROW} in a row | {each:.2} ms | | | {ratio:.2}"),
        );
    }
    Ok(())
}
