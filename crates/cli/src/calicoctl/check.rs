//! The `ipam check` command, which prints calipam's findings in calicoctl's output format.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use calipam_check::views::{AddressOwner, CalicoctlView, calicoctl};
use calipam_check::{Code, Context, Finding, Report, Subject};
use calipam_model::snapshot::{Snapshot, Source};
use calipam_workflow::{CheckResult, check_and_confirm};

use super::args::CheckArgs;
use super::{Call, criteria};
use crate::console::Console;
use crate::exit::Result;
use crate::render::report::write_calicoctl;
use crate::render::text::{count, escape};
use crate::{hints, output_file};

/// The maximum number of nodes in the list of nodes with the most allocations.
const TOP: usize = 20;

/// The rules whose findings are counted in the output. As in calicoctl, the total number of problems does not include
/// missing handles.
const COUNTED: [Code; 7] = [
    Code::LeakedAddress,
    Code::InUseOutsidePools,
    Code::UnallocatedInUse,
    Code::OrphanHandle,
    Code::MissingHandle,
    Code::CorruptBlock,
    Code::UndecodableObject,
];

/// Checks the cluster, prints the result as calicoctl does, and writes calicoctl's report if a file is named.
pub(super) fn run(args: &CheckArgs, call: Call<'_>) -> Result<()> {
    let single_check = None;
    let no_evaluation = |_: Context<'_>, _: &Report| ();
    let (checked, ()) =
        call.with(async |access| check_and_confirm(access, &criteria(), single_check, no_evaluation).await)?;
    let CheckResult { report, snapshot, .. } = checked;

    let view = calicoctl(&snapshot, &report);
    let lines = Lines {
        view: &view,
        report: &report,
        lists_all: args.show_all_ips,
        lists_problems: args.show_problem_ips || args.show_all_ips,
    };
    call.print(&lines.text())?;

    if let Some(path) = &args.output
        && !path.as_os_str().is_empty()
    {
        output_file::write(path, |out| write_calicoctl(&view, &snapshot, out))?;
    }
    explain_differences(&snapshot, &report, call.console);
    // The program ends here: to free a large snapshot would only take time.
    std::mem::forget(snapshot);
    Ok(())
}

/// Prints on stderr how this check differs from calicoctl's.
fn explain_differences(snapshot: &Snapshot, report: &Report, console: &Console) {
    if !snapshot.has_read(Source::Services) {
        console.warn("services were not read: addresses recorded for services count as in use");
    }
    // These are no part of the number of problems, which is calicoctl's.
    let others = report
        .findings
        .iter()
        .filter(|finding| !COUNTED.contains(&finding.code))
        .count();
    if others > 0 {
        console.hint(&format!(
            "{} finds {} that calicoctl does not count",
            hints::command(&["check"]),
            count(others, "more problem", "more problems")
        ));
    }
}

/// Builds the lines for stdout.
struct Lines<'a> {
    view: &'a CalicoctlView,
    report: &'a Report,
    /// True with `--show-all-ips`: allocations and handles are listed.
    lists_all: bool,
    /// True with `--show-problem-ips`, or with `--show-all-ips`, which implies it: addresses with problems are listed.
    lists_problems: bool,
}

impl Lines<'_> {
    /// Formats the whole check, in calicoctl's order. The last line has the number of problems.
    fn text(&self) -> String {
        let mut out = String::from("Checking IPAM for inconsistencies...\n\n");
        self.list_blocks(&mut out);
        self.list_pools_and_users(&mut out);
        self.list_top_nodes(&mut out);
        let leaked = self.list_leaked(&mut out);
        let unrecorded = self.list_unrecorded(&mut out);
        let handles = self.list_handles(&mut out);
        let invalid = self.list_invalid_blocks(&mut out);
        let problems = leaked + unrecorded + handles + invalid;
        line(&mut out, &format!("Check complete; found {problems} problems."));
        out
    }

    /// Returns the subjects of the findings with this code.
    fn subjects_of(&self, code: Code) -> impl Iterator<Item = &Subject> {
        self.report
            .findings
            .iter()
            .filter(move |finding| finding.code == code)
            .map(|finding| &finding.subject)
    }

    /// Lists the blocks, and their allocations if all addresses are to be listed.
    fn list_blocks(&self, out: &mut String) {
        line(out, "Loading all IPAM blocks...");
        line(out, &format!("Found {} IPAM blocks.", self.view.blocks.len()));
        let mut number = 0;
        for block in &self.view.blocks {
            let owner = block
                .owner
                .as_ref()
                .map_or("<none>".to_owned(), ToString::to_string);
            line(out, &format!(" IPAM block {} affinity={owner}:", block.cidr));
            number += block.allocations.len();
            if self.lists_all {
                for allocation in &block.allocations {
                    let address = &allocation.address;
                    let attributes = &allocation.attributes;
                    line(out, &format!("  {address} allocated; attrs {attributes}"));
                }
            }
        }
        line(out, &format!("IPAM blocks record {number} allocations."));
        line(out, "");
    }

    /// Lists the pools, the tunnels, the services and the workloads with their addresses.
    fn list_pools_and_users(&self, out: &mut String) {
        let view = self.view;
        line(out, "Loading all IPAM pools...");
        for cidr in &view.pools {
            line(out, &format!("  {cidr}"));
        }
        line(out, &format!("Found {} active IP pools.", view.pools.len()));
        line(out, "");

        line(out, "Loading all nodes.");
        self.list_owners(&view.tunnels, out);
        line(out, &format!("Found {} node tunnel IPs.", view.tunnels.len()));
        line(out, "");

        line(out, "Loading all service load balancer IPs.");
        match view.services {
            None => {
                line(
                    out,
                    "No configuration for LoadBalancer kubecontroller found, skipping service check",
                );
            }
            Some(services) => {
                self.list_owners(&view.service_addresses, out);
                line(out, &format!("Found {services} service load balancer(s)."));
            }
        }
        line(out, "");

        line(out, "Loading all workload endpoints.");
        self.list_owners(&view.workloads, out);
        line(out, &format!("Found {} workload IPs.", view.workloads.len()));
        line(
            out,
            &format!("Workloads and nodes are using {} IPs.", view.in_use),
        );
        line(out, "");

        line(out, "Loading all handles");
    }

    /// Lists addresses with their owners on request.
    fn list_owners(&self, owners: &[AddressOwner], out: &mut String) {
        if self.lists_all {
            for AddressOwner { address, owner } in owners {
                line(out, &format!("  {address} belongs to {owner}"));
            }
        }
    }

    /// Lists the [`TOP`] nodes with the most allocations, and the median of all nodes.
    fn list_top_nodes(&self, out: &mut String) {
        let nodes = self.nodes_by_allocations();
        line(
            out,
            &format!("Looking for top (up to {TOP}) nodes by allocations..."),
        );
        for (node, number) in nodes.iter().take(TOP) {
            line(out, &format!("  {node} has {number} allocations"));
        }
        if let (Some((_, most)), Some((_, median))) = (nodes.first(), nodes.get(nodes.len() / 2)) {
            line(
                out,
                &format!("Node with most allocations has {most}; median is {median}"),
            );
        }
        line(out, "");
    }

    /// Returns the nodes with their numbers of allocations, the largest number first.
    fn nodes_by_allocations(&self) -> Vec<(&str, usize)> {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for allocation in self.view.blocks.iter().flat_map(|block| &block.allocations) {
            *numbers.entry(&allocation.node).or_default() += 1;
        }
        // The sort is stable, so nodes with the same number stay sorted by name.
        let mut nodes: Vec<(&str, usize)> = numbers.into_iter().collect();
        nodes.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
        nodes
    }

    /// Lists the records of leaked addresses if addresses with problems are to be listed, and returns the number of
    /// leaked addresses. The list is longer if overlapping blocks have records of the same address.
    fn list_leaked(&self, out: &mut String) -> usize {
        line(
            out,
            "Scanning for IPs that are allocated but not actually in use...",
        );
        if self.lists_problems {
            for allocation in self.view.blocks.iter().flat_map(|block| &block.allocations) {
                if allocation.in_use || allocation.cooling {
                    continue;
                }
                let address = &allocation.address;
                let attributes = &allocation.attributes;
                line(out, &format!("  {address} leaked; attrs {attributes}"));
            }
        }
        let number = self.subjects_of(Code::LeakedAddress).count();
        line(
            out,
            &format!("Found {number} IPs that are allocated in IPAM but not actually in use."),
        );
        number
    }

    /// Lists the addresses that are in use but not allocated, if addresses with problems are to be listed. Returns
    /// their number, in which addresses with several owners do not count.
    fn list_unrecorded(&self, out: &mut String) -> usize {
        line(
            out,
            "Scanning for IPs that are in use by a workload or node but not allocated in IPAM...",
        );
        if self.lists_problems {
            for subject in self.subjects_of(Code::DuplicateAddress) {
                line(out, &format!("  {subject} has multiple owners."));
            }
            let problem = "is not in any active IP pool";
            self.list_owners_of_findings(Code::InUseOutsidePools, problem, out);
            let problem = "and in active IPAM pool but has no IPAM allocation";
            self.list_owners_of_findings(Code::UnallocatedInUse, problem, out);
        }

        let outside = self.subjects_of(Code::InUseOutsidePools).count();
        let unallocated = self.subjects_of(Code::UnallocatedInUse).count();
        line(
            out,
            &format!("Found {outside} in-use IPs that are not in active IP pools."),
        );
        line(
            out,
            &format!(
                "Found {unallocated} in-use IPs that are in active IP pools but have no corresponding IPAM allocation."
            ),
        );
        line(out, "");
        outside + unallocated
    }

    /// Adds a line for each owner of each address that has a finding with this code. `problem` ends the line.
    fn list_owners_of_findings(&self, code: Code, problem: &str, out: &mut String) {
        let view = self.view;
        for subject in self.subjects_of(code) {
            let Subject::Address(address) = subject else {
                continue;
            };
            let owners = [&view.tunnels, &view.service_addresses, &view.workloads];
            for owner in owners.into_iter().flatten() {
                if owner.address == *address {
                    line(out, &format!("  {address} in use by {} {problem}.", owner.owner));
                }
            }
        }
    }

    /// Lists the orphan handles if all addresses, and the missing ones if those with problems are to be listed. Returns
    /// the number of orphan handles: calicoctl does not count missing ones as problems.
    fn list_handles(&self, out: &mut String) -> usize {
        line(out, "Scanning for IPAM handles with no matching IPs...");
        if self.lists_all {
            for handle in &self.view.leaked_handles {
                line(out, &format!("  {} doesn't have any active IPs.", handle.id));
            }
        }
        let orphans = self.view.leaked_handles.len();
        let matching = self.view.good_handles;
        line(
            out,
            &format!("Found {orphans} handles with no matching IPs (and {matching} handles with matches)."),
        );

        line(out, "Scanning for IPs with missing handle...");
        if self.lists_problems {
            for handle in self.subjects_of(Code::MissingHandle) {
                line(
                    out,
                    &format!("  {handle} is in use in a block but doesn't exist."),
                );
            }
        }
        let missing = self.subjects_of(Code::MissingHandle).count();
        line(
            out,
            &format!("Found {missing} handles mentioned in blocks with no matching handle resource."),
        );
        orphans
    }

    /// Lists the blocks that are corrupt or cannot be decoded, and returns their number.
    fn list_invalid_blocks(&self, out: &mut String) -> usize {
        line(out, "Validating IPAMBlock structures...");
        let mut number = 0;
        for finding in &self.report.findings {
            if !is_invalid_block(finding) {
                continue;
            }
            number += 1;
            let cidr = &finding.subject;
            let reason = finding.text();
            line(
                out,
                &format!("  IPAMBlock BlockKey(cidr={cidr}) is invalid: {reason}"),
            );
        }
        line(out, &format!("Found {number} invalid IPAMBlocks."));
        number
    }
}

/// True for the finding about a block that is corrupt or cannot be decoded.
fn is_invalid_block(finding: &Finding) -> bool {
    if !matches!(finding.code, Code::CorruptBlock | Code::UndecodableObject) {
        return false;
    }
    match &finding.subject {
        // An object that cannot be decoded is known only by its key, in etcd or in Kubernetes.
        Subject::Object(key) => key.contains("/assignment/") || key.starts_with("ipamblocks/"),
        _ => true,
    }
}

/// Adds a line. Escapes control characters, since names come from the datastore.
fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "{}", escape(text));
}
