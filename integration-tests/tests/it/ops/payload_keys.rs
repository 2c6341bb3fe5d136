//! `twinbox --payload-keys`: the tool reads what `AesGcm` has encrypted.
use crate::support::{
    cases::cases,
    codec::store_with,
    consumer::run_until,
    effects::{mail, plan},
    stores::{TestDb, World, effect},
    tool::Tool,
};
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use twinbox::{
    Consumer, Delivery, Dialect, Draft, Event, HandlerError, HandlerResult, Store, StoreOptions, Tx,
    codec::AesGcm, event_handler,
};

const OLD: &str = "2026-05 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEW: &str = "2026-11 Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

#[derive(Serialize, Deserialize, Event)]
#[event(type = "people.moved", version = 1, key = n)]
struct Moved {
    n: i64,
    name: String,
}

/// Whether the mistake of the deployment is mended.
type IsMended = Arc<AtomicBool>;

#[event_handler(consumer = "people.post")]
async fn post<DB: Dialect>(
    is_mended: &IsMended,
    tx: &mut Tx<'_, DB>,
    person: Delivery<Moved>,
) -> HandlerResult {
    if !is_mended.load(SeqCst) {
        return Err(HandlerError::reject("the post office is closed"));
    }
    assert!(["Ada", "Grace"].contains(&&*person.name), "{}", person.name);
    Ok(effect::<DB>(tx, person.n).await?)
}

fn store<DB: TestDb>(world: &World<DB>, keys: &str) -> Store<DB> {
    store_with(world, StoreOptions::new().codec(keys.parse::<AesGcm>().unwrap()))
}

/// Two messages of which the consumer has given up both. The second one has the newer key.
async fn given_up<DB: TestDb>(both: &str) -> World<DB> {
    let world = World::<DB>::new().await;
    for (n, keys) in [(1, OLD), (2, both)] {
        let store = store(&world, keys);
        let mut tx = store.begin().await.unwrap();
        let draft = Draft::of(&Moved { n, name: "Ada".to_owned() }).unwrap();
        store.outbox().publish_draft(&mut tx, draft.id(format!("moved-{n}"))).await.unwrap();
        tx.commit().await.unwrap();
    }
    let consumer = Consumer::new(store(&world, both), IsMended::default()).handler::<post>();
    run_until(consumer, async || world.rows("dead_letters").await == 2).await;
    world
}

async fn the_tool_shows_a_payload_to_those_who_have_its_key<DB: TestDb>() {
    let both = format!("{NEW}\n{OLD}\n");
    let (world, folder) = (given_up::<DB>(&both).await, tempfile::tempdir().unwrap());
    let (tool, file) = (Tool::of(&world), folder.path().join("keys"));
    let keys = ["--payload-keys", file.to_str().unwrap()];
    for show in [["messages", "show", "moved-1"], ["messages", "show", "moved-2"]] {
        let shown = tool.ok(&show).await;
        assert!(shown.contains("bytes of aes-256-gcm; --payload-keys") && !shown.contains("Ada"), "{shown}");
        std::fs::write(&file, &both).unwrap();
        let shown = tool.ok(&[&show[..], &keys].concat()).await;
        assert!(shown.contains("\"name\": \"Ada\"") && !shown.contains("header twinbox-codec"), "{shown}");
    }
    let shown = tool.ok(&[&["dead-letters", "show", "2", "-o", "json"][..], &keys].concat()).await;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["payload"]["name"], &shown["decrypted"]), (&"Ada".into(), &true.into()));

    std::fs::write(&file, NEW).unwrap();
    let ran = tool.run(&[&["messages", "show", "moved-1"][..], &keys].concat()).await;
    assert!(ran.out.contains("bytes of aes-256-gcm"), "{ran:?}");
    assert!(ran.err.contains("Message moved-1 stays encrypted") && ran.err.contains("2026-05"), "{ran:?}");
    std::fs::write(&file, "2026-11 hush").unwrap();
    let told = tool.ends(2, &[&["messages", "show", "moved-1"][..], &keys].concat()).await;
    assert!(told.contains("line 1 of the keys: the key") && !told.contains("hush"), "{told}");
}

/// And never readable in the database.
async fn a_payload_that_was_mended_in_a_file_is_stored_encrypted_again<DB: TestDb>() {
    let both = format!("{NEW}\n{OLD}\n");
    let (world, folder) = (given_up::<DB>(&both).await, tempfile::tempdir().unwrap());
    let (tool, path) = (Tool::of(&world), |name: &str| folder.path().join(name).to_str().unwrap().to_owned());
    let (keys, letters, sealed) = (path("keys"), path("letters"), path("sealed"));
    std::fs::write(&keys, &both).unwrap();
    tool.ok(&["dead-letters", "export", "--all", "--file", &sealed]).await;
    let told = tool.ends(2, &["dead-letters", "import", &sealed, "--yes"]).await;
    assert!(told.contains("export it decrypted, with --payload-keys"), "{told}");

    tool.ok(&["dead-letters", "export", "--all", "--file", &letters, "--payload-keys", &keys]).await;
    let mended = std::fs::read_to_string(&letters).unwrap().replace("Ada", "Grace");
    assert_eq!(mended.matches("Grace").count(), 2, "{mended}");
    std::fs::write(&letters, mended).unwrap();
    let told = tool.ends(2, &["dead-letters", "import", &letters, "--yes"]).await;
    assert!(told.contains("its payload was encrypted: give --payload-keys"), "{told}");
    assert_eq!(world.rows("dead_letters").await, 2);

    tool.ok(&["dead-letters", "import", &letters, "--yes", "--payload-keys", &keys]).await;
    let dead_letters = world.inbox("people.post").dead_letters(9).await.unwrap();
    assert_eq!(dead_letters.len(), 4);
    for dead_letter in &dead_letters {
        let message = &dead_letter.message;
        assert_eq!(message.header("twinbox-codec"), Some("aes-256-gcm"));
        assert!(!String::from_utf8_lossy(&message.payload).contains("name"), "{message:?}");
    }
    let is_mended = Arc::new(AtomicBool::new(true));
    let consumer = Consumer::new(store(&world, &both), is_mended).handler::<post>();
    run_until(consumer, async || world.effects().await == [1, 2]).await;

    let to_all = ["dead-letters", "import", &letters, "--to-all-consumers", "--yes", "--payload-keys", &keys];
    tool.ok(&to_all).await;
    let published = world.published("people.moved", 9).await.unwrap();
    assert_eq!(published.len(), 4);
    assert!(published.iter().all(|m| m.header("twinbox-codec").is_some()), "{published:?}");
}

/// With all that it is bound to.
async fn the_tool_shows_a_request_to_those_who_have_its_key<DB: TestDb>() {
    let (world, folder) = (World::<DB>::new().await, tempfile::tempdir().unwrap());
    let (tool, file) = (Tool::of(&world), folder.path().join("keys"));
    let request = mail("secret").method("PUT").header("x-note", "plain").key("ada");
    plan(&store(&world, NEW), request).await;
    let shown = tool.json(&["effects", "show", "1"]).await;
    assert_eq!((&shown["body"], &shown["codec"]), (&serde_json::Value::Null, &"aes-256-gcm".into()));
    std::fs::write(&file, NEW).unwrap();
    let with_keys = ["effects", "show", "1", "--payload-keys", file.to_str().unwrap()];
    let shown = tool.json(&with_keys).await;
    assert_eq!((&shown["body"]["text"], &shown["codec"]), (&"secret".into(), &serde_json::Value::Null));
}

cases! {
    all: [
        the_tool_shows_a_payload_to_those_who_have_its_key,
        a_payload_that_was_mended_in_a_file_is_stored_encrypted_again,
        the_tool_shows_a_request_to_those_who_have_its_key,
    ]
}
