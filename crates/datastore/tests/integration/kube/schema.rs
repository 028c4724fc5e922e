//! Detection of schemas that have the field for the cooldown, on real API servers, in both API groups.

use std::time::{Duration, Instant};

use calipam_testkit::World;
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::KubeApiserver;
use serde_json::Value;

/// Time limit for the API server to publish a changed schema.
const PUBLISHED: Duration = Duration::from_secs(60);

/// Changes the definition of blocks to that of Calico 3.32 and earlier.
fn without_released_at(server: &KubeApiserver, flavour: Flavour) {
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipamblocks.{}",
        flavour.group()
    );
    loop {
        let response = server.request("GET", &path, "").unwrap();
        let mut definition: Value = serde_json::from_str(&response.body).unwrap();
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let attribute = &mut schema["properties"]["spec"]["properties"]["attributes"]["items"]["properties"];
        assert!(attribute.as_object_mut().unwrap().remove("releasedAt").is_some());
        match server.request("PUT", &path, &definition.to_string()).unwrap() {
            // The server's controllers also write to the definition, so the write can conflict.
            response if response.status == 409 => {}
            response => return assert_eq!(response.status, 200, "{}", response.body),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cooldown_needs_a_field_of_the_schema() {
    for flavour in [Flavour::Classic, Flavour::Native] {
        let world = World::kubernetes(flavour);
        let store = world.open().await;
        let becomes = async |wanted: bool| {
            let begin = Instant::now();
            while store.keeps_cooldown().await != wanted {
                assert!(begin.elapsed() < PUBLISHED, "{flavour:?}: it is not {wanted}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        becomes(true).await;
        without_released_at(world.server(), flavour);
        becomes(false).await;
    }
}
