//! An API server as one process sees it. It replaces the connection of calipam's client. Objects are stored under their
//! paths. An object's version is the revision of its last write.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use calipam_datastore::settings::Timeouts;
use calipam_datastore::{Datastore, KubeClient};
use calipam_files::objects::Encoding;
use calipam_files::objects::kinds::by_plural;
use calipam_model::key::{Key, RESOURCE_PREFIX};
use calipam_model::parallel::lock;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::kube::Flavour;
use calipam_testkit::memory::MemoryStore;
use calipam_testkit::on_server;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use super::turn::Turn;
use super::{Event, Footprint, PATIENCE, Values, World, no_answer, timeless};

/// The prefix of all objects.
pub(crate) const ALL: &str = "/api";
pub(super) const CALICO: &str = "/apis/crd.projectcalico.org/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

struct Server {
    world: Arc<World>,
    actor: usize,
    /// The results of list requests of which the actor has received the first page.
    lists: Mutex<Vec<Values>>,
}

/// Opens the datastore for an actor's process.
pub fn open(world: &Arc<World>, actor: usize) -> Datastore {
    let server = Arc::new(Server {
        world: Arc::clone(world),
        actor,
        lists: Mutex::default(),
    });
    let answer = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move { server.answer(request).await }
    });
    let timeouts = Timeouts {
        connect: PATIENCE,
        request: PATIENCE,
    };
    Datastore::of_kubernetes(KubeClient::over(kube::Client::new(answer, "default"), timeouts))
}

/// The status and the body of a response.
type Answer = (StatusCode, Value);

impl Server {
    async fn answer(&self, request: Request<Body>) -> Result<Response<Full<Bytes>>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let body: Value = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&body)?
        };
        let path = head.uri.path().to_owned();
        let answered = match head.method {
            _ if path == REVIEWS => Ok((StatusCode::CREATED, json!({"status": {"allowed": true}}))),
            Method::GET => self.read(&path, head.uri.query().unwrap_or_default()).await,
            method => self.write(method, path, body).await,
        };
        let (status, value) = match answered {
            Ok(answer) => answer,
            Err(Event::PutOff) => failure(StatusCode::TOO_MANY_REQUESTS),
            Err(Event::Expire) => failure(StatusCode::GONE),
            Err(_) => return Err(no_answer().into()),
        };
        let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
        if status == StatusCode::TOO_MANY_REQUESTS {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        *response.status_mut() = status;
        Ok(response)
    }

    async fn read(&self, path: &str, query: &str) -> Result<Answer, Event> {
        // With a resource version, the server could answer from an older cache. calipam never allows that.
        if query.contains("resourceVersion") {
            return Ok(failure(StatusCode::BAD_REQUEST));
        }
        if !is_list(path) {
            self.turn("get", path, Footprint::default().read(path))
                .answered()
                .await?;
            return Ok(self.recorded(get(&self.world.data, path)));
        }
        let mut page = Page::of(query);
        let is_continued = page.list != NEWEST;
        // A later page is read at the revision of the first page.
        let footprint = if is_continued {
            Footprint::default()
        } else {
            Footprint::default().read_range(folder(path))
        };
        let mut turn = self.turn("list", path, footprint);
        turn.asked.is_continued = is_continued;
        turn.answered().await?;
        let mut lists = lock(&self.lists);
        let found = if is_continued {
            lists[page.list as usize].clone()
        } else {
            self.world.data.values(&folder(path))
        };
        self.recorded((StatusCode::OK, list(&found, &Page::default())));
        if let Some(most @ 1..) = self.world.page.get() {
            page.most = page.most.min(*most);
            if !is_continued {
                page.list = lists.len() as i64;
                lists.push(found.clone());
            }
        }
        Ok((StatusCode::OK, list(&found, &page)))
    }

    async fn write(&self, method: Method, path: String, body: Value) -> Result<Answer, Event> {
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let target = if method == Method::POST {
            format!("{path}/{name}")
        } else {
            path
        };
        let after = (method != Method::DELETE).then(|| body.to_string().into_bytes());
        let verb = method.as_str().to_lowercase();
        let turn = self.turn(&verb, &target, Footprint::default().write(target.clone()));
        let turn = turn.intends(&[(target.clone(), after)]);
        let answer = turn
            .executed(move |store| change(store, &method, &target, body.clone()))
            .await?;
        Ok(self.recorded(answer))
    }

    /// Creates a request, which the server may put off.
    fn turn(&self, verb: &str, path: &str, footprint: Footprint) -> Turn<'_> {
        let mut turn = self
            .world
            .turn(self.actor, format!("{verb} {}", short(path)), footprint);
        turn.asked.can_be_put_off = true;
        turn
    }

    /// Records an answer and returns it.
    fn recorded(&self, (status, value): Answer) -> Answer {
        let timeless = timeless(value.to_string().as_bytes());
        self.world.record_answer(self.actor, (status.as_u16(), timeless));
        (status, value)
    }
}

/// True for a path that lists all objects of a kind.
fn is_list(path: &str) -> bool {
    let rest = path
        .strip_prefix(CALICO)
        .or_else(|| path.strip_prefix("/api/v1"))
        .unwrap_or_default();
    !rest.trim_start_matches('/').contains('/')
}

/// The folder that contains the objects of a list.
fn folder(path: &str) -> String {
    match path {
        "/api/v1/pods" | "/api/v1/services" => path.replacen("/v1/", "/v1/namespaces/default/", 1) + "/",
        other => format!("{other}/"),
    }
}

fn failure(status: StatusCode) -> Answer {
    (
        status,
        json!({"kind": "Status", "message": status.to_string(), "code": status.as_u16()}),
    )
}

/// An object as the server returns it.
fn object((value, revision): (Vec<u8>, i64)) -> Value {
    let mut object: Value = serde_json::from_slice(&value).unwrap_or_default();
    object["metadata"]["resourceVersion"] = revision.to_string().into();
    object
}

fn get(store: &MemoryStore, path: &str) -> Answer {
    match store.value_at(path) {
        Some(stored) => (StatusCode::OK, object(stored)),
        None => failure(StatusCode::NOT_FOUND),
    }
}

/// The list number of the newest state, at which a first page is read, and also a later one if lists are not kept.
const NEWEST: i64 = -1;

/// The query of a list.
#[derive(Clone, Debug)]
struct Page {
    label: String,
    /// Maximum number of items.
    most: usize,
    /// The name of the first item.
    start: String,
    /// The number of the list that the page continues; [`NEWEST`] for none.
    list: i64,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            label: String::new(),
            most: usize::MAX,
            start: String::new(),
            list: NEWEST,
        }
    }
}

impl Page {
    fn of(query: &str) -> Self {
        let mut page = Self::default();
        for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
            match name {
                "labelSelector" => page.label = value.to_owned(),
                "limit" => page.most = value.parse().unwrap_or(usize::MAX),
                "continue" => {
                    let token = URL_SAFE_NO_PAD.decode(value).unwrap_or_default();
                    let token: Value = serde_json::from_slice(&token).unwrap_or_default();
                    page.start = token["start"].as_str().unwrap_or_default().to_owned();
                    page.list = token["rv"].as_i64().unwrap_or(NEWEST);
                }
                _ => {}
            }
        }
        page
    }
}

/// A page of a list.
fn list(found: &[(String, Vec<u8>, i64)], page: &Page) -> Value {
    let Page {
        label,
        most,
        start,
        list,
    } = page;
    let has_label = |object: &Value| label.is_empty() || !object["metadata"]["labels"][label].is_null();
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let objects = found
        .iter()
        .map(|(_, value, revision)| object((value.clone(), *revision)));
    let mut items: Vec<Value> = objects
        .filter(has_label)
        .filter(|object| name(object) >= *start)
        .collect();
    let mut metadata = json!({"resourceVersion": "1"});
    if let Some(next) = items.get(*most) {
        let token = json!({"v": "meta.k8s.io/v1", "rv": list, "start": name(next)}).to_string();
        metadata["continue"] = URL_SAFE_NO_PAD.encode(token).into();
        metadata["remainingItemCount"] = (items.len() - most).into();
        items.truncate(*most);
    }
    json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})
}

/// Creates, replaces or deletes an object if it matches the version and the UID in the request.
fn change(store: &MemoryStore, method: &Method, path: &str, mut body: Value) -> Answer {
    let found = store.value_at(path);
    let named = if *method == Method::DELETE {
        &body["preconditions"]
    } else {
        &body["metadata"]
    };
    if let Some((value, revision)) = &found {
        let stored: Value = serde_json::from_slice(value).unwrap_or_default();
        let is_other = |name: &str, now: &str| named[name].as_str().is_some_and(|named| named != now);
        let uid = stored["metadata"]["uid"].as_str().unwrap_or_default();
        if *method == Method::POST
            || is_other("resourceVersion", &revision.to_string())
            || is_other("uid", uid)
        {
            return failure(StatusCode::CONFLICT);
        }
    } else if *method != Method::POST {
        return failure(StatusCode::NOT_FOUND);
    }
    if *method == Method::DELETE {
        store.remove(path);
        return (StatusCode::OK, json!({"kind": "Status", "status": "Success"}));
    }

    let Some(metadata) = body["metadata"].as_object_mut() else {
        return failure(StatusCode::BAD_REQUEST);
    };
    metadata.remove("resourceVersion");
    let status = match *method {
        Method::POST => {
            // Makes the UID unique: the revision of this change belongs to no other object.
            let created = store.change_together(&[(path.to_owned(), None)]);
            metadata.insert("uid".into(), format!("{path}-{created}").into());
            StatusCode::CREATED
        }
        // A write that changes nothing leaves the object at its version.
        _ if found.is_some_and(|(value, _)| {
            serde_json::from_slice::<Value>(&value).is_ok_and(|now| now == body)
        }) =>
        {
            return get(store, path);
        }
        _ => StatusCode::OK,
    };
    store.put(path, body.to_string());
    (status, get(store, path).1)
}

/// Adds an object to a snapshot. Returns false if calipam does not read its kind.
pub(crate) fn decode(snapshot: &mut Snapshot, path: &str, value: &[u8], revision: i64) -> bool {
    let plural = path.rsplit('/').nth(1).unwrap_or_default();
    let Some(kind) = by_plural(plural) else {
        return false;
    };
    let object = object((value.to_vec(), revision)).to_string();
    kind.add(snapshot, object.as_bytes(), Encoding::Json);
    true
}

/// Replaces the values of the etcd datastore with objects, and adds pods, which also replace the endpoints.
pub(super) fn convert(store: &MemoryStore, pods: Vec<Value>) {
    let create = |path: &str, object| drop(change(store, &Method::POST, path, object));
    for (path, value, _) in store.values(super::ALL) {
        store.remove(&path);
        let Ok(Some(key)) = Key::parse(&path) else {
            continue;
        };
        if !matches!(key, Key::Endpoint { .. }) {
            // Two settings of the allocator have other names in objects.
            let text = String::from_utf8_lossy(&value).replace("\"strict_affinity\"", "\"strictAffinity\"");
            let text = text.replace("\"auto_allocate_blocks\"", "\"autoAllocateBlocks\"");
            let value = serde_json::from_str(&text).expect("values are JSON");
            let (path, object) = on_server(Flavour::Classic, &key, &value);
            create(&path, object);
        }
    }
    for pod in pods {
        create(
            &object_path(pod["metadata"]["name"].as_str().unwrap_or_default()),
            pod,
        );
    }
}

/// The path of a pod on an API server.
pub(crate) fn object_path(pod: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{pod}")
}

/// A path without the common prefixes.
pub(super) fn short(path: &str) -> &str {
    [
        "/calico/ipam/v2/",
        "assignment/",
        RESOURCE_PREFIX,
        CALICO,
        "/api/v1",
        "/",
    ]
    .into_iter()
    .fold(path, |path, prefix| path.strip_prefix(prefix).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_continues_after_its_page() {
        let stored = |name: &str| {
            let object = json!({"metadata": {"name": name}});
            (format!("/apis/{name}"), object.to_string().into_bytes(), 1)
        };
        let found = [stored("a5"), stored("b55"), stored("c8")];
        let names = |list: &Value| -> Vec<String> {
            let items = list["items"].as_array().unwrap();
            items
                .iter()
                .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let first = list(
            &found,
            &Page {
                most: 2,
                list: 7,
                ..Page::default()
            },
        );
        assert_eq!(
            (names(&first), &first["metadata"]["remainingItemCount"]),
            (vec!["a5".into(), "b55".into()], &json!(1))
        );
        let next = Page::of(&format!(
            "limit=2&continue={}",
            first["metadata"]["continue"].as_str().unwrap()
        ));
        assert_eq!((next.list, next.most), (7, 2));
        let last = list(&found, &next);
        assert_eq!(
            (names(&last), &last["metadata"]["continue"]),
            (vec!["c8".into()], &Value::Null)
        );
    }
}
