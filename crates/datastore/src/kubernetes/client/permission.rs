//! Asks the API server for the user's permissions, before anything is read, watched or written.

use std::sync::Arc;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::KubeClient;
use crate::error::{Error, Failure, Permission, Result};
use crate::tasks;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
/// Maximum number of parallel reviews.
const IN_FLIGHT: usize = 8;
/// Maximum bytes of a review.
const MAX_REVIEW: usize = 1 << 20;

/// Checks permissions, and returns an error that names all missing ones.
///
/// # Errors
/// If a permission is missing, or the server cannot be asked. It is not an error if the server does not support or
/// allow reviews, since later requests reveal missing permissions.
pub(crate) async fn require(client: &Arc<KubeClient>, permissions: Vec<Permission>) -> Result<()> {
    let mut reviews = Vec::new();
    for permission in &permissions {
        let client = Arc::clone(client);
        let permission = permission.clone();
        reviews.push(async move { is_allowed(&client, &permission).await });
    }
    let allowed = match tasks::all(IN_FLIGHT, reviews).await {
        Ok(allowed) => allowed,
        Err(Failure::NotFound | Failure::PermissionDenied(_)) => return Ok(()),
        Err(failure) => return Err(client.error("the user's permissions", failure)),
    };

    let mut missing = Vec::new();
    for (permission, is_allowed) in permissions.into_iter().zip(allowed) {
        if !is_allowed {
            missing.push(permission);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    missing.sort();
    Err(Error::Permission {
        endpoint: client.server().to_owned(),
        user: user(client).await,
        missing,
    })
}

/// The user's name according to the API server; `None` if the server does not tell, as older versions do not.
async fn user(client: &KubeClient) -> Option<String> {
    let question = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = client.write(Method::POST, WHO_AM_I, &question).await.ok()?;
    let body = answer.whole(MAX_REVIEW).await.ok()?;
    let review: Value = serde_json::from_slice(&body).ok()?;
    let name = review.pointer("/status/userInfo/username")?.as_str()?;
    Some(name.to_owned())
}

/// Asks the server whether the user has a permission.
async fn is_allowed(client: &KubeClient, permission: &Permission) -> Result<bool, Failure> {
    #[derive(Deserialize)]
    struct Review {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        allowed: bool,
    }
    let Permission {
        group,
        resource,
        verb,
    } = permission;
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": verb}},
    });
    let answer = client
        .write(Method::POST, REVIEWS, &question)
        .await?
        .whole(MAX_REVIEW)
        .await?;
    let review: Review =
        serde_json::from_slice(&answer).map_err(|e| Failure::NotKubernetes(e.to_string()))?;
    Ok(review.status.allowed)
}
