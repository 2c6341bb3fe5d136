//! What the programs hold in memory: every field that can grow, and what bounds it.
use super::{files::texts, modules::is_test};
use std::collections::BTreeSet;
use syn::{
    Item, Type,
    visit_mut::{self, VisitMut},
};

/// Types whose values grow.
const COLLECTIONS: [&str; 6] = ["BTreeMap", "BTreeSet", "DashMap", "HashMap", "HashSet", "VecDeque"];
/// Packages whose code ends soon, or is for tests.
const LEFT_OUT: [&str; 3] = ["twinbox-cli", "twinbox-macros", "twinbox-testkit"];
/// A model that tests compare with.
const MODEL: &str = "crates/twinbox-log/src/parking/model";

/// Each field with its bound. A name in backticks is one of the code.
const BOUNDS: [(&str, &str); 64] = [
    ("twinbox-aws/QueueSource.buffered", "the messages that were requested: `requested`"),
    ("twinbox-aws/SqsOptions.queues", "the configuration"),
    ("twinbox-console/Open.forms", "`OPEN_MAX`"),
    ("twinbox-console/Proxy.addresses", "the configuration"),
    ("twinbox-console/Proxy.operators", "the configuration"),
    ("twinbox-console/Samples.0", "`READERS_MAX` readers with `KEPT` samples"),
    ("twinbox-console/Sessions.0", "`SESSIONS_MAX`"),
    ("twinbox-console/Throttle.0", "`ADDRESSES_MAX`"),
    ("twinbox-console/Tokens.0", "the file of tokens"),
    ("twinbox-consumer/ConsumerStats.lag", "the partitions of the stream"),
    ("twinbox-consumer/InPlace.failures", "the messages that are open in a partition: `WINDOW_MAX`"),
    ("twinbox-consumer/Leases.cooldowns", "the partitions of the stream"),
    ("twinbox-consumer/Leases.partitions", "the partitions of the stream"),
    ("twinbox-consumer/LostSessions.0", "`MESSAGES_MAX`"),
    ("twinbox-consumer/Partition.in_flight", "`WINDOW_MAX`, and the parked messages of `TAKEN_MAX`"),
    ("twinbox-consumer/Runtime.permits", "the handlers of the code"),
    ("twinbox-consumer/Starts.running", "the deliveries in flight: `AHEAD`"),
    ("twinbox-consumer/Starts.unwritten", "the deliveries in flight: `AHEAD`"),
    ("twinbox-core/AsyncApi.messages", "the events of the code"),
    ("twinbox-core/AsyncApi.operations", "the events of the code"),
    ("twinbox-core/BoundedLabel.known", "its `max`"),
    ("twinbox-core/Lane.waiting", "the messages of all lanes: `BUFFERED_MAX`"),
    ("twinbox-core/Lanes.lanes", "`BUFFERED_MAX`"),
    ("twinbox-core/Lanes.parked", "the keys of parked messages: `PARKED_MAX`"),
    ("twinbox-core/Lanes.ready", "`BUFFERED_MAX`"),
    ("twinbox-core/Lanes.retries", "`BUFFERED_MAX`"),
    ("twinbox-core/Manifest.consumers", "the handlers of the code"),
    ("twinbox-core/Marks.marks", "`READ_AHEAD_MAX`"),
    ("twinbox-core/Origins.later", "the messages of one key in flight"),
    ("twinbox-effects/Guard.breakers", "`OPERATIONS_MAX`"),
    ("twinbox-effects/Lane.ready", "the lane's `BYTES_MAX`"),
    ("twinbox-http/Turns.0", "the requests in flight"),
    ("twinbox-log/Driver.in_flight", "the concurrency of the handlers"),
    ("twinbox-log/KeeperReport.rows", "the tables"),
    ("twinbox-log/Look.replays", "the replays that run"),
    ("twinbox-log/Page.parked", "`PAGE_MAX`"),
    ("twinbox-log/Parking.settled", "rows of one owner before this one: `PARKED_MAX`"),
    ("twinbox-log/Parking.taken", "`TAKEN_MAX`"),
    ("twinbox-log/Want.taken", "`TAKEN_MAX`"),
    ("twinbox-nats/Batch.unanswered", "the messages of a batch in flight"),
    ("twinbox-nats/DeniedSubjects.subjects", "`SUBJECTS_MAX`"),
    ("twinbox-nats/Keys.0", "the messages in flight of a relay"),
    ("twinbox-nats/KeysGuard.0", "the same, locked"),
    ("twinbox-nats/Queue.items", "the messages in flight of a relay"),
    ("twinbox-nats/Results.taken", "the messages in flight of a relay"),
    ("twinbox-nats/StreamReader.unsettled", "the messages that are open in a partition: `WINDOW_MAX`"),
    ("twinbox-nats/Task.entries", "the subscriptions: one for each consumer and partition"),
    ("twinbox-relay/Broken.0", "the destinations of the configuration"),
    ("twinbox-relay/Config.databases", "the configuration"),
    ("twinbox-relay/Config.destinations", "the configuration"),
    ("twinbox-relay/Config.retry", "the configuration"),
    ("twinbox-relay/Config.schemas", "the configuration"),
    ("twinbox-relay/Config.vendors", "the configuration"),
    ("twinbox-relay/InFlightLimit.history", "`HORIZON` in steps of `HISTORY_INTERVAL`"),
    ("twinbox-relay/OtlpRecorder.descriptions", "the metrics of the code"),
    ("twinbox-relay/Pools.others", "the databases of the configuration"),
    ("twinbox-relay/StormGuard.types", "`TYPES_MAX`"),
    ("twinbox-relay/TypeFaults.logged", "`TYPES_MAX`"),
    ("twinbox-relay/TypeFaults.without_home", "`TYPES_MAX`"),
    ("twinbox-sql/Counts.same", "the events that one handler publishes"),
    ("twinbox-sql/PERMITS", "the database files of the process"),
    ("twinbox-sql/Shared.state", "the types that packages keep with a store"),
    ("twinbox-sql/Tokens.given", "`BYTES_MAX` of the row"),
    ("twinbox-sql/UnfinishedOperation.tokens", "`BYTES_MAX` of the row"),
];

/// Whether a type names a collection.
struct Finder(bool);

impl VisitMut for Finder {
    fn visit_path_segment_mut(&mut self, segment: &mut syn::PathSegment) {
        self.0 |= COLLECTIONS.iter().any(|name| segment.ident == *name);
        visit_mut::visit_path_segment_mut(self, segment);
    }
}

fn grows(of: &mut Type) -> bool {
    let mut finder = Finder(false);
    finder.visit_type_mut(of);
    finder.0
}

/// Fields such as `Sessions.0`, and statics, that are not of tests.
fn fields(items: Vec<Item>) -> Vec<String> {
    let mut found = Vec::new();
    for mut item in items.into_iter().filter(|item| !is_test(item)) {
        match &mut item {
            Item::Struct(item) => {
                for (n, field) in item.fields.iter_mut().enumerate() {
                    let name = field.ident.as_ref().map_or(n.to_string(), ToString::to_string);
                    found.extend(grows(&mut field.ty).then(|| format!("{}.{name}", item.ident)));
                }
            }
            Item::Static(item) => found.extend(grows(&mut item.ty).then(|| item.ident.to_string())),
            Item::Mod(item) => {
                let inside = item.content.take().map(|(_, items)| items);
                found.extend(fields(inside.unwrap_or_default()));
            }
            _ => {}
        }
    }
    found
}

/// The sources of packages that run, with the names of the packages.
fn sources() -> Vec<(String, String)> {
    let sources = texts().filter_map(|(name, code)| {
        let (package, file) = name.strip_prefix("crates/")?.split_once("/src/")?;
        let is_source = file.ends_with(".rs") && !file.ends_with("tests.rs") && !file.contains("tests/");
        let is_running = !LEFT_OUT.contains(&package) && !name.starts_with(MODEL);
        (is_source && is_running).then(|| (package.to_owned(), code))
    });
    sources.collect()
}

/// A new one is to be written down here, with what bounds it.
#[test]
fn every_collection_in_memory_has_a_known_bound() {
    let mut found = BTreeSet::new();
    for (package, code) in sources() {
        let items = syn::parse_file(&code).unwrap().items;
        found.extend(fields(items).into_iter().map(|field| format!("{package}/{field}")));
    }
    let listed = BTreeSet::from_iter(BOUNDS.iter().map(|(field, _)| (*field).to_owned()));
    let (new, gone) = (Vec::from_iter(found.difference(&listed)), Vec::from_iter(listed.difference(&found)));
    assert!(new.is_empty() && gone.is_empty(), "say what bounds {new:?}; {gone:?} do not exist any more");
    assert_eq!(listed.len(), BOUNDS.len(), "a field is listed twice");
}

#[test]
fn every_bound_of_a_collection_is_in_the_code() {
    let sources = sources();
    for (field, bound) in BOUNDS {
        assert!(!bound.is_empty(), "{field}");
        for name in bound.split('`').skip(1).step_by(2) {
            assert!(sources.iter().any(|(_, code)| code.contains(name)), "{field}: there is no {name}");
        }
    }
}

#[test]
fn collections_are_found() {
    let code = "
        struct A { a: u8, b: Mutex<HashMap<u8, u8>> }
        struct B(VecDeque<u8>);
        static C: Mutex<BTreeSet<u8>> = Mutex::new(BTreeSet::new());
        mod inside { pub struct D { d: std::collections::HashSet<u8> } }
        #[cfg(test)] mod tests { struct E { e: HashSet<u8> } }
        struct F { f: Vec<u8> }";
    assert_eq!(fields(syn::parse_file(code).unwrap().items), ["A.b", "B.0", "C", "D.d"]);
}
