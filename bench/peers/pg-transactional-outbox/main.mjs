// pg-transactional-outbox with its polling listener. `main.mjs fill COUNT` makes the tables and a backlog in
// DATABASE_URL, `main.mjs run` publishes it to NATS_URL until it is killed.
//
// Messages are `parallel`, each in a segment of its own: those of one segment go one by one. Its protection
// against messages that crash the process is off, as the package advises for an outbox. Batches of 100 are no
// faster: the listener's function locks rows that handlers need, and their messages wait for the next attempt.
import { connect, headers } from 'nats';
import pg from 'pg';
import {
  DatabaseSetupExporter,
  IsolationLevel,
  getDisabledLogger,
  initializePollingMessageListener,
} from 'pg-transactional-outbox';

const connectionString = process.env.DATABASE_URL;
const table = { schema: 'public', table: 'outbox', nextMessagesName: 'next_outbox_messages' };

const fill = async (count) => {
  const client = new pg.Client({ connectionString });
  await client.connect();
  const names = { outboxOrInbox: 'outbox', database: 'any', listenerRole: 'postgres', ...table };
  await client.query(DatabaseSetupExporter.createPollingScript(names, true));
  await client.query(
    `INSERT INTO outbox (id, aggregate_type, aggregate_id, message_type, segment, concurrency, payload)
    SELECT gen_random_uuid(), 'order', n, 'placed', n, 'parallel',
      jsonb_build_object('order_id', gen_random_uuid(), 'n', n, 'customer', 'c-123456',
        'note', repeat('x', 300),
        'lines', '[{"sku": "a", "qty": 1}, {"sku": "b", "qty": 2}]'::jsonb)
    FROM generate_series(1, $1::integer) AS n`,
    [count],
  );
  await client.query('VACUUM ANALYZE outbox');
  await client.end();
};

const run = async () => {
  const jetstream = (await connect({ servers: process.env.NATS_URL })).jetstream();
  const handle = async (message) => {
    const head = headers();
    head.set('Nats-Msg-Id', message.id);
    await jetstream.publish('bench.peer', JSON.stringify(message.payload), { headers: head });
  };
  const pool = new pg.Pool({ connectionString, max: 20 });
  initializePollingMessageListener(
    {
      outboxOrInbox: 'outbox',
      dbListenerConfig: { connectionString },
      settings: {
        dbSchema: table.schema,
        dbTable: table.table,
        nextMessagesFunctionName: table.nextMessagesName,
        nextMessagesBatchSize: 40,
        nextMessagesPollingIntervalInMs: 10,
        enableMaxAttemptsProtection: false,
        enablePoisonousMessageProtection: false,
      },
    },
    { handle },
    getDisabledLogger(),
    {
      messageProcessingDbClientStrategy: {
        getClient: () => pool.connect(),
        shutdown: () => pool.end(),
      },
      messageProcessingTransactionLevelStrategy: () => IsolationLevel.ReadCommitted,
    },
  );
};

const [command, count] = process.argv.slice(2);
await (command === 'fill' ? fill(count) : run());
