//! Datastore answers that are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use calipam_assign::Release;
use calipam_testkit::memory::Fault;

use super::differs;
use crate::cluster::{Cluster, wants, wants_as};

/// Requests a second address for `host-a`. Loses the write of the block, or only the answer to this write.
fn one_more(fault: Fault, is_given: bool) {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/26", 30)]);
    cluster.addresses(&wants("host-a", 1));
    let mut writes = 0;
    cluster.store.set_fault(move || {
        writes += 1;
        if writes == 2 { fault } else { Fault::None }
    });
    let assigned = cluster
        .auto(&wants_as("host-a", 1, "h"))
        .map(|assigned| assigned.addresses().count());
    if is_given {
        assert_eq!(assigned.unwrap(), 1);
    } else {
        assert!(assigned.unwrap_err().error.is_unavailable());
    }
}

super::rows! { one_more:
    an_assignment_that_was_made_is_given_without_an_answer(Fault::AnswerLost, true);
    an_assignment_that_may_still_be_made_is_an_error(Fault::Lost, false);
}

#[test]
fn a_handle_that_cannot_be_written_is_not_tried_again() {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/26", 30)]);
    let given = cluster.addresses(&wants_as("host-a", 2, "h"));
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    // Only the write of the block succeeds, which comes first.
    cluster
        .store
        .set_fault(move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Fault::None,
            _ => Fault::Lost,
        });
    cluster.release(&[Release::any(given[0])]).unwrap();
    assert_eq!(writes.load(Ordering::Relaxed), 2);
}

#[test]
fn an_assignment_whose_answer_is_lost_is_found_again() {
    differs("The answer to the write of a block is lost");
    for lost in 0..6 {
        let cluster = Cluster::with_blocks(&[("10.0.0.0/26", 30)]);
        let mut writes = 0;
        cluster.store.set_fault(move || {
            writes += 1;
            if writes == lost + 1 {
                Fault::AnswerLost
            } else {
                Fault::None
            }
        });
        drop(cluster.auto(&wants_as("host-a", 1, "h")));
        cluster.store.set_fault(|| Fault::None);
        // DEL releases the address, if one was assigned.
        drop(cluster.release_handle("h"));
        assert!(
            cluster.blocks().iter().all(|block| block.is_empty()),
            "answer {lost} was lost"
        );
    }
}
