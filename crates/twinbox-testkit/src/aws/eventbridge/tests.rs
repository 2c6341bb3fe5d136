use super::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Sends one call over a new connection. Returns the response.
async fn call(fake: &FakeEventBridge, operation: &str, body: &Value) -> String {
    let mut client = TcpStream::connect(fake.address()).await.unwrap();
    let body = body.to_string();
    let head = format!(
        "POST / HTTP/1.1\r\nX-Amz-Target: AWSEvents.{operation}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

fn events(entries: &[Value]) -> Value {
    json!({ "Entries": entries })
}

fn event(bus: &str, detail: &str) -> Value {
    json!({"EventBusName": bus, "Source": "shop", "DetailType": "orders.placed", "Detail": detail})
}

#[tokio::test]
async fn without_a_script_it_behaves_as_the_service_does() {
    let fake = FakeEventBridge::start("orders").await.unwrap();
    let arn = "arn:aws:events:us-east-1:123456789012:event-bus/orders";
    assert!(call(&fake, "DescribeEventBus", &json!({"Name": arn})).await.contains(r#""Name":"orders""#));
    let missing = call(&fake, "DescribeEventBus", &json!({"Name": "other"})).await;
    assert!(missing.starts_with("HTTP/1.1 400 ") && missing.contains("ResourceNotFoundException"));
    let sent = events(&[event("orders", "{}"), event("orders", "[]"), event("other", "{}")]);
    let answer = call(&fake, "PutEvents", &sent).await;
    assert!(answer.contains(r#""FailedEntryCount":1"#) && answer.contains("MalformedDetail"), "{answer}");
    assert_eq!(fake.taken(), [event("orders", "{}")]);
    assert!(call(&fake, "PutEvents", &events(&vec![Value::Null; 11])).await.contains("ValidationException"));
    assert!(call(&fake, "DeleteEventBus", &json!({})).await.contains("UnknownOperationException"));
    assert_eq!((fake.requests().len(), fake.describe_calls()), (2, 2));
    assert!(!fake.requests()[0].signed);
}

#[tokio::test]
async fn a_script_is_played_call_by_call() {
    let fake = FakeEventBridge::start("orders").await.unwrap();
    fake.answer_next([
        Answer::Entries(vec![None, Some("ThrottlingException")]),
        Answer::Throttle(Some(7)),
        Answer::Status(503),
        Answer::Error(400, "ExpiredTokenException"),
        Answer::Truncated,
        Answer::WrongCount,
        Answer::Malformed,
        Answer::Cut,
    ]);
    let sent = events(&[event("orders", "{}"), event("orders", "{}")]);
    let mut answers = Vec::new();
    for _ in 0..9 {
        answers.push(call(&fake, "PutEvents", &sent).await);
    }
    assert!(answers[0].contains(r#""FailedEntryCount":1"#) && answers[0].contains("EventId"));
    assert!(answers[1].contains("Retry-After: 7\r\n") && answers[1].contains("ThrottlingException"));
    assert!(answers[2].starts_with("HTTP/1.1 503 ") && answers[2].ends_with("\r\n\r\n"));
    assert!(answers[3].contains("ExpiredTokenException"));
    assert!(answers[4].contains("Entries") && !answers[4].ends_with('}'));
    assert_eq!(answers[5].matches("EventId").count(), 1);
    assert!(answers[6].contains("no JSON"));
    assert_eq!(answers[7], "");
    assert_eq!(answers[8].matches("EventId").count(), 2);
    fake.wait_for_requests(9).await;
    assert_eq!(fake.taken().len(), 1 + 2 + 2 + 2 + 2 + 2);
}
