//! Running two futures concurrently, on any executor.

use std::pin::pin;
use std::task::Poll;

pub(super) async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let mut done = (None, None);
    std::future::poll_fn(|context| {
        if done.0.is_none()
            && let Poll::Ready(given) = a.as_mut().poll(context)
        {
            done.0 = Some(given);
        }
        if done.1.is_none()
            && let Poll::Ready(given) = b.as_mut().poll(context)
        {
            done.1 = Some(given);
        }
        match std::mem::take(&mut done) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            unfinished => {
                done = unfinished;
                Poll::Pending
            }
        }
    })
    .await
}
