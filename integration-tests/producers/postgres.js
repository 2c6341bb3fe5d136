// Publishes each payload of standard input, a JSON array of texts, and prints the ids.
//
//     node postgres.js URL
const { readFileSync } = require("node:fs");
const { Client } = require("pg");

// docs: this function
async function publish(client, type, key, payload) {
  const { rows } = await client.query("SELECT twinbox.publish($1, $2, $3) AS id", [type, key, payload]);
  return rows[0].id;
}

// docs: end
async function main() {
  const client = new Client({ connectionString: process.argv[2] });
  await client.connect();
  await client.query("BEGIN");
  for (const payload of JSON.parse(readFileSync(0, "utf8"))) {
    console.log(await publish(client, "orders.placed", "order-7", payload));
  }
  await client.query("COMMIT");
  await client.end();
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
